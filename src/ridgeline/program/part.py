"""A part of a model's tree, carried out: its declared matmuls and norms on sharded arrays.

Each operation runs under its path as scope, with its declared weights, and its result lies on the mesh as the layout
says. Shapes: B batch, S sequence.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from ridgeline.model.operations import Attention, Elementwise, ExpertMatmul, Lookup, Matmul
from ridgeline.program.attention import OwnKeys
from ridgeline.program.dtypes import jax_dtype
from ridgeline.program.quantization import quantized_product

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jax import Array
    from jax.sharding import Mesh
    from jax.typing import DTypeLike

    from ridgeline.job.sharding import Axes
    from ridgeline.model.operations import Block, Operation, Tensor
    from ridgeline.program.attention import Keys
    from ridgeline.program.forward import ForwardProgram
    from ridgeline.program.layout import Layout

    Weights: TypeAlias = Mapping[str, Array]
    """Arrays by the name of the declared tensor."""

_EPSILON = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Operations of a block, or of a branch in it, with their weights.

    Attributes:
        program: What is computed.
        mesh: The devices, with the axes of the program's layout.
        layout: How the mesh splits its arrays.
        operations: By their path below this part.
        weights: Of the whole layer.
        keys: Where attention finds keys and values.
    """

    program: ForwardProgram
    mesh: Mesh
    layout: Layout
    operations: Mapping[str, Operation]
    weights: Weights
    keys: Keys

    @staticmethod
    def of_block(
        block: Block, weights: Weights, *, program: ForwardProgram, mesh: Mesh, keys: Keys | None = None
    ) -> Part:
        """All of a block; attention is over the tokens at hand unless `keys` says otherwise."""
        return Part(
            program=program,
            mesh=mesh,
            layout=program.layout,
            operations={operation.path: operation for operation in block.operations},
            weights=weights,
            keys=keys or OwnKeys(program=program, mesh=mesh),
        )

    def under(self, branch: str) -> Part:
        """What is declared below a branch: `under("shared")` has `up` where this part has `shared/up`."""
        prefix = f"{branch}/"
        below = {path.removeprefix(prefix): each for path, each in self.operations.items() if path.startswith(prefix)}
        return replace(self, operations=below)

    def __contains__(self, name: str) -> bool:
        """Whether an operation is declared."""
        return name in self.operations

    def matmul(self, name: str) -> Matmul:
        """A declared matmul."""
        operation = self.operations[name]
        if not isinstance(operation, Matmul):
            raise TypeError(operation)
        return operation

    def attention(self, name: str) -> Attention:
        """A declared attention."""
        operation = self.operations[name]
        if not isinstance(operation, Attention):
            raise TypeError(operation)
        return operation

    def elementwise(self, name: str) -> Elementwise:
        """A declared norm or other pass over an array."""
        operation = self.operations[name]
        if not isinstance(operation, Elementwise):
            raise TypeError(operation)
        return operation

    def rows(self, name: str, indices: Array) -> Array:
        """Rows of a declared table, D elements each."""
        import jax

        operation = self.operations[name]
        if not isinstance(operation, Lookup):
            raise TypeError(operation)
        with jax.named_scope(operation.path):
            return self.weights[operation.weight.name].astype(self.compute)[indices]

    def next_rows(self, name: str, count: int) -> Array:
        """Rows of a table of positions: those of the tokens at hand."""
        import jax

        operation = self.operations[name]
        if not isinstance(operation, Lookup):
            raise TypeError(operation)
        with jax.named_scope(operation.path):
            table = self.weights[operation.weight.name].astype(self.compute)
            return jax.lax.dynamic_slice_in_dim(table, self.keys.start, count)

    def projected(self, name: str, operand: Array) -> Array:
        """A declared matmul's result, under the name by which a remat policy keeps it."""
        return self.named(name, self.project(name, operand))

    def project(self, name: str, operand: Array) -> Array:
        """A declared matmul, with its bias: [B, S, *contracted] to [B, S, *kept]."""
        import jax
        import jax.numpy as jnp

        operation = self.matmul(name)
        with jax.named_scope(operation.path):
            weight, num_contracted = self.weight(operation.weight), operation.num_contracted
            recipe = self.program.quantization
            if recipe is None or not operation.quantizable:
                product = jnp.tensordot(operand, weight, num_contracted)
            else:
                product = quantized_product(operand, weight, num_contracted, recipe)
            if operation.bias is not None:
                product = product + self.weight(operation.bias)
            return self.laid_out(product, self.layout.intermediate(operation.output))

    def named(self, name: str, value: Array) -> Array:
        """A value under the name of an operation's output; as it is where there is no such operation or name."""
        from jax.ad_checkpoint import checkpoint_name

        match operation := self.operations.get(name):
            case Matmul() | ExpertMatmul() | Attention():
                return checkpoint_name(value, operation.output.name)
            case Elementwise() if operation.name:
                return checkpoint_name(value, operation.name)
            case _:
                return value

    def norm(self, name: str, operand: Array) -> Array:
        """A declared norm over the last dimension."""
        import jax

        operation = self.elementwise(name)
        with jax.named_scope(operation.path):
            return self.named(name, self.normalized(operand, operation.weights))

    def normalized(self, operand: Array, tensors: Sequence[Tensor]) -> Array:
        """LayerNorm where there is a bias, RMSNorm where there is none; in f32."""
        import jax
        import jax.numpy as jnp

        ours = {tensor.name.rsplit("/", 1)[-1]: self.weights[tensor.name].astype(jnp.float32) for tensor in tensors}
        wide = operand.astype(jnp.float32)
        if "bias" in ours:
            wide = wide - jnp.mean(wide, axis=-1, keepdims=True)
        wide = wide * jax.lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + _EPSILON)
        return (wide * ours.get("scale", 1.0) + ours.get("bias", 0.0)).astype(self.compute)

    def weight(self, tensor: Tensor) -> Array:
        """A weight in the compute dtype, gathered to the tensor axes."""
        return self.laid_out(self.weights[tensor.name].astype(self.compute), self.layout.gathered(tensor))

    def laid_out(self, array: Array, axes: Sequence[Axes]) -> Array:
        """An array split as `axes` say, dimension by dimension."""
        import jax
        from jax.sharding import NamedSharding, PartitionSpec

        return jax.lax.with_sharding_constraint(array, NamedSharding(self.mesh, PartitionSpec(*axes)))

    @property
    def compute(self) -> DTypeLike:
        """The dtype of products and of what lies between them."""
        return jax_dtype(self.program.dtypes.compute)
