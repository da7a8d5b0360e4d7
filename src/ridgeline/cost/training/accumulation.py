"""Gradients of several microbatches: each microbatch adds its own to what earlier ones left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ridgeline.cost.work import smaller

if TYPE_CHECKING:
    from ridgeline.cost.work import Number


def added_gradient_bytes(*, gradient_bytes: Number, num_microbatches: Number) -> Number:
    """Traffic of a microbatch that adds its gradients to accumulated ones: those read, the sums written.

    A pass of its own takes it, or the product that makes the gradient, beside its arithmetic
    (`TrainingSetting.adds_gradients_in_products`). Of a single microbatch nothing is added.

    Formula: 2 · gradient_bytes · min(num_microbatches − 1, 1)

    Assumes: the first microbatch of several costs as much as the others.

    Source: derived; Megatron-LM, `gradient_accumulation_fusion`, and apex, `fused_weight_gradient_mlp_cuda`.

    >>> added_gradient_bytes(gradient_bytes=4.0, num_microbatches=8.0)
    8.0
    """
    return 2.0 * gradient_bytes * smaller(num_microbatches - 1.0, 1.0)
