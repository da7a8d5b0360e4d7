"""Channel mixers: what lies between a block's norm and its residual add when each token is seen alone.

Shapes: B batch, S sequence, D embed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jax import Array

    from ridgeline.program.part import Part


def mlp(part: Part, stream: Array) -> Array:
    """Up-projection, with a gate or without, activation function, down-projection: [B, S, D] to [B, S, D].

    A gate fused with the up-projection lies beside it element by element, so that devices which share the width out
    hold whole pairs.
    """
    import jax

    up = part.projected("up", stream)
    gate = part.projected("gate", stream) if "gate" in part else None
    if up.shape[-1] > part.matmul("down").weight.shape[0]:
        pairs = up.reshape(*up.shape[:-1], -1, 2)
        gate, up = pairs[..., 0], pairs[..., 1]
    with jax.named_scope(part.elementwise("activation").path):
        hidden = jax.nn.gelu(up) if gate is None else jax.nn.silu(gate) * up
    return part.projected("down", hidden)
