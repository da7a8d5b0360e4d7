"""A measured case: a job with everything pinned, what was measured of it, and what was assumed to pin it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from ridgeline.model.kind import ModelKind, model_kind
from ridgeline.search.interval import job_precision, job_traits

if TYPE_CHECKING:
    from ridgeline.cost.uncertainty import Traits
    from ridgeline.job.job import Job

Metric: TypeAlias = Literal["step_time_s", "tokens_per_s_per_chip"]
SourceOfMeasured: TypeAlias = Literal["direct", "derived"]

UNIT: dict[Metric, str] = {"step_time_s": "s", "tokens_per_s_per_chip": "tokens/s/chip"}
"""Unit of a metric."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCase:
    """One measurement.

    Attributes:
        id: Its name in the source.
        job: The job it measured: batch, mesh, micro-steps and remat pinned; what the source leaves open is filled
            in, and stands in `assumed`.
        metric: What was measured.
        measured: Its value.
        source_of_measured: `direct`: the source states it; `derived`: it was computed from what the source states
            (an MFU, another row).
        source: Where it was published; its first word is by whom.
        quality: `A` (everything stated) to `C`; `unstated` where the source is not graded.
        assumed: What the source left open, one phrase each, with what was taken.
        alternatives: The same job under the other readings of what was left open, for the spread.
        not_stated: What of the run no job can say; "" when it is all said.
        cluster_name: Rows that measure one job; "" for chip, model, chips, sequence and precision.
    """

    id: str
    job: Job
    metric: Metric
    measured: float
    source_of_measured: SourceOfMeasured = "direct"
    source: str
    quality: str = "unstated"
    assumed: tuple[str, ...] = ()
    alternatives: tuple[Job, ...] = ()
    not_stated: str = ""
    cluster_name: str = ""

    @property
    def unit(self) -> str:
        """Unit of the measured value."""
        return UNIT[self.metric]

    @property
    def chip(self) -> str:
        """The chip's name."""
        return self.job.hardware.chip.name

    @property
    def chips(self) -> int:
        """Chips in all slices."""
        return self.job.hardware.num_chips

    @property
    def slices(self) -> int:
        """Slices joined by DCN."""
        return self.job.hardware.num_slices

    @property
    def model(self) -> str:
        """Its name in the zoo, however the source spells it."""
        return self.job.model.name

    @property
    def model_kind(self) -> ModelKind:
        """By its layers: attention or latent attention, one feed-forward block or experts."""
        return model_kind(self.job.model)

    @property
    def precision(self) -> str:
        """The recipe's kind, or the compute dtype."""
        return job_precision(self.job)

    @property
    def traits(self) -> Traits:
        """What it may have in common with other jobs."""
        return job_traits(self.job, self.job.plan.mesh)

    @property
    def cluster(self) -> str:
        """Rows of one chip, model, chip count, sequence and precision: one job, however often it was measured."""
        job = self.job
        return self.cluster_name or "|".join(
            (self.chip, self.model, str(self.chips), str(job.workload.seq_len), self.precision)
        )

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
