"""How the chips of a question are joined, where two of them lie, and the way between the two.

A topology is that of a slice of the catalogue or the question's own; where hops and ports are stated, none is needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import nan
from typing import TYPE_CHECKING, TypeAlias

from ridgeline.cost.questions.transfers import distance_hops, torus_ports, usable_ports
from ridgeline.errors import InputError
from ridgeline.hardware.topology import wraparound, written

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ridgeline.hardware.slice import Slice
    from ridgeline.job.transfer import Route


Position: TypeAlias = tuple[int, ...]
"""Of a chip, a number an axis; of a GPU, its number; () where the topology is left open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """From one chip to another; NaN for what is not known.

    Attributes:
        hops: The shortest way.
        ports: Links over which they can exchange at once.
        link_bytes_per_s: One link, one way.
        hop_s: Least time of a hop.
    """

    hops: float
    ports: float
    link_bytes_per_s: float
    hop_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """How the chips of a question are joined.

    Attributes:
        shape: Chips along each axis; empty where that is left open.
        wraps: Whether each axis closes.
        domain: GPUs that reach each other over NVLink; 0 for a torus.
        link_bytes_per_s: One link, one way; of GPUs, NVLink.
        hop_s: Least time of a hop.
        network_bytes_per_s: Between domains.
        network_hop_s: Least time of a step between them.
    """

    shape: tuple[int, ...]
    wraps: tuple[bool, ...]
    domain: int
    link_bytes_per_s: float
    hop_s: float
    network_bytes_per_s: float = nan
    network_hop_s: float = nan

    def at(self, position: Sequence[int], *, where: str) -> Position:
        """A position as written; the first chip if none was.

        Raises:
            InputError: No chip has it.
        """
        if not position:
            return (0,) * len(self.shape)
        example = ",".join(str(N - 1) for N in self.shape)
        if not self.shape:
            raise _no_position(position, where, "a slice, or a topology", "name a slice with --on")
        if len(position) != len(self.shape) or not all(0 <= x < N for x, N in zip(position, self.shape, strict=True)):
            expected = f"{len(self.shape)} numbers, each less than its axis of {written(self.shape)}"
            raise _no_position(position, where, expected, f"write, for example, {example}")
        return tuple(position)

    def farthest(self, start: Position) -> Position:
        """A chip that no other is farther away from."""
        return tuple(
            (x + N // 2) % N if closes else (N - 1 if x < N - 1 - x else 0)
            for N, closes, x in zip(self.shape, self.wraps, start, strict=True)
        )

    def ports(self, at: Position) -> float:
        """Links of a chip that lead somewhere; NaN where the topology is left open."""
        if self.domain:
            return 1
        return torus_ports(shape=self.shape, wraps=self.wraps, at=at) if self.shape else nan

    def way(self, start: Position, end: Position) -> Way:
        """From one chip to another: over the torus, inside an NVLink domain, or between two of them."""
        link = {"link_bytes_per_s": self.link_bytes_per_s, "hop_s": self.hop_s}
        if not self.shape:
            return Way(hops=nan, ports=nan, **link)
        if not self.domain:
            hops = sum(
                distance_hops(N=N, start=a, end=b, wraps=closes)
                for N, closes, a, b in zip(self.shape, self.wraps, start, end, strict=True)
            )
            ports = usable_ports(shape=self.shape, wraps=self.wraps, start=start, end=end)
            return Way(hops=hops, ports=ports, **link)
        if start[0] // self.domain == end[0] // self.domain:
            return Way(hops=1, ports=1, **link)
        return Way(hops=1, ports=1, link_bytes_per_s=self.network_bytes_per_s, hop_s=self.network_hop_s)


def fabric_of(hardware: Slice | None, given: Route) -> Fabric:
    """The topology of a slice, or the question's own, with what the question states put over it.

    Raises:
        InputError: The question does not say of each axis whether it closes.
    """
    if hardware is None:
        shape = tuple(given.get("topology", ()))
        wraps = _wraps(given, shape, (False,) * len(shape))
        return Fabric(
            shape=shape,
            wraps=wraps,
            domain=0,
            link_bytes_per_s=_link_rate_bytes_per_s(given, known_bytes_per_s=nan),
            hop_s=given.get("hop_s", nan),
        )
    chip, shape = hardware.chip, hardware.shape
    if chip.torus is not None:
        return Fabric(
            shape=shape,
            wraps=_wraps(given, shape, wraparound(chip.torus, shape)),
            domain=0,
            link_bytes_per_s=_link_rate_bytes_per_s(given, known_bytes_per_s=chip.torus.link_bytes_per_s),
            hop_s=given.get("hop_s", chip.torus.hop_latency_s),
        )
    nvlink = next((axis for axis in hardware.axes if axis.name == "nvlink"), None)
    return Fabric(
        shape=shape,
        wraps=(False,),
        domain=1 if nvlink is None else nvlink.size,
        link_bytes_per_s=_link_rate_bytes_per_s(given, known_bytes_per_s=nan if nvlink is None else nvlink.bytes_per_s),
        hop_s=given.get("hop_s", nan if nvlink is None else nvlink.latency_s),
        network_bytes_per_s=chip.network_bytes_per_s,
        network_hop_s=chip.network_latency_s,
    )


def _wraps(given: Route, shape: tuple[int, ...], known: tuple[bool, ...]) -> tuple[bool, ...]:
    said = given.get("wraps", known)
    wraps = (said,) * len(shape) if isinstance(said, bool) else tuple(said)
    if len(wraps) == len(shape):
        return wraps
    raise InputError(
        "not one answer for each axis",
        where="wraps",
        value=list(wraps),
        expected=f"{len(shape)} truth values",
        fix="say of each axis whether it closes, or one word for all",
    )


def _link_rate_bytes_per_s(given: Route, *, known_bytes_per_s: float) -> float:
    """One link, one way, as stated; half of an axis where that is stated; else the known one."""
    half_axis_bytes_per_s = given["axis_bytes_per_s"] / 2 if "axis_bytes_per_s" in given else known_bytes_per_s
    return given.get("link_bytes_per_s", half_axis_bytes_per_s)


def _no_position(position: Sequence[int], where: str, expected: str, fix: str) -> InputError:
    return InputError(
        "no chip has that position", where=where, value=",".join(map(str, position)), expected=expected, fix=fix
    )
