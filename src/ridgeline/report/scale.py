"""`ridgeline scale`: the table of sizes, where scaling ends, and the charts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ridgeline.job.mesh import mesh_in_words
from ridgeline.job.writing import job_tables
from ridgeline.report.blocks import Cell, Paragraphs, Report, Table
from ridgeline.report.chart import Axis, Chart, Curve, Guide
from ridgeline.report.jsonable import Json, jsonable
from ridgeline.report.train import BOUNDS
from ridgeline.units import format_count, format_fraction, format_seconds, format_things

if TYPE_CHECKING:
    from collections.abc import Callable

    from ridgeline.report.blocks import Tone
    from ridgeline.search.scale import ScaleAnswer, ScalePoint

_GOOD, _POOR = 0.8, 0.5
_ROOM = 1.4


def scale_report(answer: ScaleAnswer) -> Report:
    """The screen."""
    job = answer.job
    how = "weak scaling: the batch grows with the chips" if answer.weak else "strong scaling: the batch stays"
    return Report(
        headline=f"{job.model.name} on {job.hardware.chip.name}, {format_things(job.workload.seq_len, 'token')} "
        f"a sequence; {how}",
        pieces=(_table(answer), Paragraphs(title="Where it ends", lines=(_end(answer),))),
    )


def scale_json(answer: ScaleAnswer) -> dict[str, Json]:
    """The same in base units."""
    return {
        "job": jsonable(job_tables(answer.job)),
        "weak": answer.weak,
        "points": [_point_json(point) for point in answer.points],
        "ends_at_chips": None if answer.ends is None else answer.ends.hardware.num_chips,
        "ends_because": answer.ends_because,
    }


def scale_charts(answer: ScaleAnswer) -> tuple[Chart, ...]:
    """Throughput, and step time, against chips; the ideal beside them, the end marked."""
    planned = [(point, point.best) for point in answer.points if point.best is not None]
    first = planned[0][0]
    chips = [float(point.hardware.num_chips) for point, _ in planned]
    x = Axis(title="chips", low=chips[0] / _ROOM, high=chips[-1] * _ROOM, shown=format_count, step=2)
    rates = tuple((float(point.hardware.num_chips), point.tokens_per_s) for point, _ in planned)
    ideal = tuple((count, first.tokens_per_s * count / chips[0]) for count in chips)
    steps = tuple((float(point.hardware.num_chips), best.step.expected_s) for point, best in planned)
    perfect = tuple((count, steps[0][1] * (1 if answer.weak else chips[0] / count)) for count in chips)
    ends = () if answer.ends is None else (Guide(name="ends", x=float(answer.ends.hardware.num_chips)),)
    title = f"{answer.job.model.name} on {answer.job.hardware.chip.name}, {'weak' if answer.weak else 'strong'} scaling"
    return (
        _chart(title, x, "tokens/s", (rates, ideal), ends, shown=format_count),
        _chart("Time of a step", x, "step", (steps, perfect), ends, shown=format_seconds),
    )


def _chart(
    title: str,
    x: Axis,
    what: str,
    curves: tuple[tuple[tuple[float, float], ...], tuple[tuple[float, float], ...]],
    guides: tuple[Guide, ...],
    *,
    shown: Callable[[float], str],
) -> Chart:
    found, ideal = curves
    values = [value for curve in curves for _, value in curve]
    return Chart(
        title=title,
        x=x,
        y=Axis(title=what, low=min(values) / _ROOM, high=max(values) * _ROOM, shown=shown),
        curves=(Curve(name="planned", points=found), Curve(name="ideal", points=ideal, dashed=True)),
        guides=guides,
    )


def _table(answer: ScaleAnswer) -> Table:
    return Table(
        columns=("chips", "slice", "batch", "mesh", "step", "tokens/s", "efficiency", "exposed", "waits for"),
        right=frozenset({0, 2, 4, 5, 6, 7}),
        rows=tuple(_row(point) for point in answer.points),
        note="efficiency: tokens/s a chip beside the first size with a plan; exposed: communication that nothing hides",
    )


def _row(point: ScalePoint) -> tuple[Cell, ...]:
    hardware, best = point.hardware, point.best
    begins = (
        Cell(text=format_count(hardware.num_chips)),
        Cell(text=hardware.name),
        Cell(text=f"{point.global_batch:,}"),
    )
    if best is None:
        return (*begins, Cell(text=point.reason, tone="dim"), *(Cell(text="–", tone="dim") for _ in range(5)))
    return (
        *begins,
        Cell(text=mesh_in_words(best.plan.mesh)),
        Cell(text=format_seconds(best.step.expected_s)),
        Cell(text=format_count(point.tokens_per_s)),
        Cell(text=format_fraction(point.efficiency), tone=_tone(point.efficiency)),
        Cell(text=format_fraction(point.communication_fraction)),
        Cell(text=BOUNDS[best.bound]),
    )


def _tone(efficiency: float) -> Tone:
    if efficiency >= _GOOD:
        return "good"
    return "warn" if efficiency >= _POOR else "bad"


def _end(answer: ScaleAnswer) -> Cell:
    last = answer.points[-1].hardware.num_chips
    if len([point for point in answer.points if point.best is not None]) == 1 and answer.ends is None:
        return Cell(text="One size has a plan: with nothing to compare it to, no end can be seen.")
    if answer.ends is None:
        return Cell(text=f"Not before {format_things(last, 'chip')}: every step up brings at least half of its speed.")
    return Cell(text=f"At {format_things(answer.ends.hardware.num_chips, 'chip')}: {answer.ends_because}.", tone="warn")


def _point_json(point: ScalePoint) -> dict[str, Json]:
    best = point.best
    found: dict[str, Json] = {
        "chips": point.hardware.num_chips,
        "hardware": point.hardware.name,
        "global_batch": point.global_batch,
        "plan": None,
        "reason": point.reason or None,
        "speedup": jsonable(point.speedup),
        "efficiency": jsonable(point.efficiency),
        "tokens_per_s": jsonable(point.tokens_per_s),
        "communication_fraction": jsonable(point.communication_fraction),
    }
    if best is not None:
        found |= {
            "plan": jsonable(best.plan),
            "roofline_s": best.step.roofline_s,
            "expected_s": best.step.expected_s,
            "low_s": best.step.low_s,
            "high_s": best.step.high_s,
            "bound": best.bound,
            "bound_reason": best.bound_reason,
            "mfu": best.mfu,
            "memory_bytes": best.memory.total_bytes,
            "verdict": best.memory.verdict,
        }
    return found
