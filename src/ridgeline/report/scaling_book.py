"""`ridgeline chips NAME --figures scaling-book`: what *How To Scale Your Model* itself uses, and where it says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ridgeline.hardware.scaling_book import EDITION, GENERAL
from ridgeline.hardware.topology import written
from ridgeline.report.blocks import Cell, Paragraphs, Report, Table
from ridgeline.report.jsonable import Json, jsonable
from ridgeline.units import (
    format_bytes,
    format_count,
    format_decimal_bytes,
    format_flops_per_s,
    format_rate_bytes_per_s,
    format_seconds,
    format_usd,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ridgeline.hardware.scaling_book import BookFigure, BookFigures, BookValue

_ABSENT = Cell(text="–", tone="dim")

_LABELS = {
    "pod_shape": "largest slice",
    "host_shape": "chips of a host",
    "hbm_bytes": "HBM",
    "hbm_bytes_per_s": "HBM bandwidth",
    "link_bytes_per_s": "ICI link, one way",
    "axis_bytes_per_s": "ICI axis, both links",
    "num_dimensions": "torus axes",
    "tensorcores_per_chip": "TensorCores",
    "mxus_per_tensorcore": "MXUs per TensorCore",
    "mxu_shape": "MXU",
    "vmem_bytes": "VMEM",
    "clock_cycles_per_s": "clock, cycles/s",
    "pcie_bytes_per_s": "host to chip",
    "host_network_bytes_per_s": "network of a host",
    "host_ram_bytes": "host RAM",
    "usd_per_chip_hour": "$/chip-hour",
    "num_pod_chips": "chips of the largest slice",
    "hop_latency_s": "ICI hop",
    "switch_domain_sizes": "GPUs per domain, from and to",
    "corner_ports": "links of a corner chip",
    "wrap_rule": "wraps around",
    "listed_shapes": "small slices",
}
"""What a key is called on screen; peaks are called by their dtype, the rest by its key."""


def books_report(chips: Sequence[BookFigures]) -> Report:
    """All chips of the book as one table."""
    table = Table(
        columns=("chip", "largest slice", "bf16", "int8", "HBM", "HBM bandwidth", "link, one way", "$/chip-hour"),
        rows=tuple(_summary(chip) for chip in chips if chip.name != GENERAL),
        right=frozenset(range(2, 8)),
        note=f"{EDITION}. – marks what it does not say. Plans are made with the catalogue instead.",
    )
    return Report(headline="The figures of the Scaling Book", pieces=(table,))


def book_report(figures: BookFigures) -> Report:
    """One chip of the book: every figure, its place, and what else the book uses for it."""
    table = Table(
        columns=("figure", "value", "place", "elsewhere", "note"),
        rows=tuple(
            (
                Cell(text=_label(key)),
                Cell(text=_shown(key, figure.value), tone="strong"),
                Cell(text=figure.source, tone="dim"),
                Cell(text=_elsewhere(key, figure), tone="warn"),
                Cell(text=figure.note, tone="dim"),
            )
            for key, figure in figures.figures.items()
        ),
        right=frozenset({1}),
    )
    places = f"Places are chapter, file and line of {EDITION}."
    return Report(
        headline=f"{figures.name} · {figures.title}, as the Scaling Book has it",
        pieces=(table, Paragraphs(lines=(Cell(text=places, tone="dim"),))),
    )


def books_json(chips: Sequence[BookFigures]) -> dict[str, Json]:
    """The object that `--json` prints for all chips."""
    return {"edition": EDITION, "chips": [book_json(chip)["chip"] for chip in chips], "derivations": []}


def book_json(figures: BookFigures) -> dict[str, Json]:
    """The object that `--json` prints for one."""
    return {"edition": EDITION, "chip": jsonable(figures), "derivations": []}


def _summary(chip: BookFigures) -> tuple[Cell, ...]:
    keys = ("pod_shape", "peak_flops_per_s.bf16", "peak_flops_per_s.int8", "hbm_bytes", "hbm_bytes_per_s")
    keys += ("link_bytes_per_s", "usd_per_chip_hour")
    cells = (Cell(text=_shown(key, chip.figures[key].value)) if key in chip.figures else _ABSENT for key in keys)
    return (Cell(text=chip.name, tone="strong"), *cells)


def _label(key: str) -> str:
    kind, dot, which = key.partition(".")
    words = {
        "peak_flops_per_s": "peak",
        "sparse_peak_flops_per_s": "peak with 2:1 sparsity",
        "core_peak_flops_per_s": "peak of a core",
        "mxu_peak_flops_per_s": "peak of an MXU",
    }
    if dot and kind in words:
        return f"{which} {words[kind]}"
    return _LABELS.get(key, key.replace("_", " ").replace(".", " "))


def _shown(key: str, value: BookValue) -> str:
    """The value in the unit that its key names; sizes as a shape, other values side by side."""
    if isinstance(value, tuple):
        sizes = tuple(int(size) for size in value if not isinstance(size, str))
        return written(sizes) if key.endswith("_shape") else ", ".join(_shown(key, each) for each in value)
    if isinstance(value, str):
        return value.replace("_", " ")
    for ending, formatted in _FORMATS.items():
        if ending in key:
            return formatted(value)
    return format_count(value)


_FORMATS = {
    "flops_per_s": format_flops_per_s,
    "bytes_per_s": format_rate_bytes_per_s,
    "cycles_per_s": format_count,
    "hbm_bytes": format_decimal_bytes,
    "bytes": format_bytes,
    "latency_s": format_seconds,
    "usd": format_usd,
}
"""By what a key contains, longest first."""


def _elsewhere(key: str, figure: BookFigure) -> str:
    return "; ".join(f"{_shown(key, value)} ({source})" for value, source in figure.also)
