"""A measured case: a job with everything pinned, what was measured of it, and what was assumed to pin it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from ridgeline.job.job import Job
from ridgeline.search.interval import job_precision, job_traits
from ridgeline.study.measured.measurement import Measurement, Metric

if TYPE_CHECKING:
    from ridgeline.cost.uncertainty import Traits


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCase(Measurement[Job, Metric]):
    """A measured training step.

    Attributes:
        alternatives: The same job under the other readings of what was left open, for the spread.
    """

    alternatives: tuple[Job, ...] = ()

    @property
    def slices(self) -> int:
        """Slices joined by DCN."""
        return self.job.hardware.num_slices

    @property
    def precision(self) -> str:
        """The recipe's kind, or the compute dtype."""
        return job_precision(self.job)

    @property
    def traits(self) -> Traits:
        """What it may have in common with other jobs."""
        return job_traits(self.job, self.job.plan.mesh)

    @property
    def series(self) -> str:
        """The kind of chip."""
        return self.kind

    @property
    def measured_s(self) -> float:
        """The time of the step."""
        return self.step_s

    def scored_as(self, time_s: float) -> float:
        """The same time, whatever was measured."""
        return time_s

    @property
    def record_id(self) -> str:
        """As in the source."""
        return self.id

    @property
    def lengths(self) -> str:
        """Tokens of a sequence."""
        return str(self.job.workload.seq_len)

    @property
    def step_tokens(self) -> int:
        """Tokens of one optimizer step."""
        return (self.job.workload.global_batch or 0) * self.job.workload.seq_len

    @property
    def step_s(self) -> float:
        """The measured step time, whatever was measured."""
        if self.metric == "step_time_s":
            return self.measured
        return self.step_tokens / self.measured / self.chips

    @property
    def tokens_per_s_per_chip(self) -> float:
        """The measured throughput, whatever was measured."""
        return self.step_tokens / self.step_s / self.chips


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCase:
    """One run of which it is known whether it fitted in memory.

    Attributes:
        id: Its name in the source.
        job: What was run, as in `MeasuredCase`.
        fits: What happened.
        needed_bytes: What it needed on a device, as the source has it; None where it does not say.
        source: Where it was told.
        assumed: What the source left open, with what was taken.
    """

    id: str
    job: Job
    fits: bool
    needed_bytes: float | None
    source: str
    assumed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A record that is not used.

    Attributes:
        id: Its name, or where it stands.
        reason: Why.
    """

    id: str
    reason: str


ReadRecords: TypeAlias = Callable[[object, str], tuple[list[MeasuredCase], list[Skipped]]]
"""A reader: from a parsed document and where it stands to the cases and what is not used. It never raises on a record:
one that it cannot use is skipped with the reason; and every record is in one of the two lists."""
