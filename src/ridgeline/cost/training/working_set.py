"""What a device holds besides state and kept activations while one checkpointed block of layers runs backward.

A block is what the backward pass computes again as one: a layer, or the repeating pattern of unlike layers (Gemma 3's
six), which MaxText scans as one. Going back through it, operation by operation, there live

    what earlier operations of the block made and the gradients of their weights still read
  + the gradients of what this operation read and made
  + the gradient of the residual stream

The sums of XLA's own live ranges agree: at the fullest instant of Llama 3.1 70B on 256 v6e chips (full remat, 12,288
tokens a device) they hold four arrays of the MLP's width (gate, up, their product, its gradient), two of the heads'
(query, context), three of the stream's, and the log-sum-exp on 128 lanes.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from ridgeline.cost.columns import activation_shards
from ridgeline.cost.training.step import embed_dim
from ridgeline.cost.work import Number, larger, smaller
from ridgeline.job.job import BYTES_OF
from ridgeline.job.remat import LAYER_INPUT
from ridgeline.model.accounting import named_outputs
from ridgeline.model.operations import Attention, Dispatch, Elementwise, ExpertMatmul, Matmul
from ridgeline.model.recompute import projects_to_stream

if TYPE_CHECKING:
    from ridgeline.cost.columns import PlanColumns, TrainingSetting
    from ridgeline.model.operations import Activation, Block, Layer, ModelTree, Operation

LANES = 128
"""Lanes of a vector register, over which TPU attention kernels write the log-sum-exp of each query, in f32.
Source: `splash_mha_fwd_residuals` in compiled programs: f32[batch, heads, tokens, 128]."""

_NOT_READ_AGAIN = frozenset({"rotary", "top_k", "scales", "post_norm", "weighted_sum", "combine"})
# What such an operation makes takes the place of what it read, or is added to the stream.


def block_elements(setting: TrainingSetting, columns: PlanColumns) -> Number:
    """Elements per token, as wide as activations, at the fullest instant of the hungriest block's backward pass.

    Formula: max over operations o of Σ (what o and those before it made and did not keep) + gradients of what o read
    and made + gradient of the stream; the other layers of the block whole; the block's input where it was on the host

    Assumes: operations go back one by one; what was made waits until its layer is done, for the gradients of weights
    are computed late.

    Source: live ranges of MaxText 0.2.5 programs in XLA's buffer assignment (libtpu 0.0.52, 2026-11-29).
    """
    layers = setting.tree.layers
    waiting = [waiting_elements(layer, columns, alone=not setting.tree.repeats) for layer in layers]
    whole: Number = 0.0
    if setting.tree.repeats:
        for layer, elements in zip(layers, waiting, strict=True):
            whole = whole + elements * round(layer.count / setting.tree.repeats)
    fullest: Number = 0.0
    for layer, elements in zip(layers, waiting, strict=True):
        others = whole - elements if setting.tree.repeats else 0.0
        fullest = larger(fullest, others + _fullest_elements(layer, setting, columns))
    fetched = columns.offloaded.get(LAYER_INPUT, 0.0) * embed_dim(setting.tree) / columns.tensor
    return fullest + fetched


def layers_of_block(tree: ModelTree) -> int:
    """Layers that the backward pass computes again as one."""
    return round(sum(layer.count for layer in tree.layers) / tree.repeats) if tree.repeats else 1


def waiting_elements(layer: Layer, columns: PlanColumns, *, alone: bool) -> Number:
    """Elements per token that a layer computes again before it goes back; `alone` in its block, or one of several.

    Formula: Σ over operations of what they make, where a gradient reads it and it is not kept on the device

    Source: as of `block_elements`.
    """
    total: Number = 0.0
    for block in layer.blocks:
        for operation in block.operations:
            total = total + _waiting(operation, block, columns, alone=alone)
    return total


def _fullest_elements(layer: Layer, setting: TrainingSetting, columns: PlanColumns) -> Number:
    """One layer going back: the most that lives at any of its operations."""
    waiting: Number = 0.0
    fullest: Number = 0.0
    kernel: Number = 0.0
    for block in layer.blocks:
        for operation in block.operations:
            waiting = waiting + _waiting(operation, block, columns, alone=not setting.tree.repeats)
            if isinstance(operation, Attention):
                kernel = kernel + _log_sum_exp(operation, setting, columns)
            fullest = larger(fullest, waiting + kernel + _gradients(operation, setting, columns))
    return fullest


def _waiting(operation: Operation, block: Block, columns: PlanColumns, *, alone: bool) -> Number:
    """What an operation makes that a later step of the backward pass reads, and that was not kept anyway."""
    outputs = named_outputs(operation)
    if outputs:
        unread = projects_to_stream(operation) and not _has_post_norm(block)
        return 0.0 if unread else sum((_made_again(output, columns) for output in outputs), start=0.0)
    match operation:
        case Elementwise(write_elements=size) if not _is_added_up(operation, alone=alone):
            return size * (1.0 - columns.saved["*"]) / columns.tensor
        case Dispatch(top_k=top_k, width=width) if not _is_added_up(operation, alone=alone):
            return top_k * width * (1.0 - columns.saved["*"]) / columns.tensor
        case _:
            return 0.0


def _is_added_up(operation: Elementwise | Dispatch, *, alone: bool) -> bool:
    """Whether nothing reads again what it makes; the stream between the layers of one block is read again."""
    name = operation.path.rsplit("/", 1)[-1]
    return name in _NOT_READ_AGAIN or (alone and name == "residual")


def _made_again(output: Activation, columns: PlanColumns) -> Number:
    """An intermediate that was not kept on the device: computed again, or fetched from the host."""
    kept = smaller(columns.saved.get(output.name, 0.0) + columns.saved["*"], 1.0)
    return output.size / activation_shards(output, columns) * (1.0 - kept)


def _gradients(operation: Operation, setting: TrainingSetting, columns: PlanColumns) -> Number:
    """Gradients of what an operation read and made; the stream's own beside them."""
    stream = embed_dim(setting.tree)
    match operation:
        case Matmul(weight=weight, num_contracted=contracted, output=output):
            both = prod(weight.shape[:contracted]) + output.size
        case ExpertMatmul(weight=weight, top_k=top_k, output=output):
            both = top_k * weight.shape[1] + output.size
        case Attention(num_heads=N, num_kv_heads=K, qk_head_dim=H_qk, v_head_dim=H_v):
            both = (N + K) * (H_qk + H_v)
        case Elementwise(read_elements=read, write_elements=written) if operation.path.endswith("weighted_sum"):
            both = (read + written) * BYTES_OF["f32"] / setting.activation_bytes
        case _:
            both = 0.0
    return (both + stream) / columns.tensor


def _log_sum_exp(operation: Attention, setting: TrainingSetting, columns: PlanColumns) -> Number:
    """What the kernel writes beside its output, unless that was kept: a number of each query and head, on all lanes."""
    lanes = LANES if setting.hardware.chip.vendor == "google" else 1
    size = operation.num_heads * lanes * BYTES_OF["f32"] / setting.activation_bytes
    return size / columns.tensor * (1.0 - columns.kept(operation.output.name))


def _has_post_norm(block: Block) -> bool:
    return any(operation.path.endswith("post_norm") for operation in block.operations)
