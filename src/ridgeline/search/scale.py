"""`scale`: the same job on more and more chips, planned anew at each size, and where it stops to pay.

strong  the batch stays: how much faster does it get
weak    the batch grows with the chips: how much of each chip's throughput is left
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from ridgeline.cost.causes import COMMUNICATION, time_by_cause
from ridgeline.errors import InfeasibleError, InputError
from ridgeline.hardware.sizes import resized
from ridgeline.job.mesh import FREE
from ridgeline.search.train import train

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ridgeline.hardware.slice import Slice
    from ridgeline.job.job import Job
    from ridgeline.search.answer import PlanEstimate
    from ridgeline.search.train import Progress

LEAST_GAIN: Final = 0.5
"""Share of the speed that more chips could bring which they must bring, or scaling has ended."""

LEAST_SHARE: Final = 0.01
"""Part of a step below which a collective is not named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalePoint:
    """The job on one slice.

    Attributes:
        hardware: The slice.
        global_batch: Sequences per step.
        best: The plan; None where there is none.
        reason: Why there is none.
        speedup: Tokens/s over those of the smallest slice with a plan; NaN without a plan.
        efficiency: Tokens/s a chip over those of the smallest slice with a plan; NaN without a plan.
    """

    hardware: Slice
    global_batch: int
    best: PlanEstimate | None
    reason: str = ""
    speedup: float = float("nan")
    efficiency: float = float("nan")

    @property
    def tokens_per_s(self) -> float:
        """Throughput of the whole slice; NaN without a plan."""
        return float("nan") if self.best is None else self.best.tokens_per_s_per_chip * self.hardware.num_chips

    @property
    def communication_fraction(self) -> float:
        """Part of the step in which nothing but communication goes on; NaN without a plan."""
        if self.best is None:
            return float("nan")
        causes = time_by_cause(self.best.step.parts)
        waiting_s = sum(time_s for cause, time_s in causes.items() if cause in COMMUNICATION.values())
        return waiting_s / self.best.step.expected_s


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleAnswer:
    """What `ridgeline scale` answers.

    Attributes:
        job: The question, on the slice it names.
        weak: Whether the batch grows with the chips.
        points: From fewest chips to most.
        ends: The last size worth having; None when scaling goes on to the largest asked for.
        ends_because: What binds beyond it.
    """

    job: Job
    weak: bool
    points: tuple[ScalePoint, ...]
    ends: ScalePoint | None
    ends_because: str


def scale(job: Job, *, chips: Sequence[int], weak: bool = False, progress: Progress | None = None) -> ScaleAnswer:
    """A job at several sizes of its slice.

    Args:
        job: The question; with its batch, which without `weak` stays as it is.
        chips: Numbers of chips, ascending.
        weak: Let the batch grow with the chips, from the job's own at the job's own slice.
        progress: Told how far it is.

    Raises:
        InputError: The question is malformed at every size, or a mesh is pinned that fills one size alone.
        InfeasibleError: There is a plan at no size.
    """
    _check(job)
    points: list[ScalePoint] = []
    for count in chips:
        if progress is not None:
            progress(f"planning for {count:,} chips", len(points) / len(chips))
        hardware = resized(job.hardware, count)
        if hardware is not None:
            points.append(_point(replace(job, hardware=hardware), _batch(job, hardware, weak=weak)))
    first = next((point for point in points if point.best is not None), None)
    if first is None:
        raise _never(job, points, chips)
    rated = tuple(_rated(point, first) for point in points)
    ends, because = _end(rated, weak=weak)
    return ScaleAnswer(job=job, weak=weak, points=rated, ends=ends, ends_because=because)


def _check(job: Job) -> None:
    if job.workload.global_batch is None:
        raise InputError(
            "no batch to scale with",
            where="workload.global_batch",
            value=None,
            expected="sequences a step",
            fix="add --global-batch N",
        )
    if job.plan.mesh and FREE not in job.plan.mesh.values():
        pinned = " ".join(f"{axis}={degree}" for axis, degree in job.plan.mesh.items())
        raise InputError(
            "a pinned mesh fills slices of one size alone",
            where="plan.mesh",
            value=pinned,
            expected="an axis that grows",
            fix=f"leave one open, e.g. fsdp={FREE}",
        )


def _batch(job: Job, hardware: Slice, *, weak: bool) -> int:
    batch = job.workload.global_batch or 0
    return max(round(batch * hardware.num_chips / job.hardware.num_chips), 1) if weak else batch


def _point(job: Job, global_batch: int) -> ScalePoint:
    try:
        answer = train(replace(job, workload=replace(job.workload, global_batch=global_batch)))
    except InfeasibleError as error:
        return ScalePoint(hardware=job.hardware, global_batch=global_batch, best=None, reason=error.reasons[0])
    except InputError as error:
        return ScalePoint(hardware=job.hardware, global_batch=global_batch, best=None, reason=error.what)
    return ScalePoint(hardware=job.hardware, global_batch=global_batch, best=answer.best)


def _rated(point: ScalePoint, first: ScalePoint) -> ScalePoint:
    speedup = point.tokens_per_s / first.tokens_per_s
    more = point.hardware.num_chips / first.hardware.num_chips
    return replace(point, speedup=speedup, efficiency=speedup / more)


def _end(points: Sequence[ScalePoint], *, weak: bool) -> tuple[ScalePoint | None, str]:
    """The last size before more chips bring less than half of the speed they could, and why."""
    planned = [point for point in points if point.best is not None]
    for here, further in pairwise(planned):
        could = further.hardware.num_chips / here.hardware.num_chips - 1
        brought = further.speedup / here.speedup - 1
        if brought < LEAST_GAIN * could:
            return here, _why(further, brought / could)
    last = planned[-1]
    beyond = next((point for point in points if point.hardware.num_chips > last.hardware.num_chips), None)
    if beyond is not None and not weak:
        return last, f"with {beyond.hardware.num_chips:,} chips there is no plan: {beyond.reason}"
    return None, ""


def _why(point: ScalePoint, share: float) -> str:
    """What more chips ran into, in words."""
    if point.best is None:
        return point.reason
    chips = f"{point.hardware.num_chips:,} chips bring {max(share, 0.0):.0%} of the speed they could"
    step_s, causes = point.best.step.expected_s, time_by_cause(point.best.step.parts)
    waiting = sorted((-time_s, cause) for cause, time_s in causes.items() if cause in COMMUNICATION.values())
    named = [f"{cause} {-time_s / step_s:.0%}" for time_s, cause in waiting if -time_s > LEAST_SHARE * step_s]
    waits = f"; of the step there, {', '.join(named[:2])}" if named else ""
    return f"{chips}: {point.best.bound_reason}{waits}"


def _never(job: Job, points: Sequence[ScalePoint], chips: Sequence[int]) -> InfeasibleError:
    if not points:
        return InfeasibleError(
            f"no slice of {job.hardware.chip.name} has such a number of chips",
            reasons=[f"asked for {', '.join(f'{count:,}' for count in chips)}"],
            fix="ask ridgeline chips for the shapes there are",
        )
    return InfeasibleError(
        f"{job.model_reference} has a plan at none of these sizes",
        reasons=[f"{point.hardware.name}: {point.reason}" for point in points[-3:]],
        fix="use more chips, shorter sequences or another batch",
    )
