"""A job's batch and plan in MaxText's words; what MaxText has no word for is refused by name."""

from __future__ import annotations

from math import nextafter
from typing import TYPE_CHECKING, Final

from ridgeline.cost.training.pipeline import stacked_layers
from ridgeline.errors import InputError
from ridgeline.export.maxtext_version import maxtext_version
from ridgeline.job.job import DCN_AXES, ICI_AXES
from ridgeline.job.remat import CUSTOM_NAMES
from ridgeline.model.spec import CompressedAttentionSpec, MlaSpec
from ridgeline.model.tree import model_tree

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.export.maxtext_version import Value
    from ridgeline.job.job import AttentionKernel, ExpertKernel, Job, PlanRequest, Quantization
    from ridgeline.model.spec import ModelSpec

_AXES: Final[Mapping[str, str]] = {
    "dp": "data",
    "fsdp": "fsdp",
    "fsdp_transpose": "fsdp_transpose",
    "tp": "tensor",
    "tp_sequence": "tensor_sequence",
    "cp": "context",
    "ep": "expert",
    "pp": "pipeline",
}
"""Our mesh axes and the word in MaxText's `ici_…_parallelism` and `dcn_…_parallelism`."""

_DTYPES: Final[Mapping[str, str]] = {"f32": "float32", "bf16": "bfloat16"}

_RECIPES: Final[Mapping[tuple[str, str, str], str]] = {
    ("e4m3", "e4m3", "e5m2"): "fp8_full",
    ("e4m3", "e4m3", "e4m3"): "fp8_e4m3",
    ("e5m2", "e5m2", "e5m2"): "fp8_e5m2",
    ("int8", "int8", "int8"): "int8",
}
"""By formats of weights, activations and gradients: MaxText's recipe."""

_OPTIMIZERS: Final = ("adamw", "muon")
"""Those of a job that MaxText has (`opt_type`); its Muon is Optax's, or with `muon_type` its own, which can hand whole
matrices to devices (`muon_use_all_to_all`)."""

_FIXED_RANGE: Final = "fixed,-224,224"
"""What a fixed scale is in the published fp8 recipes: half of e4m3's largest number either way."""

_QUERY_TILES: Final = ("sa_block_q", "sa_block_q_dkv", "sa_block_q_dq")
_KEY_TILES: Final = (
    "sa_block_kv",
    "sa_block_kv_compute",
    "sa_block_kv_dkv",
    "sa_block_kv_dkv_compute",
    "sa_block_kv_dq",
)


def plan_settings(job: Job) -> dict[str, Value]:
    """The keys of a job's batch and plan.

    Raises:
        InputError: Something is left open, or MaxText has no word for it; the message names it.
    """
    plan = job.plan
    return {
        **_batch(job),
        **_mesh(job),
        **_remat(plan),
        **_precision(plan),
        **_optimizer(plan),
        **_attention(plan.attention, job),
        **_experts(plan.experts),
        **_context(plan),
    }


def _batch(job: Job) -> dict[str, Value]:
    batch, micro_steps, devices = (
        job.workload.global_batch,
        job.plan.gradient_accumulation or 1,
        job.hardware.num_devices,
    )
    if batch is None:
        raise refused("a batch that is not chosen", "workload.global_batch", None, fix="give the batch")
    micro_batch = batch // micro_steps
    per_device = micro_batch / devices
    if int(per_device * devices) < micro_batch:  # MaxText multiplies and rounds down
        per_device = nextafter(per_device, 1.0 + per_device)
    settings: dict[str, Value] = {
        "per_device_batch_size": int(per_device) if per_device.is_integer() else per_device,
        "max_target_length": job.workload.seq_len,
    }
    if micro_steps > 1:
        settings["gradient_accumulation_steps"] = micro_steps
    if job.plan.vocab_tiling > 1:
        settings["num_vocab_tiling"] = _tiles(job.plan.vocab_tiling, per_device * job.workload.seq_len)
    return settings


