"""A pinned mesh: how it is written, and when it contradicts the slice or the batch."""

import pytest

from ridgeline.errors import InputError
from ridgeline.hardware.topology import parse_slice
from ridgeline.job.mesh import check_batch, check_mesh, parse_mesh, parse_pairs, pinned_degrees


def test_pairs_may_have_spaces_around_them() -> None:
    assert parse_pairs(" fsdp = 32, tp=4", where="--mesh", example="tp=4") == {"fsdp": "32", "tp": "4"}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("fsdp=32,tp", "item 2 is malformed: 'tp'"),
        ("fsdp:32", "item 1 is malformed: 'fsdp:32'"),
        ("fsdp=32,,tp=4", "item 2 is malformed: ''"),
        ("=4", "item 1 is malformed: '=4'"),
        ("", "item 1 is malformed: ''"),
        ("fsdp=2,tp=4,fsdp=8", "item 3 repeats 'fsdp'"),
    ],
)
def test_a_malformed_item_is_pointed_at(text: str, what: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_pairs(text, where="--mesh", example="fsdp=32,tp=4")

    assert str(refused.value) == (
        f"{what}\n  where:    --mesh\n  value:    {text or '(empty)'}\n"
        "  expected: name=value pairs joined by commas\n  fix:      write e.g. fsdp=32,tp=4"
    )


def test_a_mesh_comes_in_the_order_of_the_axes() -> None:
    assert list(parse_mesh({"pp": 2, "tp": "4", "dcn_dp": 2, "fsdp": 32}, where="plan.mesh")) == [
        "fsdp",
        "tp",
        "pp",
        "dcn_dp",
    ]


@pytest.mark.parametrize(
    ("axis", "fix"),
    [
        ("tensor", "did you mean tp?"),
        ("Data", "did you mean dp?"),
        ("fsdq", "did you mean fsdp, dcn_fsdp?"),
        ("zz", "use one of those"),
    ],
)
def test_an_unknown_axis_is_refused_with_the_one_that_was_meant(axis: str, fix: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_mesh({axis: 4}, where="--mesh")

    assert str(refused.value) == (
        f"unknown mesh axis\n  where:    --mesh\n  value:    {axis}\n"
        "  expected: dp, fsdp, fsdp_transpose, tp, tp_sequence, cp, ep, pp, dcn_dp, dcn_fsdp, dcn_pp\n"
        f"  fix:      {fix}"
    )


@pytest.mark.parametrize(
    ("degree", "what", "fix"),
    [
        ("0", "number too small", "write 1"),
        ("2.5", "not a whole number", "write 2"),
        ("-4", "negative number", "write e.g. 256, 4Mi or 15T"),
        ("nan", "not a finite number", "write e.g. 256, 4Mi or 15T"),
    ],
)
def test_a_degree_is_a_whole_number_from_one(degree: str, what: str, fix: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_mesh({"fsdp": degree}, where="--mesh")

    assert (refused.value.what, refused.value.where, refused.value.fix) == (what, "--mesh: fsdp", fix)


def test_a_mesh_that_fills_the_slice_or_has_an_axis_for_the_rest_is_accepted() -> None:
    check_mesh({"fsdp": 64, "tp": 2, "dcn_dp": 2}, parse_slice("2*tpu7x:4x4x4"), where="--mesh")
    check_mesh({"fsdp": -1, "tp": 4}, parse_slice("tpu7x:4x4x4"), where="--mesh")
    check_mesh({"fsdp": 128}, parse_slice("2*tpu7x:4x4x4"), where="--mesh")


def test_a_mesh_that_does_not_fill_the_devices_is_refused() -> None:
    with pytest.raises(InputError) as refused:
        check_mesh({"fsdp": 32, "tp": 3}, parse_slice("tpu7x:4x4x4"), where="--mesh")

    # 4 x 4 x 4 chips of two devices each.
    assert str(refused.value) == (
        "mesh does not fill the devices in one slice\n  where:    --mesh\n  value:    fsdp=32 tp=3, product 96\n"
        "  expected: 128: tpu7x:4x4x4 has 128 devices in one slice\n"
        "  fix:      choose degrees whose product is 128, or write -1 for an axis that takes the rest: fsdp=-1"
    )


def test_an_axis_across_slices_needs_that_many_slices() -> None:
    with pytest.raises(InputError) as refused:
        check_mesh({"dcn_dp": 4}, parse_slice("2*v5e:16x16"), where="--mesh")

    assert refused.value.expected == "2: 2*v5e:16x16 has 2 slices"


def test_a_batch_must_share_out_over_what_splits_it() -> None:
    check_batch(256, {"fsdp": 32, "tp": 8}, gradient_accumulation=8, where="--global-batch")

    with pytest.raises(InputError) as refused:
        check_batch(100, {"fsdp": 32, "tp": 4}, gradient_accumulation=2, where="--global-batch")

    assert str(refused.value) == (
        "batch is not divisible\n  where:    --global-batch\n  value:    100\n"
        "  expected: a multiple of 64 sequences (fsdp=32 × 2 micro-steps)\n"
        "  fix:      use 64 or 128, or lower a degree that splits the batch"
    )


def test_an_axis_left_to_the_planner_is_the_only_one_that_is_not_held() -> None:
    held = pinned_degrees(parse_mesh({"tp": 4, "fsdp": "-1"}, where="--mesh"))

    assert held == {"dp": 1, "fsdp_transpose": 1, "tp": 4, "tp_sequence": 1, "cp": 1, "ep": 1, "pp": 1}


def test_a_mesh_inside_the_slice_leaves_the_axes_across_slices_open() -> None:
    assert "dcn_dp" not in pinned_degrees({"fsdp": 256})
    assert pinned_degrees({"dcn_dp": 2}) == {"dcn_dp": 2, "dcn_fsdp": 1, "dcn_pp": 1}
