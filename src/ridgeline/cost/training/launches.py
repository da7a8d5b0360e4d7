"""Kernels that a host issues one by one, where a framework neither compiles nor replays them.

A GPU works through a queue; a step is no shorter than the host takes to fill it. Compiled programs (XLA) and replayed
graphs (CUDA graphs) have next to no such time. Where tokens choose experts without a capacity, the host waits in every
layer's forward pass for how many chose each: it cannot issue the forward pass while the device is still at the last
backward pass, so that each pass takes as long as the host takes for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ridgeline.job.precision import takes_experts
from ridgeline.model.operations import Attention, Dispatch, Elementwise, ExpertMatmul, Lookup, Matmul, Recurrence

if TYPE_CHECKING:
    from ridgeline.cost.columns import PlanColumns, TrainingSetting
    from ridgeline.cost.work import Number
    from ridgeline.model.operations import Layer, Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """How many a host issues.

    Attributes:
        num_forward: In forward passes.
        num_backward: In backward passes.
    """

    num_forward: Number
    num_backward: Number

    def __add__(self, other: Kernels) -> Kernels:
        """Both together."""
        return Kernels(
            num_forward=self.num_forward + other.num_forward, num_backward=self.num_backward + other.num_backward
        )

    def __mul__(self, times: Number) -> Kernels:
        """As often."""
        return Kernels(num_forward=self.num_forward * times, num_backward=self.num_backward * times)


NO_KERNELS: Final = Kernels(num_forward=0.0, num_backward=0.0)

_PASS: Final = Kernels(num_forward=1.0, num_backward=1.0)
_PRODUCT: Final = Kernels(num_forward=1.0, num_backward=2.0)

DISPATCH: Final = Kernels(num_forward=46.0, num_backward=18.0)
"""Router and dispatch. Forward: scores in f32 (3), top-k and its map (4), auxiliary loss (6), tokens counted for every
expert, device and split, and copied to the host (21), rows put in order (5), tokens and probabilities sent (2), chunks
put in order (3), rows padded for narrow products (2). Backward: those of the scores and losses (10), of orders,
exchange and padding (8).
Source: counted in Megatron-LM core_v0.16.0, megatron/core/transformer/moe/router.py, moe_utils.py, token_dispatcher.py
and experts.py, with fused router and permutation."""

COMBINE: Final = Kernels(num_forward=7.0, num_backward=7.0)
"""Padding off (1), chunks back in order (3), sent back (1), copies summed (2), and as many backward.
Source: the same."""


def num_kernels(layer: Layer, *, setting: TrainingSetting, columns: PlanColumns) -> Kernels:
    """Kernels of one layer for one microbatch.

    A product is one, and one for each operand that is narrowed. Of experts each device's are issued apart, but gate and
    up as one, and all their rows are narrowed together.
    """
    total = NO_KERNELS
    for block in layer.blocks:
        for operation in block.operations:
            total = total + _kernels(operation, setting=setting, columns=columns)
    return total


def waits_for_routing(setting: TrainingSetting) -> bool:
    """Whether the host stops in every forward pass to learn how many tokens chose each expert."""
    has_experts = any(
        isinstance(operation, Dispatch)
        for layer in setting.tree.layers
        for block in layer.blocks
        for operation in block.operations
    )
    return has_experts and setting.expert_capacity_ratio is None


def waited_for_host_s(*, host_s: Number, device_s: Number) -> Number:
    """Time that a device waits for a host that cannot run ahead of it.

    Where experts' many small kernels keep the host busy the device waits; where attention's large ones keep the device
    busy the host does: neither makes up for the other, so that together they take longer than the longer of both.

    Formula: (host⁴ + device⁴)^(1/4) − device

    Source: an assumption; of equal times a fifth more than either.

    >>> [round(float(waited_for_host_s(host_s=host_s, device_s=1.0)), 3) for host_s in (0.5, 1.0, 2.0)]
    [0.015, 0.189, 1.031]
    """
    return (host_s**4 + device_s**4) ** 0.25 - device_s


def _kernels(operation: Operation, *, setting: TrainingSetting, columns: PlanColumns) -> Kernels:
    recipe = setting.quantization
    match operation:
        case Matmul():
            product = _PRODUCT if setting.trains(operation.weight) else _PASS
            return product + (_PASS if recipe is not None and operation.quantizable else NO_KERNELS)
        case ExpertMatmul() if operation.path.endswith("gate"):
            return NO_KERNELS
        case ExpertMatmul():
            local_experts = operation.weight.shape[0] / columns.degrees["ep"]
            narrowed = _PASS if recipe is not None and takes_experts(recipe) else NO_KERNELS
            return _PRODUCT * local_experts + narrowed
        case Dispatch():
            return DISPATCH if operation.path == "dispatch" else COMBINE
        case Attention() | Elementwise() | Lookup() | Recurrence():
            return _PASS
