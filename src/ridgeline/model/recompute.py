"""What the backward pass computes again when the forward pass kept only some intermediates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ridgeline.model.accounting import forward_flops_per_token, named_outputs
from ridgeline.model.operations import Dispatch, Elementwise, Matmul

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from ridgeline.model.operations import Block, ModelTree, Operation

_FEEDS_STREAM_ONLY = frozenset({"weighted_sum", "residual"})


def recomputable(block: Block, *, last: bool, combines_by_mask: bool = False) -> Iterator[Operation]:
    """The operations of a branch that run again unless their output is kept.

    Args:
        block: The branch.
        last: It is the layer's last.
        combines_by_mask: The product that brings tokens back from their experts adds them up too.
    """
    return (
        operation
        for operation in block.operations
        if not (last and _only_feeds_stream(operation, block, combines_by_mask=combines_by_mask))
    )


def recomputed_flops_per_token(tree: ModelTree, *, seq_len: int, names: Collection[str], masked: bool = True) -> float:
    """FLOPs of a token's forward pass that the backward pass repeats when the intermediates in `names` are kept.

    >>> from ridgeline.model.letters import model_from_letters
    >>> from ridgeline.model.tree import model_tree
    >>> tree = model_tree(model_from_letters({"D": 8, "F": 16, "N": 2, "H": 4}, where=""))
    >>> projections = ("query_proj", "key_proj", "value_proj", "out_proj", "mlpwi_0", "mlpwi_1", "mlpwo")
    >>> recomputed_flops_per_token(tree, seq_len=10, names=projections, masked=False)  # 4·T·N·H: the scores alone
    320.0

    Args:
        tree: The model.
        seq_len: Tokens a sequence.
        names: Checkpoint names that the forward pass keeps, on the device or on the host.
        masked: Count only the keys a query sees; else its whole sequence.
    """
    return sum(
        layer.count * forward_flops_per_token(operation, seq_len=seq_len, masked=masked)
        for layer in tree.layers
        for block in layer.blocks
        for operation in recomputable(block, last=block is layer.blocks[-1])
        if not any(output.name in names for output in named_outputs(operation))
    )


def projects_to_stream(operation: Operation) -> bool:
    """Whether an operation is the matmul that a branch ends with."""
    return isinstance(operation, Matmul) and operation.output.axes == ("embed",)


def _only_feeds_stream(operation: Operation, block: Block, *, combines_by_mask: bool) -> bool:
    """Whether an operation of the last block ends in the layer's output, which no backward step asks for.

    A post-norm asks for its input; and so the whole branch is recomputed where there is one.
    """
    if any(other.path.endswith("post_norm") for other in block.operations):
        return operation.path == "residual"
    ends = isinstance(operation, Elementwise) and operation.path.split("/")[-1] in _FEEDS_STREAM_ONLY
    ends = ends or (combines_by_mask and isinstance(operation, Dispatch) and operation.path == "combine")
    return ends or projects_to_stream(operation)
