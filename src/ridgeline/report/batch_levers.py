"""What each lever does to the batch, as a table and as JSON."""

from __future__ import annotations

from math import floor, log10
from typing import TYPE_CHECKING

from ridgeline.job.mesh import mesh_in_words
from ridgeline.report.blocks import Cell, Table
from ridgeline.report.chart import Axis, Chart, Curve, Mark
from ridgeline.report.jsonable import Json, jsonable
from ridgeline.units import format_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ridgeline.search.batch_levers import BatchTried, LeverAnswer

_RATE = "tokens/s a chip"
_ROOM = 1.1
_SHORT = {"hbm": "HBM", "host_ram": "host RAM"}
_BOUND = {"hbm": "HBM", "ici": "links", "host": "PCIe", "memory_capacity": "memory"}
_ABSENT = Cell(text="–", tone="dim")


def batch_levers_table(found: Sequence[LeverAnswer]) -> Table:
    """Each lever by itself."""
    return Table(
        title="What each lever does to the batch",
        columns=("lever", "largest", "a device", _RATE, "bound", "lacks", "mesh", "sensible", _RATE),
        right=frozenset({1, 2, 3, 7, 8}),
        rows=tuple(_row(each) for each in found),
        note=(
            "sequences of a step, in one pass but for the last line; largest: that fits (≥: that was tried); "
            "bound: what the largest waits for; lacks: what stops the next larger one; "
            "sensible: up to which each doubling brings at least 2% more tokens/s; what a model learns is not modelled"
        ),
    )


def batch_levers_json(found: Sequence[LeverAnswer]) -> list[Json]:
    """The same in base units."""
    return [
        {
            "name": each.name,
            "says": each.says,
            "largest": _tried_json(each.largest),
            "sensible": _tried_json(each.sensible),
            "is_capped": each.is_capped,
            "shortage": jsonable(each.shortage),
            "tried": [
                {"global_batch": one.global_batch, "tokens_per_s_per_chip": one.best.tokens_per_s_per_chip}
                for one in each.tried
            ],
            "reason": each.reason or None,
        }
        for each in found
    ]


def batch_levers_chart(found: Sequence[LeverAnswer], *, title: str) -> Chart:
    """Batch against throughput, a curve a lever; each ends at the largest batch that fits."""
    curves = tuple(
        Curve(
            name=each.name,
            points=tuple((one.global_batch, one.best.tokens_per_s_per_chip) for one in each.tried),
        )
        for each in found
        if each.tried
    )
    points = [point for curve in curves for point in curve.points]
    batches, rates = [x for x, _ in points] or [1.0], [y for _, y in points] or [1.0]
    return Chart(
        title=f"{title}: what each lever does to the batch",
        x=Axis(title="sequences a step", low=min(batches) / 2, high=max(batches) * 2, shown=format_count, step=2),
        y=Axis(
            title="tokens/s a chip",
            low=0,
            high=max(rates) * _ROOM,
            shown=format_count,
            step=10 ** floor(log10(max(rates))),
            linear=True,
        ),
        curves=curves,
        marks=tuple(
            Mark(
                name=f"{each.name}: {each.largest.global_batch:,}",
                x=each.largest.global_batch,
                y=each.largest.best.tokens_per_s_per_chip,
            )
            for each in found
            if each.largest is not None
        ),
        numbered=True,
    )


def _row(each: LeverAnswer) -> tuple[Cell, ...]:
    largest, sensible = each.largest, each.sensible
    if largest is None or sensible is None:
        return (Cell(text=each.name), *(_ABSENT,) * 5, Cell(text=each.reason, tone="dim"), _ABSENT, _ABSENT)
    best = largest.best
    return (
        Cell(text=each.name),
        Cell(text=f"{'≥ ' if each.is_capped else ''}{format_count(largest.global_batch)}", tone="strong"),
        Cell(text=f"{largest.sequences_per_device_ratio:g}"),
        Cell(text=format_count(best.tokens_per_s_per_chip)),
        Cell(text=_BOUND.get(best.bound, best.bound)),
        Cell(text="–", tone="dim") if each.shortage is None else Cell(text=_SHORT[each.shortage.resource]),
        Cell(text=mesh_in_words(best.plan.mesh)),
        Cell(text=format_count(sensible.global_batch)),
        Cell(text=format_count(sensible.best.tokens_per_s_per_chip)),
    )


def _tried_json(tried: BatchTried | None) -> Json:
    if tried is None:
        return None
    return {
        "global_batch": tried.global_batch,
        "sequences_per_device": tried.sequences_per_device_ratio,
        "tokens_per_s_per_chip": tried.best.tokens_per_s_per_chip,
        "expected_s": tried.best.step.expected_s,
        "memory_bytes": tried.best.memory.total_bytes,
        "plan": jsonable(tried.best.plan),
    }
