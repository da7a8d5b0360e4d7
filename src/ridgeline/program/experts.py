"""Mixture of experts: the router's choice, an MLP in each expert, and what every token visits beside them.

Between the router's matmul and the sum over a token's experts all runs on each device's own tokens, in `shard_map`: its
collectives are those that are written here.

    all-gather           experts' weights, over the axes that store them in parts; their gradients are reduce-scattered
    (ragged) all-to-all  tokens to the devices of their experts over `ep`, and back
    reduce-scatter       what each part of an expert's width adds, over the tensor axes, along the sequence (of a
                         sequence of one token: all-reduce)

Shapes: B batch, S sequence, b and s those of a device, T = b·s, D embed, E experts, L experts of a device, k experts a
token visits, R rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Final

from ridgeline.model.operations import ExpertMatmul, weights_of
from ridgeline.program.dispatch import (
    EXPERT_AXIS,
    Choice,
    arrived,
    returned,
    sorted_copies,
    weighted_sum,
    with_capacity,
)
from ridgeline.program.feed_forward import mlp
from ridgeline.program.grouped_matmul import chosen_kernel, grouped_matmul, rows_of_a_tile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from jax import Array

    from ridgeline.model.operations import Tensor
    from ridgeline.program.layout import Layout
    from ridgeline.program.part import Part

    Product = Callable[[Array, Array], Array]
    """Rows times the matrices of their experts."""

DEFAULT_CAPACITY_FACTOR: Final = 1.0
"""Room of an expert over its mean, where a plan asks for `capacity` and leaves the factor open."""


def mixture(part: Part, stream: Array) -> Array:
    """Router, experts, and the shared expert and the dense MLP beside them, if any: [B, S, D] to [B, S, D]."""
    logits = part.projected("router", stream)
    if "latent_down" in part:
        output = part.projected("latent_up", _routed(part, part.projected("latent_down", stream), logits))
    else:
        output = _routed(part, stream, logits)
    for branch in (part.under("shared"), part.under("dense")):
        if branch.operations:
            output = output + _beside(branch, stream)
    return output


def chosen_experts(logits: Array, *, top_k: int, correction: Array | None = None) -> tuple[Array, Array]:
    """The experts of each token and their weights in the sum: [T, E] to twice [T, k].

    Softmax over all experts, the best k, whose weights then sum to 1 (Mixtral, arXiv:2401.04088; Qwen3); of one expert
    alone the softmax stays, or its router would not learn (Switch Transformer, arXiv:2101.03961). How scores become
    weights changes values, never cost.

    Args:
        logits: Of the router.
        top_k: k.
        correction: Offsets that count for the choice alone, [E] (DeepSeek-V3, arXiv:2412.19437, section 2.1.2).
    """
    import jax
    import jax.numpy as jnp

    scores = jax.nn.softmax(logits.astype(jnp.float32), axis=-1)
    _, experts = jax.lax.top_k(scores if correction is None else scores + correction, top_k)
    gates = jnp.take_along_axis(scores, experts, axis=-1)
    return experts, gates if top_k == 1 else gates / jnp.sum(gates, axis=-1, keepdims=True)


def expert_capacity(*, length: int, top_k: int, num_experts: int, factor: float) -> int:
    """Tokens of a sequence that an expert has room for: its equal share times a factor.

    >>> expert_capacity(length=4096, top_k=2, num_experts=8, factor=1.25)
    1280
    """
    return max(ceil(factor * length * top_k / num_experts), 1)


def _beside(branch: Part, stream: Array) -> Array:
    """An MLP that every token visits, behind its learned gate if it has one."""
    import jax

    output = mlp(branch, stream)
    if "score" not in branch:
        return output
    score = branch.projected("score", stream)
    with jax.named_scope(branch.matmul("score").path):
        return output * branch.laid_out(jax.nn.sigmoid(score), (*branch.layout.stream[:2], ()))


def _routed(part: Part, tokens: Array, logits: Array) -> Array:
    """The sum over each token's experts: [B, S, D] to [B, S, D], laid out as the stream."""
    import jax
    from jax.sharding import PartitionSpec

    layout = part.layout
    tensors = {tensor.name: tensor for matmul in _expert_matmuls(part) for tensor in weights_of(matmul)}
    correction = part.elementwise("top_k").weights
    weights = {name: part.weights[name].astype(part.compute) for name in tensors}
    inside = PartitionSpec(layout.batch, layout.sequence, None)
    run = jax.shard_map(
        partial(_on_a_device, part),
        mesh=part.mesh,
        in_specs=(
            inside,
            inside,
            [PartitionSpec()] * len(correction),
            {name: PartitionSpec(*layout.stored(tensor)) for name, tensor in tensors.items()},
        ),
        out_specs=PartitionSpec(*layout.stream),
        check_vma=False,
    )
    return run(tokens, logits, [part.weights[tensor.name] for tensor in correction], weights)


