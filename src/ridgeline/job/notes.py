"""What a reader of the answer should know about the question: what was said and is not acted on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ridgeline.hardware.figures import IN_PROPORTION, USABLE_HBM, own_figures
from ridgeline.job.job import Pipeline

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.job.job import Job


def notes(job: Job, mesh: Mapping[str, int]) -> tuple[str, ...]:
    """One sentence for each setting that the estimate does not follow, or follows in an unexpected way.

    Args:
        job: The question.
        mesh: Degrees of the plan that answers it; axes that are not named are 1.
    """
    plan, chip = job.plan, job.hardware.chip
    told_apart = {None, "splash", "flash", "dot_product"} if chip.switch is None else {plan.attention.kernel}
    is_said = {
        "attention.kernel": plan.attention.kernel not in told_apart,
        "attention.max_logit": plan.attention.max_logit not in {None, "none"},
        "moe.kernel": plan.experts.kernel is not None,
        "compiler.scoped_vmem_kib": plan.compiler.scoped_vmem_kib is not None,
    }
    found = [f"plan.{key} is kept in the job but not modelled yet." for key, said in is_said.items() if said]
    if plan.context.strategy == "usp":
        found.append("plan.context.strategy: usp is costed as all_gather.")
    if plan.experts.shard_experts_on_fsdp:
        found.append("plan.moe.shard_experts_on_fsdp changes which dimension is gathered, not how many bytes.")
    if plan.pipeline != Pipeline() and all(mesh.get(axis, 1) == 1 for axis in ("pp", "dcn_pp")):
        found.append("plan.pipeline settings have no effect without pp.")
    if own := own_figures(chip):
        follows = "; usable_hbm_bytes in proportion" if chip.facts[USABLE_HBM].source == IN_PROPORTION else ""
        found.append(f"{chip.name} with figures of the job file: {', '.join(own)}{follows}.")
    kind = plan.quantization and plan.quantization.kind
    if kind and kind not in chip.peak_flops_per_s:
        found.append(f"{chip.title} has no native {kind} matmul: operands are upcast.")
    return tuple(found)
