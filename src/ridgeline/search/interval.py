"""The interval around an estimate, and what makes it wider: what few measured jobs had, or none."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from ridgeline.cost.calibration import UNCERTAINTY_FILE, load_uncertainty, parse_uncertainty
from ridgeline.cost.uncertainty import (
    half_width_fraction,
    measured_alike,
    model_family,
    part_shares,
    scale,
    ways_to_split,
)
from ridgeline.model.kind import model_kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.cost.uncertainty import MeasuredJobs, Trait, Traits, Uncertainty
    from ridgeline.cost.work import Part
    from ridgeline.job.job import Job
    from ridgeline.model.spec import ModelSpec

_FEW: Final = 3
"""Measured jobs from which on a trait is no longer spoken of; it then adds less than half of what it may."""


def interval_half_width(job: Job, degrees: Mapping[str, float], step: Part) -> float:
    """Half of the width of the interval of a plan, as a fraction of its estimate.

    Args:
        job: What is trained where.
        degrees: Of the plan, by mesh axis.
        step: The tree of the plan.
    """
    return half_width_fraction(
        share_of_part=model_part_shares(step, job.model),
        uncertainty=job_uncertainty(job),
        series=job.hardware.chip.kind,
        traits=job_traits(job, degrees),
    )


def model_part_shares(step: Part, model: ModelSpec) -> dict[str, float]:
    """What uncertainties are multiplied by in a step of a model (`uncertainty.part_shares`)."""
    return part_shares(step, has_experts="moe" in model_kind(model), embed_dim=model.embed_dim)


def job_uncertainty(job: Job) -> Uncertainty:
    """How far estimates are off: of the user's own calibration where the job has one that says so."""
    own = job.calibration
    text = None if own is None else own.text(UNCERTAINTY_FILE)
    return load_uncertainty() if own is None or text is None else _parsed(text, f"{own.folder}/{UNCERTAINTY_FILE}")


@lru_cache(maxsize=8)
def _parsed(text: str, where: str) -> Uncertainty:
    """Read once for all plans of a search."""
    return parse_uncertainty(text, where=where)


def job_precision(job: Job) -> str:
    """The kind of a job's recipe, or its compute dtype."""
    recipe = job.plan.quantization
    return job.plan.dtypes.compute if recipe is None else recipe.kind


def job_traits(job: Job, degrees: Mapping[str, float]) -> Traits:
    """What a plan may have in common with measured jobs.

    Args:
        job: What is trained where.
        degrees: Of the plan, by mesh axis.
    """
    return {
        "chip": job.hardware.chip.name,
        "parallelism": ways_to_split(degrees),
        "model": model_family(job.model.name),
        "model_kind": model_kind(job.model),
        "precision": job_precision(job),
        "scale": scale(job.hardware.num_chips),
    }


def widened_by(job: Job, degrees: Mapping[str, float]) -> tuple[str, ...]:
    """Why the interval of a plan is wider than it could be, in words: what few measured jobs had, or none.

    Args:
        job: What is trained where.
        degrees: Of the plan, by mesh axis.
    """
    kind, traits = job.hardware.chip.kind, job_traits(job, degrees)
    in_words: dict[Trait, str] = {
        "chip": f"on {traits['chip']}",
        "parallelism": f"split by {' and '.join(traits['parallelism'].split())} on {kind}s",
        "model": f"of the family of {job.model.name} on {kind}s",
        "model_kind": f"of {traits['model_kind'].replace('_', ' ')} models on {kind}s",
        "precision": f"in {traits['precision']} on {kind}s",
        "scale": f"on {traits['scale']} {kind}s",
    }
    return few_measured(traits, job_uncertainty(job).measured_jobs[kind], in_words, of="job")


def few_measured(traits: Traits, measured: MeasuredJobs, in_words: Mapping[Trait, str], *, of: str) -> tuple[str, ...]:
    """The traits that few measurements had, or none, in words.

    Args:
        traits: Of what is estimated.
        measured: How many had each.
        in_words: Every trait.
        of: What was measured.
    """
    alike = measured_alike(traits, measured)
    return tuple(f"{_how_few(count, of)} {in_words[trait]}" for trait, count in alike.items() if count < _FEW)


def _how_few(count: int, of: str) -> str:
    return {0: f"no measured {of}", 1: f"only one measured {of}"}.get(count, f"only {count} measured {of}s")
