"""Matmuls in int8 or fp8, by qwix: both operands are scaled and rounded, and so are the gradients that come back.

    y = s_x·s_w · (q(x / s_x) · q(w / s_w))        s = max|·| / (largest number of the format)

Weights and activations are e4m3, gradients e5m2 (more range, less precision), or all int8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from jax import Array
    from jax.typing import DTypeLike
    from qwix._src.core.dot_general_qt import DotGeneralQtConfig

    from ridgeline.job.job import Quantization

_CALIBRATIONS: Final[Mapping[str, str]] = {"dynamic": "absmax", "fixed": "fixed,-224,224"}
"""By scaling: what qwix takes as an operand's range. The fixed one is that of Google's fp8 recipes for Ironwood
(MaxText's `weight_quantization_calibration_method` and `act_quantization_calibration_method`), half of e4m3's 448;
gradients, whose range no one knows before, are always measured."""


def quantized_product(operand: Array, weight: Array, num_contracted: int, recipe: Quantization) -> Array:
    """`tensordot(operand, weight, num_contracted)` in low precision, forward and backward.

    Args:
        operand: [..., *contracted].
        weight: [*contracted, *kept].
        num_contracted: Dimensions summed over.
        recipe: Formats and scales; `unknown_choices` of it is empty.
    """
    # MaxText takes it from there as well: qwix's public entry finds its rules by the path of a flax module.
    from qwix._src.core.dot_general_qt import dot_general_qt

    contracted = tuple(range(operand.ndim - num_contracted, operand.ndim)), tuple(range(num_contracted))
    return dot_general_qt(operand, weight, (contracted, ((), ())), _config(recipe))


def unknown_choices(recipe: Quantization) -> Iterator[tuple[str, object]]:
    """What of a recipe we cannot carry out: (what, which value).

    Tiles of a sub-channel scale have no width in a job; static scales need statistics of runs before; stochastic
    rounding needs random numbers in each step.
    """
    if recipe.granularity == "sub_channel":
        yield "quantization with scales of sub-channels", recipe.granularity
    if recipe.scaling not in _CALIBRATIONS:
        yield "quantization with static scales", recipe.scaling
    if recipe.rounding != "nearest_even":
        yield "quantization with stochastic rounding", recipe.rounding
    if recipe.scaling == "fixed" and recipe.kind == "int8":
        yield "int8 quantization with fixed scales", recipe.scaling


def _config(recipe: Quantization) -> DotGeneralQtConfig:
    from qwix._src.core.dot_general_qt import DotGeneralQtConfig

    gradients, is_per_tensor = _format(recipe.gradients), recipe.granularity == "per_tensor"
    calibration = _CALIBRATIONS[recipe.scaling]
    return DotGeneralQtConfig(
        lhs_qtype=_format(recipe.activations),
        rhs_qtype=_format(recipe.weights),
        lhs_calibration_method=calibration,
        rhs_calibration_method=calibration,
        lhs_disable_channelwise_axes=is_per_tensor,
        rhs_disable_channelwise_axes=is_per_tensor,
        dlhs_grad_qtype=gradients,
        drhs_grad_qtype=gradients,
        dlhs_grad_disable_channelwise_axes=is_per_tensor,
        drhs_grad_disable_channelwise_axes=is_per_tensor,
    )


def _format(name: str) -> DTypeLike:
    import jax.numpy as jnp

    return {"e4m3": jnp.float8_e4m3fn, "e5m2": jnp.float8_e5m2, "int8": jnp.int8}[name]