def _tiles(tiles: int, device_tokens: float) -> int:
    """Tiles of the vocabulary, into which the tokens of a device must be divisible."""
    if device_tokens % tiles:
        what = f"{device_tokens:,.0f} tokens of a device in {tiles} tiles"
        raise refused(what, "plan.vocab_tiling", tiles, fix="choose a number of tiles that divides them")
    return tiles


def _mesh(job: Job) -> dict[str, Value]:
    plan, mesh = job.plan, job.plan.mesh
    if plan.placement:
        axis, physical = next(iter(plan.placement.items()))
        raise refused(
            "a placement of axes",
            f"plan.placement.{axis}",
            physical,
            fix="leave the placement out: MaxText places axes",
        )
    inside = {axis: mesh.get(axis, 1) for axis in ICI_AXES}
    settings: dict[str, Value] = {
        f"ici_{_AXES[axis]}_parallelism": degree
        for axis, degree in inside.items()
        if degree > 1 or axis == "fsdp"  # else MaxText gives fsdp what is left over
    }
    if job.hardware.num_slices > 1:
        across = {axis.removeprefix("dcn_"): mesh.get(axis, 1) for axis in DCN_AXES}
        settings |= {
            f"dcn_{_AXES[axis]}_parallelism": degree
            for axis, degree in across.items()
            if degree > 1 or axis == "dp"  # as for fsdp
        }
    if sum(degree > 1 for degree in inside.values()) > 1:
        settings["allow_split_physical_axes"] = True
    return settings | _pipeline(job)


def _pipeline(job: Job) -> dict[str, Value]:
    stages = job.plan.mesh.get("pp", 1) * job.plan.mesh.get("dcn_pp", 1)
    if stages == 1:
        return {}
    pipeline, layers = job.plan.pipeline, job.model.num_layers
    times, once = stacked_layers(model_tree(job.model))
    repeats = pipeline.repeats or 1
    of_stage = times // (stages * repeats) * once
    if not of_stage:
        raise refused(
            f"{times} equal layers in {stages} stages and {repeats} repeats",
            "plan.mesh: pp",
            stages,
            fix=f"choose stages and repeats whose product is at most {times}",
        )
    pipelined = of_stage * stages * repeats
    return {
        "num_layers_per_pipeline_stage": of_stage,
        "num_pipeline_repeats": repeats,
        "num_pipeline_microbatches": pipeline.microbatches or stages,
        **({"pipeline_parallel_layers": pipelined} if pipelined < layers else {}),
        **({"pipeline_fsdp_ag_once": True} if pipeline.gather_once else {}),
    }


def _remat(plan: PlanRequest) -> dict[str, Value]:
    remat = plan.remat
    if remat is None:
        raise refused("a remat policy that is not chosen", "plan.remat", None, fix="give the policy")
    tensors: dict[str, Value] = {name: remat.tensors[name] for name in CUSTOM_NAMES if name in remat.tensors}
    return {"remat_policy": remat.policy, **tensors}


def _precision(plan: PlanRequest) -> dict[str, Value]:
    dtypes = plan.dtypes
    if dtypes.activations != dtypes.compute:
        raise refused(
            "activations of another dtype than matmuls",
            "plan.dtypes.activations",
            dtypes.activations,
            fix=f'use activations = "{dtypes.compute}"',
        )
    settings: dict[str, Value] = {
        "weight_dtype": _dtype(dtypes.weights, "weights"),
        "dtype": _dtype(dtypes.compute, "compute"),
        "grad_dtype": _dtype(dtypes.gradients, "gradients"),
    }
    return settings if plan.quantization is None else settings | _quantization(plan.quantization)


def _dtype(name: str, which: str) -> str:
    if name not in _DTYPES:
        fix = "use f32 or bf16, and quantization for the matmuls"
        raise refused(f"{which} of dtype {name}", f"plan.dtypes.{which}", name, fix=fix)
    return _DTYPES[name]


