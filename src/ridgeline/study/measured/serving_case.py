"""A measured server: a serving job with everything pinned, how its engine was run, and what clients saw of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ridgeline.job.serving import ServingJob
from ridgeline.study.measured.measurement import Measurement, ServingMetric

if TYPE_CHECKING:
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
        return self.job.plan.dtypes.experts or self.job.plan.dtypes.weights

    @property
    def lengths(self) -> str:
        """Tokens of a prompt and of a reply."""
        return f"{self.job.workload.prompt_len}+{self.job.workload.generate_len}"

    def from_time_ratio(self, ratio: float) -> float:
        """The estimate of what was measured, where its time is so many times the measured one."""
        is_rate = self.metric == "output_tokens_per_s_per_chip"
        return self.measured / ratio if is_rate else self.measured * ratio

    def expected(self, times: ServerTimes) -> float:
        """The estimate of what was measured."""
        return float(getattr(times, self.metric))
