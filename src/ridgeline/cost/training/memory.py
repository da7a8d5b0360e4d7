"""Memory of one device at the peak of a training step.

    peak = parameters, their copy in the compute dtype, optimizer state, kept activations
         + the larger of: the layers' backward pass (gradients, one block's intermediates and their gradients, its
           gathered weights, the unreduced gradient of the largest, what of the head waits for the optimizer),
           or the head (logits, its gathered table, the gradient of one of them),
           or what Muon's iterations hold beside the gradients when all activations are gone

These do not coexist: the head runs before the layers go back. Every term is one that XLA's buffer assignment shows
for MaxText programs (`docs/witness.md`). Where there is room, the logits' gradient waits too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from ridgeline.cost.columns import (
    PlanColumns,
    TrainingSetting,
    activation_shards,
    state_shards,
    tokens_per_microbatch,
    weight_shards,
)
from ridgeline.cost.laws.memory import (
    gradient_bytes,
    head_bytes,
    head_waiting_bytes,
    saved_bytes,
    weight_bytes,
)
from ridgeline.cost.training.held_weights import (
    frozen_elements,
    held_weights,
    local_elements,
    state_elements,
    stored_elements,
    trained_weights,
)
from ridgeline.cost.training.layer import gathered_bytes, gathered_tensor_bytes, read_again
from ridgeline.cost.training.muon import orthogonalization_bytes
from ridgeline.cost.training.operation import gathered_tokens
from ridgeline.cost.training.optimizer import matrix_sides, moments_bytes, tensor_moments_bytes
from ridgeline.cost.training.pipeline import microbatches_in_flight, worked_share
from ridgeline.cost.training.quantization_pass import NARROW_BYTES
from ridgeline.cost.training.step import embed_dim
from ridgeline.cost.training.working_set import block_elements, layers_of_block
from ridgeline.cost.work import Number, larger, smaller
from ridgeline.job.job import BYTES_OF
from ridgeline.job.remat import LAYER_INPUT
from ridgeline.model.operations import Dispatch, Elementwise, Matmul

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ridgeline.model.operations import Activation, Layer

LOGITS_BYTES = BYTES_OF["bf16"]
"""Bytes of one logit: the bf16 output of the matmul; the f32 cast is fused into the loss. Measured: MaxText's Qwen3-8B
on v6e needs 2.32 GiB more for each further sequence of 8192 tokens whose other activations are offloaded;
8192 · 151936 · 2 bytes are 2.32 GiB.
Source: memory boundaries of tpu_performance_autoresearch_wiki@6dbda52d (2026-06-05)."""


COMFORT = 0.94
"""Fraction of usable memory up to which the scheduler lets values wait: the edge of the `tight` band."""

_GONE_BEFORE_UPDATE = (
    "gathered_weights",
    "saved_activations",
    "layer_working_set",
    "head_waiting",
    "logits_waiting",
    "head_working_set",
)
"""Parts of the peak that no longer exist when the optimizer runs."""

ASYNCHRONOUS = frozenset({"v5e", "v6e", "tpu7x"})
"""Chips on which XLA runs sums beside compute, and moves the sum of the table's gradient behind the layers: the logits'
gradient waits for it if there is room. On v5p it waited only where the head was the peak in any case.
Source: compiled programs; Gemma 3 on TPU7x and Llama 3.1 70B on v6e wait, Mixtral and DeepSeek V2 Lite on v5p not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryColumns:
    """Bytes by part, per device; `host_bytes` too.

    Attributes:
        parts: Name to bytes; they add up to the peak.
        host_bytes: Offloaded, per device.
    """

    parts: Mapping[str, Number]
    host_bytes: Number

    @property
    def total_bytes(self) -> Number:
        """The peak."""
        total: Number = 0.0
        for part in self.parts.values():
            total = total + part
        return total


