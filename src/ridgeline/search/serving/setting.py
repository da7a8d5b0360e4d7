"""What all plans of a serving job share on a slice: the model, lengths of requests, what drafts, the engine."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from ridgeline.cost.calibration import load_prior
from ridgeline.cost.laws.speculation import kept_tokens
from ridgeline.cost.serving.calibration import load_serving_calibration, parse_serving_calibration
from ridgeline.cost.serving.device import LANES, ServingSetting
from ridgeline.cost.serving.drafting import Drafting
from ridgeline.cost.serving.machine import ServingMachine
from ridgeline.errors import InputError
from ridgeline.job.serving import MTP
from ridgeline.model.mtp import mtp_tree
from ridgeline.model.tree import model_tree
from ridgeline.search.serving.lengths import request_lengths

if TYPE_CHECKING:
    from ridgeline.cost.serving.calibration import ServingCalibration
    from ridgeline.hardware.slice import Slice
    from ridgeline.job.serving import ServingJob, Speculation


PLANNED_ENGINE: Final = "vllm"
"""The engine that is planned for where none is said."""


def serving_machine(job: ServingJob, hardware: Slice, *, engine: str = PLANNED_ENGINE) -> ServingMachine:
    """What every pass on a slice shares.

    Args:
        job: The question.
        hardware: The slice.
        engine: What runs it.
    """
    calibration = job_serving_calibration(job)
    setting = ServingSetting(
        tree=model_tree(job.model),
        dtypes=job.plan.dtypes,
        context_len=job.workload.context_len,
        prompt_len=job.workload.prompt_len,
        row_elements=LANES if hardware.chip.torus is not None else 1,
        requests=request_lengths(job.workload),
        int4_group_size=job.int4_group_size,
        keeps_wide_vocabulary=job.is_as_published,
    )
    speculation = job.plan.speculation
    return ServingMachine(
        setting=setting,
        hardware=hardware,
        efficiency=load_prior(hardware.chip.name),
        serving=calibration.efficiency(hardware.chip.name, engine),
        expert_split=job.plan.expert_split,
        memory_utilization=job.plan.memory_utilization,
        tokens_of_page=job.plan.page_tokens,
        drafting=None if speculation is None else _drafting(job, speculation, setting),
    )


def job_serving_calibration(job: ServingJob) -> ServingCalibration:
    """What servers reach on a job's kind of chip: what ships, or the user's own in its place.

    Raises:
        InputError: The user's folder has no file of servers on that kind of chip, or it is malformed.
    """
    kind, own = job.hardware.chip.kind, job.calibration
    if own is None:
        return load_serving_calibration(kind)
    name = f"{kind}.toml"
    text = own.text(name)
    if text is None:
        raise InputError(
            f"no calibration of servers on {kind}s in this folder",
            where="calibration",
            value=own.folder,
            expected=f"a file {name}",
            fix="write it: ridgeline calibrate --serving --from CASES --output FOLDER",
        )
    return _parsed(text, f"{own.folder}/{name}")


@lru_cache(maxsize=8)
def _parsed(text: str, where: str) -> ServingCalibration:
    """Read once for all slices of a search."""
    return parse_serving_calibration(text, where=where)


def _drafting(job: ServingJob, speculation: Speculation, setting: ServingSetting) -> Drafting:
    """What drafts: the model's own heads, a model apart, or nothing that computes."""
    drafter, num_heads = None, 0
    if speculation.draft_model == MTP:
        drafter = replace(setting, tree=mtp_tree(job.model))
        num_heads = min(job.model.mtp_layers, speculation.draft_tokens)
    elif speculation.drafter is not None:
        drafter = replace(setting, tree=model_tree(speculation.drafter))
    drafts, accepted = speculation.draft_tokens, speculation.acceptance_fraction
    return Drafting(
        num_draft_tokens=drafts,
        pass_tokens=kept_tokens(token_acceptance_fraction=accepted, num_draft_tokens=drafts),
        drafter=drafter,
        num_heads=num_heads,
    )
