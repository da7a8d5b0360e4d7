"""What narrowing an operand moves where no compiler fuses it into the product."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.job.job import Quantization

NARROW_BYTES: Final[Mapping[str, float]] = {"fp8": 1.0, "int8": 1.0, "fp4": 0.5}
"""Bytes of one narrowed element by kind of recipe, without its part of a scale."""

COPIES: Final = 2
"""An operand is narrowed along rows and along columns: its product and its gradient contract different dimensions.
Source: Transformer Engine user guide, FP8 and MXFP8: Hopper's fp8 products need a transposed copy, and blocks of scales
run along the contracted dimension."""


def narrowing_bytes(*, b_a: float, b_q: float, num_looks: int) -> float:
    """Traffic of narrowing one element: read, once more to find a scale that all of a tensor shares, written twice.

    Formula: b_a · (1 + num_looks) + 2 · b_q

    Source: derived from Transformer Engine's recipes.

    >>> narrowing_bytes(b_a=2.0, b_q=1.0, num_looks=1), narrowing_bytes(b_a=2.0, b_q=1.0, num_looks=0)
    (6.0, 4.0)
    """
    return b_a * (1 + num_looks) + COPIES * b_q


def num_looks(recipe: Quantization) -> int:
    """Passes that find a scale before any element is narrowed: one for dynamic scales, of blocks none."""
    return int(recipe.scaling == "dynamic" and recipe.granularity != "sub_channel")
