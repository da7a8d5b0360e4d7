"""How long does a collective take, on this wiring: by the exact formula, by the book's, and at the least.

    V  bytes of the array that one group gathers, scatters, sums or exchanges; other axes may keep it split
    N  devices of the group      n  links a device receives over at once      W  bytes/s of a link, one way

A question names axes of a slice, or states sizes and rates itself; what it leaves open stays NaN in the answer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isnan, nan, prod
from typing import TYPE_CHECKING

from ridgeline.cost.collectives import (
    all_gather_limit_s,
    all_gather_s,
    all_to_all_limit_s,
    array_bytes,
    line_latency_s,
    permute_s,
    ring_latency_s,
)
from ridgeline.cost.explain import Derivation, derive
from ridgeline.cost.questions.collective_answer import (
    KINDS,
    TRANSPOSES,
    Bound,
    CollectiveAnswer,
    CollectiveKind,
    ExchangeCounts,
    RingSteps,
    StageCost,
)
from ridgeline.cost.questions.collective_demand import Demand
from ridgeline.cost.questions.collective_group import group_of_lanes, group_on
from ridgeline.cost.questions.ring import (
    exchange_chunk_bytes,
    exchange_chunks,
    one_way_exchange_chunks,
    one_way_hop_bytes,
    one_way_hops,
    two_way_exchange_chunks,
    two_way_hop_bytes,
    two_way_hops,
)
from ridgeline.errors import InputError, nearest
from ridgeline.job.job import BYTES_OF
from ridgeline.job.transfer import read_axes, size_on, stated_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Unpack

    from ridgeline.cost.questions.collective_group import Group
    from ridgeline.cost.wiring import Stage
    from ridgeline.cost.work import Number
    from ridgeline.hardware.slice import Slice
    from ridgeline.job.transfer import Axes, CollectiveGiven


def collective(
    kind: CollectiveKind,
    *,
    size_bytes: float = nan,
    axes: Axes = (),
    hardware: Slice | None = None,
    **given: Unpack[CollectiveGiven],
) -> CollectiveAnswer:
    """The time of a collective of one array, by every formula, with its latency regime.

    >>> answer = collective("all_gather", size_bytes=34e6, axes=4, axis_bytes_per_s=9e10)
    >>> [round(time_s * 1e6, 1) for time_s in (answer.time_s, answer.approximate_s)]
    [283.3, 377.8]

    Args:
        kind: Which.
        size_bytes: Of the whole array: gathered, before it is scattered, as it is summed, or held by all devices
            together before they exchange it.
        axes: Over which, by name on a slice, by size without one; all axes of the slice if none are named.
        hardware: The slice; None where the question states sizes and rates.
        given: What the question states instead of the catalogue, and what else is to be said of the array.

    Raises:
        InputError: The question is malformed.
    """
    _check(kind, size_bytes, given)
    group = _group(axes, hardware, given)
    whole_bytes = size_bytes if "shape" not in given else _array(given).value
    demand = Demand(kind=kind, group=group, V_bytes=whole_bytes / _sharded_ways(axes, hardware, given))
    return CollectiveAnswer(
        kind=kind,
        axes=group.axes,
        hardware="" if hardware is None else hardware.name,
        num_devices=group.size,
        array_bytes=whole_bytes,
        group_bytes=demand.V_bytes,
        shard_bytes=demand.V_bytes / group.size,
        bandwidth_s=demand.exact_s,
        latency_s=demand.latency_s,
        time_s=_at_least(demand.latency_s, demand.exact_s),
        approximate_bandwidth_s=demand.approximate_s,
        approximate_s=_at_least(demand.latency_s, demand.approximate_s),
        regime=demand.regime,
        is_latency_bound=demand.regime == "latency",
        bound=_bound(demand),
        hop_threshold_bytes=demand.hop_threshold().value,
        threshold_bytes=demand.threshold().value,
        latency_bound_shards=demand.latency_bound_shards().value,
        hops=sum(_hops(stage) for stage in group.stages),
        one_way=_steps(demand, _ONE_WAY),
        two_way=_steps(demand, _TWO_WAY),
        exchange=_exchange_counts(demand),
        if_ring_s=replace(demand, group=_group(axes, hardware, {**given, "wiring": "ring"})).approximate_s,
        if_line_s=replace(demand, group=_group(axes, hardware, {**given, "wiring": "line"})).approximate_s,
        transpose=TRANSPOSES[kind],
        each_kind_s={each: replace(demand, kind=each).approximate_s for each in KINDS},
        each_kind_ratio={each: demand.gather_ratio(each) for each in KINDS},
        stages=tuple(_stage_costs(demand)),
        derivations=tuple(each for each in _derivations(demand, given) if not isnan(each.value)),
    )


def _group(axes: Axes, hardware: Slice | None, given: CollectiveGiven) -> Group:
    if hardware is not None:
        return group_on(hardware, read_axes(axes), given)
    return group_of_lanes(read_axes(axes), given, num_axes=given.get("num_axes", 1))


def _sharded_ways(axes: Axes, hardware: Slice | None, given: CollectiveGiven) -> int:
    """Ways in which axes outside the group keep the array split."""
    others = read_axes(given.get("sharded", ()), where="sharded")
    used = {axis.name for axis in read_axes(axes) if axis.name}
    for axis in others:
        if axis.name in used:
            raise InputError(
                f"axis {axis.name} is used twice",
                where="sharded",
                value=axis.name,
                expected="axes over which the collective does not run",
                fix=f"leave {axis.name} out of one of the two",
            )
    if hardware is None:
        return prod(stated_size(axis, where="sharded") for axis in others)
    return prod(size_on(hardware, axis, where="sharded") if axis.name else axis.size for axis in others)


def _array(given: CollectiveGiven) -> Derivation:
    """The array's size, where its shape is given."""
    elements = float(prod(given.get("shape", ())))
    return derive(array_bytes, elements=elements, b=given.get("element_bytes", BYTES_OF["bf16"]))


