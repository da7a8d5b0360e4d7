"""Times, FLOPs, memory and thresholds of strategies, against sums done here and against the book's."""

from __future__ import annotations

from math import inf, isnan
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ridgeline

if TYPE_CHECKING:
    from ridgeline.search.matmul_answer import ProductAnswer

V5P = {"peak": 4.59e14, "axis_bandwidth": 1.8e11}
"""As the Scaling Book has it: bf16 FLOP/s, and both links of an ICI axis. alpha is 2550."""

GATHER_OR_REDUCE = "A[B,D] @ W[D_X,F] -> C[B,F]"


def asked(notation: str, **arguments: object) -> ProductAnswer:
    product = ridgeline.matmul(notation, **arguments).product
    assert product is not None
    return product


def test_both_strategies_take_what_the_book_says() -> None:
    B, D, F, X = 4096, 8192, 32768, 4

    gather, reduce = asked(GATHER_OR_REDUCE, sizes={"B": B, "D": D, "F": F}, mesh={"X": X}, **V5P).approximate[:2]

    assert gather.time_s == pytest.approx(max(2 * B * D * F / 4.59e14, 2 * D * F / 1.8e11))
    assert reduce.time_s == pytest.approx(max(2 * B * D * F / (X * 4.59e14), 4 * B * F / 1.8e11))


def test_exact_collectives_of_a_ring_leave_out_a_devices_own_share() -> None:
    exact, book = (
        answer[0].communication_s
        for product in [asked(GATHER_OR_REDUCE, sizes="B=64,D=64,F=64", mesh="X=4", **V5P)]
        for answer in (product.strategies, product.approximate)
    )

    assert exact == pytest.approx(book * 3 / 4)


def test_on_a_line_half_the_links_carry_the_gather() -> None:
    ring, line = (
        asked(GATHER_OR_REDUCE, sizes="B=64,D=64,F=64", mesh="X=4", wiring=wiring, **V5P).textbook.communication_s
        for wiring in ("ring", "line")
    )

    assert line == pytest.approx(2 * ring)


def test_the_books_rules_are_alpha_and_twice_alpha() -> None:
    (rules,) = asked(GATHER_OR_REDUCE, sizes="B=4096,D=8192,F=32768", mesh="X=4", **V5P).rules

    assert rules.gather_from.value == pytest.approx(2550)
    assert rules.reduce_from.value == pytest.approx(5100)
    assert rules.reduce_up_to.value == pytest.approx(8192 / 2)
    assert rules.gather_over_scatter.value == pytest.approx(8192 / 4096)


def test_without_any_rate_the_ratio_of_bytes_is_still_known() -> None:
    product = asked("A[N,M_X] @ B[M,K]", sizes="N=1024,M=8192,K=2048")

    assert product.rules[0].gather_over_scatter.value == 4
    assert isnan(product.textbook.time_s)
    assert product.textbook.bound == "unknown"
    assert product.thresholds == ()


