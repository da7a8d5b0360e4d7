"""What a step is sensitive to, as a table and as JSON."""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING

from ridgeline.job.mesh import mesh_in_words
from ridgeline.report.blocks import Cell, Table
from ridgeline.report.jsonable import Json, jsonable
from ridgeline.units import format_fraction

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ridgeline.report.blocks import Tone
    from ridgeline.search.sensitivity import Sensitivity

_NOTHING = 0.005


def sensitivity_table(found: Sequence[Sensitivity]) -> Table:
    """Fields, the most telling first."""
    return Table(
        title="What it is sensitive to",
        columns=("field", "of the", "made", "time a token", "for 1% more", "planned as"),
        right=frozenset({2, 3, 4}),
        rows=tuple(_row(each) for each in found),
        note=_note(found),
    )


def sensitivity_json(found: Sequence[Sensitivity]) -> list[Json]:
    """The same."""
    return [jsonable(each) for each in found]


def _row(each: Sensitivity) -> tuple[Cell, ...]:
    begins = (Cell(text=each.name), Cell(text=each.kind), Cell(text=f"×{each.factor:g}"))
    if isnan(each.time_ratio):
        return (*begins, Cell(text="–", tone="dim"), Cell(text="–", tone="dim"), Cell(text=each.reason, tone="dim"))
    mesh = f"{mesh_in_words(each.mesh)}{', another mesh' if each.changes_mesh else ''}"
    return (
        *begins,
        Cell(text=_signed(each.time_ratio - 1), tone=_tone(each.time_ratio - 1)),
        Cell(text=f"{each.elasticity:+.2f}%".replace("-", "−") if abs(each.elasticity) >= _NOTHING else "0%"),
        Cell(text=mesh),
    )


def _note(found: Sequence[Sensitivity]) -> str:
    """How it was compared, and on which mesh it was before."""
    how = "each field by itself, planned anew; of either job its fastest plan; on the same calibration"
    before = {mesh_in_words(each.mesh_before) for each in found}
    return "; ".join([how, *(f"the job as it is: {mesh}" for mesh in before)])


def _signed(change: float) -> str:
    if abs(change) < _NOTHING / 10:
        return "the same"
    return f"{'+' if change > 0 else '−'}{format_fraction(abs(change))}"


def _tone(change: float) -> Tone:
    if abs(change) < _NOTHING:
        return "dim"
    return "bad" if change > 0 else "good"
