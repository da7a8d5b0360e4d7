"""What `ridgeline chips` shows: every number with its source, and the same as JSON in base units."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from ridgeline.hardware.catalog import chip_names, load_chip
from ridgeline.hardware.chip import Chip
from ridgeline.hardware.topology import parse_slice
from ridgeline.report.blocks import Report, Table
from ridgeline.report.chips import chip_json, chip_report, chips_json, chips_report, slice_json, slice_report
from ridgeline.report.jsonable import Json
from ridgeline.report.terminal import render
from tests.structure.vocabulary import says_its_unit

CHIPS = [load_chip(name) for name in chip_names()]


def screen(report: Report) -> str:
    return render(report, width=100, colour=False)


def table(report: Report, title: str) -> dict[str, tuple[str, ...]]:
    """The rows of a table by their first cell."""
    piece = next(piece for piece in report.pieces if isinstance(piece, Table) and piece.title == title)
    return {row[0].text: tuple(cell.text for cell in row[1:]) for row in piece.rows}


def parsed(answer: Mapping[str, Json]) -> dict[str, Any]:
    """What a program reads."""
    return json.loads(json.dumps(answer, allow_nan=False))


def numbers(tree: Any, name: str = "") -> Iterator[tuple[str, float]]:  # noqa: ANN401 - a JSON tree is any of its kinds
    """Every number of a JSON tree with the key above it that says its unit, or else the nearest."""
    match tree:
        case dict():
            for key, branch in tree.items():
                yield from numbers(branch, name if says_its_unit(name) else key)
        case list() | tuple():
            for branch in tree:
                yield from numbers(branch, name)
        case bool():
            pass
        case int() | float():
            yield name, tree
        case _:
            pass


def test_the_list_shows_every_chip_on_one_line_each() -> None:
    rows = table(chips_report(CHIPS), "")

    assert tuple(rows) == chip_names()
    assert rows["tpu7x"] == ("2.31 PFLOP/s", "4.61 PFLOP/s", "192 GiB", "7.38 TB/s", "600 GB/s", "$12.00")
    assert rows["b300"][-1] == "–"
    assert max(map(len, screen(chips_report(CHIPS)).splitlines())) <= 100


@pytest.mark.parametrize("chip", CHIPS, ids=chip_names())
def test_every_number_of_a_chip_is_shown_with_its_kind_and_source(chip: Chip) -> None:
    report = chip_report(chip)

    figures = table(report, "One chip")
    assert len(figures) == len(chip.facts)
    text = screen(report)
    for (_, kind, reference, note), fact in zip(figures.values(), chip.facts.values(), strict=True):
        assert (kind, note) == (fact.kind, fact.note)
        assert f"{reference} {fact.source[:40]}" in text or f"{reference}\n  {fact.source[:40]}" in text


def test_a_slice_shows_its_axes_and_how_they_are_wired() -> None:
    report = slice_report(parse_slice("2*tpu7x:4x4x4"))

    assert report.headline == "2*tpu7x:4x4x4 · Google TPU7x (Ironwood) · 128 chips, 256 devices, 32 hosts"
    axes = table(report, "Axes")
    assert list(axes) == ["x", "y", "z", "core", "dcn"]
    assert axes["x"] == (
        "4",
        "ring (wraps around)",
        "100 GB/s",
        "1.00 µs",
        "one link, two a chip, shared by 2 devices",
    )


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("gb200:128", "A domain holds 72 GPUs; 128 are split evenly, 64 to a domain."),
        ("gb200:144", ""),
        ("gb200:64", ""),
        ("h100:64", ""),
        ("v5e:1x1", "A single device: nothing to join."),
    ],
)
def test_gpus_that_leave_part_of_every_domain_idle_are_said_to(name: str, note: str) -> None:
    report = slice_report(parse_slice(name))

    assert next(piece for piece in report.pieces if isinstance(piece, Table)).note == note


@pytest.mark.parametrize(
    ("name", "hbm", "link", "network"),
    [
        # MaxText's guides quote 2550 and 5100 at 0.9 of the link rate, about 11,500 for TPU7x, 73,000 over v5p's DCN
        ("v5e", 241, 1970, 63_040),
        ("v5p", 166, 2295, 73_440),
        ("v6e", 560, 4590, 73_440),
        ("tpu7x", 313, 11_535, 184_560),
        ("h100", 295, 2199, 19_790),
    ],
)
def test_intensities_are_the_published_ones(name: str, hbm: float, link: float, network: float) -> None:
    chip = parsed(chip_json(load_chip(name)))["chip"]

    assert chip["hbm_flops_per_byte"] == pytest.approx(hbm, rel=0.005)
    assert chip["link_flops_per_byte"] == pytest.approx(link, rel=0.005)
    assert chip["network_flops_per_byte"] == pytest.approx(network, rel=0.005)


def test_json_of_a_slice_is_in_base_units() -> None:
    answer = parsed(slice_json(parse_slice("tpu7x:4x4x4")))["slice"]

    assert answer["num_devices"] == 128
    assert answer["peak_flops_per_s"]["bf16"] == 64 * 2307e12
    assert answer["usable_hbm_bytes"] == 128 * 94.75 * 2**30
    assert answer["usd_per_hour"] == 64 * 12
    assert answer["axes"][0] == {
        "name": "x",
        "size": 4,
        "wiring": "ring",
        "bytes_per_s": 100e9,
        "latency_s": 1e-6,
        "sharers": 2,
    }


@pytest.mark.parametrize("name", ["tpu7x:4x4x4", "2*v5e:16x16", "h100:64", "mi300x:8"])
def test_every_number_of_the_json_says_its_unit(name: str) -> None:
    answer = parsed(slice_json(parse_slice(name)))
    answer["chip"].pop("facts")  # their keys are those of the chip, their values called `value`

    counts = {"devices_per_chip", "tensorcores_per_chip", "chips_per_host", "mxus_per_device"}
    shapes = {"shape", "mxu_shape", "pod_shape", "listed_shapes"}
    assert not [key for key, _ in numbers(answer) if not says_its_unit(key) and key not in counts | shapes]


def test_json_of_the_catalogue_has_every_chip_and_null_for_the_unknown() -> None:
    chips = parsed(chips_json(CHIPS))["chips"]

    assert [chip["name"] for chip in chips] == list(chip_names())
    assert chips[0]["host_ram_bytes"] is None
    assert chips[0]["switch"] is None
    assert chips[5]["torus"]["core_link_bytes_per_s"] == 600e9
