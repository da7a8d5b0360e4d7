"""Collectives as questions: the Scaling Book's worked examples, the planner's own numbers, and laws."""

from __future__ import annotations

from math import inf, isnan
from typing import TYPE_CHECKING, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.cost.collectives import exchange, gather, reduce
from ridgeline.cost.placement import link_rate_bytes_per_s, links_of, place
from ridgeline.cost.questions.collective_answer import CollectiveKind
from ridgeline.cost.questions.collective_question import collective
from ridgeline.errors import InputError
from ridgeline.hardware.topology import parse_slice
from ridgeline.job.job import MESH_AXES
from tests.messages import refusal

if TYPE_CHECKING:
    from ridgeline.cost.questions.collective_answer import CollectiveAnswer

KINDS = get_args(CollectiveKind)

BOOK = {"axis_bytes_per_s": 9e10, "hop_s": 1e-6}
"""v5e as the Scaling Book has it: 4.5e10 B/s a link one way, 1 us a hop."""


def on(hardware: str, axes: str, *, kind: CollectiveKind = "all_gather", size_bytes: float = 34e6) -> CollectiveAnswer:
    return collective(kind, size_bytes=size_bytes, axes=axes, hardware=parse_slice(hardware))


def test_a_gather_over_a_line_of_four_takes_three_hops() -> None:
    """Scaling Book, ch. 3, pop quiz 2: bf16[2048, 8192] over an unwrapped v5e axis of 4 takes 560 us."""
    answer = collective("all_gather", shape=(2048, 8192), axes=4, wiring="line", **BOOK)

    assert answer.time_s == answer.approximate_s == pytest.approx(560e-6, rel=0.002)
    assert answer.hops == 3
    assert answer.shard_bytes == 2 * 2048 * 8192 / 4


@pytest.mark.parametrize("kind", KINDS)
def test_hops_that_take_no_time_have_no_latency_regime(kind: CollectiveKind) -> None:
    answer = collective(kind, size_bytes=1e9, axes="x", hardware=parse_slice("v5e:4x4"), hop_s=0.0)

    assert answer.regime == "bandwidth"
    assert answer.threshold_bytes == answer.latency_s == 0
    assert answer.latency_bound_shards == inf


def test_a_small_gather_is_bound_by_the_least_time_of_its_hops() -> None:
    """Scaling Book, ch. 3, pop quiz 2: bf16[256, 256] over the same axis takes about 3 us."""
    answer = collective("all_gather", shape=(256, 256), axes=4, wiring="line", **BOOK)

    assert answer.time_s == pytest.approx(3e-6)
    assert (answer.regime, answer.bound, answer.is_latency_bound) == ("latency", "latency", True)


def test_other_axes_keep_the_array_split() -> None:
    """Scaling Book, ch. 3, question 2: bf16[1024, 4096] split over X and Y of a v4 4x4x4, AllGather over X: 23 us."""
    answer = collective("all_gather", shape=(1024, 4096), axes="X=4", sharded="Y=4", **BOOK)

    assert answer.approximate_s == pytest.approx(23e-6, rel=0.02)
    assert answer.group_bytes == answer.array_bytes / 4


def test_two_axes_gather_twice_as_fast_as_one() -> None:
    """Scaling Book, ch. 3, question 2: the same array over X and Y at once takes 46 us, its floor 4 us."""
    answer = collective("all_gather", shape=(1024, 4096), axes="X=4,Y=4", **BOOK)

    assert answer.approximate_s == pytest.approx(46e-6, rel=0.02)
    assert answer.latency_s == pytest.approx(4e-6)


def test_an_all_reduce_of_an_array_split_over_two_axes() -> None:
    """Scaling Book, ch. 3, question 2: AllReduce over Z of the array split over X and Y: 2·2·B·D/(16·W) = 11.6 us."""
    answer = collective("all_reduce", shape=(1024, 4096), axes="Z=4", sharded="X=4,Y=4", **BOOK)

    assert answer.approximate_bandwidth_s == pytest.approx(11.65e-6, rel=0.001)


def test_the_book_takes_rings_as_long_and_the_exact_time_does_not() -> None:
    answer = collective("all_gather", size_bytes=1e9, axes=4, **BOOK)

    assert answer.time_s == pytest.approx(answer.approximate_s * 3 / 4)


@pytest.mark.parametrize(
    ("kind", "over_gather"), [("all_gather", 1), ("reduce_scatter", 1), ("all_reduce", 2), ("all_to_all", 1 / 4)]
)
def test_the_four_collectives_cost_as_the_book_has_it(kind: CollectiveKind, over_gather: float) -> None:
    """Scaling Book, ch. 3, summary table; on a ring of any size, and where size and rate are left open."""
    for axes in (4, 64, ()):
        for wires in ({}, BOOK):
            assert collective("all_gather", axes=axes, **wires).each_kind_ratio[kind] == pytest.approx(over_gather)


