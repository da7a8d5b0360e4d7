"""Kernels that a host issues one by one, where a framework neither compiles nor replays them.

A GPU works through a queue; a step is no shorter than the host takes to fill it. Compiled programs (XLA) and replayed
graphs (CUDA graphs) have next to no such time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ridgeline.job.precision import takes_experts
from ridgeline.model.operations import Attention, Dispatch, Elementwise, ExpertMatmul, Lookup, Matmul, Recurrence

if TYPE_CHECKING:
    from ridgeline.cost.columns import PlanColumns, TrainingSetting
    from ridgeline.cost.work import Number
    from ridgeline.model.operations import Layer, Operation

_PRODUCTS = 3
_OPERANDS = 2
_PASSES = 2


def num_kernels(layer: Layer, *, setting: TrainingSetting, columns: PlanColumns) -> Number:
    """Kernels of one layer, forward and backward, for one microbatch.

    A product is one, and one for each operand that is narrowed; of experts each device's are issued apart.
    """
    total: Number = 0.0
    for block in layer.blocks:
        for operation in block.operations:
            total = total + _kernels(operation, setting=setting, columns=columns)
    return total


def _kernels(operation: Operation, *, setting: TrainingSetting, columns: PlanColumns) -> Number:
    recipe = setting.quantization
    match operation:
        case Matmul():
            products = _PRODUCTS if setting.trains(operation.weight) else _PRODUCTS - 1
            return float(products + (_OPERANDS if recipe is not None and operation.quantizable else 0))
        case ExpertMatmul():
            narrowed = _OPERANDS if recipe is not None and takes_experts(recipe) else 0
            return (_PRODUCTS + narrowed) * operation.weight.shape[0] / columns.degrees["ep"]
        case Dispatch():
            return 2.0 * _PASSES
        case Attention() | Elementwise() | Lookup() | Recurrence():
            return float(_PASSES)
