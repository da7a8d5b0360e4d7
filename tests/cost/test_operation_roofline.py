"""What bounds one operation: the book's worked examples, and laws that hold for every operation."""

from __future__ import annotations

from math import inf, isnan
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ridgeline

if TYPE_CHECKING:
    from ridgeline.cost.questions.roofline_answer import OperationRoofline

V5E = {"peak": 197e12, "hbm_bandwidth": 820e9}  # Scaling Book, ch. 1

SIZES = st.integers(1, 4096)
RATES = st.floats(1e9, 1e16)


def critical(answer: OperationRoofline, letter: str) -> tuple[float, float]:
    """By the rule and exactly."""
    size = next(size for size in answer.critical if size.letter == letter)
    return size.rule_size, size.exact_size


@pytest.mark.parametrize(
    ("dtypes", "rates", "rows"),
    [
        # Scaling Book, ch. 1: text, questions 1, 2 and 5
        ({}, V5E, 240),
        ({"dtype": "int8"}, {"peak": 394e12, "hbm_bandwidth": 810e9}, 243),
        ({"weights_dtype": "int8"}, V5E, 120),
        ({}, {"peak": 1979e12, "sparsity": 2, "hbm_bandwidth": 3.35e12}, 295),
    ],
)
def test_the_rule_for_small_batches_knows_storage_from_arithmetic(
    dtypes: dict[str, str], rates: dict[str, float], rows: int
) -> None:
    assert round(ridgeline.critical_batch(**dtypes, **rates).rule_size) == rows


def test_the_exact_crossover_counts_activations_too() -> None:
    # Scaling Book, ch. 2, question 4: int8[B, 4096] by int8[4096, 16384] on v5e; an integer scan gives 263, VMEM 12
    rates = {"peak": 394e12, "hbm_bandwidth": 8.1e11, "dtype": "int8"}

    from_hbm = ridgeline.critical_batch(D=4096, F=16384, **rates).exact_size
    from_vmem = ridgeline.critical_batch(D=4096, F=16384, weights_from="vmem", vmem_over_hbm=22, **rates).exact_size

    assert 262 < from_hbm < 263
    assert 11 < from_vmem < 12


def test_no_batch_is_enough_for_a_matrix_that_is_too_narrow() -> None:
    assert (
        ridgeline.critical_batch(D=512, F=512, weights_dtype="int8", peak=920e12, hbm_bandwidth=1.6e12).exact_size
        == inf
    )


def test_weights_that_stream_from_the_host_need_a_batch_of_peak_over_pcie() -> None:
    # Scaling Book, ch. 2, question 3: about 61,000
    answer = ridgeline.roofline(
        "matmul", B=64, D=8192, F=32768, peak=9.2e14, hbm_bandwidth=1.6e12, host_bandwidth=1.5e10, weights_from="host"
    )

    assert [each.resource for each in answer.traffic] == ["host", "hbm"]
    assert answer.bound == "host"
    assert critical(answer, "B") == (pytest.approx(61333, rel=1e-4), pytest.approx(61333, rel=1e-4))


@pytest.mark.parametrize("weights_from", ["hbm", "host"])
@pytest.mark.parametrize("activations_from", ["hbm", "host"])
def test_a_matmul_and_its_critical_batch_are_asked_with_one_answer(weights_from: str, activations_from: str) -> None:
    asked = {"D": 8192, "F": 32768, "on": "v5e", "weights_from": weights_from, "activations_from": activations_from}

    found = ridgeline.critical_batch(**asked)

    assert found.exact_size == critical(ridgeline.roofline("matmul", B=64, **asked), "B")[1]


def test_activations_lie_in_hbm_unless_it_is_said() -> None:
    found = ridgeline.critical_batch(D=8192, F=32768, on="v5e", weights_from="host")

    # 197 TFLOP/s over 16 GB/s of PCIe: only weights are on it, so that the rule is exact.
    assert found.exact_size == found.rule_size == pytest.approx(197e12 / 16e9, rel=1e-9)


def test_a_matrix_of_its_own_for_every_row_is_never_compute_bound() -> None:
    # Scaling Book, ch. 1, question 4: intensity 2 in int8, whatever the batch
    small, large = (
        ridgeline.roofline("batched_matmul", B=B, D=4096, F=4096, dtype="int8", on="v5e") for B in (1, 1 << 20)
    )

    assert small.intensity_flops_per_byte == pytest.approx(2, rel=1e-3)
    assert large.intensity_flops_per_byte == pytest.approx(small.intensity_flops_per_byte)
    assert isnan(critical(large, "B")[0])
    assert critical(large, "B")[1] == inf


