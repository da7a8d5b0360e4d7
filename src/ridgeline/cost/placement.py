"""Where logical mesh axes lie on physical wiring, and what that makes of each group of devices.

A logical axis must map onto physical axes: whole ones where sizes match, else a factor of one (its inner
part a line of neighbours, its outer part a ring of every k-th device whose k rings share the links). The
chattiest axis is placed first, on the fastest wiring left: the core-on-chip pair, then the most links.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from math import gcd, prod
from typing import TYPE_CHECKING

from ridgeline.cost.wiring import Lane, Stage, link_over, switch_stage, torus_stage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ridgeline.cost.collectives import Link
    from ridgeline.cost.wiring import LaneWiring
    from ridgeline.hardware.slice import PhysicalAxis, Slice

CHATTIEST_FIRST = ("tp", "tp_sequence", "ep", "cp", "fsdp", "fsdp_transpose", "dp", "pp")
"""Order of placement: tensor parallelism speaks several times a layer, pipelines once a microbatch."""

GROUPS: Mapping[str, tuple[str, ...]] = {
    "tensor": ("tp", "tp_sequence"),
    "context": ("cp",),
    "expert": ("ep",),
    "weights": ("fsdp", "fsdp_transpose", "cp", "ep", "dcn_fsdp"),
    "expert_weights": ("fsdp", "fsdp_transpose", "cp", "dcn_fsdp"),
    "data": ("dp", "dcn_dp"),
    "expert_data": ("dp", "dcn_dp"),
    "stage": ("pp", "dcn_pp"),
}
"""Logical axes over which one collective runs: dense weights are gathered over fsdp, fsdp_transpose, cp and ep
(MaxText shards `embed` over all four), expert weights over all but ep, gradients are summed over dp."""

DISTRIBUTED_GROUPS: Mapping[str, tuple[str, ...]] = {
    **GROUPS,
    "weights": ("fsdp", "fsdp_transpose", "dcn_fsdp"),
    "expert_weights": ("fsdp", "fsdp_transpose", "dcn_fsdp"),
    "data": ("dp", "cp", "ep", "dcn_dp"),
    "expert_data": ("dp", "cp", "dcn_dp"),
}
"""The same under a distributed optimizer: dense weights are whole over dp, cp and ep, expert weights over dp and cp."""


def groups_of(*, distributed: bool) -> Mapping[str, tuple[str, ...]]:
    """The groups under MaxText's sharding of weights, or under a distributed optimizer."""
    return DISTRIBUTED_GROUPS if distributed else GROUPS


NO_PINS: Mapping[str, str] = {}
"""Every logical axis lies where it is best."""

TORUS_AXES = ("x", "y", "z")
"""Physical axes of the torus, as `hardware/topology.py` names them."""

NETWORKS = ("network", "dcn")
"""Physical axes that are slower than the rest: between GPU boxes, and between TPU slices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A factor of a physical axis, given to one logical axis.

    Attributes:
        axis: The physical axis.
        size: Devices along the piece.
        stride: Distance between neighbours of the piece, in devices of the axis.
    """

    axis: PhysicalAxis
    size: int
    stride: int = 1

    @property
    def wraps(self) -> bool:
        """Whether the piece closes into a ring: the whole of a ring, or every k-th device of one."""
        return self.axis.wiring == "ring" and self.size * self.stride == self.axis.size and self.size > 1

    @property
    def lane(self) -> Lane:
        """The piece of a torus axis as a group of devices uses it."""
        wiring = "ring" if self.wraps else "line"
        return Lane(size=self.size, wiring=wiring, hop_s=self.axis.latency_s, stride=self.stride)

    @property
    def links(self) -> float:
        """Links a device of the piece receives over at once; rings that share a link count for a part each."""
        return self.lane.links


def place(
    degrees: Mapping[str, int],
    axes: Sequence[PhysicalAxis],
    *,
    order: Iterable[str] = CHATTIEST_FIRST,
    pins: Mapping[str, str] = NO_PINS,
) -> dict[str, tuple[Piece, ...]] | None:
    """Pieces under each logical axis of degree above 1; None when a degree does not divide what is left.

    Args:
        degrees: Ways of each logical axis.
        axes: The wiring.
        order: Who chooses first.
        pins: Physical axes by logical axis, e.g. `{"tp": "core"}`: they choose before all others, among those.
    """
    left = [Piece(axis=axis, size=axis.size) for axis in axes if axis.size > 1]
    placed: dict[str, tuple[Piece, ...]] = {}
    for logical in sorted(order, key=lambda axis: axis not in pins):
        degree = degrees.get(logical, 1)
        if degree == 1:
            continue
        names = pins[logical].split() if logical in pins else [piece.axis.name for piece in left]
        open_to = [piece for piece in left if piece.axis.name in names]
        fast = [piece for piece in open_to if piece.axis.name not in NETWORKS]
        slices = [piece for piece in open_to if piece.axis.name == "dcn"]
        taken = (
            _whole_pieces(degree, fast)
            or _whole_pieces(degree, slices)  # else another axis would straddle them
            or _factors(degree, fast)
            or _factors(degree, open_to)
        )
        if taken is None:
            return None
        placed[logical] = taken
        left = _remainder(left, taken)
    return placed


def describe(pieces: Iterable[Piece]) -> str:
    """The pieces as text: `x4 y4 core2`, a factor of an axis as `x4/16`."""
    return " ".join(
        f"{piece.axis.name}{piece.size}" + ("" if piece.size == piece.axis.size else f"/{piece.axis.size}")
        for piece in pieces
    )


