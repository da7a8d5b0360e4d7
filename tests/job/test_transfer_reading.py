"""Questions about moving arrays, as flags and arguments say them; asked through the functions of the package."""

from __future__ import annotations

import pytest

import ridgeline
from ridgeline.cost.questions.collective_question import collective
from ridgeline.cost.questions.transfer_question import path, point_to_point
from ridgeline.hardware.topology import parse_slice
from ridgeline.job.said import said
from ridgeline.job.transfer_reading import read_collective


def test_text_and_numbers_ask_the_same_question() -> None:
    text = ridgeline.collective("all_gather", bytes="34MB", axis="x,y", on="v5e:8x16")
    numbers = ridgeline.collective("all_gather", bytes=34e6, axis=["x", "y"], on="v5e:8x16")

    assert text == numbers == collective("all_gather", size_bytes=34e6, axes="x,y", hardware=parse_slice("v5e:8x16"))


def test_sizes_and_rates_ask_without_a_slice() -> None:
    asked = ridgeline.collective(
        "all_reduce", shape="1024x4096", dtype="bf16", axis="4x4", sharded=2, axis_bandwidth="90GB/s", hop="1us"
    )

    assert asked == collective(
        "all_reduce",
        shape=(1024, 4096),
        element_bytes=2,
        axes=(4, 4),
        sharded=2,
        axis_bytes_per_s=9e10,
        hop_s=1e-6,
    )


def test_a_slice_may_have_the_figures_of_the_book() -> None:
    """Scaling Book, ch. 2: 4.5e10 B/s one way, where the catalogue has 5e10."""
    answer = ridgeline.collective("all_gather", bytes=1e9, axis="x", on="v5e:16x16", figures="scaling-book")

    assert answer.approximate_s == pytest.approx(1e9 / 9e10)


def test_a_transfer_is_asked_by_positions() -> None:
    asked = ridgeline.point_to_point(bytes="16MB", start="0,0", end=(3, 3), on="v5e:4x4", hop="2us")

    assert asked == point_to_point(
        size_bytes=16e6, start=(0, 0), end=(3, 3), hardware=parse_slice("v5e:4x4"), hop_s=2e-6
    )


@pytest.mark.parametrize("wraps", [True, "yes", [True, True], "ring,ring"])
def test_wraparound_is_said_in_words_or_truth_values(wraps: object) -> None:
    asked = ridgeline.point_to_point(bytes=1, topology=(4, 4), wraps=wraps, link_bandwidth=1e9)

    assert asked.hops == 4


def test_a_path_is_asked_with_the_rates_of_its_stages() -> None:
    asked = ridgeline.path(
        shape="1024x1024", dtype="int8", on="v5e:4x4", rows=8, host_bandwidth="15GB/s", hbm_bandwidth=8e11, peak=2e14
    )

    assert asked == path(
        shape=(1024, 1024),
        element_bytes=1,
        hardware=parse_slice("v5e:4x4"),
        rows=8,
        pcie_bytes_per_s=15e9,
        hbm_bytes_per_s=8e11,
        peak_flops_per_s=2e14,
    )


@pytest.mark.parametrize(
    ("arguments", "what", "where"),
    [
        ({"bytes": "34XB"}, "unknown unit 'XB'", "--bytes"),
        ({"bytes": "1MB", "shape": "4x4"}, "the array has bytes and a shape", "--shape"),
        ({"shape": "4x0"}, "number too small", "--shape"),
        ({"dtype": "bf17"}, "unknown dtype", "--dtype"),
        ({"axis": "q", "on": "v5e:4x4"}, "unknown axis", "--axis"),
        ({"axis": "x", "sharded": "w", "on": "v5e:4x4"}, "unknown axis", "--sharded"),
        ({"axis": "x;y", "on": "v5e:4x4"}, "not an axis, at column 1", "--axis"),
        ({"axis": 4, "on": "v5e:4x4"}, "an axis of a slice has a name", "--axis"),
        ({"on": "v5e:3x3"}, "v5e has no slice of that shape", "--on"),
        ({"on": "tpu7x:4x4x4", "figures": "scaling-book"}, "the Scaling Book has no figures of this chip", "--on"),
        ({"figures": "folklore"}, "unknown figures", "--figures"),
        ({"wiring": "star"}, "unknown wiring", "--wiring"),
        ({"link_bandwidth": 0}, "nothing moves at this rate", "--link_bandwidth"),
        ({"hops": 3}, "a collective has no --hops", "--hops"),
    ],
)
def test_what_is_malformed_is_refused_under_the_name_it_was_written_by(
    arguments: dict[str, object], what: str, where: str
) -> None:
    spoken = said(arguments)
    as_flags = type(spoken)(arguments=spoken.arguments, written=lambda name: f"--{name}")

    with pytest.raises(ridgeline.InputError) as refused:
        read_collective(as_flags)

    assert (refused.value.what, refused.value.where) == (what, where)
