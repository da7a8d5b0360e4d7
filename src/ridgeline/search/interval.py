"""The interval around an estimate, and what makes it wider: what no measured step had."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from ridgeline.cost.calibration import UNCERTAINTY_FILE, load_uncertainty, parse_uncertainty
from ridgeline.cost.uncertainty import half_width_fraction, model_family, parallelism, part_shares
from ridgeline.model.kind import model_kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.cost.uncertainty import ChipKind, Seen, Uncertainty, Unseen
    from ridgeline.cost.work import Part
    from ridgeline.job.job import Job

_FAR: Final = 2.0
"""Times as many chips as were ever measured together: another scale."""


def interval_half_width(job: Job, degrees: Mapping[str, float], step: Part) -> float:
    """Half of the width of the interval of a plan, as a fraction of its estimate.

    Args:
        job: What is trained where.
        degrees: Of the plan, by mesh axis.
        step: The tree of the plan.
    """
    uncertainty = job_uncertainty(job)
    return half_width_fraction(
        share_of_part=part_shares(step, has_experts="moe" in model_kind(job.model)),
        uncertainty=uncertainty,
        kind=chip_kind(job),
        unseen=tuple(unseen(job, degrees, uncertainty)),
    )


def job_uncertainty(job: Job) -> Uncertainty:
    """How far estimates are off: of the user's own calibration where the job has one that says so."""
    own = job.calibration
    text = None if own is None else own.text(UNCERTAINTY_FILE)
    return load_uncertainty() if own is None or text is None else _parsed(text, f"{own.folder}/{UNCERTAINTY_FILE}")


@lru_cache(maxsize=8)
def _parsed(text: str, where: str) -> Uncertainty:
    """Read once for all plans of a search."""
    return parse_uncertainty(text, where=where)


def chip_kind(job: Job) -> ChipKind:
    """Whether a job runs on TPUs or GPUs."""
    return "GPU" if job.hardware.chip.torus is None else "TPU"


def unseen(job: Job, degrees: Mapping[str, float], uncertainty: Uncertainty) -> dict[Unseen, str]:
    """What of a plan no measured step had, each in words.

    Args:
        job: What is trained where.
        degrees: Of the plan, by mesh axis.
        uncertainty: What was measured.
    """
    kind = chip_kind(job)
    seen = uncertainty.seen[kind]
    found: dict[Unseen, str] = {}
    if job.hardware.chip.name not in seen.chips:
        found["chip"] = f"{job.hardware.chip.name} itself"
    if new := sorted(parallelism(degrees) - seen.parallelism):
        found["parallelism"] = f"{', '.join(new)} on {kind}s"
    found |= _unseen_of_model(job, seen, kind)
    if job.hardware.num_chips > _FAR * seen.num_chips:
        found["scale"] = f"more than {seen.num_chips:,.0f} {kind}s" if seen.num_chips else f"any number of {kind}s"
    return found


def _unseen_of_model(job: Job, seen: Seen, kind: ChipKind) -> dict[Unseen, str]:
    found: dict[Unseen, str] = {}
    architecture, recipe = model_kind(job.model), job.plan.quantization
    if architecture not in seen.model_kinds:
        found["model_kind"] = f"{architecture.replace('_', ' ')} models on {kind}s"
    elif model_family(job.model.name) not in seen.models:
        found["model"] = f"the family of {job.model.name}"
    precision = job.plan.dtypes.compute if recipe is None else recipe.kind
    if precision not in seen.precisions:
        found["precision"] = f"{precision} on {kind}s"
    return found
