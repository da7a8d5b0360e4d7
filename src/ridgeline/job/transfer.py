"""The question about moving an array between devices: over which axes, from where to where, over which wires.

x,y        whole axes of a slice             x=4,core    a factor of one: four neighbours, and a chip's pair
4x4        sizes, where there is no slice    X=4,Y=8     the same, with names
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, TypedDict

from ridgeline.errors import InputError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ridgeline.hardware.slice import PhysicalAxis, Slice

TorusWiring: TypeAlias = Literal["ring", "line", "one_way"]
"""A ring used both ways, a line, or a ring used in one direction only."""

Axes: TypeAlias = "str | int | Sequence[str | int | Axis]"
"""`"x,y"`, `"x=4"`, `["x", "y"]`, 8, or `[4, 4]`."""

_SIZES = re.compile(r"[0-9]+(x[0-9]+)+")
_WORD = re.compile(r"\s*(?:(?P<name>[A-Za-z][A-Za-z0-9_]*)\s*(?:=\s*(?P<size>[0-9]{1,9}))?|(?P<bare>[0-9]{1,9}))\s*")


class Wires(TypedDict, total=False):
    """What a question states of the wires; it takes the place of the catalogue's figure.

    Keys:
        link_bytes_per_s: One link, one way; of GPUs, NVLink.
        axis_bytes_per_s: Both links of a ring axis together, W_ici.
        network_bytes_per_s: One chip's share of the network.
        hop_s: Least time of a hop; without it, and without a slice, latency is left out.
        wiring: `ring`, `line`, or `one_way`: a ring used in one direction.
    """

    link_bytes_per_s: float
    axis_bytes_per_s: float
    network_bytes_per_s: float
    hop_s: float
    wiring: TorusWiring


class CollectiveGiven(Wires, total=False):
    """What else a question of a collective may say.

    Keys:
        shape: Of the array, in place of its bytes.
        element_bytes: Of one element; 2, bf16, if only the shape is given.
        sharded: Other axes over which the array stays split, or the number of ways.
        num_axes: Of a group whose sizes are left open.
    """

    shape: Sequence[int]
    element_bytes: float
    sharded: Axes
    num_axes: int


class Route(TypedDict, total=False):
    """What a question states of array and way; it takes the place of what the slice says.

    Keys:
        shape: Of the array, in place of its bytes.
        element_bytes: Of one element; 2, bf16, if only the shape is given.
        topology: Chips along each axis, in place of a slice.
        wraps: Whether each axis closes, or all do; as on the slice if it is not said, and without one, none.
        hops: Between the two chips.
        ports: Over which they can exchange at once.
        link_bytes_per_s: One link, one way.
        axis_bytes_per_s: Both links of a ring axis together, W_ici.
        hop_s: Least time of a hop.
    """

    shape: Sequence[int]
    element_bytes: float
    topology: Sequence[int]
    wraps: bool | Sequence[bool]
    hops: int
    ports: int
    link_bytes_per_s: float
    axis_bytes_per_s: float
    hop_s: float


class Path(Route, total=False):
    """What a question states of a path; a stage whose rate is not known is left out.

    Keys:
        num_chips: Over whose hosts the array is spread.
        rows: Of the matrix that is multiplied with the array at the end.
        pcie_bytes_per_s: Host to chip, one way, of one chip.
        hbm_bytes_per_s: Of one chip.
        peak_flops_per_s: Of one chip, in the dtype it computes in.
    """

    num_chips: int
    rows: int
    pcie_bytes_per_s: float
    hbm_bytes_per_s: float
    peak_flops_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One axis as it was written.

    Attributes:
        name: Of the axis; "" where only its size was given.
        size: Devices along it; 0 for the whole axis.
    """

    name: str
    size: int


def read_axes(axes: Axes, *, where: str = "axis") -> tuple[Axis, ...]:
    """The axes as written, each used once.

    >>> [(axis.name, axis.size) for axis in read_axes("x=4, core")]
    [('x', 4), ('core', 0)]

    Raises:
        InputError: Not axes, an axis of no devices, or one that is written twice.
    """
    read = tuple(_read(axes, where))
    names = [axis.name for axis in read if axis.name]
    for name in names:
        if names.count(name) > 1:
            raise InputError(
                f"axis {name} is used twice",
                where=where,
                value=axes,
                expected="each axis once",
                fix=f"write {name} once",
            )
    return read


def physical_axes(hardware: Slice) -> tuple[PhysicalAxis, ...]:
    """Every axis of a slice that joins devices, the one across slices last."""
    return hardware.axes if hardware.dcn is None else (*hardware.axes, hardware.dcn)


def size_on(hardware: Slice, axis: Axis, *, where: str) -> int:
    """Devices along an axis of a slice, or along the factor of it that was written.

    Raises:
        InputError: The slice has no such axis, or the size does not divide it.
    """
    sizes = {known.name: known.size for known in physical_axes(hardware)}
    if axis.name not in sizes:
        raise InputError(
            "an axis of a slice has a name" if not axis.name else "unknown axis",
            where=where,
            value=axis.name or axis.size,
            expected=f"an axis of {hardware.name}: "
            + (", ".join(f"{n} ({s})" for n, s in sizes.items()) or "it has none"),
            fix=nearest(axis.name, sizes) or "name one of these, or leave the slice out and state sizes and rates",
        )
    if axis.size and sizes[axis.name] % axis.size:
        raise InputError(
            f"{axis.size} does not divide axis {axis.name}",
            where=where,
            value=f"{axis.name}={axis.size}",
            expected=f"a divisor of {sizes[axis.name]}",
            fix=f"write {axis.name} for the whole axis",
        )
    return axis.size or sizes[axis.name]


def stated_size(axis: Axis, *, where: str) -> int:
    """Devices along an axis without a slice.

    Raises:
        InputError: It was written without a size.
    """
    if axis.size:
        return axis.size
    raise InputError(
        f"axis {axis.name} has no size",
        where=where,
        value=axis.name,
        expected="a size, or a slice that has this axis",
        fix=f"write {axis.name}=4, or name a slice with --on",
    )


def _read(axes: Axes, where: str) -> Iterator[Axis]:
    if isinstance(axes, str):
        if _SIZES.fullmatch(axes.strip()):
            axes = axes.replace("x", ",")
        column = 1
        for word in axes.split(",") if axes.strip() else ():
            yield _read_word(word, axes, column=column, where=where)
            column += len(word) + 1
        return
    for item in [axes] if isinstance(axes, int) else axes:
        yield item if isinstance(item, Axis) else _read_word(str(item), str(item), column=1, where=where)


def _read_word(word: str, text: str, *, column: int, where: str) -> Axis:
    match = _WORD.fullmatch(word)
    if match is None or int(match["size"] or match["bare"] or 1) < 1:
        raise InputError(
            f"not an axis, at column {column + len(word) - len(word.lstrip())}",
            where=where,
            value=text,
            expected="axes joined by commas: x,y or x=4,core; without a slice, sizes: 4,4",
            fix="write, for example, x,y",
        )
    return Axis(name=match["name"] or "", size=int(match["size"] or match["bare"] or 0))
