"""The intervals around estimates of a server, and what makes them wider: what few measured servers had, or none."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from ridgeline.cost.calibration import parse_uncertainty
from ridgeline.cost.serving.calibration import (
    SERVING_TERMS,
    SERVING_UNCERTAINTY_FILE,
    load_serving_uncertainty,
    serving_series,
)
from ridgeline.cost.uncertainty import ANYTHING, EXPERTS, half_width_fraction
from ridgeline.model.kind import model_kind
from ridgeline.search.interval import few_measured
from ridgeline.search.serving.answer import ServingInterval
from ridgeline.search.serving.setting import PLANNED_ENGINE

if TYPE_CHECKING:
    from ridgeline.cost.uncertainty import Trait, Traits, Uncertainty
    from ridgeline.job.serving import ServingDtypes, ServingJob
    from ridgeline.model.spec import ModelSpec
    from ridgeline.search.serving.answer import ServingPoint


def serving_precision(dtypes: ServingDtypes) -> str:
    """The dtype of most weights: of experts, where they have one of their own."""
    return dtypes.experts or dtypes.weights


def serving_traits(job: ServingJob, dtypes: ServingDtypes, engine: str) -> Traits:
    """What a server may have in common with measured ones.

    Args:
        job: What is served on which chips.
        dtypes: Of the plan.
        engine: What runs it.
    """
    return {
        "chip": job.hardware.chip.name,
        "engine": engine,
        "model": job.model.name,
        "precision": serving_precision(dtypes),
    }


def serving_part_shares(model: ModelSpec) -> dict[str, float]:
    """What uncertainties are multiplied by: those that every server has, and of the routing of tokens."""
    return {ANYTHING: 1.0, EXPERTS: float("moe" in model_kind(model))}


def serving_uncertainty(job: ServingJob) -> Uncertainty:
    """How far estimates are off: of the user's own calibration where the job has one that says so."""
    own = job.calibration
    text = None if own is None else own.text(SERVING_UNCERTAINTY_FILE)
    if own is None or text is None:
        return load_serving_uncertainty()
    return _parsed(text, f"{own.folder}/{SERVING_UNCERTAINTY_FILE}")


@lru_cache(maxsize=8)
def _parsed(text: str, where: str) -> Uncertainty:
    return parse_uncertainty(text, where=where, terms=SERVING_TERMS)


def serving_half_width(job: ServingJob, dtypes: ServingDtypes, engine: str, *, is_first: bool) -> float:
    """Half of the width of the interval of a server's times, as a fraction of the estimate.

    Args:
        job: What is served on which chips.
        dtypes: Of the plan.
        engine: What runs it.
        is_first: Of the time to the first token; else of times per token and throughputs.
    """
    return half_width_fraction(
        share_of_part=serving_part_shares(job.model),
        uncertainty=serving_uncertainty(job),
        series=serving_series(job.hardware.chip.kind, is_first=is_first),
        traits=serving_traits(job, dtypes, engine),
    )


def serving_widened_by(job: ServingJob, dtypes: ServingDtypes, engine: str) -> tuple[str, ...]:
    """Why the interval is wider than it could be, in words: what few measured servers had, or none.

    Args:
        job: What is served on which chips.
        dtypes: Of the plan.
        engine: What runs it.
    """
    kind, traits = job.hardware.chip.kind, serving_traits(job, dtypes, engine)
    in_words: dict[Trait, str] = {
        "chip": f"on {traits['chip']}",
        "engine": f"under {engine} on {kind}s",
        "model": f"of {job.model.name} on {kind}s",
        "precision": f"with weights in {traits['precision']} on {kind}s",
    }
    measured = serving_uncertainty(job).measured_jobs[serving_series(kind, is_first=False)]
    return few_measured(traits, measured, in_words, of="server")


def serving_interval(job: ServingJob, best: ServingPoint) -> ServingInterval:
    """What eight of ten measured servers lie between, of a plan under the engine that is planned for.

    Args:
        job: The question.
        best: The plan.
    """
    dtypes = best.plan.dtypes
    token, first = (
        1.0 + serving_half_width(job, dtypes, PLANNED_ENGINE, is_first=is_first) for is_first in (False, True)
    )
    rate, tpot_s, ttft_s = best.tokens_per_s_per_chip, best.tpot.mean_s, best.ttft.mean_s
    return ServingInterval(
        ttft_s=(ttft_s / first, ttft_s * first),
        tpot_s=(tpot_s / token, tpot_s * token),
        tokens_per_s_per_chip=(rate / token, rate * token),
        widened_by=serving_widened_by(job, dtypes, PLANNED_ENGINE),
    )
