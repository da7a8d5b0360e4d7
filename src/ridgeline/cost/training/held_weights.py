"""The weights of a model as the devices of a plan hold them: which, how many layers of them, split how many ways."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ridgeline.cost.columns import state_shards, weight_shards
from ridgeline.cost.training.pipeline import has_uneven_stages, held_share, held_tables_share, pipelined_share
from ridgeline.model.operations import weights_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ridgeline.cost.columns import PlanColumns, TrainingSetting
    from ridgeline.cost.work import Number
    from ridgeline.model.operations import ModelTree, Tensor


def step_weights(tree: ModelTree) -> Iterator[tuple[Tensor, int, bool]]:
    """Every weight once, with how many layers have it and whether it lies outside the layers."""
    seen: set[str] = set()
    for block in (tree.embedding, tree.head):
        for operation in block.operations:
            for tensor in weights_of(operation):
                if tensor.name not in seen:
                    seen.add(tensor.name)
                    yield tensor, 1, True
    for layer in tree.layers:
        for block in layer.blocks:
            for operation in block.operations:
                for tensor in weights_of(operation):
                    yield tensor, layer.count, False


def held_weights(setting: TrainingSetting, columns: PlanColumns) -> Iterator[tuple[Tensor, Number, bool]]:
    """Every weight once, with how many layers of it the busiest stage holds, and whether it lies outside the layers."""
    shares = {layer.name: held_share(layer, setting, columns) for layer in setting.tree.layers}
    tables = held_tables_share(setting, columns)
    for tensor, count, outside in step_weights(setting.tree):
        yield tensor, tables if outside else count * shares[tensor.name.partition("/")[0]], outside


def trained_weights(setting: TrainingSetting, columns: PlanColumns) -> Iterator[tuple[Tensor, Number, bool]]:
    """Those of `held_weights` that are trained."""
    return (found for found in held_weights(setting, columns) if setting.trains(found[0]))


def frozen_elements(setting: TrainingSetting, columns: PlanColumns) -> Number:
    """Parameters that one device of the busiest stage stores and that are not trained."""
    total: Number = 0.0
    for tensor, held, _ in held_weights(setting, columns):
        if not setting.trains(tensor):
            total = total + stored_elements(tensor, columns, setting) * held
    return total


def local_elements(setting: TrainingSetting, columns: PlanColumns) -> Number:
    """Trained parameters that one device of the busiest stage stores."""
    return sum(summed_elements(setting, columns).values())


def state_elements(setting: TrainingSetting, columns: PlanColumns) -> Number:
    """Trained parameters whose optimizer state one device of the busiest stage stores."""
    total: Number = 0.0
    for tensor, held, _ in trained_weights(setting, columns):
        total = total + tensor.size / state_shards(tensor, columns, setting) * held
    return total


def stored_elements(tensor: Tensor, columns: PlanColumns, setting: TrainingSetting) -> Number:
    """Elements of one weight that one device stores."""
    return tensor.size / weight_shards(tensor, columns, setting)


def group_of_replicas(tensor: Tensor, setting: TrainingSetting) -> str:
    """The group of `placement.groups_of` whose devices hold the same part of a weight and sum its gradient."""
    return "expert_data" if setting.optimizer.distributed and "experts" in tensor.axes else "data"


def summed_elements(setting: TrainingSetting, columns: PlanColumns) -> Mapping[str, Number]:
    """Trained parameters that one device of the busiest stage stores, by the group that sums their gradients."""
    total: dict[str, Number] = {"data": 0.0}
    for tensor, held, _ in trained_weights(setting, columns):
        group = group_of_replicas(tensor, setting)
        total[group] = total.get(group, 0.0) + stored_elements(tensor, columns, setting) * held
    return total


def elements_on_all_stages(setting: TrainingSetting, columns: PlanColumns) -> Number:
    """Parameters outside the pipeline that one device stores, and every stage with it: tables, layers left over."""
    if has_uneven_stages(setting):
        return 0.0
    left = {layer.name: 1.0 - pipelined_share(layer, setting, columns) for layer in setting.tree.layers}
    total: Number = 0.0
    for tensor, count, outside in step_weights(setting.tree):
        if not setting.trains(tensor):
            continue
        share = 1.0 if outside else left[tensor.name.partition("/")[0]]
        total = total + stored_elements(tensor, columns, setting) * count * share
    return total
