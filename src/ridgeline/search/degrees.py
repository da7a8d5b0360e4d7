"""What the degree of one mesh axis does: the job planned anew at each, as well as it can be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ridgeline.cost.causes import COMMUNICATION, time_by_cause
from ridgeline.job.job import DCN_AXES
from ridgeline.job.mesh import parse_mesh, parse_pairs
from ridgeline.search.why import why_not

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ridgeline.job.job import Job
    from ridgeline.search.answer import PlanEstimate

BEYOND: Final = 2
"""Times the degree that was asked about, or chosen, up to which degrees are tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DegreePoint:
    """The fastest plan that fits with one degree of an axis.

    Attributes:
        degree: Of the axis.
        estimate: Of the plan.
    """

    degree: int
    estimate: PlanEstimate

    @property
    def communication_s(self) -> float:
        """Time of the step that goes to collectives nothing hides."""
        causes = time_by_cause(self.estimate.step.parts)
        return sum(causes.get(cause, 0.0) for cause in COMMUNICATION.values())


def over_degrees(job: Job, best: PlanEstimate, asked: str, *, global_batch: int) -> tuple[str, tuple[DegreePoint, ...]]:
    """The first axis of a question, and the best plan at each of its degrees at which one is legal and fits.

    Args:
        job: The question.
        best: Its answer.
        asked: Degrees, e.g. `tp=8`.
        global_batch: Sequences of a step under the best plan.
    """
    pinned = parse_mesh(dict(parse_pairs(asked, where="--why", example="tp=8")), where="--why")
    axis = next(iter(pinned))
    chosen = best.plan.mesh.get(axis, 1)
    devices = job.hardware.num_slices if axis in DCN_AXES else job.hardware.devices_per_slice
    most = min(BEYOND * max(pinned[axis], chosen), devices)
    return axis, tuple(_points(job, best, axis, most, global_batch=global_batch))


def _points(job: Job, best: PlanEstimate, axis: str, most: int, *, global_batch: int) -> Iterator[DegreePoint]:
    degree = 1
    while degree <= most:
        estimate = why_not(job, best, f"{axis}={degree}", global_batch=global_batch).estimate
        if estimate is not None and estimate.memory.verdict != "does_not_fit":
            yield DegreePoint(degree=degree, estimate=estimate)
        degree *= 2
