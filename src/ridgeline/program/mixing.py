"""Sequence mixers: what lies between a block's norm and its residual add when tokens look at one another.

Shapes: B batch, S sequence, D embed, N query heads, K key-value heads, H head width.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ridgeline.program.attention import attend, rotated

if TYPE_CHECKING:
    from jax import Array

    from ridgeline.program.part import Part


def attention(part: Part, stream: Array) -> Array:
    """Projections, norms of heads, rotary embedding, attention, output projection: [B, S, D] to [B, S, D]."""
    import jax

    query, key, value = (part.project(name, stream) for name in ("query", "key", "value"))
    if "qk_norm" in part:
        query, key = _normed_heads(part, query, key)
    if "rotary" in part:
        with jax.named_scope(part.elementwise("rotary").path):
            query, key = rotated(query), rotated(key)
    query, key, value = part.named("query", query), part.named("key", key), part.named("value", value)
    return part.projected("out", _context(part, query, key, value))


def _normed_heads(part: Part, query: Array, key: Array) -> tuple[Array, Array]:
    """Queries and keys, each normed over its head."""
    import jax

    norms = part.elementwise("qk_norm")
    of_query, of_key = (
        [tensor for tensor in norms.weights if f"/qk_norm/{name}/" in tensor.name] for name in ("query", "key")
    )
    with jax.named_scope(norms.path):
        return part.normalized(query, of_query), part.normalized(key, of_key)


def _context(part: Part, query: Array, key: Array, value: Array) -> Array:
    """softmax(q·kᵀ)·v over the keys that are seen: [B, S, N, H]."""
    import jax

    scores = part.attention("scores")
    with jax.named_scope(scores.path):
        context = attend(query, key, value, program=part.program, operation=scores, mesh=part.mesh)
    return part.laid_out(context, part.layout.intermediate(scores.output))
