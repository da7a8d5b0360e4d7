"""Which layers the stages of a pipeline hold and work on, and how many microbatches wait in them.

    P  stages      v  circular repeats (virtual stages)      L  layers      m  microbatches

On TPUs one program runs on all stages, so each has as many layers of every kind: ⌊L/(P·v)⌋·v. Those left over, and the
leading layers of a model that begins otherwise (DeepSeek's dense ones), lie outside the pipeline: every stage holds
their weights and works on its share of the tokens, as in data parallelism (MaxText's `pipeline_parallel_layers`). On
GPUs stages run programs of their own; the busiest has v·⌈L/(P·v)⌉ layers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ridgeline.cost.laws.pipeline import layers_of_busiest_stage, microbatches_in_schedule
from ridgeline.cost.work import larger, smaller
from ridgeline.model.operations import weights_of

if TYPE_CHECKING:
    from ridgeline.cost.columns import PlanColumns, TrainingSetting
    from ridgeline.cost.work import Number
    from ridgeline.model.operations import Layer, ModelTree

_TABLES = 2


def stacked_layers(tree: ModelTree) -> tuple[int, int]:
    """What equal stages can share out: (how many times, how many layers each time).

    Repeats of a pattern of unlike layers, or else the layers of the commonest kind.
    """
    total = sum(layer.count for layer in tree.layers)
    return (tree.repeats, total // tree.repeats) if tree.repeats else (max(layer.count for layer in tree.layers), 1)


def most_stages(tree: ModelTree, *, uneven: bool) -> int:
    """Stages, each repeat counted, that a model can be cut into."""
    return sum(layer.count for layer in tree.layers) if uneven else stacked_layers(tree)[0]


def has_uneven_stages(setting: TrainingSetting) -> bool:
    """Whether stages may differ: each runs a program of its own."""
    return setting.hardware.chip.vendor != "google"


def pipelined_share(layer: Layer, setting: TrainingSetting, columns: PlanColumns) -> Number:
    """Of the layers of one kind, the share that lies in the pipeline."""
    if has_uneven_stages(setting):
        return 1.0
    tree = setting.tree
    times, _ = stacked_layers(tree)
    if tree.repeats:
        once = round(layer.count / tree.repeats)
    else:
        once = 1 if layer is max(tree.layers, key=lambda each: each.count) else 0
    cuts = columns.stages * columns.repeats
    return np.floor(times / cuts) * cuts * once / layer.count


def held_share(layer: Layer, setting: TrainingSetting, columns: PlanColumns) -> Number:
    """Of the layers of one kind, the share whose weights the busiest stage holds."""
    if has_uneven_stages(setting):
        return worked_share(setting, columns)
    inside = pipelined_share(layer, setting, columns)
    return inside / columns.stages + (1.0 - inside)


def held_tables_share(setting: TrainingSetting, columns: PlanColumns) -> Number:
    """Of the tables outside the layers, the share that the busiest stage holds.

    On GPUs the first stage has the embedding and the last the head: of two tables a stage has one.
    """
    outside = (*setting.tree.embedding.operations, *setting.tree.head.operations)
    tables = {tensor.name for operation in outside for tensor in weights_of(operation) if "vocab" in tensor.axes}
    if not has_uneven_stages(setting) or len(tables) < _TABLES:
        return 1.0
    return 1.0 - 0.5 * smaller(columns.stages - 1.0, 1.0)


def worked_share(setting: TrainingSetting, columns: PlanColumns) -> Number:
    """Of all layers' work on all tokens, the share of the busiest stage."""
    if not has_uneven_stages(setting):
        return 1.0 / columns.stages
    total = sum(layer.count for layer in setting.tree.layers)
    busiest = layers_of_busiest_stage(L=total, num_stages=columns.stages, num_repeats=columns.repeats)
    return busiest / total


def spared_share(setting: TrainingSetting, columns: PlanColumns) -> Number:
    """Of the layers' work on the busiest stage, what the last stage is spared.

    Where layers do not divide, it is the last stage that has fewer, for it has the head.
    """
    total = sum(layer.count for layer in setting.tree.layers)
    busiest = layers_of_busiest_stage(L=total, num_stages=columns.stages, num_repeats=columns.repeats)
    last = larger(total - (columns.stages - 1.0) * busiest, 0.0)
    return larger(1.0 - last / busiest, 0.0)


def interleaved_share(setting: TrainingSetting, columns: PlanColumns) -> Number:
    """1 where stages take several turns in programs of their own (GPUs): transfers of one hide behind the others."""
    return smaller(columns.repeats - 1.0, 1.0) if has_uneven_stages(setting) else columns.repeats * 0.0


def microbatches_in_flight(setting: TrainingSetting, columns: PlanColumns) -> Number:
    """Microbatches whose activations a stage holds at once.

    All of them on TPUs, where JAX differentiates through the whole pipeline loop; on GPUs what a schedule of one
    forward, one backward lets in.
    """
    if not has_uneven_stages(setting):
        return columns.microbatches
    return microbatches_in_schedule(
        num_stages=columns.stages, num_microbatches=columns.microbatches, num_repeats=columns.repeats
    )
