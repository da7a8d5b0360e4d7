"""The question: a model, a machine, a workload and, where the user has one, a plan.

What a job leaves out (None, or an empty mapping) the planner decides. Degrees count JAX devices.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.hardware.slice import Slice
    from ridgeline.job.own_calibration import OwnCalibration
    from ridgeline.model.spec import ModelSpec

Dtype: TypeAlias = Literal["f32", "bf16", "fp8", "int8", "int4", "fp4", "mxfp4"]
Placement: TypeAlias = Literal["device", "offload", "remat"]
OptimizerKind: TypeAlias = Literal["adamw", "adamh", "muon", "muonh", "adafactor"]
OptimizerState: TypeAlias = Literal["device", "host"]
Orthogonalization: TypeAlias = Literal["sharded", "whole", "replicated"]
AttentionProgram: TypeAlias = Literal["splash", "flash", "dot_product", "cudnn_flash_te", "autoselected"]
ExpertProgram: TypeAlias = Literal["gmm", "ragged_dot", "dense"]
ExpertDispatch: TypeAlias = Literal["dropless", "capacity"]
TokenExchange: TypeAlias = Literal["all_to_all", "send_once", "all_gather"]
KernelLaunch: TypeAlias = Literal["eager", "graph"]
ContextStrategy: TypeAlias = Literal["all_gather", "ring", "ulysses", "usp"]

ICI_AXES = ("dp", "fsdp", "fsdp_transpose", "tp", "tp_sequence", "cp", "ep", "pp")
"""Logical mesh axes inside a slice.

