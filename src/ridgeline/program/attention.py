"""Attention to earlier tokens: rotary positions, plain JAX, and the choice of a kernel.

Shapes: B batch, S sequence, N query heads, K key-value heads, H head width of queries and keys, H_v of values.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Final, Literal, Protocol

from ridgeline.errors import InputError
from ridgeline.program.splash import HEAD_LANES, LANES, num_queries, splash_attention

if TYPE_CHECKING:
    from jax import Array
    from jax.sharding import Mesh

    from ridgeline.model.operations import Attention, Span
    from ridgeline.program.forward import ForwardProgram

ROPE_THETA: Final = 500_000.0
"""Base of the rotary frequencies (Llama 3); it changes values, never cost."""


class Keys(Protocol):
    """Where the queries of a pass find keys and values."""

    @property
    def start(self) -> Array | int:
        """The position of the first token at hand."""
        ...

    def keeps(self, latents: Array) -> bool:
        """Keeps latents of the tokens at hand, and says whether attention is to be over those that are kept.

        Args:
            latents: [B, S, 1, R + rotary width]: all that latent attention must keep of a token.
        """
        ...

    def attend(
        self, query: Array, key: Array, value: Array, sinks: Array | None = None, *, operation: Attention
    ) -> Array:
        """softmax(q·kᵀ/√H)·v, each query over the keys of its span: [B, S, N, H_v], named `context`.

        Args:
            query: [B, S, N, H].
            key: [B, S, K, H], of the tokens at hand.
            value: [B, S, K, H_v], of the tokens at hand.
            sinks: [N]: a score of each head whose value is nothing.
            operation: What is declared.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnKeys:
    """Keys and values of the tokens at hand, which are whole sequences from their start.

    Attributes:
        program: Its layout, kernel and tiles.
        mesh: The devices; their platform decides the kernel where the program leaves it open.
    """

    program: ForwardProgram
    mesh: Mesh

    @property
    def start(self) -> int:
        """They begin with the first."""
        return 0

    def keeps(self, latents: Array) -> bool:
        """Nothing is kept."""
        del latents
        return False

    def attend(
        self, query: Array, key: Array, value: Array, sinks: Array | None = None, *, operation: Attention
    ) -> Array:
        """By the splash kernel or in plain JAX."""
        import jax.numpy as jnp
        from jax.ad_checkpoint import checkpoint_name

        program, mesh = self.program, self.mesh
        if chosen_kernel(program, operation, is_tpu=mesh.devices.flat[0].platform == "tpu") == "splash":
            return splash_attention((query, key, value), sinks, program=program, operation=operation, mesh=mesh)
        positions = jnp.arange(query.shape[1])
        seen = is_seen(operation.span, positions[:, None], positions)
        return checkpoint_name(dot_product(query, key, value, sinks, seen=seen), operation.output.name)


def rotated(array: Array, start: Array | int = 0) -> Array:
    """Queries or keys [B, S, heads, H] turned by their position, halves of H as pairs."""
    import jax.numpy as jnp

    half = array.shape[-1] // 2
    frequencies = ROPE_THETA ** -(jnp.arange(half, dtype=jnp.float32) / half)
    angles = (start + jnp.arange(array.shape[1], dtype=jnp.float32))[:, None, None] * frequencies
    first, second = array[..., :half].astype(jnp.float32), array[..., half:].astype(jnp.float32)
    cosine, sine = jnp.cos(angles), jnp.sin(angles)
    turned = jnp.concatenate([first * cosine - second * sine, second * cosine + first * sine], axis=-1)
    return turned.astype(array.dtype)


def chosen_kernel(program: ForwardProgram, operation: Attention, *, is_tpu: bool) -> Literal["splash", "dot_product"]:
    """The kernel that is asked for; if none is, splash where it can run.

    Raises:
        InputError: A kernel is asked for that cannot run here.
    """
    asked = program.attention.kernel
    queries, widths = num_queries(program), (operation.qk_head_dim, operation.v_head_dim)
    obstacles = [
        *([] if is_tpu else ["it runs on TPUs alone"]),
        *([f"{queries} is no multiple of {LANES}"] if queries % LANES else []),
        *(f"{width} is no multiple of {HEAD_LANES}" for width in widths if width % HEAD_LANES),
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


def dot_product(query: Array, key: Array, value: Array, sinks: Array | None = None, *, seen: Array) -> Array:
    """softmax(q·kᵀ/√H)·v with all scores at once, in f32: [B, S, N, H_v].

    Args:
        query: [B, S, N, H].
        key: [B, T, K, H].
        value: [B, T, K, H_v].
        sinks: [N]: a score of each head whose value is nothing.
        seen: Which keys each query sees, [S, T].
    """
    import jax
    import jax.numpy as jnp

    batch, num_queries, num_heads, head_dim = query.shape
    num_keys, num_kv_heads = key.shape[1:3]
    grouped = query.reshape(batch, num_queries, num_kv_heads, num_heads // num_kv_heads, head_dim)
    scores = jnp.einsum("bqkgh,bskh->bkgqs", grouped, key, preferred_element_type=jnp.float32) / sqrt(head_dim)
    scores = jnp.where(seen, scores, -jnp.inf)
    if sinks is not None:
        of_heads = sinks.astype(jnp.float32).reshape(num_kv_heads, -1, 1, 1)
        scores = jnp.concatenate([scores, jnp.broadcast_to(of_heads, (*scores.shape[:-1], 1))], axis=-1)
    probabilities = jax.nn.softmax(scores, axis=-1)[..., :num_keys].astype(value.dtype)
    context = jnp.einsum("bkgqs,bskh->bqkgh", probabilities, value)
    return context.reshape(batch, num_queries, num_heads, value.shape[-1])


def is_seen(span: Span, query: Array, key: Array) -> Array:
    """Whether the key at one position is seen by the query at another."""
    match span.kind:
        case "causal":
            return key <= query
        case "sliding":
            return (key <= query) & (key > query - span.window)
        case "chunked":
            return (key <= query) & (key // span.window == query // span.window)
        case "full":
            return (key >= 0) & (query >= 0)