def test_a_ring_used_one_way_exchanges_at_half_the_cost_of_a_gather() -> None:
    """Scaling Book, ch. 3, question 10: N²(D − 1)/(2D) against N²(D − 1)/D scalars over each link."""
    counts = collective("all_to_all", shape=(4096, 4096), element_bytes=1, axes=64, wiring="one_way").exchange

    assert counts is not None
    assert counts.one_way_gather_link_bytes == 4096**2 * 63 / 64
    assert counts.one_way_link_bytes == 4096**2 * 63 / 128
    assert counts.one_way_ratio == pytest.approx(1 / 2)


def test_both_ways_exchange_about_four_times_as_fast_as_one() -> None:
    counts = collective("all_to_all", size_bytes=1.0, axes=1024).exchange

    assert counts is not None
    assert counts.exchange_gain_ratio == pytest.approx(4, rel=0.01)
    assert (counts.gather_gain_ratio, counts.two_way_ratio, counts.gather_ratio) == (2, 4, 1 / 4)


@pytest.mark.parametrize("size", range(2, 17))
def test_chunks_sent_on_are_the_distances_summed(size: int) -> None:
    counts = collective("all_to_all", size_bytes=1.0, axes=size).exchange

    assert counts is not None
    assert counts.chunks == sum(min(distance, size - distance) for distance in range(size))


def test_the_latency_regime_ends_where_floor_and_bandwidth_meet() -> None:
    """Scaling Book, ch. 7, appendix C: 45 kB a hop, 360 kB over 8 chips of v5e."""
    answer = collective("all_gather", axes=8, **BOOK)

    assert answer.hop_threshold_bytes == pytest.approx(45e3)
    assert answer.threshold_bytes == pytest.approx(360e3)
    for size_bytes, regime in ((359e3, "latency"), (361e3, "bandwidth")):
        assert collective("all_gather", size_bytes=size_bytes, axes=8, **BOOK).regime == regime


def test_activations_of_a_small_batch_are_latency_bound_from_three_chips_on() -> None:
    """Scaling Book, ch. 7, appendix C: int8[16, 8192] is latency-bound when Y > 16·8192/45,000."""
    answer = collective("all_gather", shape=(16, 8192), element_bytes=1, axes=8, **BOOK)

    assert answer.latency_bound_shards == pytest.approx(16 * 8192 / 45_000)
    assert answer.is_latency_bound


def test_gather_and_scatter_are_each_others_backward_pass() -> None:
    """Scaling Book, ch. 3."""
    assert collective("all_gather").transpose == "reduce_scatter"
    assert collective("reduce_scatter").transpose == "all_gather"


def test_an_axis_that_closes_is_a_ring_and_one_that_does_not_a_line() -> None:
    """v5e closes axes of 16 only."""
    answer = on("v5e:8x16", "x,y")

    assert answer.axes == ("x 8 (line)", "y 16 (ring)")
    assert answer.if_ring_s < answer.approximate_s < answer.if_line_s


@pytest.mark.parametrize("hardware", ["v5e:4x4", "v5e:16x16", "v5p:4x4x8", "tpu7x:4x4x4", "2*v5e:16x16", "h100:64"])
def test_a_question_over_a_whole_slice_costs_what_the_planner_says(hardware: str) -> None:
    machine = parse_slice(hardware)
    degrees = {
        **dict.fromkeys(MESH_AXES, 1),
        "fsdp": machine.devices_per_slice,
        "dcn_fsdp": machine.num_slices,
    }
    placed = place(degrees, machine.axes)
    assert placed is not None
    link = links_of(placed, degrees, machine)["weights"]
    rates = {
        "link_bytes_per_s": link_rate_bytes_per_s(machine),
        "network_bytes_per_s": machine.chip.network_bytes_per_s,
    }

    for size_bytes in (1e3, 1e9):
        expected_s = {
            "all_gather": gather(link, size_bytes).expected_s(**rates),
            "reduce_scatter": gather(link, size_bytes).expected_s(**rates),
            "all_reduce": reduce(link, size_bytes).expected_s(**rates),
            "all_to_all": exchange(link, size_bytes / machine.num_devices).expected_s(**rates),
        }
        for kind in KINDS:
            asked = collective(kind, size_bytes=size_bytes, hardware=machine)
            assert asked.time_s == pytest.approx(expected_s[kind])


def test_gpus_of_several_boxes_wait_for_the_slower_of_two_networks() -> None:
    """A box of 8 brings in 7/8 of the array, an eighth of it over each GPU's port at 50e9 B/s."""
    answer = on("h100:64", "nvlink,network", size_bytes=1e9)

    assert {stage.name for stage in answer.stages} == {"nvlink", "network"}
    assert answer.bound == "network"
    assert answer.time_s == pytest.approx(1e9 * 7 / 8 / 8 / 50e9)


def test_slices_meet_over_the_data_center_network() -> None:
    assert on("2*v5e:16x16", "dcn", size_bytes=1e9).time_s == pytest.approx(1e9 / 2 / 3.125e9)


def test_a_factor_of_an_axis_is_a_line_of_neighbours() -> None:
    answer = on("v5e:16x16", "x=4", size_bytes=1e9)

    assert answer.axes == ("x 4 of 16 (line)",)
    assert answer.time_s == pytest.approx(1e9 * 3 / 4 / 50e9)


