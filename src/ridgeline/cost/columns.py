"""What a cost function is given: the setting, which is the same for every plan, and the plan's columns.

Structure is Python (the model's tree, the chip, the precisions); every choice that varies inside a search
is a number, or a column of numbers, one a plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from ridgeline.cost.work import Hiding, Number, smaller
from ridgeline.job.job import BATCH_AXES, BYTES_OF
from ridgeline.model.adapters import is_adapter

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ridgeline.cost.collectives import Link
    from ridgeline.cost.efficiency import Efficiency
    from ridgeline.hardware.slice import Slice
    from ridgeline.job.job import (
        AttentionProgram,
        ContextParallelism,
        Dtypes,
        Optimizer,
        Quantization,
        TokenExchange,
    )
    from ridgeline.model.operations import Activation, ModelTree, Tensor

TENSOR_AXES = ("tp", "tp_sequence")
"""Mesh axes that split heads, MLP width and vocabulary."""

STAGE_AXES = ("pp", "dcn_pp")
"""Mesh axes that split the layers."""

MESH_AXES_OF: Mapping[str, tuple[str, ...]] = {
    "embed": ("fsdp", "fsdp_transpose", "cp", "ep", "dcn_fsdp"),
    "q_lora": ("fsdp", "fsdp_transpose", "cp", "ep", "dcn_fsdp"),
    "kv_lora": ("fsdp", "fsdp_transpose", "cp", "ep", "dcn_fsdp"),
    "embed_moe": ("fsdp", "fsdp_transpose", "cp", "dcn_fsdp"),
    "mlp": ("fsdp_transpose", "tp", "tp_sequence"),
    "mlp_moe": ("fsdp_transpose", "tp", "tp_sequence"),
    "heads": TENSOR_AXES,
    "kv_heads": TENSOR_AXES,
    "vocab": TENSOR_AXES,
    "experts": ("ep",),
    "rank": ("fsdp", "fsdp_transpose", "cp", "ep", "dcn_fsdp"),
}
"""Mesh axes that split each logical axis of a weight (MaxText's logical rules); an axis not named is never split.
Of a short convolution (`conv`) and of a scan's states (`state`) the channels are split, as in vLLM 0.32.0.
Of an adapter the rank stands for whatever side FSDP splits, as PyTorch's does, which cuts up flattened weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSetting:
    """What every plan of a search shares.

    Attributes:
        tree: The model's operations.
        hardware: The slice.
        efficiency: Achieved fractions of its peaks.
        global_batch: Sequences per optimizer step.
        seq_len: Tokens per sequence.
        dtypes: Precisions.
        quantization: Low-precision recipe, or None.
        optimizer: Its state.
        has_adapters: Low-rank adapters are trained; all other weights are frozen.
        vocab_tiling: Chunks of the logits.
        moe_imbalance: Busiest expert's tokens over the mean.
        expert_exchange: How tokens reach their experts; None for the quicker.
        expert_capacity_ratio: Rows that every expert computes over its mean, what is left filled with zeros, where
            tokens are dropped for a capacity; None where each computes the rows it has.
        context: How context parallelism splits attention.
        link_bytes_per_s: The rate that loads of fast links refer to.
        is_eager: The host issues every kernel (`launches.py`).
        expert_exchange_overlaps: Tokens reach their experts beside the arithmetic of another microbatch.
        has_collective_matmul: Products run beside the collectives of tensor parallelism.
        sync_overlaps: What replicas sum and gather once a step runs beside a microbatch's pass.
        attention_program: That computes attention; None for the fastest known.
        fuses_rotary: Queries and keys are rotated in one pass.
        attention_in_fp8: Attention's products are in fp8.
        stashes_experts: What experts keep for the backward pass is copied into pages and back.
        fuses_experts: The grouped product makes the experts' gated unit and narrows it.
        attention_tile: Its queries and keys of one tile; None for the chip's `Efficiency.attention_block`.
        num_gradient_parts: That attention's backward kernel writes of the queries' gradient, else one a tile of keys.
        sparse_core_offload: Collectives that SparseCores carry because the compiler was told so.
    """

    tree: ModelTree
    hardware: Slice
    efficiency: Efficiency
    global_batch: int
    seq_len: int
    dtypes: Dtypes
    quantization: Quantization | None
    optimizer: Optimizer
    vocab_tiling: int
    moe_imbalance: float
    expert_exchange: TokenExchange | None
    expert_capacity_ratio: float | None
    context: ContextParallelism
    link_bytes_per_s: float
    is_eager: bool = False
    has_adapters: bool = False
    expert_exchange_overlaps: bool = False
    has_collective_matmul: bool = True
    sync_overlaps: bool = True
    attention_program: AttentionProgram | None = None
    fuses_rotary: bool = True
    attention_in_fp8: bool = False
    fuses_experts: bool = False
    stashes_experts: bool = False
    attention_tile: tuple[int | None, int | None] = (None, None)
    num_gradient_parts: float = inf
    sparse_core_offload: tuple[str, ...] = ()

    @property
    def activation_bytes(self) -> float:
        """Bytes of one element of an activation."""
        return BYTES_OF[self.dtypes.activations]

    @property
    def compute_bytes(self) -> float:
        """Bytes of one element of a weight as it is gathered, and of its gradient as it is reduced."""
        return BYTES_OF[self.dtypes.compute]

    @property
    def gradient_bytes(self) -> float:
        """Bytes of one element of an accumulated gradient."""
        return BYTES_OF[self.dtypes.gradients]

    def trains(self, tensor: Tensor) -> bool:
        """Whether a weight is trained."""
        return not self.has_adapters or is_adapter(tensor)

    @property
    def tensor_overlap(self) -> float:
        """Fraction of the time of tensor parallelism's collectives that products hide."""
        return self.efficiency.tensor_overlap if self.has_collective_matmul else 0.0

    @property
    def unhidden_gather_share(self) -> Number:
        """Share of FSDP's gathers that nothing hides: of what SparseCores carry, only the first of a layer shows."""
        return self.carried_share("all_gather", self.efficiency.unhidden_gather)

    @property
    def unhidden_sum_share(self) -> Number:
        """The same of the sums of gradients, which are all-reduces where each crosses the links twice."""
        kind = "all_reduce" if self.efficiency.sum_passes > 1 else "reduce_scatter"
        return self.carried_share(kind, self.efficiency.unhidden_sum)

    def carried_share(self, kind: str, share: Number) -> Number:
        """What nothing hides of a collective, if SparseCores carry those of its kind: no more than of any transfer."""
        return smaller(share, self.efficiency.unhidden) if kind in self.sparse_core_offload else share

    @property
    def adds_gradients_in_products(self) -> bool:
        """Whether the product that makes a weight's gradient adds it to those of earlier microbatches.

        Megatron-LM's do, unless told not to (`--no-gradient-accumulation-fusion`); its distributed optimizer stands
        for it here. Elsewhere a pass of its own adds.
        """
        return self.optimizer.distributed

    def peak_flops_per_s(self, dtype: str) -> float:
        """Dense peak of one device; a dtype without a faster path runs at the compute dtype's rate."""
        peaks = self.hardware.chip.peak_flops_per_s
        return peaks.get(dtype, peaks[self.dtypes.compute]) / self.hardware.chip.devices_per_chip

    @property
    def hbm_bytes_per_s(self) -> float:
        """Peak memory bandwidth of one device."""
        return self.hardware.chip.hbm_bytes_per_s / self.hardware.chip.devices_per_chip

    @property
    def hiding(self) -> Hiding:
        """How far compute hides the collectives and transfers that run beside it."""
        return Hiding(overlap=self.efficiency.overlap, unhidden_share=self.efficiency.unhidden)

    @property
    def usable_hbm_bytes(self) -> float:
        """Memory a program may allocate on one device."""
        return self.hardware.chip.usable_hbm_bytes / self.hardware.chip.devices_per_chip

    @property
    def host_bytes_per_s(self) -> float | None:
        """Peak rate of one device to and from its host; None when not known."""
        rate = self.hardware.chip.pcie_bytes_per_s
        return None if rate is None else rate / self.hardware.chip.devices_per_chip

    @property
    def reaches_host(self) -> bool:
        """Whether the rate to the host is known, so that something can be kept there."""
        return self.host_bytes_per_s is not None

    @property
    def places_moments(self) -> bool:
        """Whether it is open where the optimizer's moments live: no job says so, and the host can be reached."""
        return self.optimizer.state is None and self.reaches_host

    @property
    def host_usable_bytes(self) -> float | None:
        """Host RAM for one device; None when not known."""
        chip = self.hardware.chip
        if chip.host_ram_bytes is None:
            return None
        return chip.host_ram_bytes / (chip.chips_per_host * chip.devices_per_chip)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanColumns:
    """The choices of one plan, or of many.

    Attributes:
        degrees: Every mesh axis to its degree.
        accumulation: Micro-steps per optimizer step.
        microbatches: Per pipeline pass (1 without a pipeline).
        repeats: Circular pipeline repeats (1 without).
        gather_once: 1 where a pipeline's weights are gathered over FSDP once a step, not for every microbatch.
        saved: Checkpoint name to 1 where it is kept on the device; `*` is 1 where nothing is recomputed.
        offloaded: Checkpoint name to 1 where it is kept on the host.
        moments_on_host: 1 where the optimizer's moments live on the host.
        links: Group of `placement.GROUPS` to its wiring.
    """

    degrees: Mapping[str, Number]
    accumulation: Number
    microbatches: Number
    repeats: Number
    saved: Mapping[str, Number]
    offloaded: Mapping[str, Number]
    moments_on_host: Number = 0.0
    links: Mapping[str, Link]
    gather_once: Number = 0.0

    def degree(self, axes: Iterable[str]) -> Number:
        """Product of the degrees of several axes."""
        total: Number = 1.0
        for axis in axes:
            total = total * self.degrees[axis]
        return total

    @property
    def tensor(self) -> Number:
        """Ways in which heads, MLP width and vocabulary are split."""
        return self.degree(TENSOR_AXES)

    @property
    def stages(self) -> Number:
        """Pipeline stages."""
        return self.degree(STAGE_AXES)

    @property
    def microsteps(self) -> Number:
        """Passes of a microbatch through a stage, per optimizer step."""
        return self.accumulation * self.microbatches

    def kept(self, name: str) -> Number:
        """1 where an intermediate survives to the backward pass, on the device or on the host."""
        everything = self.saved["*"]
        return smaller(everything + self.saved.get(name, 0.0) + self.offloaded.get(name, 0.0), 1.0)


REPLICAS = ("dp", "cp", "ep", "dcn_dp")
"""Mesh axes along which a distributed optimizer finds whole copies of a dense weight; of an expert's, all but ep."""


def tokens_per_microbatch(setting: TrainingSetting, columns: PlanColumns) -> Number:
    """Tokens of one microbatch on one device: B·S over the ways batch and sequence are split."""
    ways = columns.degree(BATCH_AXES) * columns.degrees["cp"] * columns.microsteps
    return setting.global_batch * setting.seq_len / ways


def weight_shards(tensor: Tensor, columns: PlanColumns, setting: TrainingSetting) -> Number:
    """Ways in which a weight is split; a mesh axis that two of its dimensions ask for counts once.

    Under a distributed optimizer the axes that split the batch or the sequence leave it whole.
    """
    axes = {axis: None for logical in _divisible(tensor) for axis in MESH_AXES_OF.get(logical, ())}
    if setting.optimizer.distributed:
        axes = {axis: None for axis in axes if axis not in REPLICAS or (axis == "ep" and "experts" in tensor.axes)}
    return columns.degree(axes)


def state_shards(tensor: Tensor, columns: PlanColumns, setting: TrainingSetting) -> Number:
    """Ways in which the f32 weight and its moments are split: the weight's, and its replicas' if distributed."""
    shards = weight_shards(tensor, columns, setting)
    if not setting.optimizer.distributed:
        return shards
    return shards * columns.degree(axis for axis in REPLICAS if not (axis == "ep" and "experts" in tensor.axes))


def gathered_shards(tensor: Tensor, columns: PlanColumns) -> Number:
    """Ways in which a weight is still split when its operation runs: tensor and expert parallelism."""
    shards = tensor_shards(_divisible(tensor), columns)
    if "experts" in tensor.axes:
        shards = shards * columns.degrees["ep"]
    return shards


def tensor_shards(axes: Iterable[str], columns: PlanColumns) -> Number:
    """Ways in which tensor parallelism splits an array of these logical axes."""
    return columns.tensor if any(TENSOR_AXES[0] in MESH_AXES_OF.get(axis, ()) for axis in axes) else 1.0


def activation_shards(activation: Activation, columns: PlanColumns) -> Number:
    """Ways in which tensor parallelism splits an intermediate.

    Heads, MLP width and vocabulary are split; the residual stream is too (`activation_embed` on tp,
    `activation_norm_length` on tp_sequence). A single key-value head is not: every device has it.
    """
    alone = activation.axes[:1] == ("kv_heads",) and activation.shape[:1] == (1,)
    return 1.0 if alone or not activation.axes else columns.tensor


def _divisible(tensor: Tensor) -> list[str]:
    """Logical axes with more than one element; a single key-value head is replicated instead."""
    return [axis for axis, size in zip(tensor.axes, tensor.shape, strict=True) if size > 1]