def training_memory(setting: TrainingSetting, columns: PlanColumns) -> MemoryColumns:
    """Peak memory of a step, by part.

    The gradients of the tables are made when the layers are done: until then what they are made from stands in their
    place.
    """
    rows = tokens_per_microbatch(setting, columns)
    elements, states = local_elements(setting, columns), state_elements(setting, columns)
    optimizer = setting.optimizer
    moments = moments_bytes(setting, columns)
    gradients = gradient_bytes(P=elements, b_g=BYTES_OF[setting.dtypes.gradients])
    in_layers = _layer_elements(setting, columns)
    later = gradients - gradient_bytes(P=in_layers, b_g=BYTES_OF[setting.dtypes.gradients])
    is_cast = 0.0 if setting.dtypes.weights == setting.dtypes.compute else 1.0
    copied = elements if optimizer.distributed else in_layers
    added_in_place = 1.0 if setting.is_eager or optimizer.distributed else 0.0
    layer_set = _layer_working_bytes(setting, columns, rows)
    head_set, waiting, longer = _head_working_bytes(setting, columns, rows)
    saved, offloaded = _kept_bytes(setting, columns, rows)
    going_back = MemoryColumns(
        parts={
            "parameters": weight_bytes(P=states if is_cast else elements, b_w=BYTES_OF[setting.dtypes.weights]),
            "compute_weights": weight_bytes(P=copied, b_w=setting.compute_bytes) * is_cast,
            "gathered_weights": _gathered_once_bytes(setting, columns),
            "optimizer": moments * (1.0 - columns.moments_on_host)
            + _passing_bytes(setting, columns) * columns.moments_on_host,
            "gradients": gradients,
            "gradient_accumulator": gradients * smaller(columns.accumulation - 1.0, 1.0) * (1.0 - added_in_place),
            "saved_activations": saved,
            "layer_working_set": layer_set,
            "head_waiting": larger(waiting - later, 0.0),
        },
        host_bytes=offloaded + moments * columns.moments_on_host,
    )
    more = larger(waiting + longer - later, 0.0) - going_back.parts["head_waiting"]
    more = np.where(going_back.total_bytes + more <= COMFORT * setting.usable_hbm_bytes, more, 0.0)
    instead = layer_set + gradients * (1.0 - added_in_place)
    head = larger(head_set - going_back.parts["head_waiting"] - more - instead, 0.0)
    parts = {**going_back.parts, "logits_waiting": more, "head_working_set": head}
    if setting.has_adapters:
        parts["frozen_weights"] = weight_bytes(P=frozen_elements(setting, columns), b_w=setting.compute_bytes)
    if optimizer.is_muon:
        gone = sum(parts[name] for name in _GONE_BEFORE_UPDATE)
        parts["optimizer_working_set"] = larger(orthogonalization_bytes(setting, columns) - gone, 0.0)
    return MemoryColumns(parts=parts, host_bytes=going_back.host_bytes)


def _kept_bytes(setting: TrainingSetting, columns: PlanColumns, rows: Number) -> tuple[Number, Number]:
    """What forward keeps for backward on the device, and on the host."""
    device: Number = 0.0
    host: Number = 0.0
    for layer in setting.tree.layers:
        stream = embed_dim(setting.tree) / layers_of_block(setting.tree)
        on_host = columns.offloaded.get(LAYER_INPUT, 0.0) * stream
        on_device = columns.saved.get(LAYER_INPUT, 0.0) * stream
        for activation in read_again(layer):
            width = _kept_width(activation, setting) / activation_shards(activation, columns) * columns.tensor
            on_host = on_host + columns.offloaded.get(activation.name, 0.0) * width
            on_device = on_device + smaller(columns.saved.get(activation.name, 0.0) + columns.saved["*"], 1.0) * width
        on_device = on_device + columns.saved["*"] * _unnamed_elements(layer) * _narrowed_share(setting)
        device = device + on_device * layer.count
        host = host + on_host * layer.count
    in_flight = rows * microbatches_in_flight(setting, columns)
    stage, b_a = worked_share(setting, columns) / columns.tensor, setting.activation_bytes
    return (
        saved_bytes(batch_tokens=in_flight, L=stage, saved_width=device, b_a=b_a),
        saved_bytes(batch_tokens=in_flight, L=stage, saved_width=host, b_a=b_a),
    )


def _kept_width(activation: Activation, setting: TrainingSetting) -> float:
    """Elements per token that are kept under a name; with attention's output goes each head's log-sum-exp, in f32."""
    if activation.name != "context":
        return activation.size
    return activation.size + activation.shape[0] * BYTES_OF["f32"] / setting.activation_bytes


