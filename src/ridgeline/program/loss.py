"""The loss of a batch: all logits at once, or a tile of the tokens after another.

Shapes: B batch, S sequence, D embed, V vocabulary.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jax import Array

    from ridgeline.program.decoder import Decoder
    from ridgeline.program.part import Weights


def mean_loss(decoder: Decoder, weights: Weights, tokens: Array, *, num_tiles: int = 1) -> Array:
    """Mean cross-entropy of each next token, in f32.

    Args:
        decoder: The forward pass.
        weights: By name.
        tokens: [B, S + 1].
        num_tiles: Parts of the tokens whose logits exist one after another; the backward pass computes them again.
    """
    import jax
    import jax.numpy as jnp

    stream, targets = decoder.hidden(weights, tokens[:, :-1]), tokens[:, 1:]
    if num_tiles == 1:
        return _summed(decoder, weights, stream, targets) / targets.size
    layout = decoder.program.layout
    ways = layout.ways(layout.stream[1])

    def in_tiles(array: Array) -> Array:
        """[B, S, ...] to [tiles, B, S / tiles, ...]; a device cuts its own tokens."""
        parts = array.reshape(array.shape[0], ways, num_tiles, -1, *array.shape[2:])
        return jnp.moveaxis(parts, 2, 0).reshape(num_tiles, array.shape[0], -1, *array.shape[2:])

    of_tile = jax.checkpoint(partial(_summed, decoder, weights), prevent_cse=False)
    tiles = in_tiles(stream), in_tiles(targets)
    total, _ = jax.lax.scan(lambda total, tile: (total + of_tile(*tile), None), jnp.zeros(()), tiles)
    return total / targets.size


def _summed(decoder: Decoder, weights: Weights, stream: Array, targets: Array) -> Array:
    """Cross-entropy of some tokens, added up."""
    import jax
    import jax.numpy as jnp

    logits = decoder.head(weights, stream)
    with jax.named_scope("head/loss"):
        logits = logits.astype(jnp.float32)
        is_target = jnp.arange(logits.shape[-1]) == targets[..., None]
        chosen = jnp.sum(jnp.where(is_target, logits, 0.0), axis=-1)
        return jnp.sum(jax.nn.logsumexp(logits, axis=-1) - chosen)
