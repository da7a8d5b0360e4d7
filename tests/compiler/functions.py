"""Functions that a test compiles as a user would."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

if TYPE_CHECKING:
    from collections.abc import Mapping


def loss(weights: Mapping[str, jax.Array], inputs: jax.Array) -> jax.Array:
    with jax.named_scope("layer/mlp"):
        hidden = jnp.tanh(inputs @ weights["up"])
        return jnp.mean((hidden @ weights["down"]).astype(jnp.float32) ** 2)


def step(weights: Mapping[str, jax.Array], inputs: jax.Array, rate: float = 0.1) -> Mapping[str, jax.Array]:
    gradients = jax.grad(loss)(weights, inputs)
    return jax.tree.map(lambda weight, gradient: weight - rate * gradient, weights, gradients)


LAID_OUT = {"up": PartitionSpec("fsdp", "tp"), "down": PartitionSpec("tp", "fsdp")}


@partial(jax.jit, donate_argnums=0, in_shardings=(LAID_OUT, PartitionSpec("fsdp")), out_shardings=LAID_OUT)
def own_step(weights: Mapping[str, jax.Array], inputs: jax.Array) -> Mapping[str, jax.Array]:
    return step(weights, inputs)


def product(left: jax.Array, right: jax.Array) -> jax.Array:
    return left @ right


NO_FUNCTION = 3
