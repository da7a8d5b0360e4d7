"""Sequence mixers: what lies between a block's norm and its residual add when tokens look at one another.

Shapes: B batch, S sequence, D embed, N query heads, K key-value heads, H head width, R width of a latent.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

from ridgeline.model.operations import Activation
from ridgeline.program.attention import rotated

if TYPE_CHECKING:
    from jax import Array

    from ridgeline.program.part import Part


def attention(part: Part, stream: Array) -> Array:
    """Attention with heads of its own, grouped or not, or latent attention: [B, S, D] to [B, S, D]."""
    context = _latent_context(part, stream) if "kv_down" in part else _context(part, *_heads(part, stream))
    if "output_gate" in part:
        context = _gated(part, stream, context)
    return part.projected("out", context)


def _heads(part: Part, stream: Array) -> tuple[Array, Array, Array]:
    """Queries [B, S, N, H], keys and values [B, S, K, H]: projections, norms of heads, rotary embedding."""
    import jax

    if "qkv" in part:
        query, key, value = _split(part, part.projected("qkv", stream))
    else:
        query, key = _query(part, stream, "query"), part.project("key", stream)
        value = part.project("value", stream) if "value" in part else key
    if "qk_norm" in part:
        query, key = _normed_heads(part, query, key)
    if "rotary" in part:
        with jax.named_scope(part.elementwise("rotary").path):
            query, key = rotated(query, part.keys.start), rotated(key, part.keys.start)
    return part.named("query", query), part.named("key", key), part.named("value", value)


def _latent_context(part: Part, stream: Array) -> Array:
    """Multi-head latent attention: keys and values from one latent, and a rotary key for all heads.

    Source: DeepSeek-V2 (arXiv:2405.04434) section 2.1. Queries and keys are [B, S, N, H]: first what has no position,
    then what is turned by it.
    """
    import jax
    import jax.numpy as jnp

    of_query = "query_up" if "query_up" in part else "query"
    query, latent = _query(part, stream, of_query), part.projected("kv_down", stream)
    rank = part.matmul("key_up").weight.shape[0]
    normed, shared = part.norm("kv_norm", latent[..., :rank]), latent[..., None, rank:]
    with jax.named_scope(part.elementwise("rotary").path):
        unturned, turned = jnp.split(query, [part.matmul("key_up").weight.shape[-1]], axis=-1)
        turned, shared = rotated(turned, part.keys.start), rotated(shared, part.keys.start)
    latents = jnp.concatenate([normed[..., None, :], shared], axis=-1)
    if part.keys.keeps(latents):
        return _absorbed(part, unturned, turned, latents)
    query = part.named(of_query, jnp.concatenate([unturned, turned], axis=-1))
    key, value = part.project("key_up", normed), part.projected("value_up", normed)
    with jax.named_scope(part.elementwise("rotary").path):
        of_all = jnp.broadcast_to(shared, (*key.shape[:-1], shared.shape[-1]))
        key = jnp.concatenate([key, of_all], axis=-1)
    key = part.laid_out(key, part.layout.intermediate(part.matmul("key_up").output))
    return _context(part, query, part.named("key_up", key), value)


def _absorbed(part: Part, unturned: Array, turned: Array, latents: Array) -> Array:
    """Attention over latents that are kept: queries are brought to them, and what is found there back: [B, S, N, H_v].

    q·(W c) = (Wᵀ q)·c, so that no key is made of a latent. Source: DeepSeek-V2, section 2.1.2 and appendix C.
    """
    import jax
    import jax.numpy as jnp

    key_up, value_up, scores = part.matmul("key_up"), part.matmul("value_up"), part.attention("scores")
    rank = key_up.weight.shape[0]
    with jax.named_scope(key_up.path):
        query = jnp.einsum("bsnh,rnh->bsnr", unturned, part.weight(key_up.weight))
    query = jnp.concatenate([query, turned], axis=-1)
    with jax.named_scope(scores.path):
        query = query * sqrt(query.shape[-1] / scores.qk_head_dim)  # scores are divided by the root of another width
        found = part.keys.attend(query, latents, latents[..., :rank], operation=scores)
    with jax.named_scope(value_up.path):
        context = jnp.einsum("bsnr,rnh->bsnh", found, part.weight(value_up.weight))
        return part.laid_out(context, part.layout.intermediate(scores.output))


def _query(part: Part, stream: Array, name: str) -> Array:
    """Queries, projected at once or through a normed latent: [B, S, N, H]."""
    if "query_down" in part:
        stream = part.norm("query_norm", part.projected("query_down", stream))
    return part.project(name, stream)


def _split(part: Part, fused: Array) -> tuple[Array, Array, Array]:
    """Queries, keys and values of one fused projection [B, S, N + 2K, H].

    Each key-value head lies behind its own queries, so that devices which share the heads out hold whole groups.
    """
    scores = part.attention("scores")
    batch, seq_len, _, width = fused.shape
    grouped = fused.reshape(batch, seq_len, scores.num_kv_heads, -1, width)

    def laid_out(array: Array, axis: str, heads: int) -> Array:
        whole = Activation(name="", axes=(axis, "head_dim"), shape=(heads, width))
        return part.laid_out(array.reshape(batch, seq_len, heads, width), part.layout.intermediate(whole))

    return (
        laid_out(grouped[..., :-2, :], "heads", scores.num_heads),
        laid_out(grouped[..., -2, :], "kv_heads", scores.num_kv_heads),
        laid_out(grouped[..., -1, :], "kv_heads", scores.num_kv_heads),
    )


def _normed_heads(part: Part, query: Array, key: Array) -> tuple[Array, Array]:
    """Queries and keys, normed over each head, or over all heads where the scale is as wide as they."""
    import jax

    norms = part.elementwise("qk_norm")

    def normed(name: str, heads: Array) -> Array:
        tensors = [tensor for tensor in norms.weights if f"/qk_norm/{name}/" in tensor.name]
        whole = heads if all(tensor.size == heads.shape[-1] for tensor in tensors) else heads.reshape(*stretched)
        return part.normalized(whole, tensors).reshape(heads.shape)

    stretched = (*query.shape[:2], -1)
    with jax.named_scope(norms.path):
        return normed("query", query), normed("key", key)


def _context(part: Part, query: Array, key: Array, value: Array) -> Array:
    """softmax(q·kᵀ)·v over the keys that are seen: [B, S, N, H]."""
    import jax

    scores = part.attention("scores")
    sinks = part.weight(scores.sinks) if scores.sinks is not None else None
    with jax.named_scope(scores.path):
        context = part.keys.attend(query, key, value, sinks, operation=scores)
    return part.laid_out(context, part.layout.intermediate(scores.output))


def _gated(part: Part, stream: Array, context: Array) -> Array:
    """The context times a gate between 0 and 1, of each element or of each head."""
    import jax

    gate = part.project("gate", stream) if "gate" in part else part.project("head_gate", stream)[..., None]
    with jax.named_scope(part.elementwise("output_gate").path):
        return context * jax.nn.sigmoid(gate)