@pytest.mark.parametrize("size", [1024, 3000, 5000, 16384])
def test_the_fastest_strategy_changes_at_the_thresholds_and_nowhere_else(size: int) -> None:
    sizes = {"B": 4096, "D": 8192, "F": 32768}
    product = asked(GATHER_OR_REDUCE, sizes=sizes, mesh="X=4", **V5P)
    (change,) = [each for each in product.thresholds if each.dim == "D"]

    there = asked(GATHER_OR_REDUCE, sizes=sizes | {"D": size // 4 * 4}, mesh="X=4", **V5P)

    assert there.best.number == (change.below if size < change.size else change.above)


def test_at_a_large_batch_reducing_wins_from_twice_alpha_on() -> None:
    (change,) = asked(GATHER_OR_REDUCE, sizes="B=1048576,D=8192,F=32768", mesh="X=4", **V5P).thresholds

    # T_gather = 2BDF/C against T_reduce = 2 · 2BF · (3/4)/W on a ring of four.
    assert (change.dim, change.size) == ("D", pytest.approx(5100 * 3 / 4))


def test_a_strategy_says_from_which_size_it_waits_for_arithmetic() -> None:
    gather, reduce = asked(GATHER_OR_REDUCE, sizes="B=4096,D=8192,F=32768", mesh="X=4", **V5P).compute_bound_from[:2]

    assert gather["B"] == pytest.approx(2550 * 3 / 4)
    assert reduce["B"] == inf
    assert reduce["D"] == pytest.approx(4 * 5100 * 3 / 4)


def test_axes_that_split_nothing_repeat_the_work() -> None:
    B, D, F = 64, 128, 256

    product = asked("A[B_X,D_Y] @ W[D_Y,F]", sizes={"B": B, "D": D, "F": F}, mesh="X=4,Y=8,Z=4")

    assert product.flops == 2 * B * D * F
    assert product.textbook.flops == 2 * B * D * F / (4 * 8)
    assert product.textbook.redundancy_factor == 4
    assert product.textbook.total_flops == 4 * 2 * B * D * F


def test_an_elementwise_product_multiplies_once_for_each_element() -> None:
    product = asked("A[I_X,J] @ B[I_X,J] -> C[I_X,J]", sizes="I=8,J=16", mesh="X=4")

    assert (product.flops, product.textbook.strategy.communication) == (8 * 16, "none")


def test_a_mesh_smaller_than_the_slice_is_repeated_over_it() -> None:
    answer = ridgeline.matmul(GATHER_OR_REDUCE, sizes="B=64,D=64,F=64", mesh="X=4", on="v5e:4x4")

    assert answer.machine.copies == 4
    assert answer.arrays[0].replication_factor == 16
    assert "4 of 16 devices" in answer.notes[0]


def test_a_layout_counts_what_a_device_and_all_devices_hold() -> None:
    (array,) = ridgeline.matmul("A[I_XY,J]", sizes="I=128,J=2048", mesh="X=2,Y=8,Z=2", dtype="int8").arrays

    assert array.local_shape == (8, 2048)
    assert (array.device_bytes, array.total_bytes) == (16384, 524288)
    assert (array.num_shards, array.replication_factor) == (16, 2)


def test_memory_counts_the_operands_their_gathered_copies_and_the_result() -> None:
    gather, reduce = asked(GATHER_OR_REDUCE, sizes="B=8,D=16,F=32", mesh="X=4").strategies[:2]

    A, W, C = 2 * 8 * 16, 2 * 16 * 32, 2 * 8 * 32
    assert gather.peak_bytes == A + W / 4 + W + C
    assert reduce.peak_bytes == A + W / 4 + 2 * C


def test_collectives_count_the_bytes_of_each_ring_alone() -> None:
    product = asked("A[B_X,D_Y] @ W[D_X,F_Y] -> C[B_X,F_Y]", sizes="B=32,D=64,F=128", mesh="X=4,Y=8")

    gather_a, gather_w = product.textbook.steps
    assert gather_a.array_bytes == 2 * 32 * 64 / 4
    assert gather_w.array_bytes == 2 * 64 * 128 / 8


def test_an_axis_on_two_wires_of_the_torus_gathers_over_both() -> None:
    one, two = (
        asked("A[B_Y,D] @ W[D_X,F] -> C[B_Y,F]", sizes="B=64,D=64,F=65536", mesh=mesh, on="v5p:4x4x4")
        .textbook.steps[0]
        .time_s
        for mesh in ("X=4,Y=16", "X=16,Y=4")
    )

    V, W = 2 * 64 * 65536, 1e11
    assert one == pytest.approx(V * 3 / 4 / (2 * W))
    assert two == pytest.approx(V * 15 / 16 / (4 * W))


def test_a_small_gather_waits_for_its_hops() -> None:
    (step,) = asked(GATHER_OR_REDUCE, sizes="B=16,D=16,F=16", mesh="X=16", on="v5e:16x16").textbook.steps

    assert (step.bound, step.time_s) == ("latency", pytest.approx(8e-6))


def test_a_strategy_with_little_arithmetic_waits_for_memory() -> None:
    product = asked("A[B,D] @ W[D,F_X]", sizes="B=16,D=8192,F=32768", mesh="X=4", on="v5e:2x2")

    assert product.best.bound == "hbm"
    assert product.best.time_s == pytest.approx(2 * (16 * 8192 + 8192 * 8192 + 16 * 8192) / 8.19e11)


def test_across_slices_the_network_carries_the_sum() -> None:
    product = asked("A[B,D_X] @ W[D_X,F] -> C[B,F]", sizes="B=4096,D=8192,F=8192", mesh="X=2,Y=256", on="2*v5e:16x16")

    assert product.textbook.bound == "network"


def test_a_change_of_layout_is_costed_step_by_step() -> None:
    answer = ridgeline.matmul("A[I_XY,J] -> A[I_Y,J]", sizes="I=1024,J=4096", on="v5e:4x4")

    assert answer.communication == "collective_permute XY of A, all_gather X of A"
    assert answer.steps[1].time_s == pytest.approx(3 / 4 * (2 * 1024 * 4096 / 4) / 5e10)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"mesh": "X=3", "on": "v5e:4x4"}, "mesh does not match the slice"),
        ({"mesh": "X=32", "on": "v5e:4x4"}, "mesh does not match the slice"),
    ],
)
def test_a_mesh_that_does_not_match_the_slice_is_refused(arguments: dict[str, str], what: str) -> None:
    with pytest.raises(ridgeline.InputError) as refused:
        ridgeline.matmul("A[I_X,J]", sizes="I=96,J=4", **arguments)

    assert (refused.value.what, refused.value.where) == (what, "mesh=")


