"""From a job to what every plan of its search shares."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from ridgeline.cost.calibration import load_efficiency, with_own_facts
from ridgeline.cost.columns import TrainingSetting
from ridgeline.cost.placement import link_rate_bytes_per_s
from ridgeline.errors import InputError
from ridgeline.model.adapters import with_adapters
from ridgeline.model.tree import model_tree

if TYPE_CHECKING:
    from ridgeline.cost.efficiency import Efficiency
    from ridgeline.job.job import ExpertKernel, Job
    from ridgeline.model.operations import ModelTree


def training_setting(job: Job, *, global_batch: int) -> TrainingSetting:
    """The setting of a job at one batch size.

    Raises:
        InputError: The chip has no peak for the compute dtype, or what sub-channels cost on it is not known.
    """
    plan, chip = job.plan, job.hardware.chip
    if plan.dtypes.compute not in chip.peak_flops_per_s:
        raise InputError(
            f"{chip.name} has no matmul peak in this dtype",
            where="plan.dtypes.compute",
            value=plan.dtypes.compute,
            expected=f"one of {', '.join(chip.peak_flops_per_s)}",
            fix="compute in bf16",
        )
    recipe = plan.quantization
    in_blocks = recipe is not None and recipe.granularity == "sub_channel"
    if in_blocks and chip.vpu is not None and chip.vector_flops_per_s is None:
        raise InputError(
            f"what scales of sub-channels cost on {chip.name} is not known: the rate of its vector unit is not public",
            where="plan.quantization.granularity",
            value="sub_channel",
            expected="per_tensor or per_axis on this chip",
            fix="use per_axis",
        )
    return TrainingSetting(
        tree=_tree(job),
        hardware=job.hardware,
        efficiency=job_efficiency(job).in_whole_steps,
        global_batch=global_batch,
        seq_len=job.workload.seq_len,
        dtypes=plan.dtypes,
        quantization=plan.quantization,
        optimizer=plan.optimizer,
        vocab_tiling=plan.vocab_tiling,
        moe_imbalance=plan.moe_imbalance,
        expert_exchange=plan.experts.exchange or ("send_once" if chip.switch is not None else None),
        expert_exchange_overlaps=plan.experts.exchange_overlap or False,
        expert_capacity_ratio=_capacity_ratio(plan.experts),
        context=plan.context,
        link_bytes_per_s=link_rate_bytes_per_s(job.hardware),
        has_adapters=plan.lora is not None,
        is_eager=plan.compiler.kernel_launch == "eager",
        has_collective_matmul=plan.compiler.collective_matmul is not False,
        sync_overlaps=plan.optimizer.sync_overlap is not False,
        attention_program=plan.attention.kernel,
        fuses_rotary=plan.attention.fused_rotary is not False,
        attention_in_fp8=plan.attention.fp8 is True,
        fuses_experts=plan.experts.fused is True,
        stashes_experts=plan.experts.paged_stash is True,
        attention_tile=(plan.attention.block_q, plan.attention.block_kv),
        num_gradient_parts=plan.attention.dq_reduction_steps or inf,
        sparse_core_offload=plan.compiler.sparse_core_offload,
    )


def _tree(job: Job) -> ModelTree:
    """The model, with the adapters that the plan trains."""
    tree, lora = model_tree(job.model), job.plan.lora
    return tree if lora is None else with_adapters(tree, rank=lora.rank, targets=lora.targets)


def job_efficiency(job: Job) -> Efficiency:
    """What programs reach of the peaks of a job's chip: what ships, and over it what the user's own files state.

    Raises:
        InputError: A file of the user's is malformed.
    """
    chip, own = job.hardware.chip.name, job.calibration
    shipped = load_efficiency(chip)
    text = None if own is None else own.text(f"{chip}.toml")
    return shipped if own is None or text is None else with_own_facts(shipped, text, where=f"{own.folder}/{chip}.toml")


def _capacity_ratio(experts: ExpertKernel) -> float | None:
    """Room of an expert over its mean; MaxText's is 1 where nothing is said. None without a capacity."""
    if experts.dispatch != "capacity":
        return None
    return 1.0 if experts.capacity_factor is None else experts.capacity_factor
