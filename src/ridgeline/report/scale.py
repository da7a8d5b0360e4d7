"""`ridgeline scale`: the table of sizes, where scaling ends, and the charts."""

from __future__ import annotations

from math import floor
from typing import TYPE_CHECKING, Final

from ridgeline.job.mesh import mesh_in_words
from ridgeline.job.writing import job_tables
from ridgeline.report.blocks import Cell, Paragraphs, Report, Table
from ridgeline.report.chart import Axis, Chart, Curve, Guide
from ridgeline.report.derivations import derivations_json
from ridgeline.report.jsonable import Json, jsonable
from ridgeline.units import format_count, format_fraction, format_seconds, format_things, format_usd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ridgeline.report.blocks import Piece, Tone
    from ridgeline.search.answer import Bound
    from ridgeline.search.scale import ScaleAnswer, ScalePoint

_WAITS: Final[Mapping[Bound, str]] = {
    "compute": "compute",
    "hbm": "HBM",
    "ici": "links",
    "network": "network",
    "host": "host",
    "memory_capacity": "memory",
}
"""What a step waits for, in a word; `links` are ICI or NVLink, `memory` is a faster plan that does not fit."""

_GOOD, _POOR = 0.8, 0.5
_ROOM = 1.4


def scale_report(answer: ScaleAnswer) -> Report:
    """The screen."""
    job = answer.job
    return Report(
        headline=f"{job.model.name} on {job.hardware.chip.name}, {format_things(job.workload.seq_len, 'token')} "
        f"a sequence; {_how(answer)}",
        pieces=tuple(_pieces(answer)),
    )


