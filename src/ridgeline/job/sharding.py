"""Arrays and how a mesh splits them, as the field writes it.

    A[I_X, J_YZ]     dimension I is split over mesh axis X, J over Y and Z (Y outermost); a copy on each device
                     of every axis that is not named
    C[I,K]{U_X}      along X every device holds a partial sum of C: still to be reduced

A mesh axis may stand once in an array: a device along X holds one block, so X can split one dimension only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

Axes: TypeAlias = tuple[str, ...]
"""Mesh axes, outermost first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardedArray:
    """An array and its layout.

    Attributes:
        name: Of the array.
        dims: Names of its dimensions.
        axes: Of each dimension, the mesh axes that split it.
        partial: Mesh axes along which devices hold partial sums.
        is_free: Its layout is to be chosen.
    """

    name: str
    dims: tuple[str, ...]
    axes: tuple[Axes, ...]
    partial: Axes = ()
    is_free: bool = False

    def __str__(self) -> str:
        """The array in the book's notation: `C[I,K_XY]{U_Z}`.

        >>> str(ShardedArray(name="C", dims=("I", "K"), axes=((), ("X", "Y")), partial=("Z",)))
        'C[I,K_XY]{U_Z}'
        """
        dims = ",".join(_subscripted(dim, axes) for dim, axes in zip(self.dims, self.axes, strict=True))
        return f"{self.name}[{dims}]" + (f"{{{_subscripted('U', self.partial)}}}" if self.partial else "")

    @property
    def layout(self) -> Mapping[str, Axes]:
        """The mesh axes of each dimension, by its name."""
        return dict(zip(self.dims, self.axes, strict=True))

    @property
    def used(self) -> Axes:
        """Every mesh axis that splits a dimension."""
        return tuple(axis for axes in self.axes for axis in axes)

    @property
    def subscripts(self) -> tuple[str, ...]:
        """The subscript of each dimension, "" where it is not split."""
        return tuple(joined(axes) if axes else "" for axes in self.axes)

    def dim_of(self, axis: str) -> str | None:
        """The dimension that a mesh axis splits."""
        return next((dim for dim, axes in zip(self.dims, self.axes, strict=True) if axis in axes), None)

    def laid_out(self, layout: Mapping[str, Axes], *, partial: Axes = ()) -> ShardedArray:
        """The same array in another layout; dimensions that are not named are not split."""
        return replace(self, axes=tuple(layout.get(dim, ()) for dim in self.dims), partial=partial, is_free=False)

    def shards(self, mesh: Mapping[str, float]) -> float:
        """Different blocks of it on the mesh."""
        return ways(self.used, mesh)


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """A product of two sharded arrays, summed over the dimensions that the output does not have.

    Attributes:
        left: First operand.
        right: Second operand.
        output: The result. Where only its dimensions were given or follow, it is free.
    """

    left: ShardedArray
    right: ShardedArray
    output: ShardedArray

    def __str__(self) -> str:
        """As it was asked."""
        result = f"{self.output.name}[{','.join(self.output.dims)}]" if self.output.is_free else str(self.output)
        return f"{self.left} @ {self.right} -> {result}"

    @property
    def arrays(self) -> tuple[ShardedArray, ShardedArray, ShardedArray]:
        """Both operands and the output."""
        return self.left, self.right, self.output

    @property
    def dims(self) -> tuple[str, ...]:
        """Every dimension once, in the order of first mention."""
        return tuple(dict.fromkeys((*self.left.dims, *self.right.dims)))

    @property
    def contracted(self) -> tuple[str, ...]:
        """Dimensions summed over: in both operands and not in the output."""
        return tuple(dim for dim in self.left.dims if dim in self.right.dims and dim not in self.output.dims)

    @property
    def batch(self) -> tuple[str, ...]:
        """Dimensions of both operands that the output keeps."""
        return tuple(dim for dim in self.left.dims if dim in self.right.dims and dim in self.output.dims)

    @property
    def outer(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Dimensions of the left operand alone, and of the right alone."""
        left, right = self.left.dims, self.right.dims
        return tuple(d for d in left if d not in right), tuple(d for d in right if d not in left)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resharding:
    """An array that is to change its layout.

    Attributes:
        source: As it lies.
        target: As it shall lie; the same dimensions, in the same order.
    """

    source: ShardedArray
    target: ShardedArray

    def __str__(self) -> str:
        """As it was asked."""
        return f"{self.source} -> {self.target}"


Question: TypeAlias = ShardedArray | Resharding | Product
"""What can be asked of sharded arrays: how one lies, how it comes to lie otherwise, what a product needs."""


def ways(axes: Axes, mesh: Mapping[str, float]) -> float:
    """Devices along some axes together: ways in which they split; NaN where the mesh leaves one open."""
    return prod(mesh[axis] for axis in axes)


def joined(axes: Axes) -> str:
    """Axes as a subscript: `X`, `XY`, `{data,model}`.

    >>> joined(("X", "Y")), joined(("data",))
    ('XY', '{data}')
    """
    plain = "".join(axes)
    return plain if all(len(axis) == 1 for axis in axes) else f"{{{','.join(axes)}}}"


def _subscripted(dim: str, axes: Axes) -> str:
    return f"{dim}_{joined(axes)}" if axes else dim
