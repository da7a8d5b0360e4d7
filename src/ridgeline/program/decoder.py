"""Our decoder in JAX: the operations of a model's tree, carried out on sharded arrays.

Weights are the declared tensors under their names, those of layers stacked along a leading axis and scanned over.
Scopes are part paths (`layer/attention/query`), names of kept values are MaxText's (`query_proj`).

Shapes: B batch, S sequence, D embed, N query heads, K key-value heads, H head width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from ridgeline.job.remat import LAYER_INPUT
from ridgeline.model.operations import Attention, Elementwise, Lookup, Matmul
from ridgeline.program.attention import attend, rotated
from ridgeline.program.checkpoint import checkpointed
from ridgeline.program.dtypes import jax_dtype

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jax import Array
    from jax.sharding import Mesh
    from jax.typing import DTypeLike

    from ridgeline.job.sharding import Axes
    from ridgeline.model.operations import Block, Operation, Tensor
    from ridgeline.program.request import TrainingProgram

    Weights: TypeAlias = Mapping[str, Array]

_EPSILON = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """The forward pass of a program on a mesh.

    Attributes:
        program: What is computed.
        mesh: The devices, with the axes of the program's layout.
    """

    program: TrainingProgram
    mesh: Mesh

    def loss(self, weights: Weights, tokens: Array) -> Array:
        """Mean cross-entropy of each next token, in f32.

        Args:
            weights: By name.
            tokens: [B, S + 1].
        """
        import jax
        import jax.numpy as jnp

        layout = self.program.layout
        place = (layout.batch, layout.sequence)
        inputs, targets = (self._laid_out(part, place) for part in (tokens[:, :-1], tokens[:, 1:]))
        logits = self._head(weights, self._layers(weights, self._embedding(weights, inputs)))
        with jax.named_scope("head/loss"):
            logits = logits.astype(jnp.float32)
            is_target = jnp.arange(logits.shape[-1]) == targets[..., None]
            chosen = jnp.sum(jnp.where(is_target, logits, 0.0), axis=-1)
            return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - chosen)

    def _embedding(self, weights: Weights, tokens: Array) -> Array:
        """Rows of the table, and of the table of positions if there is one: [B, S, D]."""
        import jax

        found: Array | None = None
        for operation in self.program.tree.embedding.operations:
            if isinstance(operation, Lookup):
                table = weights[operation.weight.name].astype(self._compute)
                with jax.named_scope(f"embedding/{operation.path}"):
                    rows = table[: tokens.shape[1]] if found is not None else table[tokens]
                    found = rows if found is None else found + rows
        if found is None:
            raise AssertionError("a model looks tokens up")  # pragma: no cover - every tree has a lookup
        return self._laid_out(found, self.program.layout.stream)

    def _layers(self, weights: Weights, stream: Array) -> Array:
        """All layers, one at a time over their stacked weights."""
        import jax

        stacked = {name: weights[name] for name, (_, count) in self.program.weights.items() if count}
        body = checkpointed(self._layer, self.program.remat)
        return jax.lax.scan(lambda stream, own: (body(stream, own), None), stream, stacked)[0]

    def _layer(self, stream: Array, weights: Weights) -> Array:
        """One layer: each block reads the stream and adds to it."""
        import jax
        from jax.ad_checkpoint import checkpoint_name

        layer = self.program.layer
        stream = checkpoint_name(stream, LAYER_INPUT)
        for block in layer.blocks:
            with jax.named_scope(f"{layer.name}/{block.name}"):
                stream = stream + self._block(block, weights, stream)
                stream = self._laid_out(stream, self.program.layout.stream)
        return stream

    def _block(self, block: Block, weights: Weights, stream: Array) -> Array:
        """Norm, the block's own operations, and the norm after them if there is one."""
        operations = {operation.path: operation for operation in block.operations}
        layout = self.program.layout
        normed = self._norm(operations["norm"], weights, stream)
        gathered = self._laid_out(normed, (layout.batch, layout.sequence, ()))
        inside = self._attention if block.name == "attention" else self._mlp
        output = inside(operations, weights, gathered)
        return self._norm(operations["post_norm"], weights, output) if "post_norm" in operations else output

    def _attention(self, operations: Mapping[str, Operation], weights: Weights, stream: Array) -> Array:
        """Projections, rotary embedding, attention, output projection."""
        import jax

        query, key, value = (self._project(operations[name], weights, stream) for name in ("query", "key", "value"))
        if isinstance(norms := operations.get("qk_norm"), Elementwise):
            with jax.named_scope("qk_norm"):
                query, key = (
                    self._normalized(array, [tensor for tensor in norms.weights if f"/{name}/" in tensor.name], weights)
                    for array, name in ((query, "query"), (key, "key"))
                )
        if "rotary" in operations:
            with jax.named_scope("rotary"):
                query, key = rotated(query), rotated(key)
        query, key, value = (
            self._named(operations[name], array) for name, array in (("query", query), ("key", key), ("value", value))
        )
        scores = operations["scores"]
        context = self._scores(scores, query, key, value) if isinstance(scores, Attention) else query
        return self._named(operations["out"], self._project(operations["out"], weights, context))

    def _scores(self, operation: Attention, query: Array, key: Array, value: Array) -> Array:
        """softmax(q·kᵀ)·v over the whole sequence: [B, S, N, H]."""
        import jax

        with jax.named_scope(operation.path):
            context = attend(query, key, value, program=self.program, operation=operation, mesh=self.mesh)
        return self._laid_out(context, self.program.layout.intermediate(operation.output))

    def _mlp(self, operations: Mapping[str, Operation], weights: Weights, stream: Array) -> Array:
        """Up-projection, with a gate or without, activation function, down-projection."""
        import jax

        def projected(name: str, operand: Array) -> Array:
            return self._named(operations[name], self._project(operations[name], weights, operand))

        up = projected("up", stream)
        if "gate" in operations:
            gate = projected("gate", stream)
            with jax.named_scope("activation"):
                hidden = jax.nn.silu(gate) * up
        else:
            with jax.named_scope("activation"):
                hidden = jax.nn.gelu(up)
        return projected("down", hidden)

    def _head(self, weights: Weights, stream: Array) -> Array:
        """Final norm and logits: [B, S, V]."""
        import jax

        layout = self.program.layout
        operations = {operation.path: operation for operation in self.program.tree.head.operations}
        with jax.named_scope("head"):
            normed = self._norm(operations["norm"], weights, stream)
            gathered = self._laid_out(normed, (layout.batch, layout.sequence, ()))
            return self._project(operations["logits"], weights, gathered)

    def _project(self, operation: Operation, weights: Weights, operand: Array) -> Array:
        """A declared matmul, with its bias: [B, S, *contracted] to [B, S, *kept]."""
        import jax
        import jax.numpy as jnp

        if not isinstance(operation, Matmul):
            raise TypeError(operation)
        with jax.named_scope(operation.path):
            weight = self._used(operation.weight, weights)
            product = jnp.tensordot(operand, weight, operation.num_contracted)
            if operation.bias is not None:
                product = product + self._used(operation.bias, weights)
            return self._laid_out(product, self.program.layout.intermediate(operation.output))

    def _used(self, tensor: Tensor, weights: Weights) -> Array:
        """A weight in the compute dtype, gathered; a tied table is stored transposed."""
        weight = weights[tensor.name].astype(self._compute)
        declared, _ = self.program.weights[tensor.name]
        if declared.axes != tensor.axes:
            weight = weight.T
        return self._laid_out(weight, self.program.layout.gathered(tensor))

    def _norm(self, operation: Operation, weights: Weights, operand: Array) -> Array:
        """A declared norm over the last dimension."""
        import jax

        if not isinstance(operation, Elementwise):
            raise TypeError(operation)
        with jax.named_scope(operation.path):
            return self._normalized(operand, operation.weights, weights)

    def _normalized(self, operand: Array, tensors: list[Tensor] | tuple[Tensor, ...], weights: Weights) -> Array:
        """LayerNorm where there is a bias, RMSNorm where there is none; in f32."""
        import jax
        import jax.numpy as jnp

        ours = {tensor.name.rsplit("/", 1)[-1]: weights[tensor.name].astype(jnp.float32) for tensor in tensors}
        wide = operand.astype(jnp.float32)
        if "bias" in ours:
            wide = wide - jnp.mean(wide, axis=-1, keepdims=True)
        wide = wide * jax.lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + _EPSILON)
        return (wide * ours.get("scale", 1.0) + ours.get("bias", 0.0)).astype(self._compute)

    def _named(self, operation: Operation, value: Array) -> Array:
        """A value under the name by which a remat policy keeps it."""
        from jax.ad_checkpoint import checkpoint_name

        return checkpoint_name(value, operation.output.name) if isinstance(operation, Matmul) else value

    def _laid_out(self, array: Array, axes: tuple[Axes, ...]) -> Array:
        """An array split as `axes` say, dimension by dimension."""
        import jax
        from jax.sharding import NamedSharding, PartitionSpec

        return jax.lax.with_sharding_constraint(array, NamedSharding(self.mesh, PartitionSpec(*axes)))

    @property
    def _compute(self) -> DTypeLike:
        return jax_dtype(self.program.dtypes.compute)
