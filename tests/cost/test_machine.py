"""What machines add up to and how they are wired, against the Scaling Book's second chapter."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.cost.questions.machine import bandwidth_ratios, dtype_speedups, machine_totals
from ridgeline.cost.questions.torus_question import num_neighbours, wiring, without_wraparound
from ridgeline.errors import InputError
from ridgeline.hardware.catalog import load_chip
from ridgeline.hardware.topology import parse_slice


@pytest.mark.parametrize(
    ("name", "hosts", "cores"),
    [("v5e:16x16", 32, 256), ("v5p:16x20x28", 2240, 17920)],  # Scaling Book, ch. 2, question 2
)
def test_a_pod_adds_up_to_the_books_hosts_and_cores(name: str, hosts: int, cores: int) -> None:
    totals = machine_totals(hardware=parse_slice(name))

    assert (totals["num_hosts"], totals["num_cores"]) == (hosts, cores)


def test_totals_of_stated_figures_are_those_of_the_book() -> None:
    """Scaling Book, ch. 2, question 2: a v5p pod computes 4e18 FLOP/s and holds 860 TB."""
    totals = machine_totals(shape=(16, 20, 28), host_shape=(2, 2, 1), chip_flops_per_s=459e12, hbm_bytes=96e9)

    assert totals["num_hosts"] == 2240
    assert totals["slice_flops_per_s"] == pytest.approx(4.1e18, rel=0.01)
    assert totals["slice_hbm_bytes"] == pytest.approx(860e12, rel=0.001)


def test_a_stated_peak_of_a_chip_stands_against_that_of_its_cores() -> None:
    totals = machine_totals(num_chips=10, core_flops_per_s=2.0, cores_per_chip=2, chip_flops_per_s=3.0)

    assert (totals["cores_flops_per_s"], totals["slice_flops_per_s"]) == (4, 30)


@pytest.mark.parametrize("name", ["v5e:4x8", "2*v5p:4x4x8", "h100:64"])
def test_totals_of_a_slice_agree_with_the_slice(name: str) -> None:
    hardware = parse_slice(name)
    totals = machine_totals(hardware=hardware)

    assert totals["num_hosts"] == hardware.num_hosts
    assert totals["slice_flops_per_s"] == hardware.peak_flops_per_s["bf16"]
    assert totals["slice_hbm_bytes_per_s"] == hardware.hbm_bytes_per_s
    assert totals["slice_usd_per_hour"] == hardware.usd_per_hour


def test_a_peak_that_the_chip_does_not_have_is_refused() -> None:
    with pytest.raises(InputError, match="v5e has no peak of this dtype"):
        machine_totals(hardware=parse_slice("v5e:4x4"), dtype="fp4")


def test_low_precision_is_faster_where_the_chip_supports_it() -> None:
    """Scaling Book, ch. 2: int8 at twice the rate on v5e, at the same on v4."""
    peaks = {"bf16": {"v4": 275e12, "v5e": 197e12}, "int8": {"v4": 275e12, "v5e": 394e12}}

    assert dtype_speedups(peak_flops_per_s=peaks) == {"int8": {"v4": 1, "v5e": 2}}


def test_memory_is_some_thirty_times_as_fast_as_a_link() -> None:
    """Scaling Book, ch. 2: v5p, 2.8e12 against 9e10."""
    assert bandwidth_ratios(bytes_per_s={"hbm": 2.8e12, "ici": 9e10}, over="ici")["hbm"] == pytest.approx(
        31.1, rel=0.01
    )


@pytest.mark.parametrize(
    ("chip", "shape", "wraps"),
    [
        # Scaling Book, ch. 2: cubes of 4x4x4 close on every axis; v5e closes axes of 16
        ("v5p", (4, 4, 8), (True, True, True)),
        ("v5p", (2, 2, 4), (False, False, False)),
        ("v5e", (16, 16), (True, True)),
        ("v5e", (8, 16), (False, True)),
        ("v5e", (4, 4), (False, False)),
    ],
)
def test_axes_close_by_the_rule_of_the_chip(chip: str, shape: tuple[int, ...], wraps: tuple[bool, ...]) -> None:
    answer = wiring(chip, shape)

    assert answer.wraps == wraps
    assert (answer.wraps_everywhere, answer.wraps_nowhere) == (all(wraps), not any(wraps))


def test_the_farthest_chips_are_half_a_ring_or_a_whole_line_apart() -> None:
    assert wiring(load_chip("v5e"), (8, 16)).axis_hops == (7, 8)


def test_a_shape_that_cannot_be_had_is_wired_all_the_same() -> None:
    assert not wiring("v5e", (3, 3)).is_legal
    assert wiring("v5e", (8, 4)).is_legal


@pytest.mark.parametrize(("chip", "shape"), [("h100", (4, 4)), ("v5e", (4, 4, 4)), ("v5p", (0, 4, 4))])
def test_a_shape_of_another_rank_is_refused(chip: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="no slice of this chip has such a shape"):
        wiring(chip, shape)


@pytest.mark.parametrize(("dimensions", "neighbours"), [(2, 4), (3, 6)])
def test_a_chip_has_two_neighbours_an_axis(dimensions: int, neighbours: int) -> None:
    """Scaling Book, ch. 2."""
    assert num_neighbours(num_dimensions=dimensions) == neighbours


@given(sizes=st.lists(st.integers(2, 1024), min_size=1, max_size=4))
def test_a_line_takes_exactly_twice_as_long_as_a_ring(sizes: list[int]) -> None:
    answer = without_wraparound(sizes=sizes, size_bytes=1e9, axis_bytes_per_s=9e10)

    assert answer.exact_ratio == pytest.approx([2] * len(sizes))
    assert answer.line_s == pytest.approx([2 * each for each in answer.ring_s])
    assert answer.is_independent


def test_beside_the_books_long_ring_a_short_line_looks_better_than_it_is() -> None:
    assert without_wraparound(sizes=(4, 8, 64)).approximate_ratio == pytest.approx((1.5, 1.75, 1.96875))


def test_an_axis_of_one_chip_is_refused() -> None:
    with pytest.raises(InputError, match="at least two chips"):
        without_wraparound(sizes=(4, 1))
