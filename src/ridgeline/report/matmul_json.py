"""The answer to `ridgeline matmul` as JSON, in base units; what is not known or never happens is null."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ridgeline.report.derivations import derivations_json
from ridgeline.report.jsonable import Json, jsonable

if TYPE_CHECKING:
    from ridgeline.cost.sharding.layout import ArrayLayout
    from ridgeline.cost.sharding.strategy_cost import StepCost, StrategyCost
    from ridgeline.search.layouts import LayoutChoice, LayoutSearch
    from ridgeline.search.matmul_answer import MatmulAnswer, ProductAnswer


def matmul_json(answer: MatmulAnswer) -> dict[str, Json]:
    """The object that `--json` prints."""
    question, machine = answer.question, answer.machine
    found: dict[str, Json] = {
        "notation": str(question.arrays),
        "sizes": jsonable(question.sizes),
        "mesh": jsonable(machine.mesh),
        "num_devices": jsonable(machine.num_devices),
        "hardware": machine.name or None,
        "placement": jsonable(machine.placement),
        "mesh_copies": machine.copies,
        "dtypes": jsonable(question.dtypes),
        "peak_flops_per_s": jsonable(machine.peak_flops_per_s),
        "link_bytes_per_s": jsonable(machine.link_bytes_per_s),
        "arrays": [_array(layout) for layout in answer.arrays],
    }
    if answer.product is not None:
        found |= _product(answer.product)
    elif len(answer.arrays) > 1:
        found["collectives"] = [_step(cost) for cost in answer.steps]
        found["communication_s"] = jsonable(sum(cost.time_s for cost in answer.steps))
    found |= {"notes": list(answer.notes), "derivations": derivations_json(answer.derivations)}
    return found


def _array(layout: ArrayLayout) -> dict[str, Json]:
    return {
        "name": layout.array.name,
        "layout": str(layout.array),
        "shape": jsonable(layout.shape),
        "local_shape": jsonable(layout.local_shape),
        "array_bytes": jsonable(layout.array_bytes),
        "device_bytes": jsonable(layout.device_bytes),
        "total_bytes": jsonable(layout.total_bytes),
        "num_shards": jsonable(layout.num_shards),
        "replication_factor": jsonable(layout.replication_factor),
    }


def _product(product: ProductAnswer) -> dict[str, Json]:
    return {
        "case": product.case,
        "cases": jsonable(product.cases),
        "inherited_output": product.inherited_output,
        "inherited_output_is_legal": product.inherited_output_is_legal,
        "flops": jsonable(product.flops),
        "best": product.best.number,
        "strategies": [
            _strategy(cost, product.approximate[index], product.compute_bound_from[index : index + 1])
            for index, cost in enumerate(product.strategies)
        ],
        "thresholds": jsonable(product.thresholds),
        "search": None if product.search is None else _search(product.search),
    }


def _strategy(
    cost: StrategyCost, approximate: StrategyCost, compute_bound_from: tuple[object, ...] = ()
) -> dict[str, Json]:
    return {
        "number": cost.number,
        "name": str(cost.strategy),
        "is_as_asked": cost.strategy.is_as_asked,
        "output": str(cost.strategy.output),
        "collectives": [_step(step) for step in cost.steps],
        "device_flops": jsonable(cost.flops),
        "total_flops": jsonable(cost.total_flops),
        "redundancy_factor": jsonable(cost.redundancy_factor),
        "compute_s": jsonable(cost.compute_s),
        "hbm_s": jsonable(cost.hbm_s),
        "communication_s": jsonable(cost.communication_s),
        "overlapped_s": jsonable(cost.time_s),
        "summed_s": jsonable(cost.summed_s),
        "approximate_communication_s": jsonable(approximate.communication_s),
        "approximate_overlapped_s": jsonable(approximate.time_s),
        "bound": cost.bound,
        "peak_bytes": jsonable(cost.peak_bytes),
        "compute_bound_from": jsonable(compute_bound_from[0]) if compute_bound_from else None,
    }


def _step(cost: StepCost) -> dict[str, Json]:
    step = cost.step
    return {
        "kind": step.kind,
        "array": step.before.name,
        "axes": list(step.axes),
        "before": str(step.before),
        "after": str(step.after),
        "bytes": jsonable(cost.array_bytes),
        "time_s": jsonable(cost.time_s),
        "bound": cost.bound,
    }


def _search(search: LayoutSearch) -> dict[str, Json]:
    return {
        "memory_bytes": jsonable(search.memory_bytes),
        "compared": search.count,
        "layouts": [_layout(choice) for choice in search.best],
        "unlimited": _layout(search.unlimited),
    }


def _layout(choice: LayoutChoice) -> dict[str, Json]:
    return {
        "arrays": [str(array) for array in choice.product.arrays],
        "strategy": str(choice.cost.strategy),
        "overlapped_s": jsonable(choice.cost.time_s),
        "communication_s": jsonable(choice.cost.communication_s),
        "bound": choice.cost.bound,
        "redundancy_factor": jsonable(choice.cost.redundancy_factor),
        "device_bytes": jsonable(choice.device_bytes),
        "peak_bytes": jsonable(choice.cost.peak_bytes),
    }
