"""FLOPs that a device executes in a step, part by part: recomputed ones too, and those of masked-out scores.

A bound counts what must be computed; this counts what a program does. They differ in attention: a blocked kernel
computes whole tiles and, in its backward pass, the scores again; a program without one computes every score.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ridgeline.cost.kernel_time import computed_keys
from ridgeline.cost.roofline import ATTENTION_BACKWARD_FACTOR, ATTENTION_BACKWARD_LEAST
from ridgeline.cost.training.collectives import part_of
from ridgeline.cost.training.step import training_step
from ridgeline.model.accounting import keys_in_reach, keys_read
from ridgeline.model.operations import Attention

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.cost.columns import PlanColumns, TrainingSetting
    from ridgeline.cost.work import Phase

_GRADIENTS = ("/input_gradient", "/weight_gradient", "/gradient")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutedFlops:
    """Matmul FLOPs of one part in one phase, on one device and in one step.

    Attributes:
        part: Of the model: `layer/mlp/up`.
        phase: Of the step.
        flops: All its repetitions.
    """

    part: str
    phase: Phase
    flops: float


def executed_flops(
    setting: TrainingSetting,
    columns: PlanColumns,
    *,
    block_keys: float | None,
    backward_factor: float = ATTENTION_BACKWARD_FACTOR,
) -> tuple[ExecutedFlops, ...]:
    """FLOPs of one plan by part and phase, in the order of the step.

    Args:
        setting: The setting.
        columns: One plan (scalar columns).
        block_keys: Keys (or queries, if more) of one tile of the attention kernel; None for plain attention, which
            computes every score and masks.
        backward_factor: FLOPs of the kernel's backward pass over those of its forward pass.
    """
    attentions = _attentions(setting)
    totals: defaultdict[tuple[str, Phase], float] = defaultdict(float)
    for path, leaf in training_step(setting, columns).walk():
        if leaf.composition != "leaf":
            continue
        flops = sum(float(work) for resource, work in leaf.work.amounts.items() if resource.startswith("flops."))
        part = part_of(path)
        for ending in _GRADIENTS:
            part = part.removesuffix(ending)
        if (attention := attentions.get(part)) is not None:
            flops *= _executed_ratio(attention, setting, block_keys=block_keys)
            if leaf.phase == "backward" and block_keys is not None:
                flops *= backward_factor / ATTENTION_BACKWARD_LEAST
        if flops:
            totals[part, leaf.phase] += flops
    return tuple(ExecutedFlops(part=part, phase=phase, flops=flops) for (part, phase), flops in totals.items())


def _attentions(setting: TrainingSetting) -> Mapping[str, Attention]:
    """The attention operations by the path of their part."""
    return {
        f"{layer.name}/{block.name}/{operation.path}": operation
        for layer in setting.tree.layers
        for block in layer.blocks
        for operation in block.operations
        if isinstance(operation, Attention)
    }


def _executed_ratio(attention: Attention, setting: TrainingSetting, *, block_keys: float | None) -> float:
    """Scores that are computed over those that must be."""
    visible_keys = keys_read(attention, seq_len=setting.seq_len)
    if block_keys is None:
        return keys_in_reach(attention, seq_len=setting.seq_len) / visible_keys
    tile, sequence_keys = (block_keys, block_keys), float(setting.seq_len)
    computed = computed_keys(attention.span, visible_keys=visible_keys, sequence_keys=sequence_keys, tile=tile)
    return float(computed) / visible_keys
