"""The splash attention kernel of JAX on TPUs: its masks, its tiles and the FLOPs that it computes.

It computes tiles of queries and keys, and skips those in which no query sees a key. Where the cp axis splits the
sequence, a device has its own queries, and gathers the keys and values of all; it has the rows of the mask that its
queries see by.

Shapes: B batch, S sequence, N query heads, K key-value heads, H head width of queries and keys, H_v of values.
"""

from __future__ import annotations

from functools import partial
from math import gcd, sqrt
from typing import TYPE_CHECKING, Final, cast

from ridgeline.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jax import Array
    from jax.experimental.pallas.ops.tpu.splash_attention.splash_attention_kernel import SplashAttentionKernel
    from jax.experimental.pallas.ops.tpu.splash_attention.splash_attention_mask import Mask
    from jax.sharding import Mesh

    from ridgeline.model.operations import Attention, Span
    from ridgeline.program.forward import ForwardProgram

LANES: Final = 128
"""Columns of a TPU's vector register: tiles of keys and queries are whole registers."""

HEAD_LANES: Final = 64
"""Heads are whole halves of a register: 64 (gpt-oss), 192 (keys of DeepSeek)."""

FUSED_TILES: Final = 16
"""Tiles of keys up to which one backward kernel does all: it keeps a gradient of the queries for each of them."""

_TILE = 512


def splash_attention(
    heads: tuple[Array, Array, Array],
    sinks: Array | None,
    *,
    program: ForwardProgram,
    operation: Attention,
    mesh: Mesh,
) -> Array:
    """The kernel on each device's own sequences, heads and queries: [B, S, N, H_v].

    Args:
        heads: Queries [B, S, N, H], keys [B, S, K, H] and values [B, S, K, H_v].
        sinks: [N], or None.
        program: Its layout and tiles.
        operation: What is declared.
        mesh: The devices.
    """
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    layout = program.layout
    query_spec = PartitionSpec(layout.batch, layout.tensor, layout.sequence, None)
    key_spec = PartitionSpec(layout.batch, layout.kv_heads(operation.num_kv_heads), layout.sequence, None)
    kernel = _kernel(program, operation)

    def of_device(kernel: SplashAttentionKernel, query: Array, key: Array, value: Array, sinks: Array | None) -> Array:
        if layout.sequence:
            key, value = (jax.lax.all_gather(own, layout.sequence, axis=2, tiled=True) for own in (key, value))
        # It returns no residuals here.
        one_sequence = cast("Callable[..., Array]", partial(kernel, sinks=sinks))
        return jax.vmap(one_sequence)(query, key, value)

    of_devices = jax.shard_map(
        of_device,
        mesh=mesh,
        in_specs=(
            kernel.manual_sharding_spec(NamedSharding(mesh, PartitionSpec(None, layout.sequence))),
            *(query_spec, key_spec, key_spec, PartitionSpec(layout.tensor)),
        ),
        out_specs=query_spec,
        check_vma=False,
    )
    query, key, value = (array.swapaxes(1, 2) for array in heads)
    return of_devices(kernel, query / sqrt(operation.qk_head_dim), key, value, sinks).swapaxes(1, 2)


def _kernel(program: ForwardProgram, operation: Attention) -> SplashAttentionKernel:
    """The kernel for one sequence and a device's heads; its mask has the rows of all devices along cp."""
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel, splash_attention_mask

    q_tile, kv_tile = splash_tiles(program)
    is_fused = program.seq_len // kv_tile <= FUSED_TILES
    layout = program.layout
    num_heads = operation.num_heads // layout.ways(layout.tensor)
    mask = splash_attention_mask.MultiHeadMask([_mask(operation.span, program.seq_len)] * num_heads)
    return splash_attention_kernel.make_splash_mha(
        mask,
        block_sizes=splash_attention_kernel.BlockSizes(
            block_q=q_tile,
            block_kv=kv_tile,
            block_kv_compute=gcd(kv_tile, _TILE),
            block_q_dkv=q_tile,
            block_kv_dkv=kv_tile,
            block_kv_dkv_compute=gcd(kv_tile, _TILE),
            block_q_dq=None if is_fused else q_tile,
            block_kv_dq=None if is_fused else kv_tile,
            use_fused_bwd_kernel=is_fused,
        ),
        head_shards=1,
        q_seq_shards=layout.ways(layout.sequence),
        residual_checkpoint_name=operation.output.name,
    )