def _on_a_device(
    part: Part, tokens: Array, logits: Array, correction: Sequence[Array], weights: Mapping[str, Array]
) -> Array:
    """One device's tokens through its own experts and those of others: [b, s, D] to [b, s / tensor ways, D]."""
    import jax

    layout, up = part.layout, _expert_matmul(part, "up")
    num_experts = up.weight.shape[0]
    with jax.named_scope(part.elementwise("top_k").path):
        experts, gates = chosen_experts(
            logits.reshape(-1, num_experts), top_k=up.top_k, correction=correction[0] if correction else None
        )
    ways = layout.degrees.get(EXPERT_AXIS, 1)
    choice = Choice(experts=experts, gates=gates, num_experts=num_experts, num_ways=ways)
    own = Experts(part=part, weights=_whole(part, weights))
    compute = _with_capacity if part.program.experts.dispatch == "capacity" else _dropless
    output = compute(own, tokens, choice)
    if not layout.tensor:
        return output
    if layout.is_one_token:
        return jax.lax.psum(output, layout.tensor)
    return jax.lax.psum_scatter(output, layout.tensor, scatter_dimension=1, tiled=True)


def _whole(part: Part, weights: Mapping[str, Array]) -> Mapping[str, Array]:
    """The weights of a device's experts, gathered over the axes that store them in parts."""
    import jax

    whole: dict[str, Array] = {}
    for matmul in _expert_matmuls(part):
        with jax.named_scope(matmul.path):
            whole |= {
                tensor.name: _gathered(part.layout, tensor, weights[tensor.name]) for tensor in weights_of(matmul)
            }
    return whole


def _gathered(layout: Layout, tensor: Tensor, weight: Array) -> Array:
    import jax

    for dimension, (stored, kept) in enumerate(zip(layout.stored(tensor), layout.gathered(tensor), strict=True)):
        if axes := stored[len(kept) :]:
            weight = jax.lax.all_gather(weight, axes, axis=dimension, tiled=True)
    return weight


def _expert_matmuls(part: Part) -> Sequence[ExpertMatmul]:
    return [each for each in part.operations.values() if isinstance(each, ExpertMatmul)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """The experts of a device.

    Attributes:
        part: The declared operations.
        weights: Whole but for the tensor axes, [L, …].
    """

    part: Part
    weights: Mapping[str, Array]

    def outputs(self, rows: Array, *, product: Product, spread: Callable[[Array], Array]) -> Array:
        """Each expert's MLP over its rows; on a device that has a part of its width, what that part adds.

        Args:
            rows: In the form that `product` takes.
            product: Rows times the matrices of their experts.
            spread: From the biases of experts, [L, N], to what is added to each row.
        """
        import jax

        def projected(name: str, operand: Array, *, shares: int = 1) -> Array:
            operation = _expert_matmul(self.part, name)
            with jax.named_scope(operation.path):
                result = product(operand, self.weights[operation.weight.name])
                if operation.bias is not None:
                    result = result + spread(self.weights[operation.bias.name]) / shares
                return self.part.named(operation.path, result)

        up = projected("up", rows)
        gate = projected("gate", rows) if "experts/gate" in self.part else None
        with jax.named_scope(self.part.elementwise("experts/activation").path):
            hidden = jax.nn.gelu(up) if gate is None else jax.nn.silu(gate) * up
        return projected("down", hidden, shares=self.part.layout.ways(self.part.layout.tensor))


def _expert_matmul(part: Part, name: str) -> ExpertMatmul:
    operation = part.operations[f"experts/{name}"]
    if not isinstance(operation, ExpertMatmul):
        raise TypeError(operation)
    return operation


def _dropless(experts: Experts, tokens: Array, choice: Choice) -> Array:
    """Every copy of every token, sorted by expert: [b, s, D] to [b, s, D]."""
    import jax

    part = experts.part
    is_tpu = part.mesh.devices.flat[0].platform == "tpu"
    with jax.named_scope("dispatch"):
        copies, order, inverse = sorted_copies(tokens.reshape(-1, tokens.shape[-1]), choice)
        arrival = arrived(copies, choice, is_ragged=is_tpu)
    kernel = chosen_kernel(part.program, len(arrival.rows), is_tpu=is_tpu)
    mean = choice.experts.size / choice.num_local
    tile = rows_of_a_tile(len(arrival.rows), rows_of_an_expert=mean) if kernel == "gmm" else 0

    def product(rows: Array, weights: Array) -> Array:
        return grouped_matmul(rows, weights, arrival.group_sizes, kernel=kernel, row_tile=tile)

    outputs = experts.outputs(arrival.rows, product=product, spread=lambda bias: bias[arrival.expert_of_row])
    with jax.named_scope("combine"):
        outputs = returned(outputs, arrival, choice, is_ragged=is_tpu)
    with jax.named_scope("weighted_sum"):
        return weighted_sum(outputs, inverse, order, choice).reshape(tokens.shape)


def _with_capacity(experts: Experts, tokens: Array, choice: Choice) -> Array:
    """Those tokens of a sequence for which their experts have room: [b, s, D] to [b, s, D]."""
    import jax.numpy as jnp

    factor = experts.part.program.experts.capacity_factor or DEFAULT_CAPACITY_FACTOR
    capacity = expert_capacity(
        length=tokens.shape[1], top_k=choice.top_k, num_experts=choice.num_experts, factor=factor
    )

    def compute(rows: Array) -> Array:
        return experts.outputs(
            rows,
            product=lambda rows, weights: jnp.einsum("erd,edf->erf", rows, weights),
            spread=lambda bias: bias[:, None],
        )

    return with_capacity(tokens, choice, capacity=capacity, compute=compute)