def _at_least(floor_s: float, bandwidth_s: float) -> float:
    """The larger; a floor that is not known is left out."""
    return bandwidth_s if isnan(floor_s) or isnan(bandwidth_s) else max(floor_s, bandwidth_s)


def _bound(demand: Demand) -> Bound:
    if demand.regime == "latency":
        return "latency"
    return "nothing" if demand.slowest is None else demand.slowest.name


@dataclass(frozen=True, slots=True, kw_only=True)
class _Direction:
    """A gather around a ring in one direction, or in both.

    Attributes:
        words: Which.
        links: That a device receives over.
        hops: The formula of hops.
        hop_bytes: The formula of bytes per hop.
    """

    words: str
    links: int
    hops: Callable[..., Number]
    hop_bytes: Callable[..., Number]

    def derivations(self, demand: Demand) -> tuple[Derivation, Derivation]:
        """Hops, and bytes per hop."""
        hops = derive(self.hops, N=demand.group.size)
        hop_bytes = derive(self.hop_bytes, V_bytes=demand.V_bytes, N=demand.group.size)
        return (
            replace(hops, quantity=f"hops, {self.words}"),
            replace(hop_bytes, quantity=f"sent per hop, {self.words}"),
        )


_ONE_WAY = _Direction(words="one way", links=1, hops=one_way_hops, hop_bytes=one_way_hop_bytes)
_TWO_WAY = _Direction(words="both ways", links=2, hops=two_way_hops, hop_bytes=two_way_hop_bytes)


def _hops(stage: Stage) -> float:
    """Of the longest way through a kind of wire: along every lane, or one step through a switch."""
    if not stage.lanes:
        return 1.0
    return sum(float((two_way_hops if lane.wiring == "ring" else one_way_hops)(N=lane.size)) for lane in stage.lanes)


def _single_lane(group: Group) -> bool:
    """Whether the group is one axis of the torus, around which hops can be counted."""
    return group.torus is not None and len(group.stages) == len(group.torus.lanes) == 1


