"""What a strategy for a sharded product costs: FLOPs, collectives, time, memory.

    T_math  arithmetic of a device's blocks      T_comms  its collectives, one after another

Whatever overlaps, a strategy takes at least max(T_math, T_comms, T_hbm); without overlap it takes their sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isnan, nan, prod
from typing import TYPE_CHECKING, Literal, TypeAlias

from ridgeline.cost.collectives import Link, Transfer, exchange, gather, reduce
from ridgeline.cost.roofline import compute_s, matmul_flops, overlapped_s, summed_s, transfer_s
from ridgeline.job.sharding import ways

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ridgeline.cost.sharding.mesh_machine import Group, MeshMachine
    from ridgeline.cost.sharding.resharding import Step
    from ridgeline.cost.sharding.sharded_matmul import Strategy
    from ridgeline.cost.work import Number
    from ridgeline.job.sharding import Product, ShardedArray

Bound: TypeAlias = Literal["compute", "hbm", "ici", "network", "latency", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Arrays on a mesh.

    Attributes:
        machine: The devices.
        element_bytes: Of one element, by the name of the array.
        links: How each group of devices is wired.
    """

    machine: MeshMachine
    element_bytes: Mapping[str, float]
    links: Mapping[Group, Link]

    def block_bytes(self, array: ShardedArray, sizes: Mapping[str, float]) -> float:
        """Bytes of an array that one device holds."""
        elements = prod(sizes[dim] for dim in array.dims)
        return self.element_bytes[array.name] * elements / ways(array.used, self.machine.mesh)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """What one collective of a strategy costs.

    Attributes:
        step: Which.
        array_bytes: V: gathered, before it is scattered, as it is summed, or held by a device before an exchange.
        bandwidth_s: Of its bytes, over the slower of links and network.
        latency_s: Floor.
        time_s: The larger of the two.
        bound: `ici`, `network` or `latency`.
    """

    step: Step
    array_bytes: float
    bandwidth_s: float
    latency_s: float
    time_s: float
    bound: Bound


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyCost:
    """What a strategy costs; what the question leaves open is NaN.

    Attributes:
        number: From 1, the textbook's strategy.
        strategy: Which.
        flops: Of one device.
        total_flops: Of all devices, repetitions included.
        redundancy_factor: Devices that repeat the same work.
        compute_s: Of arithmetic.
        hbm_s: Of reading both operands' blocks and writing the product's; 0 where memory is left out.
        communication_s: Of all collectives.
        time_s: With perfect overlap.
        summed_s: Without any.
        bound: What takes longest.
        peak_bytes: Memory of a device for the arrays, gathered copies and results included.
        steps: Its collectives, in order.
    """

    number: int
    strategy: Strategy
    flops: float
    total_flops: float
    redundancy_factor: float
    compute_s: float
    hbm_s: float
    communication_s: float
    time_s: float
    summed_s: float
    bound: Bound
    peak_bytes: float
    steps: tuple[StepCost, ...]


def strategy_cost(number: int, strategy: Strategy, setting: Setting, sizes: Mapping[str, float]) -> StrategyCost:
    """What a strategy costs for arrays of given sizes."""
    steps = tuple(step_cost(step, setting, sizes) for step in strategy.collectives)
    num_shards = ways(strategy.split, setting.machine.mesh)
    times_s = {
        "T_math": math_s(strategy, setting, sizes),
        "T_hbm": traffic_s(strategy, setting, sizes),
        "T_comms": sum((step.time_s for step in steps), start=0.0),
    }
    flops = float(device_flops(flops=product_flops(strategy.product, sizes), num_shards=num_shards))
    is_known = not any(isnan(time_s) for time_s in times_s.values())
    return StrategyCost(
        number=number,
        strategy=strategy,
        flops=flops,
        total_flops=flops * setting.machine.num_devices,
        redundancy_factor=float(redundancy_factor(N=setting.machine.num_devices, num_shards=num_shards)),
        compute_s=times_s["T_math"],
        hbm_s=times_s["T_hbm"],
        communication_s=times_s["T_comms"],
        time_s=overlapped_s(**times_s) if is_known else nan,
        summed_s=summed_s(**times_s),
        bound=_bound(times_s, steps) if is_known else "unknown",
        peak_bytes=_peak_bytes(strategy, setting, sizes),
        steps=steps,
    )


def device_flops(*, flops: Number, num_shards: Number) -> Number:
    """FLOPs of one device: those of the product over the ways in which mesh axes split it.

    Formula: flops_device = flops / num_shards

    Source: Scaling Book, ch. 4, question 2: axes that split nothing do not lessen it.

    >>> device_flops(flops=2 * 64.0, num_shards=4 * 8)  # A[B_X, D_Y] @ W[D_Y, F] on X = 4, Y = 8, Z = 4
    4.0
    """
    return flops / num_shards


