"""From one layout of an array to another: which collectives, over which mesh axes, in which order.

An array is first cut where that is free, then reduced, then moved, then gathered, so that each step handles as few
bytes as it can. A collective joins or cuts whole blocks, so the axes it takes from a dimension must be the innermost
ones; where they are not, a permute reorders the blocks first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from ridgeline.job.sharding import Axes, ShardedArray, joined

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

StepKind: TypeAlias = Literal["slice", "collective_permute", "reduce_scatter", "all_reduce", "all_to_all", "all_gather"]
"""What happens to an array; a slice is local and free, the others are collectives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One change of an array's layout.

    Attributes:
        kind: What happens.
        axes: Over which mesh axes, outermost first.
        before: The array as it lies.
        after: As it lies then.
        from_dim: The dimension that those axes split before; "" where they did not.
        to_dim: The dimension that they split then.
    """

    kind: StepKind
    axes: Axes
    before: ShardedArray
    after: ShardedArray
    from_dim: str = ""
    to_dim: str = ""

    def __str__(self) -> str:
        """`all_gather X of B`."""
        return f"{self.kind} {joined(self.axes)} of {self.before.name}"

    @property
    def is_collective(self) -> bool:
        """Whether devices communicate."""
        return self.kind != "slice"


def collectives_of(steps: Iterable[Step]) -> tuple[Step, ...]:
    """Those steps in which devices communicate."""
    return tuple(step for step in steps if step.is_collective)


def mainly(steps: Iterable[Step]) -> tuple[Step, ...]:
    """The collectives that matter: a permute only where there is nothing else."""
    collectives = collectives_of(steps)
    return tuple(step for step in collectives if step.kind != "collective_permute") or collectives


def kinds_of(steps: Iterable[Step]) -> str:
    """The kinds of the collectives that matter, each once; `none` for none.

    >>> from ridgeline.job.notation import read_notation
    >>> change = read_notation("A[I_XY,J] -> A[I_Y,J]", mesh=None, where="notation")
    >>> steps = reshard(change.source, change.target)
    >>> told(steps), kinds_of(steps), axes_of(steps)
    ('collective_permute XY of A, all_gather X of A', 'all_gather', 'X')
    """
    return ", ".join(dict.fromkeys(step.kind for step in mainly(steps))) or "none"


def axes_of(steps: Iterable[Step]) -> str:
    """The mesh axes of the collectives that matter, as a subscript; `none` for none."""
    return joined(tuple(dict.fromkeys(axis for step in mainly(steps) for axis in step.axes))) or "none"


def told(steps: Iterable[Step]) -> str:
    """The communication of some steps: `all_gather X of B, all_reduce Y of C`, or `none`."""
    return ", ".join(map(str, collectives_of(steps))) or "none"


def reshard(source: ShardedArray, target: ShardedArray) -> tuple[Step, ...]:
    """The steps from one layout to another, in order.

    >>> from ridgeline.job.notation import read_notation
    >>> change = read_notation("A[I_XY,J] -> A[I_X,J]", mesh=None, where="notation")
    >>> [str(step) for step in reshard(change.source, change.target)]
    ['all_gather Y of A']

    Args:
        source: As it lies.
        target: As it shall lie. Partial sums that it keeps must be the source's.
    """
    steps: list[Step] = []
    state = source
    for change in (_slices, _reductions, _moves, _gathers, _order):
        for step in change(state, target):
            steps.append(step)
            state = step.after
    return tuple(steps)


def _slices(source: ShardedArray, target: ShardedArray) -> Iterator[Step]:
    """Where all devices along an axis hold the same, each keeps its block: no communication."""
    state = source
    for dim, axes in target.layout.items():
        if new := tuple(axis for axis in axes if axis not in (*source.used, *source.partial)):
            after = _with(state, {dim: (*state.layout[dim], *new)})
            yield Step(kind="slice", axes=new, before=state, after=after, to_dim=dim)
            state = after


def _reductions(source: ShardedArray, target: ShardedArray) -> Iterator[Step]:
    """Partial sums: scattered where the target is split over their axis, else left whole on every device."""
    state = source
    for dim, axes in target.layout.items():
        if scattered := tuple(axis for axis in axes if axis in source.partial):
            after = _with(state, {dim: (*state.layout[dim], *scattered)}, summed=scattered)
            yield Step(kind="reduce_scatter", axes=scattered, before=state, after=after, to_dim=dim)
            state = after
    if whole := tuple(axis for axis in state.partial if axis not in target.partial):
        yield Step(kind="all_reduce", axes=whole, before=state, after=_with(state, {}, summed=whole))


def _moves(source: ShardedArray, target: ShardedArray) -> Iterator[Step]:
    """An axis that shall split another dimension: every device sends a part to every other."""
    state = source
    for to_dim, wanted in target.layout.items():
        for from_dim, held in source.layout.items():
            moving = tuple(axis for axis in held if axis in wanted)
            if from_dim == to_dim or not moving:
                continue
            for step in _innermost(state, from_dim, moving):
                yield step
                state = step.after
            moving = state.layout[from_dim][-len(moving) :]
            rest = state.layout[from_dim][: -len(moving)]
            after = _with(state, {from_dim: rest, to_dim: (*state.layout[to_dim], *moving)})
            yield Step(kind="all_to_all", axes=moving, before=state, after=after, from_dim=from_dim, to_dim=to_dim)
            state = after


def _gathers(source: ShardedArray, target: ShardedArray) -> Iterator[Step]:
    """An axis that shall split nothing: every device receives the blocks of all."""
    state = source
    for dim, held in source.layout.items():
        if leaving := tuple(axis for axis in held if axis not in target.layout[dim]):
            for step in _innermost(state, dim, leaving):
                yield step
                state = step.after
            leaving = state.layout[dim][-len(leaving) :]
            after = _with(state, {dim: state.layout[dim][: -len(leaving)]})
            yield Step(kind="all_gather", axes=leaving, before=state, after=after, from_dim=dim)
            state = after


def _order(source: ShardedArray, target: ShardedArray) -> Iterator[Step]:
    """The right axes in another order: the blocks change places."""
    state = source
    for dim, axes in target.layout.items():
        if state.layout[dim] != axes:
            step = _permute(state, dim, axes)
            yield step
            state = step.after


def _innermost(array: ShardedArray, dim: str, axes: Axes) -> Iterator[Step]:
    """A permute that makes some axes of a dimension its innermost, unless they are."""
    held = array.layout[dim]
    if set(held[-len(axes) :]) != set(axes):
        yield _permute(array, dim, (*(axis for axis in held if axis not in axes), *axes))


def _permute(array: ShardedArray, dim: str, axes: Axes) -> Step:
    """Blocks of one dimension change places, so that its axes are in another order."""
    after = _with(array, {dim: axes})
    return Step(kind="collective_permute", axes=array.layout[dim], before=array, after=after, from_dim=dim, to_dim=dim)


def _with(array: ShardedArray, changes: Mapping[str, Axes], *, summed: Axes = ()) -> ShardedArray:
    partial = tuple(axis for axis in array.partial if axis not in summed)
    return array.laid_out({**array.layout, **changes}, partial=partial)
