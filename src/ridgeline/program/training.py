"""One training step of our decoder: loss, gradients, AdamW; on devices, or on shapes alone."""

from __future__ import annotations

from dataclasses import replace
from math import prod, sqrt
from typing import TYPE_CHECKING, Any

from ridgeline.model.operations import ExpertMatmul, Lookup, Matmul
from ridgeline.program.decoder import Decoder
from ridgeline.program.dtypes import jax_dtype
from ridgeline.program.loss import mean_loss
from ridgeline.program.optimizer import MOMENTS, AdamW, on_host, updated, updated_from_host
from ridgeline.program.pipeline import in_stages

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jax import Array
    from jax.sharding import Mesh, NamedSharding

    from ridgeline.job.job import Dtype
    from ridgeline.model.operations import Tensor
    from ridgeline.program.forward import ForwardProgram
    from ridgeline.program.optimizer import State
    from ridgeline.program.request import TrainingProgram


def training_step(program: TrainingProgram, mesh: Mesh, *, optimizer: AdamW | None = None) -> Callable[..., Any]:
    """The jitted step `(state, tokens) -> (state, loss)`; the state's memory is used again."""
    import jax

    rule = replace(optimizer or AdamW(), mu_dtype=program.optimizer.mu_dtype)
    rounds = {name: count // program.pipeline.num_stages for name, (_, count) in program.weights.items()}

    def step(state: State, tokens: Array) -> tuple[State, Array]:
        loss, gradients = loss_and_gradients(program, mesh, state["weights"], tokens)
        with jax.named_scope("optimizer"):
            if program.optimizer.state == "host":
                return updated_from_host(state, gradients, rule, rounds=rounds), loss
            return updated(state, gradients, rule), loss

    shardings = jax.tree.map(lambda shape: shape.sharding, abstract_state(program, mesh))
    return jax.jit(step, donate_argnums=0, out_shardings=(shardings, None))


def loss_and_gradients(
    program: TrainingProgram, mesh: Mesh, weights: Mapping[str, Array], tokens: Array
) -> tuple[Array, Any]:
    """Mean loss of a step and its gradients, added up over micro-steps, in the dtype of gradients.

    Args:
        program: What is computed.
        mesh: The devices.
        weights: By name.
        tokens: [B, S + 1].
    """
    import jax
    import jax.numpy as jnp

    decoder = Decoder(program=program, mesh=mesh)
    count, dtype = program.micro_steps, jax_dtype(program.dtypes.gradients)

    def of_weights(weights: Mapping[str, Array], tokens: Array) -> Array:
        return mean_loss(decoder, weights, tokens, num_tiles=program.vocab_tiling)

    def one(tokens: Array) -> tuple[Array, Any]:
        loss, gradients = jax.value_and_grad(of_weights)(weights, tokens)
        return loss, jax.tree.map(lambda gradient: gradient.astype(dtype), gradients)

    if count == 1:
        return one(tokens)

    def add(total: tuple[Array, Any], piece: Array) -> tuple[tuple[Array, Any], None]:
        return jax.tree.map(jnp.add, total, one(piece)), None

    # Each device cuts its own rows, so that nothing moves between devices.
    pieces = tokens.reshape(tokens.shape[0] // count, count, -1).swapaxes(0, 1)
    nothing = (jnp.zeros(()), {name: jnp.zeros(weight.shape, dtype) for name, weight in weights.items()})
    total, _ = jax.lax.scan(add, nothing, pieces)
    return jax.tree.map(lambda value: value / count, total)


def abstract_state(program: TrainingProgram, mesh: Mesh) -> State:
    """The shapes, dtypes and layouts of weights and optimizer state."""
    import jax
    import jax.numpy as jnp

    dtypes: dict[str, Dtype] = {
        "weights": program.dtypes.weights,
        "mu": program.optimizer.mu_dtype,
        "nu": program.optimizer.nu_dtype,
    }

    def placed(part: str, tensor: Tensor, count: int) -> NamedSharding:
        sharding = weight_sharding(program, mesh, tensor, count)
        return on_host(sharding) if part in MOMENTS and program.optimizer.state == "host" else sharding

    state: dict[str, Any] = {
        part: {
            name: jax.ShapeDtypeStruct(
                stacked_shape(tensor, count, num_stages=program.pipeline.num_stages),
                jax_dtype(dtype),
                sharding=placed(part, tensor, count),
            )
            for name, (tensor, count) in program.weights.items()
        }
        for part, dtype in dtypes.items()
    }
    return {**state, "steps": jax.ShapeDtypeStruct((), jnp.int32, sharding=_sharding(mesh))}


def abstract_tokens(program: TrainingProgram, mesh: Mesh) -> Any:  # noqa: ANN401 - as JAX types it
    """The shape and layout of a batch, [B, S + 1]."""
    import jax
    import jax.numpy as jnp

    shape = program.global_batch, program.seq_len + 1
    return jax.ShapeDtypeStruct(shape, jnp.int32, sharding=_sharding(mesh, program.layout.outside.batch))


def initial_state(program: TrainingProgram, mesh: Mesh, *, seed: int = 0) -> State:
    """Random weights and empty moments, laid out: matrices of variance 1 over the width they sum over, scales 1."""
    import jax
    import jax.numpy as jnp

    def weight(key: Array, tensor: Tensor, count: int) -> Array:
        made = _initial(key, tensor, count, fan_in(program, tensor)).astype(jax_dtype(program.dtypes.weights))
        return in_stages(made, program.pipeline) if count and program.layout.stages else made

    def made() -> State:
        keys = jax.random.split(jax.random.key(seed), len(program.weights))
        weights = {
            name: weight(key, tensor, count)
            for key, (name, (tensor, count)) in zip(keys, program.weights.items(), strict=True)
        }
        mu, nu = (
            {name: jnp.zeros(weight.shape, jax_dtype(dtype)) for name, weight in weights.items()}
            for dtype in (program.optimizer.mu_dtype, program.optimizer.nu_dtype)
        )
        return {"weights": weights, "mu": mu, "nu": nu, "steps": jnp.zeros((), jnp.int32)}

    shardings = jax.tree.map(lambda shape: shape.sharding, abstract_state(program, mesh))
    return jax.jit(made, out_shardings=shardings)()


def fan_in(program: TrainingProgram, tensor: Tensor) -> int | None:
    """Elements that one output of a weight sums over; None for scales and biases."""
    blocks = (program.tree.embedding, *(block for layer in program.tree.layers for block in layer.blocks))
    for block in (*blocks, program.tree.head):
        for operation in block.operations:
            match operation:
                case Matmul() if operation.weight.name == tensor.name:
                    return prod(operation.weight.shape[: operation.num_contracted])
                case ExpertMatmul() if operation.weight.name == tensor.name:
                    return operation.weight.shape[1]
                case Lookup() if operation.weight.name == tensor.name:
                    return operation.width
                case _:
                    pass
    return None


def _initial(key: Array, tensor: Tensor, count: int, width: int | None) -> Array:
    import jax
    import jax.numpy as jnp

    shape = stacked_shape(tensor, count)
    if width is not None:
        return jax.random.normal(key, shape) / sqrt(width)
    return jnp.ones(shape) if tensor.name.endswith("/scale") else jnp.zeros(shape)


def stacked_shape(tensor: Tensor, count: int, *, num_stages: int = 1) -> tuple[int, ...]:
    """The shape of a weight, stacked over `count` layers; 0 for one outside the layers."""
    stack = (count // num_stages, num_stages) if num_stages > 1 else (count,)
    return (*stack, *tensor.shape) if count else tensor.shape


def weight_sharding(program: ForwardProgram, mesh: Mesh, tensor: Tensor, count: int) -> NamedSharding:
    """How a stacked weight lies on the devices."""
    axes, stages = program.layout.stored(tensor), program.layout.stages
    stack = ((), stages) if stages else ((),)
    return _sharding(mesh, *(*stack, *axes) if count else axes)


def _sharding(mesh: Mesh, *axes: tuple[str, ...]) -> NamedSharding:
    from jax.sharding import NamedSharding, PartitionSpec

    return NamedSharding(mesh, PartitionSpec(*axes))
