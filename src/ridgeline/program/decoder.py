"""Our decoder in JAX: the operations of a model's tree, carried out on sharded arrays.

Embedding, loops over layers, head. Weights are the declared tensors, those of a loop stacked along a leading axis;
what a layer does, its blocks say. Scopes are part paths (`layer/attention/query`), names of kept values are MaxText's
(`query_proj`).

Shapes: B batch, S sequence, D embed, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from ridgeline.job.remat import LAYER_INPUT
from ridgeline.model.operations import Lookup, weights_of
from ridgeline.program.checkpoint import checkpointed
from ridgeline.program.experts import mixture
from ridgeline.program.feed_forward import mlp
from ridgeline.program.mixing import attention
from ridgeline.program.part import Part
from ridgeline.program.pipeline import Pipeline

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jax import Array
    from jax.sharding import Mesh

    from ridgeline.model.operations import Block, Layer
    from ridgeline.program.attention import Keys
    from ridgeline.program.forward import ForwardProgram
    from ridgeline.program.part import Weights
    from ridgeline.program.scans import LayerScan, Position

    Branch: TypeAlias = Callable[[Part, Array], Array]
    """What a block does between its norm and its residual add, on [B, S, D]."""

_BRANCHES: Mapping[str, Branch] = {"attention": attention, "mlp": mlp, "moe": mixture}
"""By the name of the block, or of the branch of a parallel block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """The forward pass of a program on a mesh.

    Attributes:
        program: What is computed.
        mesh: The devices, with the axes of the program's layout.
        keys: Where attention finds keys and values; None for the tokens at hand.
    """

    program: ForwardProgram
    mesh: Mesh
    keys: Keys | None = None

    def logits(self, weights: Weights, tokens: Array) -> Array:
        """Of the token that follows each: [B, S] to [B, S, V].

        Args:
            weights: By name.
            tokens: [B, S].
        """
        return self.head(weights, self.hidden(weights, tokens))

    def hidden(self, weights: Weights, tokens: Array) -> Array:
        """The stream behind all layers: [B, S] to [B, S, D].

        Args:
            weights: By name.
            tokens: [B, S].
        """
        stream = self.embedded(weights, tokens)
        for scan in self.program.scans:
            stream = self._layers(scan, weights, stream)
        return stream

    def embedded(self, weights: Weights, tokens: Array) -> Array:
        """Rows of the table, of the table of positions if there is one, projected and normed as declared: [B, S, D]."""
        import jax

        block = self.program.tree.embedding
        part = self._outside_part(block, weights)
        tokens = part.laid_out(tokens, (part.layout.batch, part.layout.sequence))
        with jax.named_scope(block.name):
            found = part.rows("tokens", tokens)
            if "project_in" in part:
                found = part.project("project_in", found)
            if "positions" in part:
                found = found + part.next_rows("positions", tokens.shape[1])
            return part.laid_out(_normed(part, found), part.layout.stream)

    def _layers(self, scan: LayerScan, weights: Weights, stream: Array) -> Array:
        """Layers one after another, over their stacked weights."""
        import jax

        stacked = {position.name: self.stacked(position, weights) for position in scan.positions}

        def one_round(stream: Array, own: Mapping[str, Weights]) -> Array:
            for position in scan.positions:
                stream = self.layer(position.layer, stream, own[position.name])
            return stream

        body = checkpointed(one_round, self.program.remat, is_looped=scan.count > 1)
        if self.program.layout.stages:
            return Pipeline(program=self.program, mesh=self.mesh, one_round=body)(stacked, stream)
        return jax.lax.scan(lambda stream, own: (body(stream, own), None), stream, stacked)[0]

    def stacked(self, position: Position, weights: Weights) -> Weights:
        """The weights of all layers in one place, by the names under which the layer declares them."""
        operations = [operation for block in position.layer.blocks for operation in block.operations]
        return {
            tensor.name: weights[position.weight_name(tensor)]
            for operation in operations
            for tensor in weights_of(operation)
        }

    def layer(self, layer: Layer, stream: Array, weights: Weights) -> Array:
        """One layer: each block reads the stream and adds to it."""
        import jax
        from jax.ad_checkpoint import checkpoint_name

        stream = checkpoint_name(stream, LAYER_INPUT)
        for block in layer.blocks:
            part = self._part(block, weights)
            with jax.named_scope(f"{layer.name}/{block.name}"):
                stream = part.laid_out(stream + _block(block.name, part, stream), part.layout.stream)
        return stream

    def head(self, weights: Weights, stream: Array) -> Array:
        """Final norm and logits: [B, S, V]; a tied table is read transposed."""
        import jax

        table = self.program.tree.embedding.operations[0]
        if self.program.tree.tied and isinstance(table, Lookup):
            weights = {**weights, table.weight.name: weights[table.weight.name].T}
        part = self._outside_part(self.program.tree.head, weights)
        with jax.named_scope("head"):
            normed = _gathered(part, _normed(part, stream))
            if "project_out" in part:
                normed = part.project("project_out", normed)
            return part.project("logits", normed)

    def _outside_part(self, block: Block, weights: Weights) -> Part:
        return replace(self._part(block, weights), layout=self.program.layout.outside)

    def _part(self, block: Block, weights: Weights) -> Part:
        return Part.of_block(block, weights, program=self.program, mesh=self.mesh, keys=self.keys)


def _block(name: str, part: Part, stream: Array) -> Array:
    """Norm, the block's branches side by side, and the norm after them if there is one."""
    normed = _gathered(part, _normed(part, stream))
    if name in _BRANCHES:
        output = _BRANCHES[name](part, normed)
    else:
        branches = {name: part.under(name) for name in _BRANCHES}
        outputs = [_block(name, branch, normed) for name, branch in branches.items() if branch.operations]
        output = sum(outputs[1:], outputs[0])
    return part.norm("post_norm", output) if "post_norm" in part else output


def _normed(part: Part, stream: Array) -> Array:
    return part.norm("norm", stream) if "norm" in part else stream


def _gathered(part: Part, stream: Array) -> Array:
    """The stream with its whole features and a device's own sequence, as matmuls read it."""
    return part.laid_out(stream, (part.layout.batch, part.layout.sequence, ()))
