"""Collectives against the Scaling Book's worked examples, and the wiring of logical axes against hand counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.cost.collectives import (
    all_gather_s,
    all_reduce_s,
    all_to_all_s,
    gather,
    line_latency_s,
    reduce,
    ring_exchange_load,
    ring_latency_s,
)
from ridgeline.cost.placement import describe, links_of, place
from ridgeline.hardware.topology import parse_slice
from ridgeline.job.job import MESH_AXES

V5E_LINK = 4.5e10  # the book's one-way rate; the catalogue has the documented 5e10


def test_a_gather_over_an_unwrapped_v5e_axis_of_four_takes_the_books_560_us() -> None:
    """Scaling Book, ch. 3, pop quiz 2: 34 MB over a line of 4 takes 3 hops of 8.5 MB at 4.5e10 B/s: 560 us."""
    assert all_gather_s(V_bytes=3 * 8.5e6 / 3 * 4, N=4, n=1, W_bytes_per_s=V5E_LINK) == pytest.approx(560e-6, rel=0.02)


def test_a_small_gather_over_a_line_of_four_is_bound_by_three_hops() -> None:
    """Scaling Book, ch. 3, pop quiz 2: the same with 17 kB is bound by about 3 us of latency."""
    assert line_latency_s(N=4, t_min_s=1e-6) == pytest.approx(3e-6)
    assert all_gather_s(V_bytes=17e3, N=4, n=1, W_bytes_per_s=V5E_LINK) < line_latency_s(N=4, t_min_s=1e-6)


def test_an_all_reduce_costs_two_gathers() -> None:
    gathered_s = all_gather_s(V_bytes=1e9, N=16, n=2, W_bytes_per_s=V5E_LINK)

    assert all_reduce_s(V_bytes=1e9, N=16, n=2, W_bytes_per_s=V5E_LINK) == pytest.approx(2 * gathered_s)


def test_an_all_to_all_on_a_long_ring_costs_a_quarter_of_a_gather() -> None:
    """Scaling Book, ch. 3: V/(4·W_ici) against V/W_ici, V the bytes of the whole array."""
    ways, global_bytes = 4096, 1e9
    exchanged_s = all_to_all_s(V_bytes=global_bytes / ways, load=ring_exchange_load(N=ways), W_bytes_per_s=V5E_LINK)

    assert exchanged_s == pytest.approx(
        all_gather_s(V_bytes=global_bytes, N=ways, n=2, W_bytes_per_s=V5E_LINK) / 4, rel=1e-3
    )


def test_half_the_ring_is_the_farthest_a_gather_travels() -> None:
    assert ring_latency_s(N=16, t_min_s=1e-6) == pytest.approx(8e-6)


def _links(hardware: str, mesh: dict[str, int]):  # noqa: ANN202 - the mapping's type is in placement
    degrees = {**dict.fromkeys(MESH_AXES, 1), **mesh}
    machine = parse_slice(hardware)
    pieces = place(degrees, machine.axes)
    assert pieces is not None
    return links_of(pieces, degrees, machine)


def test_fsdp_over_a_v5p_cube_gathers_over_all_six_links() -> None:
    links = _links("v5p:4x4x4", {"fsdp": 64})

    assert links["weights"].gather_load == pytest.approx(63 / 64 / 6)


def test_fsdp_over_both_devices_of_a_tpu7x_chip_shares_one_gather_between_them() -> None:
    """Each device brings in half of the array over the chip's six links and takes the rest from its twin."""
    links = _links("tpu7x:4x4x4", {"fsdp": 128})

    assert links["weights"].gather_load == pytest.approx(63 / 64 / 6)


def test_two_devices_that_gather_different_arrays_halve_each_others_links() -> None:
    links = _links("tpu7x:4x4x4", {"fsdp": 64, "tp": 2})

    assert links["weights"].gather_load == pytest.approx(63 / 64 / 6 * 2)


