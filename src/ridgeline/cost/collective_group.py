"""Which devices a collective runs over: axes of a slice of the catalogue, or axes whose rates the question states.

x,y        whole axes of a slice             x=4,core    a factor of one: four neighbours, and a chip's pair
8          without a slice, an axis of 8     X=4,Y=8     the same, with names
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from math import isnan, nan, prod
from typing import TYPE_CHECKING, Literal, TypeAlias, TypedDict

from ridgeline.cost.placement import NETWORKS, TORUS_AXES, Piece, stages_of
from ridgeline.cost.wiring import Lane, LaneWiring, Stage, torus_stage
from ridgeline.errors import InputError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ridgeline.hardware.slice import PhysicalAxis, Slice

Axes: TypeAlias = "str | int | Sequence[str | int]"
"""`"x,y"`, `"x=4"`, `["x", "y"]`, 8, or `[4, 4]`."""

Where: TypeAlias = Literal["axis", "sharded"]

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
    wiring: LaneWiring


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One axis as it was written.

    Attributes:
        name: Of the axis; "" where only its size was given.
        size: Devices along it; 0 for the whole axis.
    """

    name: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The devices of a collective.

    Attributes:
        axes: What the group spans, in words: `x 8 (line)`.
        stages: The kinds of wire between them; none for a single device.
        hop_s: Least time of a hop on the torus; NaN where it is not known.
    """

    axes: tuple[str, ...]
    stages: tuple[Stage, ...]
    hop_s: float

    @property
    def size(self) -> float:
        """Devices; NaN where the question leaves it open."""
        return prod(stage.size for stage in self.stages)

    @property
    def torus(self) -> Stage | None:
        """The torus, if the group spans any of it."""
        return next((stage for stage in self.stages if stage.name == "ici"), None)

    @property
    def link_bytes_per_s(self) -> float:
        """One link of the torus, one way; NaN without one."""
        return nan if self.torus is None else self.torus.bytes_per_s


def read_axes(axes: Axes, *, where: Where = "axis") -> tuple[Axis, ...]:
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


def group_on(hardware: Slice, axes: Sequence[Axis], wires: Wires) -> Group:
    """The devices along axes of a slice; along all of them if none is named.

    Raises:
        InputError: The slice has no such axis, or a size does not divide one.
    """
    known = {axis.name: axis for axis in physical_axes(hardware)}
    written = axes or [Axis(name=name, size=0) for name in known]
    pieces = [
        Piece(axis=_stated(known[axis.name], wires), size=size_on(hardware, axis, where="axis")) for axis in written
    ]
    stages = stages_of(pieces, sharers=hardware.chip.devices_per_chip, wiring=wires.get("wiring"))
    torus = hardware.chip.torus
    hop_s = nan if torus is None else wires.get("hop_s", torus.hop_latency_s)
    return Group(axes=tuple(_in_words(piece, wires) for piece in pieces), stages=stages, hop_s=hop_s)


def group_of_lanes(axes: Sequence[Axis], wires: Wires, *, num_axes: int = 1) -> Group:
    """The devices along torus axes of which the question states what it knows.

    Args:
        axes: With sizes; none for axes of unknown size.
        wires: Rates and latency.
        num_axes: How many axes of unknown size.

    Raises:
        InputError: An axis has a name but no size.
    """
    wiring = wires.get("wiring", "ring")
    hop_s = wires.get("hop_s", nan)
    sizes = [float(stated_size(axis, where="axis")) for axis in axes] or [nan] * num_axes
    lanes = [Lane(size=size, wiring=wiring, hop_s=hop_s) for size in sizes]
    names = [axis.name or "axis" for axis in axes] or ["axis"] * num_axes
    return Group(
        axes=tuple(
            f"{name} {'of any size' if isnan(size) else int(size)} ({_WIRING[wiring]})"
            for name, size in zip(names, sizes, strict=True)
        ),
        stages=(torus_stage(lanes, bytes_per_s=_link_rate_bytes_per_s(wires, wiring)),),
        hop_s=hop_s,
    )


def physical_axes(hardware: Slice) -> tuple[PhysicalAxis, ...]:
    """Every axis of a slice that joins devices, the one across slices last."""
    return hardware.axes if hardware.dcn is None else (*hardware.axes, hardware.dcn)


def size_on(hardware: Slice, axis: Axis, *, where: Where) -> int:
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


_WIRING = {"ring": "ring", "line": "line", "one_way": "ring, one way", "switch": "switch"}


def _read(axes: Axes, where: Where) -> Iterator[Axis]:
    if isinstance(axes, str):
        column = 1
        for word in axes.split(",") if axes.strip() else ():
            yield _read_word(word, axes, column=column, where=where)
            column += len(word) + 1
        return
    for item in [axes] if isinstance(axes, int) else axes:
        yield _read_word(str(item), str(item), column=1, where=where)


def _read_word(word: str, text: str, *, column: int, where: Where) -> Axis:
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


def stated_size(axis: Axis, *, where: Where) -> int:
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


def _stated(axis: PhysicalAxis, wires: Wires) -> PhysicalAxis:
    """A physical axis with what the question states put over it."""
    if axis.name in NETWORKS:
        return replace(axis, bytes_per_s=wires.get("network_bytes_per_s", axis.bytes_per_s))
    if axis.name not in TORUS_AXES:
        return (
            replace(axis, bytes_per_s=wires.get("link_bytes_per_s", axis.bytes_per_s))
            if axis.name == "nvlink"
            else axis
        )
    wiring = wires.get("wiring", axis.wiring)
    rate_bytes_per_s = _link_rate_bytes_per_s(wires, "ring" if wiring == "ring" else "line")
    return replace(
        axis,
        bytes_per_s=axis.bytes_per_s if isnan(rate_bytes_per_s) else rate_bytes_per_s,
        latency_s=wires.get("hop_s", axis.latency_s),
    )


def _link_rate_bytes_per_s(wires: Wires, wiring: LaneWiring) -> float:
    """One link, one way: half of an axis's rate for a ring if that is stated, for other wiring if nothing else is."""
    half_axis_bytes_per_s = wires.get("axis_bytes_per_s", nan) / 2
    link_bytes_per_s = wires.get("link_bytes_per_s", half_axis_bytes_per_s)
    return link_bytes_per_s if wiring != "ring" or isnan(half_axis_bytes_per_s) else half_axis_bytes_per_s


def _in_words(piece: Piece, wires: Wires) -> str:
    size = str(piece.size) if piece.size == piece.axis.size else f"{piece.size} of {piece.axis.size}"
    if piece.axis.name in TORUS_AXES:
        return f"{piece.axis.name} {size} ({_WIRING[wires.get('wiring', piece.lane.wiring)]})"
    return f"{piece.axis.name} {size}"
