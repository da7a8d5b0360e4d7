"""The question: a model, a machine, a workload and, where the user has one, a plan.

What a job leaves out (None, or an empty mapping) the planner decides. Degrees count JAX devices.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.hardware.slice import Slice
    from ridgeline.model.spec import ModelSpec

Dtype: TypeAlias = Literal["f32", "bf16", "fp8", "int8"]
Placement: TypeAlias = Literal["device", "offload", "remat"]

ICI_AXES = ("dp", "fsdp", "fsdp_transpose", "tp", "tp_sequence", "cp", "ep", "pp")
"""Logical mesh axes inside a slice.

MaxText: data, fsdp, fsdp_transpose, tensor, tensor_sequence, context, expert, stage.
"""

DCN_AXES = ("dcn_dp", "dcn_fsdp", "dcn_pp")
"""Logical mesh axes across slices."""

MESH_AXES = ICI_AXES + DCN_AXES
"""Every logical mesh axis."""

BYTES_OF: Mapping[str, float] = {"f32": 4.0, "bf16": 2.0, "fp8": 1.0, "int8": 1.0}
"""Bytes of one element by dtype."""


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
        kind: `fp8` or `int8`.
        weights: Format of the weights, e.g. `e4m3`.
        activations: Format of the activations.
        gradients: Format of the gradients.
        granularity: `per_tensor`, `per_axis` or `sub_channel`.
        scaling: `dynamic`, `static` or `fixed`.
        rounding: `nearest_even` or `stochastic`.
    """

    kind: Literal["fp8", "int8"]
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
    """AdamW's state: where it lives and how wide it is."""

    kind: Literal["adamw"] = "adamw"
    mu_dtype: Dtype = "f32"
    nu_dtype: Dtype = "f32"
    state: Literal["device", "host"] = "device"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """How pipeline stages are fed; None lets the planner choose."""

    microbatches: int | None = None
    repeats: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """What the user pins; the rest is searched.

    Attributes:
        mesh: Degree by axis. An axis left out is searched, unless `closed`.
        gradient_accumulation: Micro-steps per optimizer step.
        pipeline: Microbatches and repeats.
        dtypes: Precisions.
        quantization: A low-precision recipe, or None.
        remat: A policy, or None to search the presets.
        optimizer: State dtypes and place.
        vocab_tiling: Chunks in which logits and loss are computed.
        moe_imbalance: Busiest expert's tokens over the mean (1.0 is perfect balance).
    """

    mesh: Mapping[str, int] = field(default_factory=dict[str, int])
    gradient_accumulation: int | None = None
    pipeline: Pipeline = field(default_factory=Pipeline)
    dtypes: Dtypes = field(default_factory=Dtypes)
    quantization: Quantization | None = None
    remat: Remat | None = None
    optimizer: Optimizer = field(default_factory=Optimizer)
    vocab_tiling: int = 1
    moe_imbalance: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A whole question.

    Attributes:
        model_reference: What the user wrote: a zoo name or a path.
        model: The decoder it means.
        hardware: The slice.
        workload: What to train.
        plan: What is pinned.
    """

    model_reference: str
    model: ModelSpec
    hardware: Slice
    workload: Workload
    plan: PlanRequest = field(default_factory=PlanRequest)
