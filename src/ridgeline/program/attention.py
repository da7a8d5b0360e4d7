"""Causal attention in two programs: plain JAX, and the splash kernel on TPUs.

Shapes: B batch, S sequence, N query heads, K key-value heads, H head width.
"""

from __future__ import annotations

from math import gcd, prod, sqrt
from typing import TYPE_CHECKING, Final, Literal, cast

from ridgeline.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jax import Array
    from jax.sharding import Mesh

    from ridgeline.model.operations import Attention
    from ridgeline.program.request import TrainingProgram

LANES: Final = 128
"""Columns of a TPU's vector register; the splash kernel takes head widths and sequences of whole registers."""

ROPE_THETA: Final = 500_000.0
"""Base of the rotary frequencies (Llama 3); it changes values, never cost."""

_TILE = 512


def rotated(array: Array) -> Array:
    """Queries or keys [B, S, heads, H] turned by their position, halves of H as pairs."""
    import jax.numpy as jnp

    half = array.shape[-1] // 2
    frequencies = ROPE_THETA ** -(jnp.arange(half, dtype=jnp.float32) / half)
    angles = jnp.arange(array.shape[1], dtype=jnp.float32)[:, None, None] * frequencies
    first, second = array[..., :half].astype(jnp.float32), array[..., half:].astype(jnp.float32)
    cosine, sine = jnp.cos(angles), jnp.sin(angles)
    turned = jnp.concatenate([first * cosine - second * sine, second * cosine + first * sine], axis=-1)
    return turned.astype(array.dtype)


def attend(
    query: Array, key: Array, value: Array, *, program: TrainingProgram, operation: Attention, mesh: Mesh
) -> Array:
    """softmax(q·kᵀ/√H)·v, each query over the keys up to its own: [B, S, N, H], named `context`.

    Args:
        query: [B, S, N, H].
        key: [B, S, K, H].
        value: As key.
        program: Its layout, kernel and tiles.
        operation: What is declared.
        mesh: The devices; their platform decides the kernel where the program leaves it open.
    """
    from jax.ad_checkpoint import checkpoint_name

    if chosen_kernel(program, operation, is_tpu=mesh.devices.flat[0].platform == "tpu") == "splash":
        return _splash(query, key, value, program=program, operation=operation, mesh=mesh)
    return checkpoint_name(_dot_product(query, key, value), operation.output.name)


def chosen_kernel(program: TrainingProgram, operation: Attention, *, is_tpu: bool) -> Literal["splash", "dot_product"]:
    """The kernel that is asked for; if none is, splash where it can run.

    Raises:
        InputError: A kernel is asked for that cannot run here.
    """
    asked = program.attention.kernel
    widths = operation.qk_head_dim, program.seq_len
    obstacles = [
        *([] if is_tpu else ["it runs on TPUs alone"]),
        *(f"{size} is no multiple of {LANES}" for size in widths if size % LANES),
        *(["the cp axis splits its queries"] if program.layout.sequence else []),
    ]
    if asked in {None, "autoselected"}:
        return "dot_product" if obstacles else "splash"
    if asked == "dot_product":
        return "dot_product"
    if asked != "splash" or obstacles:
        raise InputError(
            f"our program has no {asked} attention here",
            where="plan.attention.kernel",
            value=asked,
            expected="splash or dot_product" if asked != "splash" else f"another kernel: {'; '.join(obstacles)}",
            fix='use kernel = "dot_product", or leave it out',
        )
    return "splash"


def splash_tiles(program: TrainingProgram) -> tuple[int, int]:
    """Queries and keys of one tile of the splash kernel."""
    q_tile, kv_tile = (
        tile or gcd(program.seq_len, _TILE) for tile in (program.attention.block_q, program.attention.block_kv)
    )
    return q_tile, kv_tile


def splash_flops(program: TrainingProgram, operation: Attention) -> Mapping[str, float]:
    """Matmul FLOPs of one run of each splash kernel on one device, by the kernel's name.

    A tile is computed whole as soon as a query of it sees a key of it. Forward has 2 products, q·kᵀ and p·v; the fused
    backward kernel 5: q·kᵀ again, and those of the gradients of p, q, k and v.
    """
    q_tile, kv_tile = splash_tiles(program)
    visited = sum(-(-last // kv_tile) for last in range(q_tile, program.seq_len + 1, q_tile)) * q_tile * kv_tile
    layout = program.layout
    sequences = program.global_batch / program.micro_steps / prod(layout.degrees[axis] for axis in layout.batch)
    heads = operation.num_heads / prod(layout.degrees[axis] for axis in layout.tensor)
    product_flops = 2 * sequences * heads * visited * operation.qk_head_dim
    return {
        "splash_mha_fwd_no_residuals": 2 * product_flops,
        "splash_mha_fwd_residuals": 2 * product_flops,
        "splash_mha_dkv_no_residuals": 5 * product_flops,
    }


def _dot_product(query: Array, key: Array, value: Array) -> Array:
    """All scores at once, in f32: [B, K, N/K, S, S]."""
    import jax
    import jax.numpy as jnp

    batch, seq_len, num_heads, head_dim = query.shape
    num_kv_heads = key.shape[2]
    grouped = query.reshape(batch, seq_len, num_kv_heads, num_heads // num_kv_heads, head_dim)
    scores = jnp.einsum("bqkgh,bskh->bkgqs", grouped, key, preferred_element_type=jnp.float32) / sqrt(head_dim)
    is_seen = jnp.arange(seq_len)[:, None] >= jnp.arange(seq_len)
    probabilities = jax.nn.softmax(jnp.where(is_seen, scores, -jnp.inf), axis=-1).astype(value.dtype)
    return jnp.einsum("bkgqs,bskh->bqkgh", probabilities, value).reshape(query.shape)


def _splash(
    query: Array, key: Array, value: Array, *, program: TrainingProgram, operation: Attention, mesh: Mesh
) -> Array:
    """The kernel on each device's own sequences and heads."""
    import jax
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel, splash_attention_mask
    from jax.sharding import PartitionSpec

    layout, seq_len = program.layout, program.seq_len
    q_tile, kv_tile = splash_tiles(program)
    tiles = splash_attention_kernel.BlockSizes(
        block_q=q_tile,
        block_kv=kv_tile,
        block_kv_compute=kv_tile,
        block_q_dkv=q_tile,
        block_kv_dkv=kv_tile,
        block_kv_dkv_compute=kv_tile,
        use_fused_bwd_kernel=True,
    )
    is_split_keys = operation.num_kv_heads > 1
    query_spec = PartitionSpec(layout.batch, layout.tensor, None, None)
    key_spec = PartitionSpec(layout.batch, layout.tensor if is_split_keys else None, None, None)
    ways = prod(mesh.shape[axis] for axis in layout.tensor)
    mask = splash_attention_mask.MultiHeadMask(
        [splash_attention_mask.CausalMask((seq_len, seq_len)) for _ in range(operation.num_heads // ways)]
    )
    kernel = splash_attention_kernel.make_splash_mha(
        mask,
        block_sizes=tiles,
        head_shards=1,
        q_seq_shards=1,
        residual_checkpoint_name=operation.output.name,
    )
    kernels: Callable[..., Array] = jax.vmap(cast("Callable[..., Array]", kernel))  # it returns no residuals here
    own = jax.shard_map(
        kernels, mesh=mesh, in_specs=(query_spec, key_spec, key_spec), out_specs=query_spec, check_vma=False
    )
    heads_first = (array.swapaxes(1, 2) for array in (query / sqrt(operation.qk_head_dim), key, value))
    return own(*heads_first).swapaxes(1, 2)