def _narrowed_share(setting: TrainingSetting) -> float:
    """Bytes of what elementwise passes hand to products, over those of an activation.

    On GPUs a recipe keeps the narrowed operand for the weight's gradient, not the one it was made from.
    Source: Transformer Engine, `Linear` and `LayerNormLinear`.
    """
    if setting.quantization is None or setting.hardware.chip.switch is None:
        return 1.0
    return NARROW_BYTES[setting.quantization.kind] / setting.activation_bytes


def _unnamed_elements(layer: Layer) -> float:
    """Outputs of elementwise passes, per token: what only a policy that recomputes nothing keeps."""
    return sum(
        operation.write_elements
        for block in layer.blocks
        for operation in block.operations
        if isinstance(operation, Elementwise) and not operation.name
    )


def _layer_elements(setting: TrainingSetting, columns: PlanColumns) -> Number:
    """Trained parameters of the layers that one device of the busiest stage stores."""
    total: Number = 0.0
    for tensor, held, outside in trained_weights(setting, columns):
        if not outside:
            total = total + tensor.size * held / weight_shards(tensor, columns, setting)
    return total


def _gathered_once_bytes(setting: TrainingSetting, columns: PlanColumns) -> Number:
    """Weights of a stage that are gathered for all microbatches, and the sums of their gradients, as wide."""
    total: Number = 0.0
    for tensor, held, outside in held_weights(setting, columns):
        if not outside:
            once = gathered_tensor_bytes(tensor, columns=columns, element_bytes=setting.compute_bytes)
            total = total + (2.0 if setting.trains(tensor) else 1.0) * once * held
    return total * columns.gather_once


def _passing_bytes(setting: TrainingSetting, columns: PlanColumns) -> Number:
    """Moments of the largest weight outside the layers: they come from the host whole, the layers' one by one.

    Source: compiled programs; Llama 3.2 1B on v6e with its moments on the device and on the host (libtpu 0.0.50.1).
    """
    largest: Number = 0.0
    matrices = matrix_sides(setting.tree)
    for tensor, held, is_outside in trained_weights(setting, columns):
        if is_outside:
            element_bytes = tensor_moments_bytes(tensor, setting=setting, matrices=matrices)
            stored = tensor.size * held / state_shards(tensor, columns, setting)
            largest = larger(largest, stored * element_bytes)
    return largest


def _layer_working_bytes(setting: TrainingSetting, columns: PlanColumns, rows: Number) -> Number:
    """The hungriest block's backward pass: its intermediates, a layer's gathered weights and the largest's gradient."""
    gathered: Number = 0.0
    for layer in setting.tree.layers:
        operations = [operation for block in layer.blocks for operation in block.operations]
        matrices = [gathered_bytes([op], columns=columns, element_bytes=setting.compute_bytes) for op in operations]
        unreduced = 0.0 if setting.has_adapters else reduce(larger, matrices)
        gathered = larger(gathered, layers_of_block(setting.tree) * sum(matrices) + unreduced)
    made = block_elements(setting, columns) * rows * setting.activation_bytes
    tokens = _gathered_tokens_bytes(setting, columns, rows)
    return made + tokens + gathered * _is_gathered(columns) * (1.0 - columns.gather_once)


def _gathered_tokens_bytes(setting: TrainingSetting, columns: PlanColumns, rows: Number) -> Number:
    """Tokens of other devices, where experts are reached by gathering all tokens."""
    operations = (each for layer in setting.tree.layers for block in layer.blocks for each in block.operations)
    dispatch = next((each for each in operations if isinstance(each, Dispatch)), None)
    if dispatch is None or setting.expert_exchange == "all_to_all":
        return 0.0
    split = 1.0 - 1.0 / columns.degrees["ep"]
    return gathered_tokens(dispatch, rows=rows, setting=setting, columns=columns) * split


def _head_working_bytes(setting: TrainingSetting, columns: PlanColumns, rows: Number) -> tuple[Number, Number, Number]:
    """What logits and loss need while they run, what of it waits for the optimizer, and what more if there is room."""
    logits = _logits_bytes(setting, columns, rows)
    table = gathered_bytes([_unembedding(setting)], columns=columns, element_bytes=setting.compute_bytes)
    stream = rows * embed_dim(setting.tree) * setting.activation_bytes / columns.tensor
    spared = table * (1.0 - _is_gathered(columns))
    if setting.has_adapters:  # the table has no gradient
        return 2 * logits + table + 2 * stream - spared, 0.0, 0.0
    needed = head_bytes(logits_bytes=logits, table_bytes=table) + 2 * stream - spared
    waiting = head_waiting_bytes(logits_bytes=logits + stream, table_bytes=table)
    longer = logits + stream - waiting if setting.hardware.chip.name in ASYNCHRONOUS else 0.0
    return needed, waiting, longer