MaxText: data, fsdp, fsdp_transpose, tensor, tensor_sequence, context, expert, stage.
"""

DCN_AXES = ("dcn_dp", "dcn_fsdp", "dcn_pp")
"""Logical mesh axes across slices."""

MESH_AXES = ICI_AXES + DCN_AXES
"""Every logical mesh axis."""

BATCH_AXES = ("dp", "fsdp", "fsdp_transpose", "ep", "dcn_dp", "dcn_fsdp")
"""Mesh axes that split the batch (MaxText's `activation_batch`)."""

RANK_AXES = (*BATCH_AXES, "pp")
"""Mesh axes of a server along which sequences are scheduled apart: those that split the batch, and the stages of a
pipeline, each of which works on sequences of its own at a time."""

TRANSPOSE_AXIS = "tp_transpose"
"""Mesh axis of serving alone: it splits the dimension of each matrix that tensor parallelism leaves whole, so that
weights lie still on two axes (MaxText: tensor_transpose; Scaling Book, ch. 7: 2D weight-stationary)."""

SERVING_AXES = (*MESH_AXES, TRANSPOSE_AXIS)
"""Every logical mesh axis of a server."""

BYTES_OF: Mapping[str, float] = {
    "f32": 4.0,
    "bf16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "int4": 0.5,
    "fp4": 0.5,
    "mxfp4": 0.5,
}
"""Bytes of one element by dtype; those of 4 bits are for serving alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What is to be trained.

    Attributes:
        global_batch: Sequences per optimizer step; None lets the planner find the largest sensible one.
        seq_len: Tokens per sequence.
        tokens: Length of the run, for duration and cost; None when not asked.
    """

    seq_len: int
    global_batch: int | None = None
    tokens: float | None = None
    kind: Literal["train"] = "train"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dtypes:
    """Storage and compute precisions (MaxText: weight_dtype, dtype, grad_dtype, dtype)."""

    weights: Dtype = "f32"
    compute: Dtype = "bf16"
    gradients: Dtype = "f32"
    activations: Dtype = "bf16"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """A low-precision recipe for the layers' matmuls (attention scores, router and logits stay in bf16).

    Attributes:
        kind: `fp8`, `int8` or `fp4`.
        weights: Format of the weights, e.g. `e4m3`.
        activations: Format of the activations.
        gradients: Format of the gradients.
        granularity: `per_tensor`, `per_axis` or `sub_channel`.
        scaling: `dynamic`, `static` or `fixed`.
        rounding: `nearest_even` or `stochastic`.
    """

    kind: Literal["fp8", "int8", "fp4"]
    weights: str = "e4m3"
    activations: str = "e4m3"
    gradients: str = "e5m2"
    granularity: str = "per_tensor"
    scaling: str = "dynamic"
    rounding: str = "nearest_even"


@dataclass(frozen=True, slots=True, kw_only=True)
class Remat:
    """What the forward pass keeps for the backward pass (MaxText's `remat_policy`).

    Attributes:
        policy: A preset of `remat.py`, or `custom`.
        tensors: For `custom`: checkpoint name to `device`, `offload` or `remat` (the default).
    """

    policy: str
    tensors: Mapping[str, Placement] = field(default_factory=dict[str, Placement])


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """How weights are updated: by which rule, and where its state lives, how wide it is and how it is split.

    Attributes:
        kind: `adamw`. `muon` has one moment, made orthogonal, for the layers' matrices and AdamW for all else.
            `adamh` and `muonh` hold each matrix at its norm (Levanter's hyperball). `adafactor` has no first moment,
            and of a matrix's second its sums along rows and columns.
        mu_dtype: Of the first moment.
        nu_dtype: Of the second.
        state: Where both live; None lets the planner choose.
        distributed: Megatron's distributed optimizer (ZeRO-1). Weights are whole on every replica, and so are dense
            ones over ep and cp, which else split them; the f32 copy and the moments are split over all of these.
            Gradients are reduce-scattered and weights gathered once a step.
        sync_overlap: Replicas sum gradients beside the backward pass of the last microbatch, and gather weights beside
            the forward pass of the first; False where they wait for it. None leaves it to the program: they do.
        orthogonalize: Where Muon's iterations run: `sharded`, each matrix's products split over the devices that split
            it; `whole`, each device takes whole matrices; `replicated`, every device takes every matrix. None leaves it
            to the program: whole under a distributed optimizer, else sharded.
    """

    kind: OptimizerKind = "adamw"
    mu_dtype: Dtype = "f32"
    nu_dtype: Dtype = "f32"
    state: OptimizerState | None = None
    distributed: bool = False
    sync_overlap: bool | None = None
    orthogonalize: Orthogonalization | None = None

    @property
    def is_muon(self) -> bool:
        """Whether the layers' matrices have one moment, which is made orthogonal."""
        return self.kind in {"muon", "muonh"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lora:
    """Low-rank adapters, trained in place of the weights, which are frozen and stored in the compute dtype.

    Attributes:
        rank: Of every adapter.
        targets: The layers' products that have one: `query`, `key`, `value`, `out`, `gate`, `up`, `down`, …
        alpha: Scale of the adapters' outputs, times the rank; no cost depends on it.
    """

    rank: int
    targets: tuple[str, ...]
    alpha: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """How pipeline stages are fed; None lets the planner choose.

    Attributes:
        microbatches: Of a step.
        repeats: Times that a microbatch passes through all stages.
        gather_once: Weights are gathered over FSDP once a step, not for every microbatch.
    """

    microbatches: int | None = None
    repeats: int | None = None
    gather_once: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionKernel:
    """How attention is computed; None leaves it to the program.

    Attributes:
        kernel: MaxText's `attention`: `splash`, `flash`, `dot_product`, `cudnn_flash_te`, `autoselected`.
        block_q: Queries of one tile; an estimate takes the chip's `attention_block` where none are stated.
        block_kv: Keys of one tile.
        dq_reduction_steps: MaxText's: 3 where tokamax's backward kernel adds up the gradient of queries in three parts;
            None for a part for each tile of keys.
        max_logit: `none`, `estimate`, or a bound that replaces the running maximum.
        fused_rotary: One kernel, or one pass of a compiler's, rotates queries and keys; False where a framework does it
            operation by operation.
        fp8: Scores, what they weigh, and their gradients are products in fp8 (Transformer Engine's `fp8_dpa`).
    """

    kernel: AttentionProgram | None = None
    block_q: int | None = None
    block_kv: int | None = None
    dq_reduction_steps: Literal[3] | None = None
    max_logit: Literal["none", "estimate"] | float | None = None
    fused_rotary: bool | None = None
    fp8: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertKernel:
    """How experts are computed; None leaves it to the program.

    Attributes:
        dispatch: `dropless` or `capacity`.
        capacity_factor: Rows an expert has room for over its mean, for `capacity`.
        kernel: `gmm`, `ragged_dot` or `dense`.
        exchange: How tokens reach the experts of other devices: as copies; as copies that cross the network once to
            each domain of fast links (DeepEP, HybridEP), which is what GPUs do unless told; all tokens to all devices.
        exchange_overlap: They travel beside the arithmetic of another microbatch (DualPipe; Megatron's
            `overlap_moe_expert_parallel_comm`).
        fused: One kernel makes a gated unit of the products of an expert's inputs and narrows it for the next product,
            and its gradients likewise (Transformer Engine's fused grouped MLP).
        paged_stash: What experts keep for the backward pass is copied into pages, and out of them again (Megatron's
            `moe_paged_stash`), for a replayed graph has room for more tokens than come.
        shard_experts_on_fsdp: The fsdp axis splits the expert dimension instead of the embedding.
    """

    dispatch: ExpertDispatch | None = None
    capacity_factor: float | None = None
    kernel: ExpertProgram | None = None
    exchange: TokenExchange | None = None
    exchange_overlap: bool | None = None
    fused: bool | None = None
    paged_stash: bool | None = None
    shard_experts_on_fsdp: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextParallelism:
    """How the `cp` axis splits attention; None leaves it to the program.

    Attributes:
        strategy: `all_gather`, `ring`, `ulysses` or `usp`.
        load_balance: The sequence is reordered so that causal work is equal.
    """

    strategy: ContextStrategy | None = None
    load_balance: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiler:
    """What the compiler is told; None leaves it at its default.

    Attributes:
        scoped_vmem_kib: VMEM a fusion may use.
        sparse_core_offload: Collectives that run on the SparseCore.
        kernel_launch: On GPUs: `eager` where the host issues every kernel, `graph` where they are compiled or replayed.
        collective_matmul: Products are cut up to run beside the collectives of tensor parallelism; False where these
            run apart. None leaves it to the program.
    """

    scoped_vmem_kib: int | None = None
    sparse_core_offload: tuple[str, ...] = ()
    kernel_launch: KernelLaunch | None = None
    collective_matmul: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """What the user pins; the rest is searched.

    Attributes:
        mesh: Degree by axis; empty leaves all to the search. `mesh.pinned_degrees` says what a partial one holds.
        gradient_accumulation: Micro-steps per optimizer step.
        pipeline: Microbatches, repeats and gathers.
        dtypes: Precisions.
        quantization: A low-precision recipe, or None.
        remat: A policy, or None to search the presets.
        optimizer: State dtypes and place.
        lora: Adapters that are trained in place of the weights; None trains the weights.
        vocab_tiling: Chunks in which logits and loss are computed.
        moe_imbalance: Busiest expert's tokens over the mean (1.0 is perfect balance).
        placement: Physical axes by logical axis, e.g. `{"tp": "core"}`; an axis left out is placed by the planner.
        attention: Kernel and tiles of attention.
        experts: Kernel and dispatch of experts.
        context: How context parallelism splits attention.
        compiler: What the compiler is told.
    """

    mesh: Mapping[str, int] = field(default_factory=dict[str, int])
    gradient_accumulation: int | None = None
    pipeline: Pipeline = field(default_factory=Pipeline)
    dtypes: Dtypes = field(default_factory=Dtypes)
    quantization: Quantization | None = None
    remat: Remat | None = None
    optimizer: Optimizer = field(default_factory=Optimizer)
    lora: Lora | None = None
    vocab_tiling: int = 1
    moe_imbalance: float = 1.0
    placement: Mapping[str, str] = field(default_factory=dict[str, str])
    attention: AttentionKernel = field(default_factory=AttentionKernel)
    experts: ExpertKernel = field(default_factory=ExpertKernel)
    context: ContextParallelism = field(default_factory=ContextParallelism)
    compiler: Compiler = field(default_factory=Compiler)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A whole question.

    Attributes:
        model_reference: What the user wrote: a zoo name or a path; of an inline table, the name in it.
        model: The decoder it means.
        hardware: The slice.
        workload: What to train.
        plan: What is pinned.
        model_table: The inline table that describes the model; None where it has a name or a path.
        calibration: The user's own, over what ships; None without.
    """

    model_reference: str
    model: ModelSpec
    hardware: Slice
    workload: Workload
    plan: PlanRequest = field(default_factory=PlanRequest)
    model_table: Mapping[str, object] | None = None
    calibration: OwnCalibration | None = None