def test_experts_need_a_batch_larger_by_how_few_of_them_a_row_visits() -> None:
    # Scaling Book, ch. 7, question 5: 240 · 16/2 = 1,920
    answer = ridgeline.roofline("expert_matmul", B=4096, E=16, k=2, D=4096, F=16384, peak=240e12, hbm_bandwidth=1e12)

    assert critical(answer, "B")[0] == 1920


@pytest.mark.parametrize(("heads", "length"), [(1, 480), (8, 270), (1 << 20, 240)])
def test_self_attention_is_compute_bound_from_a_length_that_grouping_halves(heads: int, length: int) -> None:
    # Scaling Book, ch. 4 and 7: ridge·(G + 1)/G, 480 for one query head a key-value head and 240 for many
    answer = ridgeline.roofline("attention", T=4096, N=heads, K=1, H=128, peak=240e12, hbm_bandwidth=1e12)

    assert critical(answer, "T")[1] == pytest.approx(length, rel=1e-3)


def test_decoding_is_bound_by_its_cache_with_an_intensity_of_the_grouping() -> None:
    # Scaling Book, ch. 4, question 4: S·G/(G + S)
    answer = ridgeline.roofline("attention", B=32, T=1, S=8192, N=32, K=8, H=128, on="v5e")

    assert answer.intensity_flops_per_byte == pytest.approx(8192 * 4 / (4 + 8192))
    assert answer.limit == "memory"
    assert critical(answer, "S")[1] == inf


def test_a_split_contraction_is_bound_by_its_width_not_by_its_rows() -> None:
    # Scaling Book, ch. 1, network rooflines: D > 8755 for two chips that exchange 45 GB/s each way
    few, many = (
        ridgeline.roofline("matmul", B=B, D=8192, F=4096, chips=2, link_bandwidth=45e9, **V5E) for B in (8, 1 << 16)
    )

    assert critical(few, "D")[1] == critical(many, "D")[1] == pytest.approx(8755.6, rel=1e-5)
    assert many.limit == "communication"
    assert many.flops == 1 << 16 << 13 << 12


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [("batched_matmul", {"B": 4, "T": 8}), ("expert_matmul", {"B": 16, "k": 2, "E": 4})],
)
def test_matrices_of_several_kinds_share_a_contraction_as_one_of_as_many_rows_does(
    kind: str, sizes: dict[str, int]
) -> None:
    asked = {"D": 8192, "F": 4096, "on": "v5e:4x4", "axis": "x"}

    several = ridgeline.roofline(kind, **sizes, **asked)
    one = ridgeline.roofline("matmul", B=32, **asked)

    assert several.flops == one.flops
    assert several.link == one.link
    assert critical(several, "D") == critical(one, "D")


def test_leaving_the_sum_scattered_halves_the_width_that_is_needed() -> None:
    summed, scattered = (
        ridgeline.roofline("matmul", B=8, D=8192, F=4096, on="v5p:4x4x4", axis="x", scatter=scatter)
        for scatter in (False, True)
    )

    assert critical(scattered, "D")[1] == pytest.approx(critical(summed, "D")[1] / 2)


def test_both_devices_of_a_chip_share_its_output_or_its_contraction() -> None:
    by_chip = ridgeline.roofline("matmul", B=64, D=4096, F=16384, on="tpu7x:4x4x4", axis="x")
    by_device = ridgeline.roofline("matmul", B=64, D=4096, F=16384, on="tpu7x:4x4x4", axis="x,core")

    assert by_chip.num_chips == by_device.num_chips == 4
    assert by_chip.compute_s == by_device.compute_s


def test_an_operation_on_a_unit_of_unknown_rate_has_a_bound_but_no_verdict() -> None:
    answer = ridgeline.roofline("dot", D=4096, on="v6e")

    assert answer.bound == "unknown"
    assert answer.lower_s == answer.transfer_s
    assert isnan(answer.upper_s)
    assert isnan(critical(answer, "D")[1])


def test_an_operation_without_arithmetic_waits_for_memory_whatever_its_size() -> None:
    answer = ridgeline.roofline("embedding", B=4096, D=4096, on="v5e")

    assert (answer.flops, answer.limit, answer.attained_flops_per_s) == (0, "memory", 0)
    assert answer.traffic_bytes == 2 * 2 * 4096 * 4096