def _quantization(recipe: Quantization) -> dict[str, Value]:
    where = "plan.quantization"
    known = _RECIPES.get((recipe.weights, recipe.activations, recipe.gradients))
    if known is None:
        formats = f"{recipe.weights}, {recipe.activations}, {recipe.gradients}"
        expected = "; ".join(", ".join(each) for each in _RECIPES)
        raise refused(f"these formats (known: {expected})", where, formats, fix="use the formats of such a recipe")
    for what, value, usual in (
        ("rounding", recipe.rounding, {"nearest_even"}),
        ("scaling", recipe.scaling, {"dynamic", "fixed"} if known == "fp8_full" else {"dynamic"}),
        ("granularity", recipe.granularity, {"per_tensor", "per_axis"}),
    ):
        if value not in usual:
            raise refused(f"such {what}", f"{where}.{what}", value, fix=f"use {' or '.join(sorted(usual))}")
    settings: dict[str, Value] = {
        "quantization": known,
        "use_qwix_quantization": True,
        "quantize_router_proj": False,
    }
    if recipe.scaling == "fixed":
        settings["weight_quantization_calibration_method"] = _FIXED_RANGE
        settings["act_quantization_calibration_method"] = _FIXED_RANGE
    return settings


def _optimizer(plan: PlanRequest) -> dict[str, Value]:
    optimizer = plan.optimizer
    if plan.lora is not None:
        what = "adapters: it trains them by another command, from a checkpoint, with `lora` keys of its own"
        raise refused(what, "plan.lora", f"rank {plan.lora.rank}", fix="leave lora out")
    if optimizer.kind not in _OPTIMIZERS:
        raise refused(
            f"the optimizer {optimizer.kind}",
            "plan.optimizer.kind",
            optimizer.kind,
            fix=f"use {' or '.join(_OPTIMIZERS)}",
        )
    if optimizer.nu_dtype != plan.dtypes.weights:
        raise refused(
            "a second moment of another dtype than the weights",
            "plan.optimizer.nu_dtype",
            optimizer.nu_dtype,
            fix=f'use nu_dtype = "{plan.dtypes.weights}"',
        )
    settings: dict[str, Value] = {"opt_type": optimizer.kind, "mu_dtype": _dtype(optimizer.mu_dtype, "mu")}
    match optimizer.orthogonalize:
        case "replicated":
            raise refused(
                "matrices made orthogonal on every device",
                "plan.optimizer.orthogonalize",
                optimizer.orthogonalize,
                fix='use "sharded" or "whole"',
            )
        case "whole":
            settings |= {"muon_type": "maxtext_muon", "muon_use_all_to_all": True}
        case "sharded" | None:
            pass
    if optimizer.state == "host":
        settings["optimizer_memory_host_offload"] = True
    if optimizer.distributed:
        settings["shard_optimizer_over_data"] = _is_over_data(plan)
    return settings


def _is_over_data(plan: PlanRequest) -> bool:
    """MaxText splits the optimizer's state over data alone; its ep and cp split the weights themselves.

    Raises:
        InputError: The plan has such an axis.
    """
    for axis in ("ep", "cp"):
        if plan.mesh.get(axis, 1) > 1:
            raise refused(
                f"a distributed optimizer over {axis}",
                "plan.optimizer.distributed",
                plan.optimizer.distributed,
                fix=f"leave out distributed, or {axis}",
            )
    return True