def redundancy_factor(*, N: Number, num_shards: Number) -> Number:
    """Devices that do the same work: the product of the mesh axes that split nothing of it.

    Formula: repeats = N / num_shards

    Source: Scaling Book, ch. 4, question 2.

    >>> redundancy_factor(N=4 * 8 * 4, num_shards=4 * 8)
    4.0
    """
    return N / num_shards


def product_flops(product: Product, sizes: Mapping[str, float]) -> float:
    """FLOPs of the whole product, once: a multiply and an add for each of its terms, a multiply alone if none add."""
    left, right = product.outer
    rows, columns = (prod(sizes[dim] for dim in dims) for dims in ((*product.batch, *left), right))
    if not product.contracted:
        return rows * columns
    return float(matmul_flops(B=rows, D=prod(sizes[dim] for dim in product.contracted), F=columns))


def math_s(strategy: Strategy, setting: Setting, sizes: Mapping[str, float]) -> float:
    """Arithmetic of one device at its peak rate."""
    num_shards = ways(strategy.split, setting.machine.mesh)
    flops = device_flops(flops=product_flops(strategy.product, sizes), num_shards=num_shards)
    return float(compute_s(flops=flops, C_flops_per_s=setting.machine.peak_flops_per_s))


def traffic_s(strategy: Strategy, setting: Setting, sizes: Mapping[str, float]) -> float:
    """Reading the operands' blocks from memory and writing the product's."""
    traffic_bytes = sum(setting.block_bytes(array, sizes) for array in (strategy.left, strategy.right, strategy.result))
    return float(transfer_s(traffic_bytes=traffic_bytes, W_bytes_per_s=setting.machine.hbm_bytes_per_s))


def step_cost(step: Step, setting: Setting, sizes: Mapping[str, float]) -> StepCost:
    """What one collective costs."""
    demand, machine = transfer(step, setting, sizes), setting.machine
    links_s = float(demand.link_bytes) / machine.link_bytes_per_s
    network_s = float(demand.network_bytes) / machine.network_bytes_per_s
    rates = {"link_bytes_per_s": machine.link_bytes_per_s, "network_bytes_per_s": machine.network_bytes_per_s}
    time_s, latency_s = float(demand.expected_s(**rates)), float(demand.latency_s)
    waits_s: Mapping[Bound, float] = {"ici": links_s, "network": network_s, "latency": latency_s}
    return StepCost(
        step=step,
        array_bytes=collective_bytes(step, setting, sizes),
        bandwidth_s=max(links_s, network_s),
        latency_s=latency_s,
        time_s=time_s,
        bound="unknown" if isnan(time_s) else max(waits_s, key=lambda bound: waits_s[bound]),
    )


def collective_bytes(step: Step, setting: Setting, sizes: Mapping[str, float]) -> float:
    """V of a collective: the array as it is gathered, or else the block that a device holds before it."""
    return setting.block_bytes(step.after if step.kind == "all_gather" else step.before, sizes)


def transfer(step: Step, setting: Setting, sizes: Mapping[str, float]) -> Transfer:
    """The demand of one step on the wires.

    A permute sends every block to one other device, on average as far as the parts of an exchange go, and is costed
    as one.
    """
    V_bytes, link = collective_bytes(step, setting, sizes), setting.links[frozenset(step.axes)]
    match step.kind:
        case "all_gather" | "reduce_scatter":
            return gather(link, V_bytes)
        case "all_reduce":
            return reduce(link, V_bytes)
        case "all_to_all" | "collective_permute":
            return exchange(link, V_bytes)
        case "slice":
            return Transfer(array_bytes=0.0, link_bytes=0.0, network_bytes=0.0, latency_s=0.0)


def _bound(times_s: Mapping[str, float], steps: Sequence[StepCost]) -> Bound:
    """What takes longest; of the collectives, what most of their time goes to."""
    longest = max(times_s, key=lambda part: times_s[part])
    if longest != "T_comms":
        return "compute" if longest == "T_math" else "hbm"
    return max(
        (step.bound for step in steps), key=lambda bound: sum(each.time_s for each in steps if each.bound == bound)
    )


def _peak_bytes(strategy: Strategy, setting: Setting, sizes: Mapping[str, float]) -> float:
    """The operands stay; beside them lie their gathered copies and the product, then what becomes of it."""

    def block(array: ShardedArray) -> float:
        return setting.block_bytes(array, sizes)

    gathered = {step.before.name for step in strategy.before if step.is_collective}
    copies = sum(block(array) for array in (strategy.left, strategy.right) if array.name in gathered)
    multiplying = copies + block(strategy.result)
    reducing = max((block(step.before) + block(step.after) for step in strategy.after), default=0.0)
    return block(strategy.product.left) + block(strategy.product.right) + max(multiplying, reducing)
