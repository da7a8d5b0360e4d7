"""`ridgeline roofline mxu`, `vpu` and `padding`: the inside of a chip, as screens and as JSON."""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING

from ridgeline.hardware.topology import written
from ridgeline.report.blocks import Cell, Facts, Report, Table
from ridgeline.report.derivations import derivations_json
from ridgeline.report.jsonable import jsonable
from ridgeline.units import (
    format_bytes,
    format_count,
    format_cycles_per_s,
    format_flops,
    format_flops_per_s,
    format_fraction,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ridgeline.cost.laws.deduce import Deduced
    from ridgeline.cost.questions.padding import Padding, Tiling
    from ridgeline.report.jsonable import Json

_LABELS = {
    "num_rows": "rows of an array",
    "num_columns": "columns of an array",
    "num_alus": "ALUs of an array",
    "cycle_flops": "an array in a cycle",
    "clock_cycles_per_s": "clock",
    "implied_clock_cycles_per_s": "clock that the rate implies",
    "unit_flops_per_s": "one array",
    "num_units": "arrays of the chip",
    "chip_flops_per_s": "the chip",
    "multiply_adds_count_per_s": "multiply-adds a second",
    "num_core_units": "arrays of a core",
    "filling_width": "width that fills a core's arrays",
    "gain_ratio": "another array, in a cycle",
    "num_sublanes": "sublanes",
    "num_lanes": "lanes",
    "num_alus_per_lane": "ALUs of each lane and sublane",
    "num_adders": "ALUs of a unit",
    "num_cores": "cores of the chip",
    "vector_flops_per_s": "the chip, in f32",
    "num_registers": "registers of a core",
    "register_elements": "elements of a register",
    "register_bytes": "bytes of a register",
    "registers_bytes": "all registers of a core",
}
"""What a quantity is called on screen, in the order in which it is shown."""

_FORMATS: Mapping[str, Callable[[float], str]] = {
    "cycle_flops": format_flops,
    "flops_per_s": format_flops_per_s,
    "cycles_per_s": format_cycles_per_s,
    "count_per_s": format_count,
    "bytes": format_bytes,
    "ratio": lambda ratio: f"{ratio:.3g} times",
}
"""By the end of a quantity's name; any other is a count."""


def unit_report(title: str, known: Deduced) -> Report:
    """Everything that is known of a chip's matrix units, or its vector units."""
    shown = {quantity: label for quantity, label in _LABELS.items() if quantity in known}
    if "clock_cycles_per_s" in known:
        shown.pop("implied_clock_cycles_per_s", None)
    rows = tuple((label, Cell(text=_format(quantity)(known[quantity]))) for quantity, label in shown.items())
    return Report(headline=title, pieces=(Facts(rows=rows),))


def unit_json(known: Deduced) -> dict[str, Json]:
    """The object that `--json` prints: every quantity by its name."""
    return {
        **{name: jsonable(value) for name, value in known.values.items()},
        "derivations": derivations_json(list(known.derivations.values())),
    }


def padding_report(answer: Padding) -> Report:
    """An array in tiles: in memory, in registers, and as the weights of each kind of matrix unit."""
    table = Table(
        columns=("in", "of", "tile", "padded to", "bytes", "for nothing", "FLOPs a row"),
        rows=tuple(_tiling(tiling) for tiling in answer.tilings),
        right=frozenset({4, 5, 6}),
        note="For nothing: the part of the memory, of the registers, or of the FLOPs of a product with the array as "
        "its weights. In memory, rows in their order; XLA may turn an array around where that pads less.",
    )
    return Report(
        headline=f"An array of {written(answer.shape)}, {answer.element_bytes:g} bytes an element, "
        f"{format_bytes(answer.array_bytes)}",
        pieces=(table,),
    )


def padding_json(answer: Padding) -> dict[str, Json]:
    """The object that `--json` prints."""
    return {
        "shape": list(answer.shape),
        "element_bytes": answer.element_bytes,
        "array_bytes": answer.array_bytes,
        "tilings": [
            {
                "place": tiling.place,
                "chips": list(tiling.chips),
                "tile": list(tiling.tile),
                "shape": list(tiling.shape),
                "padded_bytes": tiling.padded_bytes,
                "wasted_bytes": tiling.wasted_bytes,
                "wasted_fraction": tiling.wasted_fraction,
                "expansion_ratio": tiling.expansion_ratio,
                "flops_per_row": jsonable(tiling.flops_per_row),
            }
            for tiling in answer.tilings
        ],
        "derivations": derivations_json(answer.derivations),
    }


def _tiling(tiling: Tiling) -> tuple[Cell, ...]:
    return (
        Cell(text=tiling.place, tone="strong"),
        Cell(text=", ".join(tiling.chips) or ("" if tiling.place == "matrix unit" else "every TPU")),
        Cell(text=written(tiling.tile)),
        Cell(text=written(tiling.shape)),
        Cell(text=format_bytes(tiling.padded_bytes)),
        Cell(text=format_fraction(tiling.wasted_fraction)),
        Cell(text="–" if isnan(tiling.flops_per_row) else format_flops(tiling.flops_per_row), tone="plain"),
    )


def _format(quantity: str) -> Callable[[float], str]:
    return next((shown for ending, shown in _FORMATS.items() if quantity.endswith(ending)), _written_out)


def _written_out(number: float) -> str:
    return f"{number:,g}"
