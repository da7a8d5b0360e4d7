"""Which devices a collective runs over: axes of a slice of the catalogue, or axes whose rates the question states."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isnan, nan, prod
from typing import TYPE_CHECKING

from ridgeline.cost.placement import NETWORKS, TORUS_AXES, Piece, stages_of
from ridgeline.cost.wiring import Lane, LaneWiring, Stage, torus_stage
from ridgeline.job.transfer import Axis, physical_axes, size_on, stated_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ridgeline.hardware.slice import PhysicalAxis, Slice
    from ridgeline.job.transfer import Wires


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


def group_on(hardware: Slice, axes: Sequence[Axis], wires: Wires) -> Group:
    """The devices along axes of a slice; along all of them if none is named.

    Raises:
        InputError: The slice has no such axis, or a size does not divide one.
    """
    known = {axis.name: axis for axis in physical_axes(hardware)}
    written = axes or [Axis(name=name, size=0) for name in known]
    sizes = [size_on(hardware, axis, where="axis") for axis in written]
    pieces = [
        Piece(axis=_stated(known[axis.name], wires), size=size) for axis, size in zip(written, sizes, strict=True)
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


_WIRING = {"ring": "ring", "line": "line", "one_way": "ring, one way", "switch": "switch"}


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
