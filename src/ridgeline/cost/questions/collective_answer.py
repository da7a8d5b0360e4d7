"""The answer to how long a collective takes: every figure that the question allows, the rest NaN."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from ridgeline.cost.wiring import StageName

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.cost.explain import Derivation

CollectiveKind: TypeAlias = Literal["all_gather", "reduce_scatter", "all_reduce", "all_to_all"]

Regime: TypeAlias = Literal["bandwidth", "latency", "unknown"]

Bound: TypeAlias = StageName | Literal["latency", "nothing"]
"""What an answer waits for: a kind of wire, the least time of its hops, or nothing on a single device."""

KINDS: tuple[CollectiveKind, ...] = get_args(CollectiveKind)

TRANSPOSES: Mapping[CollectiveKind, CollectiveKind] = {
    "all_gather": "reduce_scatter",
    "reduce_scatter": "all_gather",
    "all_reduce": "all_reduce",
    "all_to_all": "all_to_all",
}
"""What each becomes in the backward pass: the transpose of its linear map. Source: Scaling Book, ch. 3. The sum of an
all-reduce that is known to be the same everywhere needs no communication backward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCost:
    """What a collective costs on one kind of wire.

    Attributes:
        name: Which.
        size: What it joins: devices, or sets of devices that faster wire joins already.
        links: That a device receives over at once.
        bytes_per_s: Of one link, one way.
        bandwidth_s: By the exact formula.
        approximate_s: By the book's.
        latency_s: Floor.
    """

    name: StageName
    size: float
    links: float
    bytes_per_s: float
    bandwidth_s: float
    approximate_s: float
    latency_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RingSteps:
    """A gather around a ring, hop by hop.

    Attributes:
        hops: One after the other.
        hop_bytes: That a device sends in each, over all the links it uses.
        hop_transfer_s: Of one hop, latency left out.
        bandwidth_s: Of the whole gather.
    """

    hops: float
    hop_bytes: float
    hop_transfer_s: float
    bandwidth_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeCounts:
    """An all-to-all around a ring, chunk by chunk, beside an all-gather of the same array.

    Attributes:
        chunks: That each device sends on, both ways together.
        chunk_bytes: Of one.
        device_bytes: That each device sends on.
        gather_ratio: Those over the bytes of the array, which an all-gather moves.
        one_way_link_bytes: Over a link, the ring used in one direction.
        one_way_gather_link_bytes: The same, of the all-gather.
        one_way_ratio: The former over the latter.
        gather_gain_ratio: All-gather in one direction over both.
        exchange_gain_ratio: All-to-all in one direction over both.
        two_way_ratio: All-gather over all-to-all, both ways, around a long ring.
    """

    chunks: float
    chunk_bytes: float
    device_bytes: float
    gather_ratio: float
    one_way_link_bytes: float
    one_way_gather_link_bytes: float
    one_way_ratio: float
    gather_gain_ratio: float
    exchange_gain_ratio: float
    two_way_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveAnswer:
    """How long a collective takes, and why.

    Attributes:
        kind: Which.
        axes: What it spans, in words.
        hardware: The slice; "" where the question states its own rates.
        num_devices: N.
        array_bytes: The whole array.
        group_bytes: V: what is left of it where other axes keep it split.
        shard_bytes: V/N.
        bandwidth_s: By the exact formula, links always busy.
        latency_s: Floor: least time of all hops; NaN where no hop time is known.
        time_s: The larger of the two.
        approximate_bandwidth_s: By the book's formula, (N − 1)/N of rings taken as 1.
        approximate_s: The larger of that and the floor.
        regime: Which of bandwidth and latency sets the approximate time.
        is_latency_bound: Whether latency does.
        bound: The kind of wire that sets it, or `latency`; `nothing` on a single device.
        hop_threshold_bytes: Per hop, below which a hop takes its least time.
        threshold_bytes: V at which the latency regime ends.
        latency_bound_shards: Devices from which the array would be in it, hop for hop.
        hops: Of the longest way.
        one_way: A gather hop by hop in one direction; None unless the group is one torus axis.
        two_way: The same in both.
        exchange: Of an all-to-all over one torus axis.
        if_ring_s: Approximate time if every torus axis closed.
        if_line_s: The same if none did.
        transpose: What it becomes in the backward pass.
        each_kind_s: Approximate time of each kind of collective on the same array.
        each_kind_ratio: Those over the all-gather's.
        stages: Cost on each kind of wire.
        derivations: Where the numbers come from.
    """

    kind: CollectiveKind
    axes: tuple[str, ...]
    hardware: str
    num_devices: float
    array_bytes: float
    group_bytes: float
    shard_bytes: float
    bandwidth_s: float
    latency_s: float
    time_s: float
    approximate_bandwidth_s: float
    approximate_s: float
    regime: Regime
    is_latency_bound: bool
    bound: Bound
    hop_threshold_bytes: float
    threshold_bytes: float
    latency_bound_shards: float
    hops: float
    one_way: RingSteps | None
    two_way: RingSteps | None
    exchange: ExchangeCounts | None
    if_ring_s: float
    if_line_s: float
    transpose: CollectiveKind
    each_kind_s: Mapping[CollectiveKind, float]
    each_kind_ratio: Mapping[CollectiveKind, float]
    stages: tuple[StageCost, ...]
    derivations: tuple[Derivation, ...]
