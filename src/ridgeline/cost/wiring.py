"""What a group of devices communicates over: lanes of a torus, and the stages of a hierarchy.

    N  devices a lane or a stage joins      n  links a device receives over at once

A group that spans several kinds of wire (torus, the pair of devices on a chip, NVLink, the network) uses all of
them at once, as one pipeline; each kind is a `Stage`, and the slowest sets the pace.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Literal, TypeAlias

from ridgeline.cost.collectives import (
    Link,
    gather_load,
    line_exchange_load,
    line_latency_s,
    one_way_exchange_load,
    ring_exchange_load,
    ring_latency_s,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

LaneWiring: TypeAlias = Literal["ring", "line", "one_way"]
"""A ring used both ways, a line, or a ring used in one direction only."""

StageName: TypeAlias = Literal["ici", "core", "nvlink", "network"]
"""Kinds of wire, the fastest last but one: the torus, a chip's pair of devices, a switch, the network."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """An axis of a torus, or a factor of one, as one group of devices uses it.

    Attributes:
        size: Devices along it; NaN where the question leaves it open.
        wiring: Whether it closes, and which ways it is used.
        hop_s: Time of one hop.
        stride: Distance between neighbours, in devices of the axis; so many lanes share the links.
    """

    size: float
    wiring: LaneWiring
    hop_s: float
    stride: int = 1

    @property
    def links(self) -> float:
        """Links a device receives over at once; lanes that share a link count for a part each."""
        return (2 if self.wiring == "ring" else 1) / self.stride

    @property
    def exchange_load(self) -> float:
        """Bytes over the busiest link per byte that a device exchanges along the lane."""
        load = {"ring": ring_exchange_load, "line": line_exchange_load, "one_way": one_way_exchange_load}[self.wiring]
        return float(load(N=self.size)) * self.stride

    @property
    def latency_s(self) -> float:
        """Floor of one gather along the lane."""
        latency = ring_latency_s if self.wiring == "ring" else line_latency_s
        return float(latency(N=self.size, t_min_s=self.hop_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One kind of wire of a group.

    Attributes:
        name: Which.
        size: What it joins: devices, or sets of devices that faster wire joins already.
        links: That a device receives over at once.
        bytes_per_s: Of one link, one way.
        share: Bytes of a gathered array that its devices' gather concerns, over the whole array.
        exchange_load: Bytes over the busiest link per byte that a device exchanges.
        permute_load: Bytes over the busiest link per byte handed to a neighbour.
        latency_s: Floor of one gather.
        lanes: Of a torus; empty for the other kinds.
    """

    name: StageName
    size: float
    links: float
    bytes_per_s: float
    share: float
    exchange_load: float
    permute_load: float
    latency_s: float
    lanes: tuple[Lane, ...] = ()

    @property
    def num_rings(self) -> int:
        """Lanes of a torus that close."""
        return sum(lane.wiring != "line" for lane in self.lanes)

    @property
    def gather_load(self) -> float:
        """Bytes over the busiest link per byte of a gathered array."""
        return float(gather_load(N=self.size, n=self.links)) * self.share


def torus_stage(lanes: Sequence[Lane], *, bytes_per_s: float, sharers: int = 1, core: int = 1) -> Stage:
    """The torus: all lanes carry a gather at once; of an exchange each carries its share of every route.

    Args:
        lanes: At least one.
        bytes_per_s: Of one link, one way.
        sharers: Devices of a chip, which share its links.
        core: Those of them that gather the same array, and so bring it in together.
    """
    return Stage(
        name="ici",
        size=prod(lane.size for lane in lanes),
        links=sum(lane.links for lane in lanes),
        bytes_per_s=bytes_per_s,
        share=sharers / core,
        exchange_load=max(lane.exchange_load for lane in lanes) * sharers,
        permute_load=float(max(lane.stride for lane in lanes) * sharers),
        latency_s=sum(lane.latency_s for lane in lanes),
        lanes=tuple(lanes),
    )


def switch_stage(
    name: StageName, *, size: int, bytes_per_s: float, latency_s: float, share: float = 1.0, sharers: int = 1
) -> Stage:
    """Members that each reach every other at full rate: a switch, the network, the pair of devices on a chip.

    Args:
        name: Which.
        size: What it joins.
        bytes_per_s: Of one member, one way.
        latency_s: Of one step; a ring over N members, which is how libraries gather through switches, takes N - 1.
        share: Bytes of a gathered array that one member brings in, over the whole array.
        sharers: Devices that share a member's port.
    """
    return Stage(
        name=name,
        size=size,
        links=1.0,
        bytes_per_s=bytes_per_s,
        share=share * sharers,
        exchange_load=float(gather_load(N=size, n=1)) * sharers,
        permute_load=float(sharers),
        latency_s=float(line_latency_s(N=size, t_min_s=latency_s)),
    )


def link_over(stages: Sequence[Stage], *, link_bytes_per_s: float) -> Link:
    """The stages as a plan sees them: loads of the busiest fast link, and of the network.

    Args:
        stages: None for a single device.
        link_bytes_per_s: The rate that loads of fast links refer to.
    """
    fast = [(stage, link_bytes_per_s / stage.bytes_per_s) for stage in stages if stage.name != "network"]
    slow = next((stage for stage in stages if stage.name == "network"), None)
    return Link(
        size=prod(stage.size for stage in stages),
        gather_load=max((stage.gather_load * slower for stage, slower in fast), default=0.0),
        exchange_load=max((stage.exchange_load * slower for stage, slower in fast), default=0.0),
        permute_load=max((stage.permute_load * slower for stage, slower in fast), default=0.0),
        network_gather_load=0.0 if slow is None else slow.gather_load,
        network_exchange_load=0.0 if slow is None else slow.exchange_load,
        network_permute_load=0.0 if slow is None else slow.permute_load,
        latency_s=sum(stage.latency_s for stage in stages),
        network_steps=0.0 if slow is None else slow.size - 1,
        num_rings=float(sum(stage.num_rings for stage in stages)),
    )
