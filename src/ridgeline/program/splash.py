"""The splash attention kernel of JAX on TPUs: its masks, its tiles and the FLOPs that it computes.

It computes tiles of queries and keys, and skips those in which no query sees a key.
Shapes: B batch, S sequence, N query heads, K key-value heads, H head width of queries and keys, H_v of values.
"""

from __future__ import annotations

from math import gcd, prod, sqrt
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jax import Array
    from jax.experimental.pallas.ops.tpu.splash_attention.splash_attention_mask import Mask
    from jax.sharding import Mesh

    from ridgeline.model.operations import Attention, Span
    from ridgeline.program.forward import ForwardProgram

LANES: Final = 128
"""Columns of a TPU's vector register: tiles of keys and queries are whole registers."""

HEAD_LANES: Final = 64
"""Heads are whole halves of a register: 64 (gpt-oss), 192 (keys of DeepSeek)."""

_TILE = 512


def splash_attention(
    heads: tuple[Array, Array, Array],
    sinks: Array | None,
    *,
    program: ForwardProgram,
    operation: Attention,
    mesh: Mesh,
) -> Array:
    """The kernel on each device's own sequences and heads: [B, S, N, H_v].

    Args:
        heads: Queries [B, S, N, H], keys [B, S, K, H] and values [B, S, K, H_v].
        sinks: [N], or None.
        program: Its layout and tiles.
        operation: What is declared.
        mesh: The devices.
    """
    import jax
    from jax.sharding import PartitionSpec

    layout = program.layout
    query_spec = PartitionSpec(layout.batch, layout.tensor, None, None)
    key_spec = PartitionSpec(layout.batch, layout.kv_heads(operation.num_kv_heads), None, None)
    kernel = _kernel(
        program, operation, num_heads=operation.num_heads // prod(mesh.shape[axis] for axis in layout.tensor)
    )

    def of_device(query: Array, key: Array, value: Array, sinks: Array | None) -> Array:
        return jax.vmap(lambda query, key, value: kernel(query, key, value, sinks=sinks))(query, key, value)

    own = jax.shard_map(
        of_device,
        mesh=mesh,
        in_specs=(query_spec, key_spec, key_spec, PartitionSpec(layout.tensor)),
        out_specs=query_spec,
        check_vma=False,
    )
    query, key, value = (array.swapaxes(1, 2) for array in heads)
    return own(query / sqrt(operation.qk_head_dim), key, value, sinks).swapaxes(1, 2)


def _kernel(program: ForwardProgram, operation: Attention, *, num_heads: int) -> Callable[..., Array]:
    """The kernel for one sequence and a device's heads."""
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel, splash_attention_mask

    q_tile, kv_tile = splash_tiles(program)
    mask = splash_attention_mask.MultiHeadMask([_mask(operation.span, program.seq_len) for _ in range(num_heads)])
    made = splash_attention_kernel.make_splash_mha(
        mask,
        block_sizes=splash_attention_kernel.BlockSizes(
            block_q=q_tile,
            block_kv=kv_tile,
            block_kv_compute=kv_tile,
            block_q_dkv=q_tile,
            block_kv_dkv=kv_tile,
            block_kv_dkv_compute=kv_tile,
            use_fused_bwd_kernel=True,
        ),
        head_shards=1,
        q_seq_shards=1,
        residual_checkpoint_name=operation.output.name,
    )
    return cast("Callable[..., Array]", made)  # it returns no residuals here


def _mask(span: Span, seq_len: int) -> Mask:
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

    square = seq_len, seq_len
    match span.kind:
        case "causal":
            return masks.CausalMask(square)
        case "sliding":
            return masks.LocalMask(square, window_size=(span.window - 1, 0), offset=0)
        case "chunked":
            return masks.ChunkedCausalMask(square, chunk_size=span.window)
        case "full":
            return masks.FullMask(square)


def splash_tiles(program: ForwardProgram) -> tuple[int, int]:
    """Queries and keys of one tile."""
    q_tile, kv_tile = (
        tile or gcd(program.seq_len, _TILE) for tile in (program.attention.block_q, program.attention.block_kv)
    )
    return q_tile, kv_tile


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
        end = min(first + q_tile, seq_len)
        match span.kind:
            case "causal":
                seen = range(end)
            case "sliding":
                seen = range(max(first - span.window + 1, 0), end)
            case "chunked":
                seen = range(first // span.window * span.window, end)
            case "full":
                seen = range(seq_len)
        visited += -(-seen.stop // kv_tile) - seen.start // kv_tile
    return visited * q_tile * kv_tile


def splash_flops(program: ForwardProgram, operation: Attention) -> Mapping[str, float]:
    """Matmul FLOPs of one run of each kernel on one device, by the kernel's name.

    Forward has the products q·kᵀ, as wide as keys, and p·v, as wide as values. The fused backward kernel has q·kᵀ
    again and the gradients of q and k, as wide as keys, and those of p and v, as wide as values.
    """
    q_tile, kv_tile = splash_tiles(program)
    layout = program.layout
    passes = program.micro_steps * program.pipeline.num_microbatches
    sequences = program.global_batch / passes / layout.ways(layout.batch)
    heads = operation.num_heads / layout.ways(layout.tensor)
    pairs = visited_elements(operation.span, seq_len=program.seq_len, q_tile=q_tile, kv_tile=kv_tile)
    keys, values = (2 * sequences * heads * pairs * width for width in (operation.qk_head_dim, operation.v_head_dim))
    return {
        "splash_mha_fwd_no_residuals": keys + values,
        "splash_mha_fwd_residuals": keys + values,
        "splash_mha_dkv_no_residuals": 3 * keys + 2 * values,
    }
