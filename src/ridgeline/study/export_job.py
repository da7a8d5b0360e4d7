"""A job handed over: what another program is told, so that it runs the plan that was chosen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ridgeline.errors import InputError
from ridgeline.export.maxtext import maxtext_config, topology_name
from ridgeline.study.chosen_job import chosen_job

if TYPE_CHECKING:
    from ridgeline.export.maxtext import MaxTextConfig
    from ridgeline.job.job import Job
    from ridgeline.search.answer import PlanEstimate


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportAnswer:
    """What `ridgeline export JOB --to maxtext` answers.

    Attributes:
        job: The question, with nothing left to choose.
        estimate: What the equation expects of it.
        config: What MaxText is told.
        topology: MaxText's name of the slice, to compile ahead of time; None where it has none.
    """

    job: Job
    estimate: PlanEstimate
    config: MaxTextConfig
    topology: str | None


def export_job(job: Job) -> ExportAnswer:
    """A job as MaxText is told it; what its plan leaves open is chosen, as `compile` does.

    Raises:
        InputError: The question contradicts itself, or MaxText has no word for a part of it.
        InfeasibleError: There is no plan at all.
    """
    chosen, estimate = chosen_job(job)
    try:
        topology = topology_name(job.hardware)
    except InputError:
        topology = None  # a run does not need the name
    return ExportAnswer(job=chosen, estimate=estimate, config=maxtext_config(chosen), topology=topology)