def test_what_cannot_lie_in_vector_memory_is_said() -> None:
    fits, streams = (
        ridgeline.roofline("matmul", B=8, D=4096, F=F, on="v5e", weights_from="vmem", activations_from="vmem")
        for F in (4096, 65536)
    )

    assert not fits.notes
    assert "larger than it" in streams.notes[0]


def test_work_that_the_matrix_unit_pads_is_said() -> None:
    answer = ridgeline.roofline("matmul", B=8, D=100, F=300, on="v5e")

    assert answer.notes == ("The matrix unit pads D x F to 128 x 384: 39.0% of its work is for nothing.",)


def test_a_dtype_without_a_rate_is_multiplied_as_bf16_and_said() -> None:
    answer = ridgeline.roofline("matmul", B=8, D=128, F=128, on="v4", dtype="int8")

    assert answer.peak_flops_per_s == 275e12
    assert answer.notes == ("v4 has no rate of its own for int8: operands are multiplied as bf16.",)


def test_a_sweep_doubles_and_ends_where_it_was_told() -> None:
    answer = ridgeline.roofline("matmul", D=4096, F=16384, on="v5e", sweep="batch=3:100")

    assert [point.size for point in answer.sweep] == [3, 6, 12, 24, 48, 96, 100]
    assert answer.question.sizes["B"] == 100
    assert answer.sweep[-1].lower_s == answer.lower_s


def test_every_number_of_the_answer_has_a_derivation() -> None:
    answer = ridgeline.roofline("matmul", B=8, D=4096, F=4096, on="v5e:4x4", axis="x")

    derived = {derivation.value for derivation in answer.derivations}
    assert derived >= {answer.flops, answer.compute_s, answer.lower_s, answer.upper_s}
    assert derived >= {each.transfer_s for each in answer.traffic if each.resource != "link"}
    assert all(derivation.formula and derivation.source for derivation in answer.derivations)


@given(B=SIZES, D=SIZES, F=SIZES, peak=RATES, bandwidth=RATES)
def test_the_crossover_is_where_both_times_are_equal(B: int, D: int, F: int, peak: float, bandwidth: float) -> None:
    answer = ridgeline.roofline("matmul", B=B, D=D, F=F, peak=peak, hbm_bandwidth=bandwidth)

    rows_over_crossover = B / critical(answer, "B")[1]
    if abs(rows_over_crossover - 1) > 1e-9:
        assert answer.bound == ("compute" if rows_over_crossover > 1 else "hbm")


@given(B=SIZES, D=SIZES, F=SIZES, peak=RATES, bandwidth=RATES)
def test_bounds_are_ordered_and_no_further_apart_than_there_are_resources(
    B: int, D: int, F: int, peak: float, bandwidth: float
) -> None:
    answer = ridgeline.roofline("matmul", B=B, D=D, F=F, peak=peak, hbm_bandwidth=bandwidth)

    assert answer.lower_s <= answer.upper_s <= answer.largest_bounds_ratio * answer.lower_s
    assert answer.attained_flops_per_s <= answer.peak_flops_per_s * (1 + 1e-12)


@given(B=SIZES, D=SIZES, F=SIZES, faster=st.floats(1, 100))
def test_more_bandwidth_never_slows_an_operation(B: int, D: int, F: int, faster: float) -> None:
    slow, fast = (
        ridgeline.roofline("matmul", B=B, D=D, F=F, peak=197e12, hbm_bandwidth=rate) for rate in (8e11, 8e11 * faster)
    )

    assert fast.lower_s <= slow.lower_s
    assert critical(fast, "B")[1] <= critical(slow, "B")[1]


@given(
    kind=st.sampled_from(["matmul", "batched_matmul", "expert_matmul", "attention"]),
    place=st.sampled_from(["hbm", "vmem", "host"]),
    other=st.sampled_from(["hbm", "vmem", "host"]),
)
def test_bytes_are_the_same_wherever_they_lie(kind: str, place: str, other: str) -> None:
    sizes = {
        "matmul": {"B": 8, "D": 64, "F": 32},
        "batched_matmul": {"B": 8, "T": 2, "D": 64, "F": 32},
        "expert_matmul": {"B": 8, "E": 4, "k": 2, "D": 64, "F": 32},
        "attention": {"B": 8, "T": 2, "S": 64, "N": 8, "K": 2, "H": 16},
    }[kind]

    apart = ridgeline.roofline(kind, **sizes, on="v5e", weights_from=place, activations_from=other)
    together = ridgeline.roofline(kind, **sizes, on="v5e")

    assert apart.traffic_bytes == together.traffic_bytes == together.read_bytes + together.written_bytes
