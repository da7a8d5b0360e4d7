"""What a product of sharded arrays needs: its case, and every way to compute it.

Devices multiply what they hold, so during the product each mesh axis splits one dimension, the same in both operands,
or none. A strategy is such a choice for every axis; the collectives follow: those that bring the operands there, and
those that bring the result to where it is wanted. The four cases of the Scaling Book, ch. 3, by mesh axis:

    1  splits no contracted dimension              nothing to do
    2  splits a contracted dimension of one side   gather that side; or multiply blocks, then reduce
    3  splits a contracted dimension of both       multiply blocks, then reduce
    4  splits an outer dimension of both           gather either side
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product as combinations
from typing import TYPE_CHECKING, Literal, TypeAlias

from ridgeline.cost.sharding.resharding import Step, StepKind, axes_of, collectives_of, kinds_of, reshard, told
from ridgeline.job.sharding import Axes, Product, ShardedArray, joined

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

Case: TypeAlias = Literal[1, 2, 3, 4]

_WORDS: Mapping[StepKind, str] = {
    "all_gather": "gather",
    "all_reduce": "all-reduce",
    "reduce_scatter": "reduce-scatter",
    "all_to_all": "exchange",
    "collective_permute": "reorder",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """A way to compute a product.

    Attributes:
        product: As asked.
        left: The left operand as it is multiplied.
        right: The right operand as it is multiplied.
        result: The product as devices hold it then, partial sums included.
        before: What brings the operands there.
        after: What brings the result to the output's layout.
        output: The result as it is left.
        split: Mesh axes that split the work; along the others every device repeats it.
        is_as_asked: Whether the output is left as it was asked for; False where it stays scattered.
    """

    product: Product
    left: ShardedArray
    right: ShardedArray
    result: ShardedArray
    before: tuple[Step, ...]
    after: tuple[Step, ...]
    output: ShardedArray
    split: Axes
    is_as_asked: bool = True

    def __str__(self) -> str:
        """What is done, in order: `gather W over X, multiply, all-reduce C over Y`."""
        return ", ".join((*_told(self.before), "multiply", *_told(self.after)))

    @property
    def collective(self) -> str:
        """The kinds of its collectives: `all_gather`, `none`."""
        return kinds_of(self.collectives)

    @property
    def collective_axes(self) -> str:
        """The mesh axes of its collectives, as a subscript: `XY`, `none`."""
        return axes_of(self.collectives)

    @property
    def communication(self) -> str:
        """The same with axes and arrays: `all_gather X of W`, `none`."""
        return told(self.collectives)

    @property
    def collectives(self) -> tuple[Step, ...]:
        """Every communication, in order."""
        return collectives_of((*self.before, *self.after))


def strategies(product: Product, *, fits: Callable[[ShardedArray], bool] = lambda _: True) -> tuple[Strategy, ...]:
    """The ways to compute a product, the textbook's first, then others, then those that leave the output scattered.

    A way that communicates all that another does, and more, without splitting the work further, is left out.

    >>> from ridgeline.job.notation import read_notation
    >>> [str(way) for way in strategies(read_notation("A[I,J_X] @ B[J,K] -> C[I,K]", mesh=None, where="notation"))]
    ['gather A over X, multiply', 'multiply, all-reduce C over X', 'multiply, reduce-scatter C over X']

    Args:
        product: Both operands with their layouts; an output that is free is left as the product leaves it.
        fits: Whether a layout divides an array evenly.
    """
    used = dict.fromkeys(axis for array in product.arrays for axis in (*array.used, *array.partial))
    choices = combinations(*(splittable(product, axis) for axis in used))
    every = [strategy(product, dict(zip(used, dims, strict=True))) for dims in choices]
    legal = [way for way in every if way is not None and all(fits(array) for array in _arrays(way))]
    asked = _unbeaten(legal)
    scattered = [relaxed for way in asked if (relaxed := _scattered(way, fits)) is not None]
    return (*asked, *scattered)


def strategy(product: Product, split: Mapping[str, str | None]) -> Strategy | None:
    """The way in which each mesh axis splits a given dimension during the product; None if the output forbids it."""
    layout = {dim: _axes_in_order(product, dim, split) for dim in product.dims}
    partial = tuple(axis for dim in product.contracted for axis in layout[dim])
    left, right = product.left.laid_out(layout), product.right.laid_out(layout)
    result = product.output.laid_out(layout, partial=partial)
    output = result.laid_out(layout) if product.output.is_free else product.output
    if not set(output.partial) <= set(partial):
        return None
    return Strategy(
        product=product,
        left=left,
        right=right,
        result=result,
        before=(*reshard(product.left, left), *reshard(product.right, right)),
        after=reshard(result, output),
        output=output,
        split=tuple(axis for axes in layout.values() for axis in axes),
    )


def splittable(product: Product, axis: str) -> tuple[str | None, ...]:
    """The dimensions that a mesh axis may split during the product, the textbook's choice first; None for none."""
    left, right = product.left.dim_of(axis), product.right.dim_of(axis)
    output = None if product.output.is_free else product.output.dim_of(axis)
    match case_of(product, axis):
        case 1:
            first = (left or right,)
        case 2 if left in product.contracted:
            first = (right, None, left)
        case 2:
            first = (left, None, right)
        case 3:
            first = (left, right)
        case 4:
            first = (right, left) if output == right else (left, right)
    return tuple(dict.fromkeys((*first, output, None)))