def _attention(attention: AttentionKernel, job: Job) -> dict[str, Value]:
    kernel = attention.kernel or ("flash" if job.hardware.chip.torus is not None else "cudnn_flash_te")
    if attention.fp8:
        raise refused("attention in fp8", "plan.attention.fp8", "true", fix="leave it out")
    settings: dict[str, Value] = {"attention": "flash" if kernel == "splash" else kernel}
    if kernel == "splash" or (kernel == "flash" and _is_sparse(job.model)):
        settings["use_tokamax_splash"] = True
    if attention.block_q is not None:
        settings |= dict.fromkeys(_QUERY_TILES, attention.block_q)
    if attention.block_kv is not None:
        settings |= dict.fromkeys(_KEY_TILES, attention.block_kv)
    if attention.dq_reduction_steps is not None:
        settings["dq_reduction_steps"] = attention.dq_reduction_steps
    match attention.max_logit:
        case None | "none":
            pass
        case "estimate":
            fix = "give the bound itself: max_logit = 30"
            raise refused("an estimated largest logit", "plan.attention.max_logit", "estimate", fix=fix)
        case bound if float(bound).is_integer() and bound > 0:
            settings["use_max_logit_estimate"] = int(bound)
        case bound:
            raise refused(
                "a bound that is no whole number", "plan.attention.max_logit", bound, fix="give a whole number from 1"
            )
    return settings


def _is_sparse(model: ModelSpec) -> bool:
    """Whether some layer reads chosen or compressed keys alone, for which MaxText has tokamax's kernel only."""
    mixers = [layer.mixer for layer, _ in model.layers]
    return any(
        isinstance(mixer, CompressedAttentionSpec) or (isinstance(mixer, MlaSpec) and mixer.indexer is not None)
        for mixer in mixers
    )


def _experts(experts: ExpertKernel) -> dict[str, Value]:
    settings: dict[str, Value] = {}
    by_capacity = experts.dispatch == "capacity"
    kernel = experts.kernel or ("dense" if by_capacity else None)
    if by_capacity and kernel != "dense":
        fix = 'use kernel = "dense", or dispatch = "dropless"'
        raise refused(f"a capacity with the kernel {kernel}", "plan.moe.dispatch", "capacity", fix=fix)
    if kernel is not None:
        settings |= {"sparse_matmul": kernel != "dense", "megablox": kernel == "gmm"}
    if by_capacity:
        settings["capacity_factor"] = 1.0 if experts.capacity_factor is None else experts.capacity_factor
    for key, is_asked in (("fused", experts.fused), ("paged_stash", experts.paged_stash)):
        if is_asked:
            raise refused("experts as Megatron-LM runs them", f"plan.moe.{key}", "true", fix="leave it out")
    if experts.exchange_overlap:
        what = "tokens that reach their experts beside another microbatch"
        raise refused(what, "plan.moe.exchange_overlap", "true", fix="leave it out")
    if experts.exchange is not None:
        settings["use_ring_of_experts"] = experts.exchange == "all_gather"
    if experts.shard_experts_on_fsdp is not None:
        settings["shard_exp_on_fsdp"] = experts.shard_experts_on_fsdp
    return settings


def _context(plan: PlanRequest) -> dict[str, Value]:
    context = plan.context
    if context.strategy == "usp":
        fix = "use ulysses or ring, which split attention one way"
        raise refused("usp by one degree", "plan.context.strategy", "usp", fix=fix)
    settings: dict[str, Value] = {}
    if context.strategy is not None:
        settings["context_parallel_strategy"] = context.strategy
        if context.strategy in {"ring", "ulysses"}:
            settings["use_tokamax_splash"] = True
    is_balanced = context.load_balance
    if context.strategy == "ulysses":
        if is_balanced:
            fix = "use load_balance = false: every device has whole sequences of some heads, which are equal"
            raise refused("a balanced load with ulysses", "plan.context.load_balance", value=True, fix=fix)
        is_balanced = False
    if is_balanced is not None:
        settings["context_parallel_load_balance"] = is_balanced
    return settings


def refused(what: str, where: str, value: object, *, fix: str) -> InputError:
    """The error for what MaxText cannot be told."""
    version = maxtext_version().version
    return InputError(
        f"MaxText cannot be told {what}",
        where=where,
        value=value,
        expected=f"what MaxText {version} has a key for",
        fix=fix,
    )