def links_of(
    placed: Mapping[str, tuple[Piece, ...]],
    degrees: Mapping[str, int],
    hardware: Slice,
    *,
    groups: Mapping[str, tuple[str, ...]] = GROUPS,
) -> dict[str, Link]:
    """The `Link` of every group of `GROUPS`, or of `DISTRIBUTED_GROUPS`, under a placement."""
    rate_bytes_per_s = link_rate_bytes_per_s(hardware)
    return {
        group: _link(
            (
                *(piece for logical in members for piece in placed.get(logical, ())),
                *_across(members, degrees, hardware),
            ),
            sharers=hardware.chip.devices_per_chip,
            link_bytes_per_s=rate_bytes_per_s,
        )
        for group, members in groups.items()
    }


@lru_cache(maxsize=4096)
def _link(pieces: tuple[Piece, ...], *, sharers: int, link_bytes_per_s: float) -> Link:
    """The wiring over some pieces; the meshes of a search share a few hundred of them."""
    return link_over(stages_of(pieces, sharers=sharers), link_bytes_per_s=link_bytes_per_s)


def stages_of(pieces: Iterable[Piece], *, sharers: int, wiring: LaneWiring | None = None) -> tuple[Stage, ...]:
    """The kinds of wire of a group: torus, core pair and NVLink are fast, GPU network and DCN slow.

    Args:
        pieces: Of physical axes, the one across slices included; factors of one axis are joined.
        sharers: Devices of a chip, which share its links and its part of the network.
        wiring: Of the torus, instead of what the pieces say.
    """
    merged = _merged(piece for piece in pieces if piece.size > 1)
    return tuple(_stages(merged, sharers=sharers, wiring=wiring))


def link_rate_bytes_per_s(hardware: Slice) -> float:
    """The rate loads of fast links refer to: one ICI link one way, or one GPU's NVLink; infinite for one device."""
    chip = hardware.chip
    if chip.torus is not None:
        return chip.torus.link_bytes_per_s
    return float("inf") if chip.switch is None else chip.switch.bytes_per_s


def _whole_pieces(degree: int, left: Sequence[Piece]) -> tuple[Piece, ...] | None:
    """The fastest subset of the pieces left whose sizes multiply to the degree exactly."""
    fitting = [
        subset
        for count in range(1, len(left) + 1)
        for subset in combinations(left, count)
        if prod(piece.size for piece in subset) == degree
    ]
    return max(fitting, key=_speed, default=None)


def _speed(pieces: Sequence[Piece]) -> tuple[bool, float]:
    """Core-on-chip or switched wiring first, then the most link bandwidth."""
    fast = any(piece.axis.name in {"core", "nvlink"} for piece in pieces)
    return fast, sum(piece.links * piece.axis.bytes_per_s for piece in pieces)


def _factors(degree: int, left: Sequence[Piece]) -> tuple[Piece, ...] | None:
    """Factors peeled off the pieces left, fastest wiring and largest factor first."""
    taken: list[Piece] = []
    for piece in sorted(left, key=lambda p: (p.axis.name not in {"core", "nvlink"}, -gcd(degree, p.size))):
        factor = gcd(degree, piece.size)
        if factor > 1:
            taken.append(Piece(axis=piece.axis, size=factor, stride=piece.stride))
            degree //= factor
    return tuple(taken) if degree == 1 else None


def _remainder(left: Sequence[Piece], taken: Sequence[Piece]) -> list[Piece]:
    """What is left of each piece: the outer factor, whose neighbours lie a taken piece apart."""
    size_of = {piece.axis.name: piece.size for piece in taken}
    shrunk = [
        Piece(
            axis=piece.axis,
            size=piece.size // size_of.get(piece.axis.name, 1),
            stride=piece.stride * size_of.get(piece.axis.name, 1),
        )
        for piece in left
    ]
    return [piece for piece in shrunk if piece.size > 1]


def _merged(pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    """Pieces of the same physical axis joined: the group runs over both factors at once."""
    merged: dict[str, Piece] = {}
    for piece in pieces:
        before = merged.get(piece.axis.name)
        merged[piece.axis.name] = (
            piece
            if before is None
            else Piece(axis=piece.axis, size=before.size * piece.size, stride=min(before.stride, piece.stride))
        )
    return tuple(merged.values())


def _across(members: Iterable[str], degrees: Mapping[str, int], hardware: Slice) -> Iterator[Piece]:
    """The factor of the axis across slices that a group of logical axes takes."""
    if hardware.dcn is not None:
        slices = prod(degrees.get(logical, 1) for logical in members if logical.startswith("dcn_"))
        yield Piece(axis=hardware.dcn, size=slices)


def _stages(pieces: Sequence[Piece], *, sharers: int, wiring: LaneWiring | None) -> Iterator[Stage]:
    torus = [piece for piece in pieces if piece.axis.name in TORUS_AXES]
    core = prod(piece.size for piece in pieces if piece.axis.name == "core")
    if torus:
        rate_bytes_per_s = torus[0].axis.bytes_per_s
        lanes = [piece.lane if wiring is None else replace(piece.lane, wiring=wiring) for piece in torus]
        yield torus_stage(lanes, bytes_per_s=rate_bytes_per_s, sharers=sharers, core=core)
    fast = prod(piece.size for piece in pieces if piece.axis.name not in NETWORKS)
    for piece in pieces:
        axis = piece.axis
        match axis.name:
            case "core" | "nvlink":
                yield switch_stage(axis.name, size=piece.size, bytes_per_s=axis.bytes_per_s, latency_s=axis.latency_s)
            case "network" | "dcn":
                yield switch_stage(
                    "network",
                    size=piece.size,
                    bytes_per_s=axis.bytes_per_s,
                    latency_s=axis.latency_s,
                    share=1 / fast,
                    sharers=sharers,
                )
            case _:
                pass
