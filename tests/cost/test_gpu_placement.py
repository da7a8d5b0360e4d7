"""Where groups of devices lie on GPUs: inside an NVLink domain first, then over the network."""

from __future__ import annotations

from ridgeline.cost.placement import describe, place
from ridgeline.hardware.topology import parse_slice


def placed(hardware: str, **degrees: int) -> dict[str, str]:
    pieces = place(degrees, parse_slice(hardware).axes)
    assert pieces is not None
    return {axis: describe(those) for axis, those in pieces.items()}


def test_a_group_stays_inside_the_domain_though_the_network_has_as_many_ways() -> None:
    assert placed("h100:64", tp=8, dp=8) == {"tp": "nvlink8", "dp": "network8"}
    assert placed("h100:32", tp=4, dp=8)["tp"] == "nvlink4/8"


def test_a_group_larger_than_a_domain_takes_all_of_one_and_then_the_network() -> None:
    assert placed("h100:256", ep=32, pp=8) == {"ep": "nvlink8 network4/32", "pp": "network8/32"}
