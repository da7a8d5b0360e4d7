"""`--why tp=8`: a choice that was not taken, planned as well as it can be, and laid beside the best cause by cause."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ridgeline.cost.causes import time_by_cause
from ridgeline.errors import InfeasibleError, InputError
from ridgeline.job.job import DCN_AXES, ICI_AXES
from ridgeline.job.mesh import FREE, parse_mesh, parse_pairs
from ridgeline.search.answer import NoPlan
from ridgeline.search.train import train
from ridgeline.units import format_bytes, format_fraction

if TYPE_CHECKING:
    from ridgeline.job.job import Job
    from ridgeline.search.answer import PlanEstimate


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseOfTime:
    """Time of a step that goes to one cause, under both plans.

    Attributes:
        cause: In words, as `cost/causes.py` names it.
        best_s: Under the best plan.
        asked_s: Under the plan that was asked about.
    """

    cause: str
    best_s: float
    asked_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyNot:
    """Why a choice was not taken.

    Attributes:
        asked: The degrees, as written.
        estimate: The best plan that makes the choice; where none fits, the one that needs least. None if none is legal.
        reason: The answer in a sentence.
        causes: Where both plans spend their step, the largest difference first.
    """

    asked: str
    estimate: PlanEstimate | None
    reason: str
    causes: tuple[CauseOfTime, ...] = ()


def why_not(job: Job, best: PlanEstimate, asked: str, *, global_batch: int, where: str = "--why") -> WhyNot:
    """What the best plan with some degrees would cost, and why it is not the best.

    Args:
        job: The question.
        best: Its answer.
        asked: Degrees, e.g. `tp=8` or `fsdp=16,tp=8`; the other axes are chosen.
        global_batch: Sequences of a step under the best plan.
        where: The flag, for error messages.

    Raises:
        InputError: Not degrees, an unknown axis, or a degree that is left open.
    """
    pinned = parse_mesh(dict(parse_pairs(asked, where=where, example="tp=8")), where=where)
    for axis, degree in pinned.items():
        if degree == FREE:
            raise InputError(
                "an open degree is no choice",
                where=f"{where}: {axis}",
                value=degree,
                expected="a number of devices",
                fix=f"write e.g. {axis}=2; axes that are not named are chosen",
            )
    if all(best.plan.mesh.get(axis, 1) == degree for axis, degree in pinned.items()):
        return WhyNot(asked=asked, estimate=best, reason="the best plan does just that")
    across = [axis for axis, degree in pinned.items() if axis in DCN_AXES and degree > 1]
    if across and job.hardware.num_slices == 1:
        return WhyNot(asked=asked, estimate=None, reason=f"there is one slice, and {across[0]} splits over slices")
    axes = (*ICI_AXES, *(DCN_AXES if job.hardware.num_slices > 1 else ()))
    mesh = {axis: pinned.get(axis, FREE) for axis in (*axes, *pinned)}
    question = replace(
        job, plan=replace(job.plan, mesh=mesh), workload=replace(job.workload, global_batch=global_batch)
    )
    try:
        estimate, fits = train(question).best, True
    except InfeasibleError as error:
        if not isinstance(error.answer, NoPlan):
            raise
        estimate, fits = error.answer.closest, False
    except InputError as error:
        return WhyNot(asked=asked, estimate=None, reason=error.what)
    causes = _causes(best, estimate)
    return WhyNot(asked=asked, estimate=estimate, reason=_reason(best, estimate, causes, fits=fits), causes=causes)


def _causes(best: PlanEstimate, asked: PlanEstimate) -> tuple[CauseOfTime, ...]:
    ours, theirs = time_by_cause(best.step.parts), time_by_cause(asked.step.parts)
    found = [
        CauseOfTime(cause=cause, best_s=ours.get(cause, 0.0), asked_s=theirs.get(cause, 0.0))
        for cause in dict.fromkeys([*ours, *theirs])
    ]
    return tuple(sorted(found, key=lambda each: -abs(each.asked_s - each.best_s)))


def _reason(best: PlanEstimate, asked: PlanEstimate, causes: tuple[CauseOfTime, ...], *, fits: bool) -> str:
    if not fits:
        needed, usable = format_bytes(asked.memory.total_bytes), format_bytes(asked.memory.usable_bytes)
        return f"it does not fit: the least any such plan needs is {needed} of {usable} a device"
    slower = asked.step.expected_s / best.step.expected_s - 1
    if slower <= 0:
        extra = [axis for axis in asked.plan.mesh if axis not in best.plan.mesh]
        less_simple = f"; it needs {' and '.join(extra)}" if extra else ""
        return f"{format_fraction(-slower)} faster on paper, less than the estimate resolves{less_simple}"
    worst = next((each for each in causes if each.asked_s > each.best_s), None)
    mostly = f", mostly for {worst.cause}" if worst is not None else ""
    return f"it takes {format_fraction(slower)} longer{mostly}"