def _mask(span: Span, seq_len: int) -> Mask:
    """Of one head. JAX looks at every tile, and only at its any and all: most are answered as one element.

    A sequence of 131,072 tokens has 17 billion elements, which would take minutes.
    """
    import numpy as np
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

    square = seq_len, seq_len
    match span.kind:
        case "causal":
            whole = masks.CausalMask(square)
        case "sliding":
            whole = masks.LocalMask(square, window_size=(span.window - 1, 0), offset=0)
        case "chunked":
            whole = masks.ChunkedCausalMask(square, chunk_size=span.window)
        case "full":
            return masks.FullMask(square)

    class SpanMask(masks.Mask):
        q_sequence, mask_function = whole.q_sequence, staticmethod(whole.mask_function)

        @property
        def shape(self) -> tuple[int, ...]:
            return square

        def __getitem__(self, tile: tuple[slice, slice]) -> np.ndarray:
            queries, keys = tile
            by_any, by_all = (seen(span, queries, seq_len) for seen in (_seen_by_any, _seen_by_all))
            if keys.start >= by_any.stop or keys.stop <= by_any.start:
                return np.full((1, 1), False)
            if keys.start >= by_all.start and keys.stop <= by_all.stop:
                return np.full((1, 1), True)
            return whole[tile]

    return SpanMask()


def _seen_by_any(span: Span, queries: slice, seq_len: int) -> range:
    """Keys that at least one of several consecutive queries sees."""
    match span.kind:
        case "causal":
            return range(queries.stop)
        case "sliding":
            return range(max(queries.start - span.window + 1, 0), queries.stop)
        case "chunked":
            return range(queries.start // span.window * span.window, queries.stop)
        case "full":
            return range(seq_len)


def _seen_by_all(span: Span, queries: slice, seq_len: int) -> range:
    """Keys that each of several consecutive queries sees: the last sees the fewest early ones, the first late ones."""
    last = slice(queries.stop - 1, queries.stop)
    earliest = _seen_by_any(span, last, seq_len).start
    return range(earliest, seq_len if span.kind == "full" else queries.start + 1)


def splash_tiles(program: ForwardProgram) -> tuple[int, int]:
    """Queries and keys of one tile, no more than a device has of them.

    Raises:
        InputError: The kernel cannot compute a tile that is asked for.
    """
    asked = program.attention
    return (
        _tile(asked.block_q, num_queries(program), where="plan.attention.block_q", what="queries"),
        _tile(asked.block_kv, program.seq_len, where="plan.attention.block_kv", what="keys"),
    )


def _tile(asked: int | None, there: int, *, where: str, what: str) -> int:
    """Whole registers that divide what is there."""
    tile = gcd(there, _TILE) if asked is None else min(asked, there)
    if asked is not None and (there % tile or tile % LANES):
        raise InputError(
            f"the splash kernel has no tiles of so many {what}",
            where=where,
            value=asked,
            expected=f"a multiple of {LANES} that divides the {there} {what} of a sequence on a device",
            fix=f"use {gcd(there, _TILE)}, or leave it out",
        )
    return tile


def num_queries(program: ForwardProgram) -> int:
    """Queries of a sequence on one device."""
    return program.seq_len // program.layout.ways(program.layout.sequence)


def visited_elements(span: Span, *, seq_len: int, q_tile: int, kv_tile: int) -> int:
    """Query-key pairs in the tiles in which a query sees a key: each is computed whole.

    >>> from ridgeline.model.operations import Span
    >>> visited_elements(Span(), seq_len=4, q_tile=2, kv_tile=1)  # tiles of 2 queries: 2 keys, then 4
    12
    >>> visited_elements(Span(kind="sliding", window=2), seq_len=8, q_tile=2, kv_tile=2)  # 1 tile, then 2, 2, 2
    28
    """
    visited = 0
    for first in range(0, seq_len, q_tile):
        seen = _seen_by_any(span, slice(first, min(first + q_tile, seq_len)), seq_len)
        visited += -(-seen.stop // kv_tile) - seen.start // kv_tile
    return visited * q_tile * kv_tile


def splash_flops(program: ForwardProgram, operation: Attention) -> Mapping[str, float]:
    """Matmul FLOPs of one run of each kernel on one device, by the kernel's name.

    Forward has the products q·kᵀ, as wide as keys, and p·v, as wide as values. The fused backward kernel has q·kᵀ
    again and the gradients of q and k, as wide as keys, and those of p and v, as wide as values. Where it is two, the
    kernel of k and v leaves out the gradient of q, whose own has q·kᵀ and the gradient of p once more.

    Where the cp axis splits the queries it is the mean over devices, as in the equation: of a causal sequence in its
    own order the last of N devices computes up to 2 − 1/N times as much.
    """
    q_tile, kv_tile = splash_tiles(program)
    layout = program.layout
    passes = program.micro_steps * program.pipeline.num_microbatches
    sequences = program.global_batch / passes / layout.ways(layout.batch)
    heads = operation.num_heads / layout.ways(layout.tensor)
    visited = visited_elements(operation.span, seq_len=program.seq_len, q_tile=q_tile, kv_tile=kv_tile)
    pairs = visited / layout.ways(layout.sequence)
    keys, values = (2 * sequences * heads * pairs * width for width in (operation.qk_head_dim, operation.v_head_dim))
    is_fused = program.seq_len // kv_tile <= FUSED_TILES
    return {
        "splash_mha_fwd_no_residuals": keys + values,
        "splash_mha_fwd_residuals": keys + values,
        "splash_mha_dkv_no_residuals": (3 if is_fused else 2) * keys + 2 * values,
        "splash_mha_dq_no_residuals": 2 * keys + values,
    }
