"""How tiles pad an array: in memory, in vector registers, and as the weights of a matrix unit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import nan, prod
from typing import TYPE_CHECKING, Literal, TypeAlias

from ridgeline.cost.explain import derive
from ridgeline.cost.questions.chip_inside import memory_tile_rows, padded_size, register_tile_rows, wasted_fraction
from ridgeline.cost.roofline import matmul_flops

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ridgeline.cost.explain import Derivation

Place: TypeAlias = Literal["memory", "registers", "matrix unit"]
"""Where an array is cut into tiles."""

SUBLANES, LANES = 8, 128
"""Of every TPU to date. Source: Scaling Book, ch. 2, appendix C."""

_SUBLANE_BYTES = 4
"""Of one lane: a sublane holds one 32-bit element a lane, or several narrower ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiling:
    """An array in tiles of one kind.

    Attributes:
        place: Where.
        chips: Those that have such tiles; empty for the ones asked for by size.
        tile: Rows and columns.
        shape: Of the array, padded.
        num_elements: Padding included.
        padded_bytes: The same, in bytes.
        wasted_bytes: Of them, for nothing.
        wasted_fraction: The part for nothing: of memory, of registers, or of the FLOPs of a product with the array.
        expansion_ratio: Padded over true size.
        flops_per_row: Of a product of one row with the array, padding included; NaN outside the matrix unit.
        derivations: Where the numbers come from.
    """

    place: Place
    chips: tuple[str, ...]
    tile: tuple[int, int]
    shape: tuple[int, ...]
    num_elements: int
    padded_bytes: float
    wasted_bytes: float
    wasted_fraction: float
    expansion_ratio: float
    flops_per_row: float
    derivations: tuple[Derivation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Padding:
    """An array, and what tiles make of it.

    Attributes:
        shape: As it is; its last two dimensions are tiled.
        element_bytes: Of one element.
        array_bytes: Without padding.
        tilings: One for each place and each size of matrix unit.
    """

    shape: tuple[int, ...]
    element_bytes: float
    array_bytes: float
    tilings: tuple[Tiling, ...]

    @property
    def derivations(self) -> tuple[Derivation, ...]:
        """Where the numbers come from."""
        return tuple(step for tiling in self.tilings for step in tiling.derivations)

    def of(self, place: Place) -> Tiling:
        """The first tiling of a place."""
        return next(tiling for tiling in self.tilings if tiling.place == place)


def padding(
    shape: Sequence[int], *, element_bytes: float, units: Sequence[tuple[tuple[str, ...], tuple[int, int]]]
) -> Padding:
    """What tiles make of an array.

    >>> tilings = padding((100, 300), element_bytes=2.0, units=[((), (128, 128))]).tilings
    >>> {tiling.place: tiling.shape for tiling in tilings}
    {'memory': (104, 384), 'registers': (112, 384), 'matrix unit': (128, 384)}

    Args:
        shape: Of the array; one of a single dimension is laid out in lines of a register's lanes.
        element_bytes: Of one element.
        units: Rows and columns of matrix units, with the chips that have them.
    """
    array = _Array(shape=tuple(shape), element_bytes=element_bytes)
    return Padding(
        shape=array.shape,
        element_bytes=element_bytes,
        array_bytes=prod(shape) * element_bytes,
        tilings=(_in_memory(array), _in_registers(array), *(_in_unit(array, tile, chips) for chips, tile in units)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Array:
    shape: tuple[int, ...]
    element_bytes: float

    @property
    def packing_factor(self) -> float:
        """Elements that share a sublane of a lane."""
        return max(1.0, _SUBLANE_BYTES / self.element_bytes)

    @property
    def in_lines(self) -> tuple[int, ...]:
        """The shape, a single dimension as lines of all lanes."""
        if len(self.shape) > 1:
            return self.shape
        return (int(padded_size(size=prod(self.shape), tile_size=LANES)) // LANES, LANES)


def _in_memory(array: _Array) -> Tiling:
    rows = derive(memory_tile_rows, size=array.in_lines[-2], num_sublanes=SUBLANES, packing_factor=array.packing_factor)
    return _tiled("memory", array, array.in_lines, (int(rows.value), LANES), because=(rows,))


def _in_registers(array: _Array) -> Tiling:
    rows = derive(register_tile_rows, num_sublanes=SUBLANES, packing_factor=array.packing_factor)
    return _tiled("registers", array, array.in_lines, (int(rows.value), LANES), because=(rows,))


def _in_unit(array: _Array, tile: tuple[int, int], chips: tuple[str, ...]) -> Tiling:
    """As the weights of a product; a single dimension is a row."""
    matrix = array.shape if len(array.shape) > 1 else (1, *array.shape)
    tiled = _tiled("matrix unit", array, matrix, tile)
    return replace(tiled, chips=chips, flops_per_row=matmul_flops(B=1, D=tiled.num_elements, F=1))


def _tiled(
    place: Place,
    array: _Array,
    shape: tuple[int, ...],
    tile: tuple[int, int],
    *,
    because: tuple[Derivation, ...] = (),
) -> Tiling:
    covered = tuple(derive(padded_size, size=size, tile_size=step) for size, step in zip(shape[-2:], tile, strict=True))
    padded = (*shape[:-2], *(int(step.value) for step in covered))
    size, whole_size = prod(array.shape), prod(padded)
    wasted = derive(wasted_fraction, size=size, whole_size=whole_size)
    return Tiling(
        place=place,
        chips=(),
        tile=tile,
        shape=padded if len(shape) == len(array.shape) or place == "matrix unit" else (whole_size,),
        num_elements=whole_size,
        padded_bytes=whole_size * array.element_bytes,
        wasted_bytes=(whole_size - size) * array.element_bytes,
        wasted_fraction=wasted.value,
        expansion_ratio=whole_size / size,
        flops_per_row=nan,
        derivations=(*because, *covered, wasted),
    )
