"""What a question about moving an array shows: every time under its name, and the same as JSON in base units."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ridgeline.cost.questions.collective_question import collective
from ridgeline.cost.questions.transfer_question import path, point_to_point
from ridgeline.hardware.topology import parse_slice
from ridgeline.report.collective import (
    collective_json,
    collective_report,
    path_json,
    path_report,
    point_to_point_json,
    point_to_point_report,
)
from ridgeline.report.derivations import explained
from ridgeline.report.terminal import render

if TYPE_CHECKING:
    from ridgeline.report.blocks import Report


def screen(report: Report) -> str:
    return render(report, width=100, colour=False)


def test_the_exact_time_and_the_books_stand_side_by_side() -> None:
    answer = collective("all_gather", size_bytes=34e6, axes="x,y", hardware=parse_slice("v5e:8x16"))

    printed = screen(collective_report(answer))
    assert printed.splitlines()[0] == "All-gather of 34.0 MB over x 8 (line) × y 16 (ring) of v5e:8x16"
    assert "225 µs, set by the torus links" in printed
    assert "227 µs, rings taken as long" in printed
    assert "if every axis closed" in printed


def test_a_gather_around_one_ring_is_shown_hop_by_hop() -> None:
    answer = collective("all_gather", size_bytes=8e6, axes=8, link_bytes_per_s=5e10, hop_s=1e-6)

    printed = screen(collective_report(answer))
    assert "one way       7       1.00 MB" in printed
    assert "both ways     4       2.00 MB" in printed
    assert "A hop takes its least time below 50.0 kB." in printed


def test_an_exchange_is_shown_chunk_by_chunk() -> None:
    printed = screen(collective_report(collective("all_to_all", size_bytes=64e6, axes=8, link_bytes_per_s=5e10)))

    assert "16 chunks of 1.00 MB" in printed
    assert "0.25 of the array" in printed


def test_each_kind_of_wire_is_shown_where_there_are_several() -> None:
    printed = screen(collective_report(collective("all_reduce", size_bytes=1e9, hardware=parse_slice("h100:64"))))

    assert "set by the data-center network" in printed
    assert "nvlink" in printed


def test_what_is_not_known_is_left_out_of_the_screen_and_null_in_json() -> None:
    answer = collective("all_gather", size_bytes=34e6, axis_bytes_per_s=9e10)

    printed = screen(collective_report(answer))
    assert "unknown" not in printed
    assert "left out: no hop time is known" in printed
    assert collective_json(answer)["time_s"] is None


def test_a_question_without_a_size_still_tells_hops_floor_and_threshold() -> None:
    printed = screen(collective_report(collective("all_gather", axes="x", hardware=parse_slice("v5e:8x16"))))

    assert printed.splitlines()[0] == "All-gather over x 8 (line) of v5e:8x16"
    assert "7.00 µs, 7 hops" in printed
    assert "400 kB" in printed
    assert "unknown" not in printed + screen(point_to_point_report(point_to_point(hardware=parse_slice("v5e:4x4"))))


def test_derivations_are_always_in_json_and_on_the_screen_when_asked() -> None:
    answer = collective("all_gather", size_bytes=34e6, axes="x", hardware=parse_slice("v5e:8x16"))

    parsed = json.loads(json.dumps(collective_json(answer), allow_nan=False))
    assert parsed["derivations"][0]["formula"] == "T = V · (N − 1)/N / (n · W)"
    assert "T = V · (N − 1)/N / (n · W)" in screen(explained(collective_report(answer), answer.derivations))


def test_a_transfer_shows_its_first_byte_and_its_last() -> None:
    answer = point_to_point(size_bytes=16e6, hardware=parse_slice("v5e:4x4"))

    printed = screen(point_to_point_report(answer))
    assert printed.splitlines()[0] == "16.0 MB from (0, 0) to (3, 3): 166 µs"
    assert "first byte" in printed
    assert point_to_point_json(answer)["ports"] == 2


def test_a_path_shows_its_bottleneck_both_ways_of_adding_up_and_every_stage() -> None:
    answer = path(size_bytes=16e9, rows=8, hardware=parse_slice("v5e:4x4"))

    printed = screen(path_report(answer))
    assert "150 ms, the slowest stage: to one chip, ICI" in printed
    assert "one after the other" in printed
    assert path_json(answer)["bottleneck"] == "ici"


@pytest.mark.parametrize("hardware", ["v5e:16x16", "2*tpu7x:4x4x4", "h100:64"])
@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter", "all_reduce", "all_to_all"])
def test_no_line_is_wider_than_the_screen(kind: str, hardware: str) -> None:
    answer = collective(kind, size_bytes=34e6, hardware=parse_slice(hardware))

    for line in screen(explained(collective_report(answer), answer.derivations)).splitlines():
        assert len(line) <= 100
