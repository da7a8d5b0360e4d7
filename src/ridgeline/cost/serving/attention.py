"""Attention in a pass of a server: prompts see themselves, and sequences that add a token read their cache.

B  sequences of a device     T  tokens that each has     K, N  key-value and query heads
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ridgeline.cost.collectives import exchange, gather
from ridgeline.cost.kernel_time import tiled_width, visited_keys
from ridgeline.cost.roofline import attained_s, attention_flops
from ridgeline.cost.serving.collectives import collective_part
from ridgeline.cost.serving.device import cache_bytes, key_flops, kv_head_shards
from ridgeline.cost.work import Part, Work, larger, scaled, smaller
from ridgeline.job.job import BYTES_OF
from ridgeline.model.accounting import keys_read

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ridgeline.cost.serving.machine import Pass, ServingMachine
    from ridgeline.cost.serving.requests import RequestLengths
    from ridgeline.cost.work import Number
    from ridgeline.model.operations import Attention

PARTIAL_BYTES = BYTES_OF["f32"]
"""Bytes of an element of a partial result, its maximum and its sum."""


def read_keys(operation: Attention, *, context_keys: Number) -> Number:
    """Keys that a new token reads at so many tokens before it.

    All; of a window as many as it holds; of chunks half of one on average; of those a scorer picks, that many.
    """
    span, keys = operation.span, context_keys
    match span.kind:
        case "sliding":
            keys = smaller(context_keys, float(span.window))
        case "chunked":
            keys = smaller(context_keys, larger(span.window / 2, smaller(context_keys, float(span.window)) / 2))
        case "causal" | "full":
            pass
    if operation.selected_keys:
        keys = smaller(keys, float(operation.selected_keys * operation.tokens_per_key))
    return keys / operation.tokens_per_key


def prompt_keys(operation: Attention, lengths: RequestLengths) -> float:
    """Keys that a computed token of a prompt sees: what the prefix cache has is not computed, but seen."""
    prompt_len = round(lengths.own_prompt_tokens)
    cached_len = min(round(prompt_len * lengths.cached_fraction), prompt_len - 1)
    pairs = prompt_len * keys_read(operation, seq_len=prompt_len)
    if cached_len:
        pairs -= cached_len * keys_read(operation, seq_len=cached_len)
    return pairs / (prompt_len - cached_len)


def attention_parts(operation: Attention, *, step: Pass, machine: ServingMachine) -> Iterator[Part]:
    """Scores of prompts, scores of decode, and what a split cache has to exchange."""
    yield from _gathered_keys(operation, step=step, machine=machine)
    yield _of_prompts(operation, step=step, machine=machine)
    yield _of_decode(operation, step=step, machine=machine)
    yield from _spread(operation, step=step, machine=machine)


def _of_prompts(operation: Attention, *, step: Pass, machine: ServingMachine) -> Part:
    """A fused kernel, blocks of keys at a time, as in training."""
    efficiency, lengths = machine.efficiency, machine.setting.lengths
    visible_keys = prompt_keys(operation, lengths)
    sequence_keys = lengths.own_prompt_tokens / operation.tokens_per_key
    side = smaller(efficiency.attention_block, sequence_keys)
    visited = visited_keys(
        operation.span,
        visible_keys=visible_keys,
        sequence_keys=sequence_keys,
        tile=(side, side),
        tile_pairs=efficiency.attention_tile_pairs,
        row_keys=efficiency.attention_row_keys,
    )
    width = (operation.qk_head_dim + operation.v_head_dim) / 2
    flops = (
        attention_flops(T=step.attended_prompt_rows, S=visible_keys, N=operation.num_heads, H=width)
        / step.columns.tensor
    )
    rate_flops_per_s = machine.attention_flops_per_s * efficiency.at_head_dim(width) * visible_keys / visited
    return Part(
        name=f"{operation.path}/prompt",
        phase="forward",
        resource="compute",
        expected_s=flops / rate_flops_per_s + machine.serving.kernel_s * smaller(step.attended_prompt_rows, 1.0),
        work=Work(amounts={"flops.bf16": flops}),
    )


def _of_decode(operation: Attention, *, step: Pass, machine: ServingMachine) -> Part:
    """Each sequence reads its own cache; few queries share a key, and leave most of a matrix unit idle."""
    chip, columns = machine.hardware.chip, step.columns
    keys = read_keys(operation, context_keys=step.context_keys)
    read_bytes = cache_bytes(
        operation, machine.setting, columns, tokens=keys, num_sequences=step.attended_sequences_size
    )
    rows = step.attended_sequences_size * step.each_tokens
    flops = rows * keys * key_flops(operation, machine.setting.tree, "decode") / columns.tensor
    queries = operation.num_heads / operation.num_cached_heads * step.each_tokens
    rows_of_unit = 1 if chip.mxu_shape is None else chip.mxu_shape[0]
    expected_s = attained_s(
        flops=flops * tiled_width(width=queries, tile_size=rows_of_unit) / queries,
        C_flops_per_s=machine.peak_flops_per_s("bf16") * machine.efficiency.matmul["bf16"] * machine.serving.arithmetic,
        traffic_bytes=read_bytes,
        W_bytes_per_s=machine.cache_bytes_per_s,
        fill_bytes=machine.efficiency.matmul_fill_bytes,
    )
    return Part(
        name=f"{operation.path}/cache",
        phase="forward",
        resource="hbm",
        expected_s=expected_s + machine.serving.kernel_s * smaller(step.attended_sequences_size, 1.0),
        work=Work(amounts={"flops.bf16": flops, "hbm.kv_cache": read_bytes}),
    )


def _gathered_keys(operation: Attention, *, step: Pass, machine: ServingMachine) -> Iterator[Part]:
    """Where a prompt is split over `cp`, each device needs the keys and values of all its tokens."""
    columns = step.columns
    width = operation.num_kv_heads * (operation.qk_head_dim + operation.v_head_dim)
    ways = kv_head_shards(K=operation.num_kv_heads, Y=columns.tensor)
    shared_bytes = step.attended_prompt_rows * columns.degree(("cp",)) * width * machine.activation_element_bytes / ways
    part = collective_part("key_value/all_gather", "context", gather(columns.links["context"], shared_bytes), machine)
    yield scaled(part, smaller(step.attended_prompt_rows, 1.0))


def _spread(operation: Attention, *, step: Pass, machine: ServingMachine) -> Iterator[Part]:
    """A cache that is spread over devices beyond its heads: sequences first, then the tokens of one.

    Queries travel to the devices that have the sequence, and results back: two all-to-alls (Scaling Book, ch. 7).
    Where there are fewer sequences than devices, these share queries, and sum results weighted by their softmax.
    """
    columns, link = step.columns, step.columns.links["tensor"]
    heads = kv_head_shards(K=operation.num_cached_heads, Y=columns.tensor)
    devices = columns.tensor / heads
    by_tokens = devices / smaller(devices, larger(step.attended_sequences_size, 1.0))
    query_bytes = operation.qk_head_dim * machine.activation_element_bytes
    value_bytes = operation.v_head_dim * machine.activation_element_bytes
    partial_bytes = (operation.v_head_dim + 2) * PARTIAL_BYTES
    rows = step.attended_sequences_size * step.each_tokens * operation.num_heads
    is_spread = columns.cache_spread_share * smaller(devices - 1.0, 1.0)
    is_merged = is_spread * smaller(by_tokens - 1.0, 1.0)
    sent = exchange(link, rows * (query_bytes + value_bytes) / columns.tensor)
    yield scaled(collective_part("cache/all_to_all", "tensor", sent, machine), 2.0 * is_spread)
    merged = gather(link, rows * (query_bytes + partial_bytes) / heads)
    yield scaled(collective_part("cache/merge", "tensor", merged, machine), is_merged)
