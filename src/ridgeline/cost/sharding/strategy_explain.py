"""Where the numbers of a sharded product come from: the formulas that costed it, with its own numbers put in."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

from ridgeline.cost.collectives import (
    all_gather_s,
    all_reduce_s,
    all_to_all_s,
    line_latency_s,
    reduce_scatter_s,
    ring_latency_s,
)
from ridgeline.cost.explain import Derivation, derive
from ridgeline.cost.roofline import compute_s, matmul_flops, overlapped_s, transfer_s
from ridgeline.cost.sharding.strategy_cost import device_flops, redundancy_factor
from ridgeline.cost.sharding.strategy_thresholds import (
    gather_critical_rows,
    gather_over_scatter_ratio,
    reduce_over_compute_size,
    reduce_over_gather_rows,
)
from ridgeline.job.sharding import ways

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ridgeline.cost.sharding.layout import ArrayLayout
    from ridgeline.cost.sharding.strategy_cost import Setting, StepCost, StrategyCost
    from ridgeline.cost.wiring import Stage
    from ridgeline.cost.work import Number
    from ridgeline.job.sharding import Product, ShardedArray


def explain_array(layout: ArrayLayout) -> Iterator[Derivation]:
    """What one device and all hold of an array."""
    for derivation in layout.derivations:
        yield replace(derivation, quantity=f"{layout.array}: {derivation.quantity}")


def explain_strategy(cost: StrategyCost, setting: Setting, sizes: Mapping[str, float]) -> Iterator[Derivation]:
    """FLOPs, collectives and time of one strategy."""
    product, machine = cost.strategy.product, setting.machine
    num_shards = ways(cost.strategy.split, machine.mesh)
    found = [*_flops(product, sizes, num_shards)]
    found += [derive(redundancy_factor, N=machine.num_devices, num_shards=num_shards)]
    found += [derive(compute_s, flops=cost.flops, C_flops_per_s=machine.peak_flops_per_s)]
    if cost.hbm_s > 0:
        traffic_bytes = cost.hbm_s * machine.hbm_bytes_per_s
        found += [derive(transfer_s, traffic_bytes=traffic_bytes, W_bytes_per_s=machine.hbm_bytes_per_s)]
    for step in cost.steps:
        found += explain_step(step, setting)
    found += [derive(overlapped_s, T_math=cost.compute_s, T_hbm=cost.hbm_s, T_comms=cost.communication_s)]
    for derivation in found:
        yield replace(derivation, quantity=f"strategy {cost.number}: {derivation.quantity}")


def explain_step(cost: StepCost, setting: Setting) -> Iterator[Derivation]:
    """The time of a collective: over its slowest kind of wire, or all hops where they take longer."""
    stages = setting.machine.stages[frozenset(cost.step.axes)]
    if cost.bound == "latency":
        yield from (
            replace(each, quantity=f"{cost.step}: {each.quantity}") for stage in stages for each in _hops(stage)
        )
    elif stages:
        slowest = max((_over(stage, cost) for stage in stages), key=lambda each: each.value)
        yield replace(slowest, quantity=str(cost.step))


@dataclass(frozen=True, slots=True, kw_only=True)
class GatherRules:
    """The book's rules for x[B, D] @ W[D_X, F]: when to gather W, and when to multiply blocks and sum.

    Attributes:
        operand: The one that is split over what is summed, as the other is not: W, or x if it is the other way round.
        rows: The dimensions that the other has alone: B.
        gather_from: Rows from which gathering it is compute-bound.
        reduce_from: Contracted width from which summing beats a gather that is compute-bound.
        reduce_up_to: Rows up to which summing beats a gather that is not.
        gather_over_scatter: Bytes of the gather over those of a reduce-scatter of the result.
    """

    operand: str
    rows: str
    gather_from: Derivation
    reduce_from: Derivation
    reduce_up_to: Derivation
    gather_over_scatter: Derivation

    @property
    def derivations(self) -> tuple[Derivation, ...]:
        """All of them."""
        return self.gather_from, self.reduce_from, self.reduce_up_to, self.gather_over_scatter


def gather_rules(product: Product, setting: Setting, sizes: Mapping[str, float]) -> Iterator[GatherRules]:
    """The rules for every operand to which they apply."""
    for operand, other in ((product.right, product.left), (product.left, product.right)):
        outer = [dim for dim in other.dims if dim not in operand.dims]
        axes = tuple(axis for dim in product.contracted for axis in operand.layout[dim] if axis not in other.used)
        stages = setting.machine.stages[frozenset(axes)] if axes else ()
        if stages and not any(other.layout[dim] for dim in outer):
            yield _rules(product, operand, outer, stages[0], setting, sizes)


def _rules(
    product: Product,
    operand: ShardedArray,
    outer: Sequence[str],
    stage: Stage,
    setting: Setting,
    sizes: Mapping[str, float],
) -> GatherRules:
    b_w, b_o = setting.element_bytes[operand.name], setting.element_bytes[product.output.name]
    D = prod(sizes[dim] for dim in product.contracted)
    rates = {
        "C_flops_per_s": setting.machine.peak_flops_per_s,
        "n": stage.links / stage.share,
        "W_bytes_per_s": stage.bytes_per_s,
    }
    rows, name = "·".join(outer), operand.name
    gather = derive(gather_critical_rows, b_w=b_w, **rates)
    wide = derive(reduce_over_compute_size, b_o=b_o, **rates)
    few = derive(reduce_over_gather_rows, D=D, b_w=b_w, b_o=b_o)
    ratio = derive(gather_over_scatter_ratio, M=D, K=prod(sizes[dim] for dim in outer))
    return GatherRules(
        operand=name,
        rows=rows,
        gather_from=replace(gather, quantity=f"{rows} from which gathering {name} is compute-bound"),
        reduce_from=replace(wide, quantity=f"{'·'.join(product.contracted)} from which reducing beats such a gather"),
        reduce_up_to=replace(few, quantity=f"{rows} up to which reducing beats a gather that is not"),
        gather_over_scatter=replace(ratio, quantity=f"bytes of gathering {name} over those of a reduce-scatter"),
    )


def _flops(product: Product, sizes: Mapping[str, float], num_shards: float) -> Iterator[Derivation]:
    """Of the whole product, and of one device; without a sum, one FLOP for each element."""
    left, right = product.outer
    rows = prod(sizes[dim] for dim in (*product.batch, *left))
    columns = prod(sizes[dim] for dim in right)
    flops = rows * columns
    if product.contracted:
        whole = derive(matmul_flops, B=rows, D=prod(sizes[dim] for dim in product.contracted), F=columns)
        yield whole
        flops = whole.value
    yield derive(device_flops, flops=flops, num_shards=num_shards)


def _over(stage: Stage, cost: StepCost) -> Derivation:
    """The time of a collective over one kind of wire."""
    W_bytes_per_s = stage.bytes_per_s
    if cost.step.kind in {"all_to_all", "collective_permute"}:
        return derive(all_to_all_s, V_bytes=cost.array_bytes, load=stage.exchange_load, W_bytes_per_s=W_bytes_per_s)
    formula: Callable[..., Number] = {
        "all_gather": all_gather_s,
        "reduce_scatter": reduce_scatter_s,
        "all_reduce": all_reduce_s,
    }[cost.step.kind]
    return derive(
        formula, V_bytes=cost.array_bytes * stage.share, N=stage.size, n=stage.links, W_bytes_per_s=W_bytes_per_s
    )


def _hops(stage: Stage) -> Iterator[Derivation]:
    """The latency of a gather along every lane of a torus."""
    for lane in stage.lanes:
        formula = ring_latency_s if lane.wiring == "ring" else line_latency_s
        yield derive(formula, N=lane.size, t_min_s=lane.hop_s)
