"""A measured server: a serving job with everything pinned, how its engine was run, and what clients saw of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ridgeline.cost.serving.calibration import serving_series
from ridgeline.job.serving import ServingJob
from ridgeline.search.serving.interval import serving_precision, serving_traits
from ridgeline.study.measured.measurement import Measurement, ServingMetric

if TYPE_CHECKING:
    from ridgeline.cost.uncertainty import Traits
    from ridgeline.search.serving.pinned import EngineSettings, ServerTimes

SERVING_METRICS: Final[tuple[ServingMetric, ...]] = ("ttft_s", "tpot_s", "output_tokens_per_s_per_chip")
"""In the order in which a record's are listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingCase(Measurement[ServingJob, ServingMetric]):
    """One measurement of a server; a record that states several gives several.

    The job's batch is the number of requests that clients keep at hand, None where all requests were queued at once.

    Attributes:
        engine: How the engine was run.
    """

    engine: EngineSettings

    @property
    def precision(self) -> str:
        """The dtype of most weights: of experts, where they have one of their own."""
        return serving_precision(self.job.plan.dtypes)

    @property
    def lengths(self) -> str:
        """Tokens of a prompt and of a reply."""
        return f"{self.job.workload.prompt_len}+{self.job.workload.generate_len}"

    @property
    def traits(self) -> Traits:
        """Chip, engine, model and precision."""
        return serving_traits(self.job, self.job.plan.dtypes, self.engine.name)

    @property
    def series(self) -> str:
        """The kind of chip, and whether a first token was waited for or tokens were counted."""
        return serving_series(self.kind, is_first=self.metric == "ttft_s")

    @property
    def measured_s(self) -> float:
        """A throughput as the time that a token takes one chip."""
        return self.scored_as(self.measured)

    def scored_as(self, time_s: float) -> float:
        """The same, or tokens per second and chip where these were measured."""
        return 1.0 / time_s if self.metric == "output_tokens_per_s_per_chip" else time_s

    @property
    def record_id(self) -> str:
        """As in the source, and what was measured."""
        return f"{self.id} {self.metric}"

    def expected(self, times: ServerTimes) -> float:
        """The estimate of what was measured."""
        return float(getattr(times, self.metric))
