"""How many parameters a model has: sums over the tree of operations, nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ridgeline.model.operations import PREDICTOR_LOGITS, ExpertMatmul, Lookup, weights_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ridgeline.model.operations import ModelTree, Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterCount:
    """Parameters of a decoder; a tied embedding table counts once.

    Attributes:
        total: All of them. Vision and audio towers are outside the tree, and so are multi-token-prediction modules
            that do not run.
        active: Those one token visits: of routed experts only the top-k, everything else in full.
        embedding: Lookup tables (token, position), within `total`.
        experts: Routed experts, within `total`.
    """

    total: int
    active: int
    embedding: int
    experts: int

    @property
    def text(self) -> int:
        """The language model alone; equals `total`, which has no other part yet."""
        return self.total


def count_parameters(tree: ModelTree) -> ParameterCount:
    """Parameters of the whole tree.

    >>> from ridgeline.model.spec import AttentionSpec, LayerSpec, MlpSpec, ModelSpec
    >>> from ridgeline.model.tree import model_tree
    >>> layer = LayerSpec(mixer=AttentionSpec(num_heads=2, num_kv_heads=1, head_dim=4), mlp=MlpSpec(mlp_dim=16))
    >>> tiny = ModelSpec(name="tiny", embed_dim=8, vocab_size=32, layers=((layer, 3),))
    >>> count_parameters(model_tree(tiny)).total  # 2 tables of 8·32, 3·(8·4·6 + 3·8·16 + 2·8), a norm of 8
    2296
    """
    total = active = embedding = experts = 0
    tables: set[str] = {PREDICTOR_LOGITS}
    for operation, count in counted_operations(tree):
        for tensor in weights_of(operation):
            size = count * tensor.size
            if tensor.name in tables:
                continue
            total += size
            match operation:
                case ExpertMatmul():
                    experts += size
                    active += size // tensor.shape[0] * operation.top_k
                case Lookup():
                    tables.add(tensor.name)
                    embedding += size
                    active += size
                case _:
                    active += size
    return ParameterCount(total=total, active=active, embedding=embedding, experts=experts)


def counted_operations(tree: ModelTree) -> Iterator[tuple[Operation, int]]:
    """Every operation of the model with how many layers repeat it: embedding, layers, head."""
    for operation in tree.embedding.operations:
        yield operation, 1
    for layer in tree.layers:
        for block in layer.blocks:
            for operation in block.operations:
                yield operation, layer.count
    for operation in tree.head.operations:
        yield operation, 1
