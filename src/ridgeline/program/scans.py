"""Which layers one loop runs over: equal neighbours, or a pattern of different layers that repeats.

A loop's body is compiled once, so that compile time follows from the different layers, not from the depth. Gemma 3
(five local layers, one global, …) becomes one loop over its groups of six and one over the layers that are left;
DeepSeek-V3 one over its dense layers and one over those with experts.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from ridgeline.model.operations import weights_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ridgeline.model.operations import Block, Layer, ModelTree, Tensor
    from ridgeline.model.spec import ModelSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """A layer's place in a loop's body.

    Attributes:
        name: Under which its stacked weights are found: the layer's own, with a number where its kind has several.
        layer: What stands there.
    """

    name: str
    layer: Layer

    def weight_name(self, tensor: Tensor) -> str:
        """The name of a weight of this layer, stacked over the rounds of the loop.

        >>> from ridgeline.model.operations import Layer, Tensor
        >>> position = Position(name="local_layer.3", layer=Layer(name="local_layer", count=50, blocks=()))
        >>> position.weight_name(Tensor(name="local_layer/mlp/up", axes=("embed", "mlp"), shape=(8, 16)))
        'local_layer.3/mlp/up'
        """
        return self.name + tensor.name.removeprefix(self.layer.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerScan:
    """A loop over layers.

    Attributes:
        positions: The layers of its body, in order.
        count: Rounds.
    """

    positions: tuple[Position, ...]
    count: int


def layer_scans(spec: ModelSpec, tree: ModelTree) -> tuple[LayerScan, ...]:
    """The loops of a model, in order.

    >>> from ridgeline.model.tree import model_tree
    >>> from ridgeline.model.zoo import load_model
    >>> gemma = load_model("gemma3-4b")
    >>> for scan in layer_scans(gemma, model_tree(gemma)):
    ...     print(scan.count, *(position.name for position in scan.positions))
    5 local_layer.0 local_layer.1 local_layer.2 local_layer.3 local_layer.4 global_layer
    4 local_layer.5
    """
    kinds = dict(zip(dict.fromkeys(layer for layer, _ in spec.layers), tree.layers, strict=True))
    groups = _repeated([(kinds[layer], count) for layer, count in spec.layers])
    places = Counter(layer.name for layers, _ in groups for layer in layers)
    seen: Counter[str] = Counter()
    scans: list[LayerScan] = []
    for layers, count in groups:
        positions = [_position(layer, places, seen) for layer in layers]
        scans.append(LayerScan(positions=tuple(positions), count=count))
    return tuple(scans)


def declared_weights(tree: ModelTree, scans: Sequence[LayerScan]) -> Mapping[str, tuple[Tensor, int]]:
    """Every weight by its name, with how many layers stack theirs (0: outside the layers)."""
    found = {tensor.name: (tensor, 0) for tensor in _tensors(tree.embedding)}
    for scan in scans:
        for position in scan.positions:
            for tensor in _tensors(*position.layer.blocks):
                found[position.weight_name(tensor)] = tensor, scan.count
    for tensor in _tensors(tree.head):
        found.setdefault(tensor.name, (tensor, 0))  # a tied table is declared where it is looked up
    return found


def _tensors(*blocks: Block) -> Iterator[Tensor]:
    return (tensor for block in blocks for operation in block.operations for tensor in weights_of(operation))


def _position(layer: Layer, places: Mapping[str, int], seen: Counter[str]) -> Position:
    number = seen[layer.name]
    seen.update([layer.name])
    return Position(name=layer.name if places[layer.name] == 1 else f"{layer.name}.{number}", layer=layer)


def _repeated(runs: Sequence[tuple[Layer, int]]) -> list[tuple[list[Layer], int]]:
    """Runs of equal layers, as groups of layers and how often each follows itself.

    From each place on, the group that takes in most runs is taken, of those the shortest.
    """
    groups: list[tuple[list[Layer], int]] = []
    start = 0
    while start < len(runs):
        lengths = range(1, (len(runs) - start) // 2 + 1)
        length = max(lengths, key=lambda length: length * _rounds(runs, start, length), default=1)
        rounds = _rounds(runs, start, length)
        if rounds == 1:
            layer, count = runs[start]
            groups.append(([layer], count))
            start += 1
        else:
            group = chain.from_iterable([layer] * count for layer, count in runs[start : start + length])
            groups.append((list(group), rounds))
            start += rounds * length
    return groups


def _rounds(runs: Sequence[tuple[Layer, int]], start: int, length: int) -> int:
    """How often the next `length` runs follow one another."""
    pattern, rounds = runs[start : start + length], 1
    while runs[start + rounds * length : start + (rounds + 1) * length] == pattern:
        rounds += 1
    return rounds
