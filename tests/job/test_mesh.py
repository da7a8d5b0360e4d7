"""A pinned mesh: how it is written, and when it contradicts the slice or the batch."""

import pytest

from ridgeline.errors import InputError
from ridgeline.hardware.topology import parse_slice
from ridgeline.job.mesh import check_batch, check_mesh, parse_mesh, parse_pairs, parse_placement, pinned_degrees
from tests.messages import refusal


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
        ("fsdq", "did you mean fsdp?"),
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
        ("-4", "negative degree", "write -1, or leave the axis out"),
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


def test_a_single_slice_has_no_axis_across_slices() -> None:
    check_mesh({"dcn_dp": 1, "fsdp": 64}, parse_slice("v6e:8x8"), where="--mesh")

    with pytest.raises(InputError) as refused:
        check_mesh({"dcn_dp": 2, "fsdp": 64}, parse_slice("v6e:8x8"), where="--mesh")

    assert str(refused.value) == refusal(
        "v6e:8x8 is only one slice",
        where="--mesh",
        value="dcn_dp=2",
        expected="no degree across slices",
        fix="leave dcn_dp out, or plan for 2*v6e:8x8",
    )


def test_axes_may_be_written_in_capitals() -> None:
    assert parse_mesh({"FSDP": 64, "Tp": "2"}, where="--mesh") == {"fsdp": 64, "tp": 2}


def test_an_axis_given_in_two_spellings_is_refused() -> None:
    with pytest.raises(InputError) as refused:
        parse_mesh({"FSDP": 64, "fsdp": 2}, where="--mesh")

    assert str(refused.value) == refusal(
        "fsdp is given twice", where="--mesh", value="fsdp", expected="each axis once", fix="give fsdp once"
    )


def batch_refusal(global_batch: int, mesh: dict[str, int], *, gradient_accumulation: int) -> str:
    with pytest.raises(InputError) as refused:
        check_batch(
            global_batch,
            mesh,
            gradient_accumulation=gradient_accumulation,
            where="--global-batch",
            where_accumulation="--gradient-accumulation",
        )
    return str(refused.value)


def test_a_batch_must_share_out_over_what_splits_it() -> None:
    check_batch(
        256, {"fsdp": 32, "tp": 8}, gradient_accumulation=8, where="--global-batch", where_accumulation="--accumulation"
    )

    assert batch_refusal(100, {"fsdp": 32, "tp": 4}, gradient_accumulation=2) == refusal(
        "batch is not divisible",
        where="--global-batch",
        value="100",
        expected="a multiple of 32 sequences (fsdp=32)",
        fix="use 96 or 128, or lower a degree that splits the batch",
    )


@pytest.mark.parametrize(
    ("mesh", "micro_steps", "expected", "fix"),
    [
        ({}, 3, "a divisor of the sequences of a batch of 256", "use 2 or 4"),
        ({"fsdp": 32}, 3, "a divisor of the 8 sequences that fsdp=32 leaves of a batch of 256", "use 2 or 4"),
        ({"dp": 2, "fsdp": 32}, 9, "a divisor of the 4 sequences that dp=2 fsdp=32 leaves of a batch of 256", "use 4"),
    ],
)
def test_micro_steps_must_divide_what_the_mesh_leaves_of_the_batch(
    mesh: dict[str, int], micro_steps: int, expected: str, fix: str
) -> None:
    assert batch_refusal(256, mesh, gradient_accumulation=micro_steps) == refusal(
        "micro-steps do not divide the batch",
        where="--gradient-accumulation",
        value=str(micro_steps),
        expected=expected,
        fix=fix,
    )


def test_a_placement_names_physical_axes_of_the_slice() -> None:
    placement = {"FSDP": "x, y  z", "tp": "core", "dcn_dp": "dcn"}

    assert parse_placement(placement, parse_slice("2*tpu7x:4x4x4"), where=str) == {
        "fsdp": "x y z",
        "tp": "core",
        "dcn_dp": "dcn",
    }


@pytest.mark.parametrize(
    ("hardware", "placement", "message"),
    [
        (
            "v5p:4x4x8",
            {"tp": "core"},
            refusal(
                "unknown physical axis",
                where="plan.placement.tp",
                value="core",
                expected="axes of v5p:4x4x8: x, y, z",
                fix="use one of those, or leave tp to the planner",
            ),
        ),
        (
            "h100:64",
            {"tp": "nvlnk"},
            refusal(
                "unknown physical axis",
                where="plan.placement.tp",
                value="nvlnk",
                expected="axes of h100:64: nvlink, network",
                fix="did you mean nvlink?",
            ),
        ),
        (
            "v6e:1x1",
            {"tp": ""},
            refusal(
                "unknown physical axis",
                where="plan.placement.tp",
                value="(empty)",
                expected="axes of v6e:1x1: it has none",
                fix="use one of those, or leave tp to the planner",
            ),
        ),
        (
            "v6e:8x8",
            {"tensor": "x"},
            refusal(
                "unknown mesh axis",
                where="plan.placement.tensor",
                value="tensor",
                expected="dp, fsdp, fsdp_transpose, tp, tp_sequence, cp, ep, pp, dcn_dp, dcn_fsdp, dcn_pp",
                fix="did you mean tp?",
            ),
        ),
    ],
)
def test_a_placement_that_the_slice_does_not_have_is_refused(
    hardware: str, placement: dict[str, str], message: str
) -> None:
    with pytest.raises(InputError) as refused:
        parse_placement(placement, parse_slice(hardware), where=lambda axis: f"plan.placement.{axis}")

    assert str(refused.value) == message


def test_an_axis_left_to_the_planner_is_the_only_one_that_is_not_held() -> None:
    held = pinned_degrees(parse_mesh({"tp": 4, "fsdp": "-1"}, where="--mesh"))

    assert held == {"dp": 1, "fsdp_transpose": 1, "tp": 4, "tp_sequence": 1, "cp": 1, "ep": 1, "pp": 1}


def test_a_mesh_inside_the_slice_leaves_the_axes_across_slices_open() -> None:
    assert "dcn_dp" not in pinned_degrees({"fsdp": 256})
    assert pinned_degrees({"dcn_dp": 2}) == {"dcn_dp": 2, "dcn_fsdp": 1, "dcn_pp": 1}
