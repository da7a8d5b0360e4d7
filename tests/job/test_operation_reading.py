"""Questions about one operation: what may be left out, and what a malformed one is told."""

from __future__ import annotations

import pytest

import ridgeline
from tests.messages import refusal

MATMUL = {"B": 8, "D": 64, "F": 64}
ATTENTION = {"T": 8, "N": 8, "H": 64, "on": "v5e"}


def refused(kind: str = "matmul", **arguments: object) -> ridgeline.InputError:
    """What the question is told."""
    with pytest.raises(ridgeline.InputError) as error:
        ridgeline.roofline(kind, **arguments)
    return error.value


def test_rates_take_the_place_of_the_chip_s() -> None:
    answer = ridgeline.roofline("matmul", **MATMUL, on="v5e", peak="1e14", hbm_bandwidth="1TB/s")

    assert answer.peak_flops_per_s == 1e14
    assert answer.traffic[0].bytes_per_s == 1e12


def test_the_book_s_figures_can_be_asked_for() -> None:
    assert ridgeline.ridge(on="tpu_v5e", figures="scaling-book").bytes_per_s == 8.1e11
    assert ridgeline.ridge(on="v5e").bytes_per_s == 8.19e11


def test_outputs_follow_the_activations_and_arithmetic_too() -> None:
    answer = ridgeline.roofline("matmul", **MATMUL, on="v5e", weights_dtype="bf16", activations_dtype="int8")

    stored = answer.question.element_bytes
    assert (stored.weights, stored.activations, stored.outputs) == (2, 1, 1)
    assert answer.peak_flops_per_s == 394e12


def test_a_dtype_may_be_the_bytes_of_an_element() -> None:
    named, counted = (ridgeline.roofline("matmul", **MATMUL, on="v5e", weights_dtype=each) for each in ("int4", 0.5))

    assert named.traffic_bytes == counted.traffic_bytes


def test_an_example_of_a_batched_matmul_is_one_row_unless_it_is_said() -> None:
    assert ridgeline.roofline("batched-matmul", **MATMUL, on="v5e").question.sizes["T"] == 1


def test_attention_without_keys_is_of_one_sequence_to_itself() -> None:
    itself = ridgeline.roofline("attention", **ATTENTION)
    spelt_out = ridgeline.roofline("attention", **ATTENTION, B=1, S=8, K=8)

    assert (itself.flops, itself.traffic_bytes) == (spelt_out.flops, spelt_out.traffic_bytes)


def test_a_missing_size_is_named_with_the_shape_it_belongs_to() -> None:
    assert str(refused(B=8, D=64, on="v5e")) == refusal(
        "size F is missing",
        where="F=",
        value="(empty)",
        expected="every size of matmul: [B, D] @ [D, F]",
        fix="add F=, or vary it: sweep= F=1:8192",
    )


def test_a_contraction_that_does_not_divide_is_told_what_pads_it() -> None:
    assert str(refused(B=8, D=4097, F=64, on="v5e:4x4", axis="x")) == refusal(
        "4097 does not divide over 4 chips",
        where="D=",
        value="4097",
        expected="chips that share the contraction evenly",
        fix="pad D to 4100",
    )


@pytest.mark.parametrize(
    ("arguments", "what", "where"),
    [
        ({}, "size D is missing", "D="),
        ({"D": 8, "N": 8}, "matmul has no N=", "N="),
        ({"D": "many"}, "not a number", "D="),
        ({"D": 1.5}, "not a whole number", "D="),
        ({"D": 8, "dtype": "bf17"}, "unknown dtype", "dtype="),
        ({"D": 8, "dtype": 99}, "unknown dtype", "dtype="),
        ({"D": 8, "weights_from": "disk"}, "unknown weights from", "weights_from="),
        ({"D": 8, "compute_dtype": "f32"}, "v5e has no published f32 matmul rate", "compute_dtype="),
        ({"D": 8, "compute_dtype": 2}, "a rate belongs to a dtype", "compute_dtype="),
        ({"D": 8, "peak": 0}, "zero is no answer", "peak="),
        ({"D": 8, "on": None}, "no machine", "on="),
        ({"D": 8, "on": None, "peak": 1e12}, "no bandwidth of hbm", "hbm_bandwidth="),
        (
            {"D": 8, "on": "v6e", "weights_from": "vmem"},
            "the vmem bandwidth of v6e is not published",
            "vmem_bandwidth=",
        ),
        ({"D": 8, "on": "v5q"}, "unknown chip", "on="),
        ({"D": 8, "scatter": True}, "nothing is split", "scatter="),
        ({"D": 8, "chips": 2, "on": "v5e:4x4"}, "chips are counted where no axis is named", "chips="),
        ({"D": 8, "axis": "w", "on": "v5e:4x4"}, "unknown axis", "axis="),
        ({"D": 8, "axis": "x,x", "on": "v5e:4x4"}, "axis x is used twice", "axis="),
        ({"D": 8, "axis": "x,,y", "on": "v5e:4x4"}, "not an axis, at column 3", "axis="),
        ({"D": 8, "axis": "x"}, "axis x has no size", "axis="),
        ({"D": 8, "sweep": "B"}, "not a sweep", "sweep="),
        ({"D": 8, "sweep": "H=1:8"}, "matmul has no size H", "sweep="),
        ({"D": 8, "sweep": "B=8:1"}, "the sweep runs backwards", "sweep="),
        ({"D": 8, "chips": 2, "sweep": "D=1:8"}, "1 does not divide over 2 chips", "D="),
    ],
)
def test_what_is_wrong_is_said_where_it_was_written(arguments: dict[str, object], what: str, where: str) -> None:
    error = refused(**{"B": 8, "F": 64, "on": "v5e", **arguments})

    assert (error.what, error.where) == (what, where)


@pytest.mark.parametrize(
    ("kind", "arguments", "what"),
    [
        ("matmull", {}, "unknown operation"),
        ("attention", {**ATTENTION, "K": 3}, "key-value heads do not divide query heads"),
        ("expert_matmul", {**MATMUL, "E": 2, "k": 4, "on": "v5e"}, "more experts a row than there are"),
        ("work", {"flops": 1, "on": "v5e"}, "bytes is missing"),
        ("elementwise", {"B": 1, "D": 1, "reads": -1, "on": "v5e"}, "negative number"),
    ],
)
def test_sizes_that_contradict_each_other_are_refused(kind: str, arguments: dict[str, object], what: str) -> None:
    assert refused(kind, **arguments).what == what


@pytest.mark.parametrize(
    ("ask", "arguments", "what"),
    [
        (ridgeline.padding, {"shape": "10x"}, "not a shape"),
        (ridgeline.padding, {"shape": "10x10", "on": "h100"}, "h100 has no such unit"),
        (ridgeline.mxu, {"array": "1x2x3"}, "a matrix unit has two dimensions"),
        (ridgeline.mxu, {"on": "v5e", "lanes": 8}, "mxu has no lanes="),
        (ridgeline.vpu, {"on": "h100"}, "h100 has no such unit"),
        (ridgeline.vpu, {"lanes": 0}, "zero is no answer"),
        (ridgeline.critical_batch, {"on": "v5e", "D": 8}, "size F is missing"),
        (ridgeline.ridge, {"on": "v5e", "D": 8}, "ridge has no D="),
    ],
)
def test_questions_about_a_chip_are_refused_likewise(ask: object, arguments: dict[str, object], what: str) -> None:
    assert callable(ask)
    with pytest.raises(ridgeline.InputError) as error:
        ask(**arguments)

    assert error.value.what == what
