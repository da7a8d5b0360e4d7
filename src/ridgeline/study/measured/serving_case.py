"""A measured server: a serving job with everything pinned, how its engine was run, and what clients saw of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from ridgeline.model.kind import ModelKind, model_kind

if TYPE_CHECKING:
    from ridgeline.cost.uncertainty import ChipKind
    from ridgeline.job.serving import ServingJob
    from ridgeline.search.serving.pinned import EngineSettings, ServerTimes
    from ridgeline.study.measured.case import SourceOfMeasured

ServingMetric: TypeAlias = Literal["ttft_s", "tpot_s", "output_tokens_per_s_per_chip"]

SERVING_METRICS: tuple[ServingMetric, ...] = ("ttft_s", "tpot_s", "output_tokens_per_s_per_chip")
"""In the order in which a record's are listed."""

SERVING_UNIT: dict[ServingMetric, str] = {
    "ttft_s": "s",
    "tpot_s": "s",
    "output_tokens_per_s_per_chip": "tokens/s/chip",
}
"""Unit of a metric."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingCase:
    """One measurement of a server; a record that states several gives several.

    Attributes:
        id: Its record's name in the source.
        job: Model, slice, lengths, dtypes, mesh; its batch is the number of requests that clients keep at hand, None
            where all requests were queued at once.
        engine: How the engine was run.
        metric: What was measured.
        measured: Its value.
        source_of_measured: `direct`, or `derived` from what the source states.
        source: Where it was published; its first word is by whom.
        quality: `A` (everything stated) to `C`; `unstated` where the source is not graded.
        assumed: What the source left open, one phrase each, with what was taken.
        not_stated: What of the run neither a job nor its engine's settings can say; "" when it is all said.
        cluster_name: Rows that measure one job; "" for chip, model, chips, lengths and precision.
    """

    id: str
    job: ServingJob
    engine: EngineSettings
    metric: ServingMetric
    measured: float
    source_of_measured: SourceOfMeasured = "direct"
    source: str
    quality: str = "unstated"
    assumed: tuple[str, ...] = ()
    not_stated: str = ""
    cluster_name: str = ""

    @property
    def unit(self) -> str:
        """Unit of the measured value."""
        return SERVING_UNIT[self.metric]

    @property
    def chip(self) -> str:
        """The chip's name."""
        return self.job.hardware.chip.name

    @property
    def chips(self) -> int:
        """Chips of the server."""
        return self.job.hardware.num_chips

    @property
    def kind(self) -> ChipKind:
        """Of its chip."""
        return "GPU" if self.job.hardware.chip.torus is None else "TPU"

    @property
    def model(self) -> str:
        """Its name in the zoo, however the source spells it."""
        return self.job.model.name

    @property
    def model_kind(self) -> ModelKind:
        """By its layers."""
        return model_kind(self.job.model)

    @property
    def precision(self) -> str:
        """The dtype of most weights: of experts, where they have one of their own."""
        return self.job.plan.dtypes.experts or self.job.plan.dtypes.weights

    @property
    def cluster(self) -> str:
        """Rows of one chip, model, chip count, lengths and precision: one job, by whatever engine and batch."""
        workload = self.job.workload
        lengths = f"{workload.prompt_len}+{workload.generate_len}"
        return self.cluster_name or "|".join((self.chip, self.model, str(self.chips), lengths, self.precision))

    def from_time_ratio(self, ratio: float) -> float:
        """The estimate of what was measured, where its time is so many times the measured one."""
        is_rate = self.metric == "output_tokens_per_s_per_chip"
        return self.measured / ratio if is_rate else self.measured * ratio

    def expected(self, times: ServerTimes) -> float:
        """The estimate of what was measured."""
        return float(getattr(times, self.metric))