def test_what_the_question_states_takes_the_place_of_the_catalogue() -> None:
    stated = collective(
        "all_gather",
        size_bytes=1e9,
        axes="x",
        hardware=parse_slice("v5e:4x4"),
        link_bytes_per_s=4.5e10,
        hop_s=2e-6,
        wiring="ring",
    )

    assert stated.time_s == pytest.approx(1e9 * 3 / 4 / 9e10)
    assert stated.latency_s == pytest.approx(4e-6)


def test_a_single_device_has_nothing_to_wait_for() -> None:
    answer = on("v5e:1x1", "")

    assert (answer.time_s, answer.bound, answer.num_devices) == (0, "nothing", 1)


def test_what_is_left_open_is_unknown_and_not_zero() -> None:
    answer = collective("all_gather", size_bytes=1e8, axis_bytes_per_s=9e10)

    assert answer.approximate_s == pytest.approx(1e8 / 9e10)
    assert all(map(isnan, (answer.time_s, answer.num_devices, answer.latency_s, answer.threshold_bytes)))
    assert not any(isnan(each.value) for each in answer.derivations)


def test_every_number_of_the_headline_is_derived() -> None:
    answer = collective("all_to_all", shape=(8, 8), axes=4, **BOOK)

    derived = {each.value for each in answer.derivations}
    assert {answer.array_bytes, answer.bandwidth_s, answer.latency_s, answer.hop_threshold_bytes} <= derived


@given(
    kind=st.sampled_from(KINDS),
    size_bytes=st.floats(1, 1e12),
    axes=st.lists(st.integers(2, 64), min_size=1, max_size=3),
    wiring=st.sampled_from(["ring", "line", "one_way"]),
    faster=st.floats(1, 10),
)
def test_faster_links_never_slow_a_collective(
    kind: CollectiveKind, size_bytes: float, axes: list[int], wiring: str, faster: float
) -> None:
    slow, fast = (
        collective(kind, size_bytes=size_bytes, axes=axes, link_bytes_per_s=rate, hop_s=1e-6, wiring=wiring)
        for rate in (4.5e10, 4.5e10 * faster)
    )

    assert fast.time_s <= slow.time_s
    assert slow.bandwidth_s <= slow.approximate_bandwidth_s * (1 + 1e-12)


@given(kind=st.sampled_from(KINDS), size=st.integers(2, 64), ways=st.integers(1, 64))
def test_splitting_an_array_over_other_axes_splits_its_time(kind: CollectiveKind, size: int, ways: int) -> None:
    whole, split = (
        collective(kind, size_bytes=1e9, axes=size, sharded=sharded, link_bytes_per_s=4.5e10) for sharded in (1, ways)
    )

    assert split.bandwidth_s * ways == pytest.approx(whole.bandwidth_s)


@pytest.mark.parametrize(
    ("axes", "sharded", "message"),
    [
        (
            "x,,y",
            (),
            refusal(
                "not an axis, at column 3",
                where="axis",
                value="x,,y",
                expected="axes joined by commas: x,y or x=4,core; without a slice, sizes: 4,4",
                fix="write, for example, x,y",
            ),
        ),
        (
            "z",
            (),
            refusal(
                "unknown axis",
                where="axis",
                value="z",
                expected="an axis of v5e:8x16: x (8), y (16)",
                fix="name one of these, or leave the slice out and state sizes and rates",
            ),
        ),
        (
            "x,x",
            (),
            refusal("axis x is used twice", where="axis", value="x,x", expected="each axis once", fix="write x once"),
        ),
        (
            "x=3",
            (),
            refusal(
                "3 does not divide axis x",
                where="axis",
                value="x=3",
                expected="a divisor of 8",
                fix="write x for the whole axis",
            ),
        ),
        (
            "x",
            "y,x",
            refusal(
                "axis x is used twice",
                where="sharded",
                value="x",
                expected="axes over which the collective does not run",
                fix="leave x out of one of the two",
            ),
        ),
    ],
)
def test_axes_that_the_slice_does_not_have_are_refused(axes: str, sharded: str, message: str) -> None:
    with pytest.raises(InputError) as refused:
        collective("all_gather", size_bytes=1e9, axes=axes, sharded=sharded, hardware=parse_slice("v5e:8x16"))

    assert str(refused.value) == message


def test_a_named_axis_without_a_size_is_refused_where_there_is_no_slice() -> None:
    with pytest.raises(InputError, match="axis X has no size"):
        collective("all_gather", size_bytes=1e9, axes="X")


@pytest.mark.parametrize("wrong", [{"size_bytes": -1.0}, {"size_bytes": 1e9, "link_bytes_per_s": 0.0}])
def test_sizes_and_rates_are_positive(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match="not a positive number"):
        collective("all_gather", axes=4, **wrong)


def test_an_unknown_collective_is_refused_with_its_nearest_name() -> None:
    with pytest.raises(InputError, match="did you mean all_gather"):
        collective("allgather", size_bytes=1e9, axes=4)