def test_every_known_number_shows_its_formula() -> None:
    answer = ridgeline.matmul(GATHER_OR_REDUCE, sizes="B=4096,D=8192,F=32768", mesh="X=4", on="v5p:2x2x1")

    told = {derivation.quantity: derivation for derivation in answer.derivations}
    assert answer.product is not None
    best = answer.product.best
    assert told[f"strategy {best.number}: overlapped"].value == best.time_s
    assert told["strategy 1: all_gather X of W"].value == pytest.approx(answer.product.textbook.steps[0].time_s)
    assert all(derivation.source and derivation.formula for derivation in answer.derivations)


@settings(max_examples=20)
@given(
    st.sampled_from([GATHER_OR_REDUCE, "A[B_X,D_Y] @ W[D_X,F_Y] -> C[B_X,F_Y]", "A[B,D_X] @ W[D_X,F_Y]"]),
    st.floats(1.1, 100),
)
def test_faster_wires_never_make_a_strategy_slower(notation: str, factor: float) -> None:
    asking = {"sizes": "B=256,D=512,F=1024", "mesh": "X=4,Y=8", "peak": 1e14, "hop": "1us"}

    slow = asked(notation, axis_bandwidth=1e11, **asking)
    fast = asked(notation, axis_bandwidth=1e11 * factor, **asking)

    for before, after in zip(slow.strategies, fast.strategies, strict=True):
        assert after.time_s <= before.time_s
        assert before.time_s <= before.summed_s


@pytest.mark.parametrize(
    ("on", "mesh", "axis"),
    [
        ("v5e:4x4", "X=4,Y=4", "x"),
        ("v5p:4x4x8", "X=4,Y=8,Z=4", "x"),
        ("tpu7x:4x4x4", "X=8,Y=16", "core,x"),
        ("h100:64", "X=8,Y=8", "nvlink"),
    ],
)
@pytest.mark.parametrize(
    ("notation", "kind"),
    [
        ("A[I_X,J] -> A[I,J]", "all_gather"),
        ("A[I,J]{U_X} -> A[I,J]", "all_reduce"),
        ("A[I,J]{U_X} -> A[I_X,J]", "reduce_scatter"),
    ],
)
def test_a_step_takes_as_long_as_the_collective_asked_by_itself(
    on: str, mesh: str, axis: str, notation: str, kind: str
) -> None:
    sizes = {"I": 4096, "J": 8192}

    (step,) = ridgeline.matmul(notation, sizes=sizes, mesh=mesh, on=on).steps

    assert step.step.kind == kind
    assert step.time_s == pytest.approx(ridgeline.collective(kind, bytes=2 * 4096 * 8192, axis=axis, on=on).time_s)


def test_the_figures_may_be_those_of_the_book() -> None:
    product = asked(GATHER_OR_REDUCE, sizes="B=4096,D=8192,F=32768", mesh="X=4", on="v5p:4x4x4", figures="scaling-book")

    assert product.rules[0].gather_from.value == pytest.approx(2550)


def test_an_argument_that_means_nothing_here_is_refused() -> None:
    with pytest.raises(ridgeline.InputError) as refused:
        ridgeline.matmul("A[I_X,J]", size={"I": 4})

    assert (refused.value.what, refused.value.where) == ("matmul has no size=", "size=")