def test_a_chatty_axis_of_two_lies_on_the_core_pair_six_times_faster_than_a_link() -> None:
    """The chip-to-chip pair is 600e9 B/s against 100e9 of a link: half the array over a sixth of the time."""
    links = _links("tpu7x:4x4x4", {"fsdp": 64, "tp": 2})

    assert links["tensor"].gather_load == pytest.approx(1 / 2 / 6)


def test_an_axis_of_an_unwrapped_slice_has_one_link_for_each_direction() -> None:
    links = _links("v5e:4x4", {"fsdp": 4, "tp": 4})

    assert links["tensor"].gather_load == pytest.approx(3 / 4)


def test_the_outer_factor_of_a_split_ring_shares_its_links_with_its_neighbours() -> None:
    """Four rings of every fourth chip run over the same sixteen links: each has a quarter of both."""
    links = _links("v5e:16x16", {"fsdp": 64, "tp": 4})

    assert links["tensor"].gather_load == pytest.approx(3 / 4)  # four neighbours: a line
    assert links["weights"].gather_load == pytest.approx(63 / 64 / (2 + 2 / 4))


def test_gpus_of_one_box_gather_over_nvlink_and_boxes_over_the_network() -> None:
    links = _links("h100:64", {"fsdp": 64})

    assert links["weights"].gather_load == pytest.approx(7 / 8)
    assert links["weights"].network_gather_load == pytest.approx(7 / 8 / 8)


def test_tensor_parallelism_of_eight_stays_inside_a_gpu_box() -> None:
    links = _links("h100:64", {"tp": 8, "fsdp": 8})

    assert links["tensor"].network_gather_load == 0
    assert links["weights"].network_gather_load == pytest.approx(7 / 8)


def test_replicas_across_slices_speak_over_the_data_center_network_alone() -> None:
    links = _links("2*v5e:16x16", {"fsdp": 256, "dcn_dp": 2})

    assert links["data"].gather_load == 0
    assert links["data"].network_gather_load == pytest.approx(1 / 2)
    assert links["weights"].network_gather_load == 0


def test_a_degree_that_divides_no_axis_has_no_placement() -> None:
    assert place({"tp": 3, "fsdp": 43}, parse_slice("v5p:4x4x8").axes) is None


def test_a_placement_is_written_with_the_factor_it_takes() -> None:
    pieces = place({"tp": 4, "fsdp": 64}, parse_slice("v5e:16x16").axes)

    assert pieces is not None
    assert describe(pieces["tp"]) in {"x4/16", "y4/16"}


@given(
    exponents=st.tuples(*[st.integers(0, 4)] * 3).filter(lambda e: sum(e) == 7),
    hardware=st.just("v5p:4x4x8"),
)
def test_every_split_of_a_power_of_two_slice_lies_on_its_torus(exponents: tuple[int, ...], hardware: str) -> None:
    degrees = dict(zip(("tp", "cp", "fsdp"), (2**e for e in exponents), strict=True))
    pieces = place(degrees, parse_slice(hardware).axes)

    assert pieces is not None
    for axis, degree in degrees.items():
        product = 1
        for piece in pieces.get(axis, ()):
            product *= piece.size
        assert product == degree


@given(size_bytes=st.floats(1, 1e12), more=st.floats(1, 10))
def test_more_bandwidth_never_slows_a_collective(size_bytes: float, more: float) -> None:
    link = _links("2*v5e:16x16", {"fsdp": 256, "dcn_fsdp": 2})["weights"]
    for collective in (gather, reduce):
        transfer = collective(link, size_bytes)
        slow_s = transfer.expected_s(link_bytes_per_s=5e10, network_bytes_per_s=3e9)

        assert transfer.expected_s(link_bytes_per_s=5e10 * more, network_bytes_per_s=3e9 * more) <= slow_s


def test_a_gather_over_more_boxes_has_a_higher_floor() -> None:
    """A ring over 128 boxes takes 127 steps of the network, after the 7 of NVLink inside a box."""
    chip = parse_slice("h100:1024").chip
    nvlink = chip.switch

    assert nvlink is not None
    assert _links("h100:1024", {"fsdp": 1024})["weights"].latency_s == pytest.approx(
        127 * chip.network_latency_s + 7 * nvlink.latency_s
    )
