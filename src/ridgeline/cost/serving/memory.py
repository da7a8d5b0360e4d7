"""What an engine keeps in a device's memory: weights, pages of its KV cache, and what one pass makes.

    held = weights + KV cache + states + one block's intermediates + logits

A paged engine with uniform pages gives every layer as many pages as one that keeps the whole context. Where layers see
unlike numbers of tokens, each page is also as large as the widest layer's, so that layers can share them: layers with
windows, and narrow ones, waste what they do not need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ridgeline.cost.serving.device import (
    cache_bytes,
    cached_attentions,
    held_weight_bytes,
    last_logits_bytes,
    working_bytes,
)
from ridgeline.cost.training.memory import MemoryColumns
from ridgeline.cost.work import larger
from ridgeline.job.job import BYTES_OF
from ridgeline.model.operations import Matmul, Recurrence, Span

if TYPE_CHECKING:
    from ridgeline.cost.serving.device import PhaseColumns, ServingSetting
    from ridgeline.cost.serving.machine import ServingMachine
    from ridgeline.cost.work import Number

ENGINE_SHARE: Final = 0.9
"""Part of a chip's memory that an engine takes, all its programs and its cache together.
Source: vLLM, `gpu_memory_utilization`, whose default it is on GPUs and on TPUs."""

PAGE_TOKENS_OF_TPU: Final = 256
"""Source: `block_size` of vLLM's recipes for TPUs (tpu-recipes 516e9cf, 2026-04-08)."""

PAGE_TOKENS_OF_GPU: Final = 16
"""Source: vLLM, `block_size`, the default on GPUs."""


def engine_bytes(machine: ServingMachine) -> float:
    """Memory of a device that an engine may use: its share of the whole, and no more than programs may allocate."""
    chip = machine.hardware.chip
    return engine_room_bytes(
        hbm_bytes=chip.hbm_bytes,
        usable_bytes=chip.usable_hbm_bytes,
        utilization=ENGINE_SHARE if machine.memory_utilization is None else machine.memory_utilization,
        num_devices=chip.devices_per_chip,
    )


def engine_room_bytes(*, hbm_bytes: float, usable_bytes: float, utilization: float, num_devices: float) -> float:
    """Memory that an engine may use of a device.

    Formula: min(utilization · hbm_bytes, usable_bytes) / num_devices

    Source: vLLM, `gpu_memory_utilization`; what programs may allocate of a chip is less than it has.

    >>> engine_room_bytes(hbm_bytes=100.0, usable_bytes=95.0, utilization=0.9, num_devices=2)
    45.0
    """
    return min(utilization * hbm_bytes, usable_bytes) / num_devices


def sequences_count(*, left_bytes: Number, sequence_bytes: Number) -> Number:
    """Sequences that the rest of a device's memory has room for.

    Formula: left_bytes / sequence_bytes

    Source: Scaling Book, ch. 7: the largest batch beside the weights.

    >>> sequences_count(left_bytes=10.0, sequence_bytes=2.5)
    4.0
    """
    return left_bytes / sequence_bytes


def page_tokens(machine: ServingMachine) -> int:
    """Tokens of a page."""
    if machine.tokens_of_page is not None:
        return machine.tokens_of_page
    return PAGE_TOKENS_OF_GPU if machine.hardware.chip.torus is None else PAGE_TOKENS_OF_TPU


def engine_memory(machine: ServingMachine, columns: PhaseColumns, *, pass_rows: Number) -> MemoryColumns:
    """Memory of a device whose passes have so many tokens; room for the whole context of every sequence, in pages."""
    setting, drafting, size = machine.setting, machine.drafting, page_tokens(machine)
    drafter = None if drafting is None else drafting.drafter
    drafts_bytes: Number = 0.0
    if drafting is not None and drafter is not None:
        drafts_bytes = drafting.num_drafters * paged_cache_bytes(drafter, columns, tokens_of_page=size)
    parts = {
        "weights": held_weight_bytes(setting, columns),
        "draft_weights": 0.0 if drafting is None else drafting.weight_bytes(columns),
        "kv_cache": paged_cache_bytes(setting, columns, tokens_of_page=size),
        "draft_kv_cache": drafts_bytes,
        "shared_prefix": prefix_bytes(setting, columns, tokens_of_page=size),
        "states": state_bytes(setting, columns),
        "layer_working_set": working_bytes(setting, columns, rows=pass_rows),
        "logits": last_logits_bytes(
            B=columns.sequences_size * machine.each_tokens,
            V=vocabulary_size(setting),
            Y=columns.tensor,
            b_a=BYTES_OF["f32"],
        ),
    }
    return MemoryColumns(parts=parts, host_bytes=0.0)


def paged_cache_bytes(setting: ServingSetting, columns: PhaseColumns, *, tokens_of_page: int) -> Number:
    """KV cache of a device as an engine with uniform pages allocates it: what is each sequence's own."""
    tokens = setting.lengths.paged_tokens(tokens_of_page)
    return _uniform_pages_bytes(setting, columns, tokens=tokens, num_sequences=columns.cached_sequences_size)


def prefix_bytes(setting: ServingSetting, columns: PhaseColumns, *, tokens_of_page: int) -> Number:
    """The beginning that all prompts share, kept once on each rank; 0 where they share none."""
    tokens = float(np.ceil(setting.lengths.prefix_tokens / tokens_of_page)) * tokens_of_page
    return _uniform_pages_bytes(setting, columns, tokens=tokens, num_sequences=1.0 / columns.stages)


def _uniform_pages_bytes(
    setting: ServingSetting, columns: PhaseColumns, *, tokens: Number, num_sequences: Number
) -> Number:
    """Pages for so many tokens of so many sequences; among layers that see unlike numbers, as wide as in the widest."""
    widest: Number = 0.0
    together: Number = 0.0
    layers, seen = 0, set[tuple[Span, int]]()
    for operation, count in cached_attentions(setting.tree):
        of_layer = cache_bytes(operation, setting, columns, tokens=tokens, num_sequences=num_sequences)
        widest, together, layers = larger(widest, of_layer), together + count * of_layer, layers + count
        seen.add((operation.span, operation.tokens_per_key))
    return together if len(seen) == 1 else layers * widest


def state_bytes(setting: ServingSetting, columns: PhaseColumns) -> Number:
    """States of linear-time layers, which do not grow with the context; in f32."""
    total: Number = 0.0
    for layer in setting.tree.layers:
        for block in layer.blocks:
            for operation in block.operations:
                if isinstance(operation, Recurrence):
                    elements = operation.state_elements / columns.tensor
                    total = total + layer.count * columns.cached_sequences_size * elements * BYTES_OF["f32"]
    return total


def vocabulary_size(setting: ServingSetting) -> float:
    """Logits of a token."""
    heads = (op for op in setting.tree.head.operations if isinstance(op, Matmul))
    return max(op.output.size for op in heads if "vocab" in op.output.axes)