def case_of(product: Product, axis: str) -> Case:
    """The case of one mesh axis."""
    left, right = product.left.dim_of(axis), product.right.dim_of(axis)
    contracted = [dim in product.contracted for dim in (left, right)]
    if all(contracted):
        return 3
    if any(contracted):
        return 2
    return 4 if left is not None and right is not None and left != right else 1


def cases(product: Product) -> dict[str, Case]:
    """The case of every mesh axis that splits an operand."""
    return {axis: case_of(product, axis) for axis in dict.fromkeys((*product.left.used, *product.right.used))}


def inherited_output(product: Product) -> tuple[ShardedArray, Axes]:
    """The output with every sharding of the operands, and the mesh axes that would then be in it twice.

    >>> from ridgeline.job.notation import read_notation
    >>> output, twice = inherited_output(read_notation("A[I_X,J] @ B[J,K_X]", mesh=None, where="notation"))
    >>> str(output), twice
    ('C[I_X,K_X]', ('X',))
    """
    layout = {
        dim: tuple(dict.fromkeys((*product.left.layout.get(dim, ()), *product.right.layout.get(dim, ()))))
        for dim in product.output.dims
    }
    output = product.output.laid_out(layout)
    return output, tuple(dict.fromkeys(axis for axis in output.used if output.used.count(axis) > 1))


def _axes_in_order(product: Product, dim: str, split: Mapping[str, str | None]) -> Axes:
    """The axes that split a dimension, in the order of the first array that they split already."""
    held = (axis for array in product.arrays for axis in array.layout.get(dim, ()))
    return tuple(axis for axis in dict.fromkeys((*held, *split)) if split.get(axis) == dim)


def _arrays(way: Strategy) -> Iterator[ShardedArray]:
    yield from (way.left, way.right, way.result)
    for step in way.collectives:
        yield step.after


def _unbeaten(ways: Sequence[Strategy]) -> list[Strategy]:
    """Those that do not communicate all that another does and more, or as much to split the work less."""
    asks = [(_moved(way), frozenset(way.split)) for way in ways]

    def is_beaten(moved: frozenset[tuple[str, str, str]], split: frozenset[str]) -> bool:
        return any(less <= moved and more >= split and (less, more) != (moved, split) for less, more in asks)

    return [way for way, ask in zip(ways, asks, strict=True) if not is_beaten(*ask)]


def _moved(way: Strategy) -> frozenset[tuple[str, str, str]]:
    """Kind, array and axis of everything that is communicated."""
    return frozenset((step.kind, step.before.name, axis) for step in way.collectives for axis in step.axes)


def _scattered(way: Strategy, fits: Callable[[ShardedArray], bool]) -> Strategy | None:
    """The same, but for a sum that stays scattered over the output's last dimension that it divides."""
    summed = next((step.axes for step in way.after if step.kind == "all_reduce"), ())
    for dim in reversed(way.output.dims) if summed else ():
        layout = {**way.output.layout, dim: (*way.output.layout[dim], *summed)}
        output = way.output.laid_out(layout, partial=way.output.partial)
        if fits(output):
            return replace(way, after=reshard(way.result, output), output=output, is_as_asked=False)
    return None


def _told(steps: Sequence[Step]) -> Iterator[str]:
    for step in steps:
        if step.is_collective:
            yield f"{_WORDS[step.kind]} {step.before.name} over {joined(step.axes)}"
