"""A choice that was not taken beside the best plan: a table of causes, and JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ridgeline.job.mesh import mesh_in_words
from ridgeline.report.blocks import Cell, Paragraphs, Table
from ridgeline.report.jsonable import Json, jsonable
from ridgeline.report.train import VERDICTS, remat_in_words
from ridgeline.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ridgeline.report.blocks import Piece
    from ridgeline.search.answer import PlanEstimate
    from ridgeline.search.why import CauseOfTime, WhyNot

_LEAST_SHOWN = 0.0005
"""Part of the best step below which a cause is left out."""


def why_pieces(why: WhyNot, best: PlanEstimate) -> Iterator[Piece]:
    """The answer in a sentence, then both plans cause by cause."""
    yield Paragraphs(title=f"Why not {why.asked}", lines=(Cell(text=f"{why.reason[:1].upper()}{why.reason[1:]}."),))
    if why.estimate is None or not why.causes:
        return
    least_s = _LEAST_SHOWN * best.step.expected_s
    shown = [each for each in why.causes if max(each.best_s, each.asked_s) >= least_s]
    ours, theirs = best.memory, why.estimate.memory
    yield Table(
        columns=("time of a step", mesh_in_words(best.plan.mesh), mesh_in_words(why.estimate.plan.mesh), "difference"),
        right=frozenset({1, 2, 3}),
        rows=(
            *(_row(each) for each in shown),
            _step_row(best, why.estimate),
            (
                Cell(text="memory"),
                Cell(text=format_bytes(ours.total_bytes), tone=VERDICTS[ours.verdict][1]),
                Cell(text=format_bytes(theirs.total_bytes), tone=VERDICTS[theirs.verdict][1]),
                Cell(text=""),
            ),
        ),
        note=f"{mesh_in_words(why.estimate.plan.mesh)}: remat {remat_in_words(why.estimate.plan)}",
    )


def why_json(why: WhyNot) -> dict[str, Json]:
    """The same in base units."""
    estimate = why.estimate
    return {
        "asked": why.asked,
        "reason": why.reason,
        "plan": None if estimate is None else jsonable(estimate.plan),
        "expected_s": None if estimate is None else estimate.step.expected_s,
        "memory_bytes": None if estimate is None else estimate.memory.total_bytes,
        "verdict": None if estimate is None else estimate.memory.verdict,
        "causes": jsonable(why.causes),
    }


def _row(each: CauseOfTime) -> tuple[Cell, ...]:
    return (
        Cell(text=each.cause),
        Cell(text=format_seconds(each.best_s)),
        Cell(text=format_seconds(each.asked_s)),
        _difference(each.asked_s - each.best_s),
    )


def _step_row(best: PlanEstimate, asked: PlanEstimate) -> tuple[Cell, ...]:
    ours_s, theirs_s = best.step.expected_s, asked.step.expected_s
    return (
        Cell(text="the step", tone="strong"),
        Cell(text=format_seconds(ours_s), tone="strong"),
        Cell(text=format_seconds(theirs_s), tone="strong"),
        _difference(theirs_s - ours_s),
    )


def _difference(more_s: float) -> Cell:
    sign = "+" if more_s >= 0 else "−"
    return Cell(text=f"{sign}{format_seconds(abs(more_s))}", tone="bad" if more_s > 0 else "good")
