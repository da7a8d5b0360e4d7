"""Low-rank adapters (LoRA): beside a product x·W whose weight is frozen, (x·A)·B of a small rank, which is trained.

Source: Hu et al., arXiv:2106.09685; the adapters' shapes are those of Hugging Face PEFT, one pair for each matrix.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ridgeline.model.accounting import operations
from ridgeline.model.operations import Activation, Elementwise, Matmul, Tensor, sides_of, weights_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from ridgeline.model.operations import Block, ModelTree, Operation

_DOWN, _UP, _SUM = "lora_a", "lora_b", "lora_sum"
_MARK: Final = "/lora_"


def is_adapter(tensor: Tensor) -> bool:
    """Whether a weight is an adapter's."""
    return _MARK in tensor.name


def adaptable(tree: ModelTree) -> tuple[str, ...]:
    """Products of the layers that adapters can lie beside, by the last word of their path: all but experts and routers.

    >>> from ridgeline.model.letters import model_from_letters
    >>> from ridgeline.model.tree import model_tree
    >>> adaptable(model_tree(model_from_letters({"D": 8, "F": 16, "N": 2, "H": 4}, where="")))
    ('query', 'key', 'value', 'out', 'gate', 'up', 'down')
    """
    found = (
        _word(operation)
        for layer in tree.layers
        for block in layer.blocks
        for operation in block.operations
        if _is_adaptable(operation)
    )
    return tuple(dict.fromkeys(found))


def with_adapters(tree: ModelTree, *, rank: int, targets: Collection[str]) -> ModelTree:
    """The model with adapters beside the products of its layers that `targets` names.

    Args:
        tree: The model.
        rank: Of every adapter.
        targets: Words of `adaptable`.
    """
    layers = (
        replace(layer, blocks=tuple(_adapted(block, rank=rank, targets=targets) for block in layer.blocks))
        for layer in tree.layers
    )
    return replace(tree, layers=tuple(layers))


def frozen_flops_per_token(tree: ModelTree) -> float:
    """Forward FLOPs of one token's products with weights that are not trained."""
    return sum(
        num_layers * 2.0 * operation.weight.size
        for _, operation, num_layers in operations(tree)
        if isinstance(operation, Matmul) and not is_adapter(operation.weight)
    )


def adapter_parameters(tree: ModelTree) -> int:
    """Elements of all adapters."""
    return sum(
        num_layers * tensor.size
        for _, operation, num_layers in operations(tree)
        for tensor in weights_of(operation)
        if is_adapter(tensor)
    )


def _adapted(block: Block, *, rank: int, targets: Collection[str]) -> Block:
    found: list[Operation] = []
    for operation in block.operations:
        found.append(operation)
        if isinstance(operation, Matmul) and _is_adaptable(operation) and _word(operation) in targets:
            found.extend(_beside(operation, rank))
    return replace(block, operations=tuple(found))


def _beside(operation: Matmul, rank: int) -> Iterator[Operation]:
    """The adapter of one product: down to the rank, up from it, added to the product's output."""
    (contracted, produced), width = sides_of(operation), operation.output.size

    def product(name: str, dimensions: tuple[tuple[str, int], ...], output: Activation, num_contracted: int) -> Matmul:
        axes, shape = zip(*dimensions, strict=True)
        weight = Tensor(name=f"{operation.weight.name}/{name}", axes=axes, shape=shape)
        path = f"{operation.path}/{name}"
        return Matmul(path=path, weight=weight, num_contracted=num_contracted, output=output, quantizable=False)

    low, rank_side = Activation(name="", axes=("rank",), shape=(rank,)), (("rank", rank),)
    yield product(_DOWN, (*contracted, *rank_side), low, len(contracted))
    yield product(_UP, (*rank_side, *produced), replace(operation.output, name=""), 1)
    axes = operation.output.axes[:1]
    yield Elementwise(
        path=f"{operation.path}/{_SUM}",
        read_elements=2 * width,
        write_elements=width,
        flops_per_token=2 * width,
        axes=axes,
    )


def _is_adaptable(operation: Operation) -> bool:
    return isinstance(operation, Matmul) and operation.quantizable and "vocab" not in operation.weight.axes


def _word(operation: Operation) -> str:
    return operation.path.rsplit("/", 1)[-1]