def scale_json(answer: ScaleAnswer) -> dict[str, Json]:
    """The same in base units."""
    binds, found_on = answer.communication_binds, answer.batch_found_on
    return {
        "job": jsonable(job_tables(answer.job)),
        "weak": answer.weak,
        "batch_found_on": None if found_on is None else found_on.name,
        "points": [_point_json(point, seq_len=answer.job.workload.seq_len) for point in answer.points],
        "missing": [{"chips": size.num_chips, "reason": size.reason} for size in answer.missing],
        "communication_binds_at_chips": None if binds is None else binds.hardware.num_chips,
        "ends_at_chips": None if answer.ends is None else answer.ends.hardware.num_chips,
        "ends_because": answer.ends_because,
        "derivations": derivations_json(answer.derivations),
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
    guides = tuple(_guides(answer))
    title = f"{answer.job.model.name} on {answer.job.hardware.chip.name}, {'weak' if answer.weak else 'strong'} scaling"
    return (
        _chart(title, x, "tokens/s", (rates, ideal), guides, shown=format_count),
        _chart("Time of a step", x, "step", (steps, perfect), guides, shown=format_seconds),
    )


def _guides(answer: ScaleAnswer) -> Iterator[Guide]:
    """Where communication begins to bind, and where scaling ends."""
    binds, ends = answer.communication_binds, answer.ends
    if binds is not None and binds is not answer.planned[0] and binds is not ends:
        name = "network binds" if binds.best is not None and binds.best.busiest == "network" else "links bind"
        yield Guide(name=name, x=float(binds.hardware.num_chips))
    if ends is not None:
        yield Guide(name="ends", x=float(ends.hardware.num_chips))


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


def _how(answer: ScaleAnswer) -> str:
    """Which batch is held, and where it comes from."""
    first = answer.points[0]
    batch = f"{format_things(first.global_batch, 'sequence')}"
    found_on = answer.batch_found_on
    found = "" if found_on is None else f", the largest sensible batch on {found_on.name}"
    if not answer.weak:
        return f"strong scaling: the batch stays at {batch}{found}"
    if found_on is not None:
        batch = next(f"{point.global_batch:,}" for point in answer.points if point.hardware == found_on)
        return f"weak scaling: the batch grows with the chips, from {batch}{found}"
    return "weak scaling: the batch grows with the chips"


def _pieces(answer: ScaleAnswer) -> Iterator[Piece]:
    yield _table(answer)
    unplanned = [(point.hardware.name, point.reason) for point in answer.points if point.best is None]
    unplanned += [(_chips(size.num_chips), size.reason) for size in answer.missing]
    if unplanned:
        lines = tuple(Cell(text=f"{name}: {reason}.", tone="warn") for name, reason in unplanned)
        yield Paragraphs(title="Sizes without a plan", lines=lines)
    if any(point.answer is not None and point.answer.run is not None for point in answer.points):
        yield _runs(answer)
    yield Paragraphs(title="Where communication begins to bind", lines=tuple(_binds(answer)))
    yield Paragraphs(title="Where it ends", lines=(_end(answer),))


def _table(answer: ScaleAnswer) -> Table:
    return Table(
        columns=("chips", "slice", "batch", "tokens/chip", "mesh", "step", "tokens/s", "eff.", "exposed", "waits for"),
        right=frozenset({0, 2, 3, 5, 6, 7, 8}),
        rows=tuple(_row(point, answer.job.workload.seq_len) for point in answer.points),
        note="eff.: tokens/s a chip beside the first size with a plan; exposed: communication that nothing hides",
    )


def _row(point: ScalePoint, seq_len: int) -> tuple[Cell, ...]:
    hardware, best = point.hardware, point.best
    begins = (
        Cell(text=f"{hardware.num_chips:,}"),
        Cell(text=hardware.name),
        Cell(text=f"{point.global_batch:,}"),
        Cell(text=format_count(round(point.global_batch * seq_len / hardware.num_chips))),
    )
    if best is None:
        return (*begins, Cell(text="no plan", tone="dim"), *(Cell(text="–", tone="dim") for _ in range(5)))
    return (
        *begins,
        Cell(text=mesh_in_words(best.plan.mesh)),
        Cell(text=format_seconds(best.step.expected_s)),
        Cell(text=format_count(point.tokens_per_s)),
        Cell(text=f"{point.efficiency:.0%}", tone=_tone(point.efficiency)),
        Cell(text=format_fraction(point.communication_fraction)),
        Cell(text=", ".join(dict.fromkeys([_WAITS[best.bound], _WAITS[best.busiest]]))),
    )


def _runs(answer: ScaleAnswer) -> Table:
    """Days and dollars at each size, for a job of known length."""
    runs = [(point, point.answer.run) for point in answer.points if point.answer is not None]
    return Table(
        title=f"The whole run, {format_count(answer.job.workload.tokens or 0)} tokens",
        columns=("chips", "takes", "chip-hours", "costs"),
        right=frozenset({0, 1, 2, 3}),
        rows=tuple(
            (
                Cell(text=f"{point.hardware.num_chips:,}"),
                Cell(text=format_seconds(run.duration_s)),
                Cell(text=format_count(run.chip_hours)),
                Cell(text="unknown" if run.cost_usd is None else format_usd(run.cost_usd)),
            )
            for point, run in runs
            if run is not None
        ),
    )


def _binds(answer: ScaleAnswer) -> Iterator[Cell]:
    """By the laws at peak rates, and by the plans."""
    laws = {(law.quantity, law.unit): law for law in answer.laws}
    if alone := laws.get(("fsdp critical", "tokens_per_chip")):
        mixed, covered = laws["mixed critical", "tokens_per_chip"].value, laws["num fsdp chips", ""].value
        covered = max(covered, laws["num mixed chips", ""].value)
        reach = "" if answer.weak else f". This batch covers {_chips(floor(covered))} of one slice"
        gathered = ", all experts gathered," if dict(alone.values).get("E", 1) > 1 else ""
        yield Cell(
            text=f"By the laws, at peak rates: FSDP{gathered} hides its collectives from "
            f"{format_count(round(alone.value))} tokens a chip on, with tensor parallelism at its best from "
            f"{format_count(round(mixed))}{reach}."
        )
    binds = answer.communication_binds
    if binds is None:
        yield Cell(text="In these plans it does not: no step waits for links or the network above all.")
    else:
        waits = _WAITS[binds.best.busiest] if binds.best is not None else ""
        chips = _chips(binds.hardware.num_chips)
        yield Cell(text=f"In these plans from {chips} on: the step waits for {waits} above all.", tone="warn")


def _tone(efficiency: float) -> Tone:
    if efficiency >= _GOOD:
        return "good"
    return "warn" if efficiency >= _POOR else "bad"


def _chips(count: int) -> str:
    """The number in full: 16,384 is a size, 16.4K is none."""
    return f"{count:,} chip{'' if count == 1 else 's'}"


def _end(answer: ScaleAnswer) -> Cell:
    last = answer.planned[-1].hardware.num_chips
    if len(answer.planned) == 1 and answer.ends is None:
        return Cell(text="One size has a plan: with nothing to compare it to, no end can be seen.")
    if answer.ends is None:
        return Cell(text=f"Not before {_chips(last)}: every step up brings at least half of its speed.")
    return Cell(text=f"At {_chips(answer.ends.hardware.num_chips)}: {answer.ends_because}.", tone="warn")


def _point_json(point: ScalePoint, *, seq_len: int) -> dict[str, Json]:
    best = point.best
    found: dict[str, Json] = {
        "chips": point.hardware.num_chips,
        "hardware": point.hardware.name,
        "global_batch": point.global_batch,
        "tokens_per_chip": point.global_batch * seq_len / point.hardware.num_chips,
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
            "widened_by": list(best.step.widened_by),
            "bound": best.bound,
            "busiest": best.busiest,
            "bound_reason": best.bound_reason,
            "mfu": best.mfu,
            "memory_bytes": best.memory.total_bytes,
            "verdict": best.memory.verdict,
            "run": jsonable(point.answer.run) if point.answer is not None else None,
        }
    return found
