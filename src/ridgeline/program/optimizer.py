"""AdamW by optax, and the state it keeps: on the devices, or in the memory of their host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from ridgeline.program.dtypes import jax_dtype

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jax import Array
    from jax.sharding import NamedSharding

    from ridgeline.job.job import Dtype

    State: TypeAlias = Mapping[str, Any]
    """`weights`, `mu` and `nu` by name of the weight, and the number of `steps` taken."""

MOMENTS = ("mu", "nu")
"""Names of Adam's moments in a state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdamW:
    """Decoupled weight decay (Loshchilov and Hutter, arXiv:1711.05101), at a constant rate.

    Attributes:
        mu_dtype: In which the first moment is stored; the second keeps the dtype it came in.
    """

    learning_rate: float = 1e-3
    beta_1: float = 0.9
    beta_2: float = 0.95
    epsilon: float = 1e-8
    weight_decay: float = 0.1
    mu_dtype: Dtype = "f32"


def updated(state: State, gradients: Mapping[str, Array], rule: AdamW) -> State:
    """The state after one more step; arithmetic in f32, weights and moments stored as they came.

    Args:
        state: Of the step before, on the devices.
        gradients: By name of the weight.
        rule: The rule with its constants.
    """
    import jax
    import jax.numpy as jnp
    import optax

    def wide(arrays: Mapping[str, Array]) -> Mapping[str, Array]:
        return jax.tree.map(lambda array: array.astype(jnp.float32), arrays)

    adamw = optax.adamw(
        rule.learning_rate,
        b1=rule.beta_1,
        b2=rule.beta_2,
        eps=rule.epsilon,
        weight_decay=rule.weight_decay,
        mu_dtype=jax_dtype(rule.mu_dtype),
    )
    weights = wide(state["weights"])
    adam, *stateless = cast("tuple[Any, ...]", jax.eval_shape(adamw.init, weights))
    adam = adam._replace(count=state["steps"], mu=state["mu"], nu=state["nu"])
    changes, after = adamw.update(wide(gradients), (adam, *stateless), weights)
    adam, *_ = cast("tuple[Any, ...]", after)
    moved = optax.apply_updates(weights, changes)
    moved = jax.tree.map(lambda new, old: new.astype(old.dtype), moved, state["weights"])
    return {"weights": moved, "mu": adam.mu, "nu": adam.nu, "steps": adam.count}


def updated_from_host(state: State, gradients: Mapping[str, Array], rule: AdamW, *, rounds: Mapping[str, int]) -> State:
    """The same with moments in host memory: a layer's are fetched, updated and sent back before the next layer's.

    Args:
        state: Of the step before.
        gradients: By name of the weight.
        rule: The rule with its constants.
        rounds: By name of the weight, how many layers it is stacked over; 0 outside the layers.
    """
    import jax

    def fetched_and_updated(own: State, gradients: Mapping[str, Array]) -> State:
        fetched = {part: jax.device_put(own[part], jax.memory.Space.Device) for part in MOMENTS}
        after = updated({**own, **fetched, "steps": state["steps"]}, gradients, rule)
        sent = {part: jax.device_put(after[part], jax.memory.Space.Host) for part in MOMENTS}
        return {"weights": after["weights"], **sent}

    def over_layers(count: int, own: State, gradients: Mapping[str, Array]) -> State:
        # In place, on the host too: what a scan gives out lies beside what it was given.
        def one(layer: Array, own: State) -> State:
            def at(stack: Array) -> Array:
                return jax.lax.dynamic_index_in_dim(stack, layer, keepdims=False)

            def put(stack: Array, new: Array) -> Array:
                return jax.lax.dynamic_update_index_in_dim(stack, new, layer, 0)

            return jax.tree.map(put, own, fetched_and_updated(jax.tree.map(at, own), jax.tree.map(at, gradients)))

        return jax.lax.fori_loop(0, count, one, own)

    found: dict[str, dict[str, Array]] = {part: {} for part in ("weights", *MOMENTS)}
    for count in sorted(set(rounds.values())):
        names = [name for name, own_count in rounds.items() if own_count == count]
        own = {part: {name: state[part][name] for name in names} for part in found}
        due = {name: gradients[name] for name in names}
        after = over_layers(count, own, due) if count else fetched_and_updated(own, due)
        for part, arrays in after.items():
            found[part] |= arrays
    return {**found, "steps": state["steps"] + 1}


def on_host(sharding: NamedSharding) -> NamedSharding:
    """The same layout in the memory of the host, pinned, so that a device can fetch from it."""
    return sharding.with_memory_kind("pinned_host")