def _logits_bytes(setting: TrainingSetting, columns: PlanColumns, rows: Number) -> Number:
    """Logits of one chunk of the tokens."""
    vocab = _unembedding(setting).weight.size // embed_dim(setting.tree)
    return rows / columns.stages / setting.vocab_tiling * vocab / columns.tensor * LOGITS_BYTES


def logits_gradient_bytes(setting: TrainingSetting, columns: PlanColumns) -> float:
    """Of one plan's peak, what a program that writes the logits' gradient over the logits does not need.

    Nothing where the peak is the layers', or where the table is larger than the logits: then its gradient is counted.
    """
    logits = _logits_bytes(setting, columns, tokens_per_microbatch(setting, columns))
    table = gathered_bytes([_unembedding(setting)], columns=columns, element_bytes=setting.compute_bytes)
    parts = training_memory(setting, columns).parts
    of_head = sum(float(parts[name]) for name in ("head_waiting", "logits_waiting", "head_working_set"))
    return min(float(logits), of_head) if float(logits) >= float(table) else 0.0


def _unembedding(setting: TrainingSetting) -> Matmul:
    return next(operation for operation in reversed(setting.tree.head.operations) if isinstance(operation, Matmul))


def _is_gathered(columns: PlanColumns) -> Number:
    """1 where weights are stored sharded and so exist twice while they are used."""
    return smaller(columns.links["weights"].size - 1.0, 1.0)


def largest_tensors(setting: TrainingSetting, columns: PlanColumns, *, count: int = 5) -> tuple[tuple[str, float], ...]:
    """The largest single tensors of one plan, largest first: (name, bytes).

    Args:
        setting: The setting.
        columns: One plan (scalar columns).
        count: How many.
    """
    found = [*_kept_tensors(setting, columns), *_weights_and_moments(setting, columns)]
    found.append(("head/logits", _logits_bytes(setting, columns, tokens_per_microbatch(setting, columns))))
    sized = [(name, float(size_bytes)) for name, size_bytes in found]
    return tuple(sorted((item for item in sized if item[1] > 0), key=lambda item: -item[1])[:count])


def _kept_tensors(setting: TrainingSetting, columns: PlanColumns) -> Iterator[tuple[str, Number]]:
    """What each group of layers keeps on the device, stacked over its layers."""
    layers = worked_share(setting, columns) * microbatches_in_flight(setting, columns)
    per_element = tokens_per_microbatch(setting, columns) * layers * setting.activation_bytes / columns.tensor
    for layer in setting.tree.layers:
        stream = columns.saved.get(LAYER_INPUT, 0.0) * embed_dim(setting.tree) / layers_of_block(setting.tree)
        yield f"{layer.name}/{LAYER_INPUT}", stream * per_element * layer.count
        for activation in read_again(layer):
            kept = columns.saved.get(activation.name, 0.0) * _kept_width(activation, setting)
            yield f"{layer.name}/{activation.name} (kept)", kept * per_element * layer.count


def _weights_and_moments(setting: TrainingSetting, columns: PlanColumns) -> Iterator[tuple[str, Number]]:
    """Each weight with its optimizer state, where that is on the device, stacked over its layers."""
    b_w, matrices = BYTES_OF[setting.dtypes.weights], matrix_sides(setting.tree)
    for tensor, held, _ in held_weights(setting, columns):
        if not setting.trains(tensor):
            stored = stored_elements(tensor, columns, setting) * held
            yield tensor.name, weight_bytes(P=stored, b_w=setting.compute_bytes)
            continue
        elements = tensor.size * held / state_shards(tensor, columns, setting)
        moments = elements * tensor_moments_bytes(tensor, setting=setting, matrices=matrices)
        moments = moments * (1.0 - columns.moments_on_host)
        name = tensor.name if columns.moments_on_host else f"{tensor.name} (weight and moments)"
        yield name, weight_bytes(P=elements, b_w=b_w) + moments
