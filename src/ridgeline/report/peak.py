"""The largest values in a device's memory at the peak, as a table and as JSON."""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING

from ridgeline.report.blocks import Cell, Table
from ridgeline.report.jsonable import jsonable
from ridgeline.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ridgeline.hlo.peak import LiveValue
    from ridgeline.report.jsonable import Json

_MOST_ROWS = 12


def peak_table(values: Sequence[LiveValue], *, peak_bytes: float) -> Table:
    """What takes most of the memory, by the names of the model, and how much of the peak that is.

    Args:
        values: The largest.
        peak_bytes: The compiler's peak, or what it needed and did not find.
    """
    return Table(
        title="largest values at the peak",
        columns=("what", "size", "shape", "operation"),
        rows=tuple(
            (
                Cell(text=each.what, tone="strong"),
                Cell(text=format_bytes(each.size_bytes)),
                Cell(text=each.shape or "–"),
                Cell(text=each.name, tone="dim"),
            )
            for each in values[:_MOST_ROWS]
        ),
        right=frozenset({1}),
        note="; ".join(_notes(values, peak_bytes)),
    )


def _notes(values: Sequence[LiveValue], peak_bytes: float) -> Iterator[str]:
    together_bytes = sum(each.size_bytes for each in values)
    if together_bytes > peak_bytes:
        yield f"together {format_bytes(together_bytes)}, more than the peak: some take another's place"
    elif not isnan(peak_bytes):
        yield f"together {format_bytes(together_bytes)} of {format_bytes(peak_bytes)} at the peak"
    if len(values) > _MOST_ROWS:
        yield f"{len(values) - _MOST_ROWS} of them in --json only"


def peak_json(values: Sequence[LiveValue]) -> list[Json]:
    """The same in base units."""
    return [
        {
            "what": each.what,
            "role": each.role,
            "part": each.part or None,
            "phase": each.phase or None,
            "shape": each.shape or None,
            "size_bytes": jsonable(each.size_bytes),
            "name": each.name,
        }
        for each in values
    ]
