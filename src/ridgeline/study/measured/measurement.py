"""A measurement, of a training step or of a server: a job with everything pinned, a value, and what was assumed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, Literal, TypeAlias, TypeVar

from ridgeline.model.kind import ModelKind, model_kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.cost.uncertainty import Traits
    from ridgeline.hardware.chip import ChipKind
    from ridgeline.job.job import Job
    from ridgeline.job.serving import ServingJob

Metric: TypeAlias = Literal["step_time_s", "tokens_per_s_per_chip"]
"""What is measured of a training step."""

ServingMetric: TypeAlias = Literal["ttft_s", "tpot_s", "output_tokens_per_s_per_chip"]
"""What is measured of a server."""

SourceOfMeasured: TypeAlias = Literal["direct", "derived"]

UNIT: Final[Mapping[Metric | ServingMetric, str]] = {
    "step_time_s": "s",
    "tokens_per_s_per_chip": "tokens/s/chip",
    "ttft_s": "s",
    "tpot_s": "s",
    "output_tokens_per_s_per_chip": "tokens/s/chip",
}
"""Unit of a metric."""

_Job = TypeVar("_Job", "Job", "ServingJob")
_Metric = TypeVar("_Metric", Metric, ServingMetric)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement(ABC, Generic[_Job, _Metric]):
    """What measurements of steps and of servers have in common.

    Attributes:
        id: Its record's name in the source.
        job: What was measured, everything pinned; what the source leaves open is filled in, and stands in `assumed`.
        metric: What was measured.
        measured: Its value.
        source_of_measured: `direct`: the source states it; `derived`: it was computed from what the source states
            (an MFU, another row).
        source: Where it was published; its first word is by whom.
        quality: `A` (everything stated) to `C`; `unstated` where the source is not graded.
        assumed: What the source left open, one phrase each, with what was taken.
        not_stated: What of the run no job can say; "" when it is all said.
        cluster_name: Rows that measure one job; "" for chip, model, chips, lengths and precision.
    """

    id: str
    job: _Job
    metric: _Metric
    measured: float
    source_of_measured: SourceOfMeasured = "direct"
    source: str
    quality: str = "unstated"
    assumed: tuple[str, ...] = ()
    not_stated: str = ""
    cluster_name: str = ""

    @property
    @abstractmethod
    def precision(self) -> str:
        """What most of it is computed in, or stored as."""

    @property
    @abstractmethod
    def lengths(self) -> str:
        """Of its sequences."""

    @property
    @abstractmethod
    def traits(self) -> Traits:
        """What it may have in common with others."""

    @property
    @abstractmethod
    def series(self) -> str:
        """Which uncertainties the interval of its estimate is made of (`cost.uncertainty.Terms`)."""

    @property
    @abstractmethod
    def measured_s(self) -> float:
        """What was measured, as a time."""

    @abstractmethod
    def scored_as(self, time_s: float) -> float:
        """A time in the unit in which its estimates are scored."""

    @property
    @abstractmethod
    def record_id(self) -> str:
        """Its name among all that a fit sees."""

    @property
    def unit(self) -> str:
        """Unit of the measured value."""
        return UNIT[self.metric]

    @property
    def chip(self) -> str:
        """The chip's name."""
        return self.job.hardware.chip.name

    @property
    def kind(self) -> ChipKind:
        """Of its chip."""
        return self.job.hardware.chip.kind

    @property
    def chips(self) -> int:
        """Chips in all slices."""
        return self.job.hardware.num_chips

    @property
    def model(self) -> str:
        """Its name in the zoo, however the source spells it."""
        return self.job.model.name

    @property
    def model_kind(self) -> ModelKind:
        """By its layers: attention or latent attention, one feed-forward block or experts."""
        return model_kind(self.job.model)

    @property
    def cluster(self) -> str:
        """Rows of one chip, model, chip count, lengths and precision: one job, however often it was measured."""
        return self.cluster_name or "|".join((self.chip, self.model, str(self.chips), self.lengths, self.precision))

    @property
    def publisher(self) -> str:
        """By whom it was published."""
        return self.source.split(" ")[0] or "unstated"