def _steps(demand: Demand, direction: _Direction) -> RingSteps | None:
    if not _single_lane(demand.group):
        return None
    hops, hop_bytes = (each.value for each in direction.derivations(demand))
    n, W_bytes_per_s = direction.links, demand.group.link_bytes_per_s
    return RingSteps(
        hops=hops,
        hop_bytes=hop_bytes,
        hop_transfer_s=float(permute_s(V_bytes=hop_bytes / n, W_bytes_per_s=W_bytes_per_s)),
        bandwidth_s=float(all_gather_s(V_bytes=demand.V_bytes, N=demand.group.size, n=n, W_bytes_per_s=W_bytes_per_s)),
    )


def _exchange_counts(demand: Demand) -> ExchangeCounts | None:
    if demand.kind != "all_to_all" or not _single_lane(demand.group):
        return None
    N, V_bytes = demand.group.size, demand.V_bytes
    chunk_bytes, chunks = float(exchange_chunk_bytes(V_bytes=V_bytes, N=N)), float(exchange_chunks(N=N))
    one_way_link_bytes = float(one_way_exchange_chunks(N=N)) * chunk_bytes
    one_way_gather_link_bytes = float(one_way_hops(N=N) * one_way_hop_bytes(V_bytes=V_bytes, N=N))
    gathered_s = {n: float(all_gather_limit_s(V_bytes=1.0, n=n, W_bytes_per_s=1.0)) for n in (1, 2)}
    return ExchangeCounts(
        chunks=chunks,
        chunk_bytes=chunk_bytes,
        device_bytes=chunks * chunk_bytes,
        gather_ratio=chunks * chunk_bytes / V_bytes,
        one_way_link_bytes=one_way_link_bytes,
        one_way_gather_link_bytes=one_way_gather_link_bytes,
        one_way_ratio=one_way_link_bytes / one_way_gather_link_bytes,
        gather_gain_ratio=gathered_s[1] / gathered_s[2],
        exchange_gain_ratio=float(one_way_exchange_chunks(N=N) / two_way_exchange_chunks(N=N)),
        two_way_ratio=gathered_s[2] / float(all_to_all_limit_s(V_bytes=1.0, n=2, W_bytes_per_s=1.0)),
    )


def _stage_costs(demand: Demand) -> Iterator[StageCost]:
    for stage in demand.group.stages:
        yield StageCost(
            name=stage.name,
            size=stage.size,
            links=stage.links,
            bytes_per_s=stage.bytes_per_s,
            bandwidth_s=demand.exact(stage).value,
            approximate_s=demand.approximate(stage).value,
            latency_s=stage.latency_s,
        )


def _derivations(demand: Demand, given: CollectiveGiven) -> Iterator[Derivation]:
    """In the order in which a reader asks: how long, at least how long, up to which size that counts, hop by hop."""
    group = demand.group
    if "shape" in given:
        yield replace(_array(given), quantity="array")
    for stage in group.stages:
        yield from dict.fromkeys((demand.exact(stage), demand.approximate(stage)))
        for lane in dict.fromkeys(stage.lanes):
            floor = ring_latency_s if lane.wiring == "ring" else line_latency_s
            yield replace(derive(floor, N=lane.size, t_min_s=lane.hop_s), quantity="latency floor of an axis")
    yield demand.threshold()
    yield demand.hop_threshold()
    if not _single_lane(group):
        return
    yield from _ONE_WAY.derivations(demand)
    yield from _TWO_WAY.derivations(demand)
    if demand.kind == "all_to_all":
        yield replace(derive(exchange_chunks, N=group.size), quantity="chunks each device sends on")
        yield replace(derive(exchange_chunk_bytes, V_bytes=demand.V_bytes, N=group.size), quantity="one chunk")


def _check(kind: str, size_bytes: float, given: CollectiveGiven) -> None:
    if kind not in KINDS:
        raise InputError(
            "unknown collective",
            where="kind",
            value=kind,
            expected=f"one of {', '.join(KINDS)}",
            fix=nearest(kind, KINDS) or f"write {KINDS[0]}",
        )
    stated: dict[str, object] = {"size_bytes": size_bytes, **given}
    for key, value in stated.items():
        if isinstance(value, int | float) and (value < 0 or (value == 0 and key != "hop_s")):
            raise InputError(
                "not a positive number", where=key, value=value, expected="more than 0", fix=f"state {key}"
            )
