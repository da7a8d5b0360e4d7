"""What one kind of collective costs on each kind of wire of a group, by the exact formula and by the book's.

V  bytes of the array that one group gathers, scatters, sums or exchanges
N  devices of the group      n  links a device receives over at once      W  bytes/s of a link, one way
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isnan, nan
from typing import TYPE_CHECKING

from ridgeline.cost.collectives import (
    all_gather_limit_s,
    all_gather_s,
    all_reduce_limit_s,
    all_reduce_s,
    all_to_all_limit_s,
    all_to_all_s,
    hop_threshold_bytes,
    latency_bound_shards,
    latency_threshold_bytes,
    one_way_all_to_all_limit_s,
    reduce_scatter_s,
)
from ridgeline.cost.explain import Derivation, derive

if TYPE_CHECKING:
    from ridgeline.cost.questions.collective_answer import CollectiveKind, Regime
    from ridgeline.cost.questions.collective_group import Group
    from ridgeline.cost.wiring import Stage

_EXACT = {"all_gather": all_gather_s, "reduce_scatter": reduce_scatter_s, "all_reduce": all_reduce_s}
_LIMIT = {"all_gather": all_gather_limit_s, "reduce_scatter": all_gather_limit_s, "all_reduce": all_reduce_limit_s}


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """A collective of V bytes over a group.

    Attributes:
        kind: Which.
        group: Between whom.
        V_bytes: Of the whole array, all devices of the group together.
    """

    kind: CollectiveKind
    group: Group
    V_bytes: float

    @property
    def exact_s(self) -> float:
        """All kinds of wire work at once; the slowest sets the pace."""
        return max((self.exact(stage).value for stage in self.group.stages), default=0.0)

    @property
    def approximate_s(self) -> float:
        """The same by the book's formula."""
        return max((self.approximate(stage).value for stage in self.group.stages), default=0.0)

    @property
    def latency_s(self) -> float:
        """Floor: the hops of all kinds of wire, one after the other; an all-reduce goes around twice."""
        return sum(stage.latency_s for stage in self.group.stages) * (2 if self.kind == "all_reduce" else 1)

    @property
    def regime(self) -> Regime:
        """Which of floor and approximate time is the larger."""
        if isnan(self.latency_s) or isnan(self.approximate_s):
            return "unknown"
        return "latency" if self.latency_s > self.approximate_s else "bandwidth"

    @property
    def slowest(self) -> Stage | None:
        """The kind of wire that sets the pace; None on a single device."""
        return max(self.group.stages, key=lambda stage: self.approximate(stage).value, default=None)

    def exact(self, stage: Stage) -> Derivation:
        """Time on one kind of wire."""
        words = f"{self.kind.replace('_', '-')} over {stage.name}"
        if self.kind == "all_to_all":
            time = derive(
                all_to_all_s,
                V_bytes=self.V_bytes / self.group.size,
                load=stage.exchange_load,
                W_bytes_per_s=stage.bytes_per_s,
            )
        else:
            time = derive(
                _EXACT[self.kind],
                V_bytes=self.V_bytes * stage.share,
                N=stage.size,
                n=stage.links,
                W_bytes_per_s=stage.bytes_per_s,
            )
        return replace(time, quantity=words)

    def approximate(self, stage: Stage) -> Derivation:
        """The same by the book, which drops (N − 1)/N for rings and keeps it for lines; serves where N is not known."""
        wirings, is_open = {lane.wiring for lane in stage.lanes}, isnan(stage.size)
        if not is_open and ("ring" not in wirings or self.kind == "all_to_all"):
            return self.exact(stage)
        V_bytes, W_bytes_per_s = self.V_bytes * stage.share, stage.bytes_per_s
        if self.kind != "all_to_all":
            time = derive(_LIMIT[self.kind], V_bytes=V_bytes, n=stage.links, W_bytes_per_s=W_bytes_per_s)
        elif wirings == {"one_way"}:
            time = derive(one_way_all_to_all_limit_s, V_bytes=V_bytes, W_bytes_per_s=W_bytes_per_s)
        else:
            time = derive(all_to_all_limit_s, V_bytes=V_bytes, n=stage.links, W_bytes_per_s=W_bytes_per_s)
        return replace(time, quantity=f"{self.kind.replace('_', '-')} over {stage.name}, as the book approximates")

    def per_byte_s(self, kind: CollectiveKind) -> float:
        """Approximate time per byte of V, of any kind over this group."""
        return replace(self, kind=kind, V_bytes=1.0).approximate_s

    def gather_ratio(self, kind: CollectiveKind) -> float:
        """That over the time of an all-gather; where no rate is stated, at any rate. NaN on a single device."""
        stages = [replace(stage, bytes_per_s=1.0) if isnan(stage.bytes_per_s) else stage for stage in self.group.stages]
        rated = replace(self, group=replace(self.group, stages=tuple(stages)))
        return rated.per_byte_s(kind) / (rated.per_byte_s("all_gather") or nan)

    def threshold(self) -> Derivation:
        """V where floor and approximate time meet; the load is that of the slowest kind of wire."""
        rate_bytes_per_s = nan if self.slowest is None else self.slowest.bytes_per_s
        threshold = derive(
            latency_threshold_bytes,
            T_latency_s=self.latency_s,
            load=self.per_byte_s(self.kind) * rate_bytes_per_s,
            W_bytes_per_s=rate_bytes_per_s,
        )
        return replace(threshold, quantity="latency regime ends at")

    def hop_threshold(self) -> Derivation:
        """Bytes per hop of the torus below which a hop takes its least time."""
        group = self.group
        threshold = derive(hop_threshold_bytes, W_bytes_per_s=group.link_bytes_per_s, t_min_s=group.hop_s)
        return replace(threshold, quantity="a hop is latency-bound below")

    def latency_bound_shards(self) -> Derivation:
        """Devices from which each one's share is below that."""
        group = self.group
        return derive(
            latency_bound_shards, V_bytes=self.V_bytes, W_bytes_per_s=group.link_bytes_per_s, t_min_s=group.hop_s
        )
