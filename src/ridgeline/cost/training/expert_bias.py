"""Biases of experts, where a framework adds them after the grouped product: whole passes over its output.

Megatron-LM multiplies each expert's bias by the tokens' probabilities, adds it and joins the experts' rows in f32, for
the product whose outputs are summed; that of the first product rides in the activation function.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ridgeline.cost.work import Number

FORWARD_BYTES: Final = 28.0
"""Of one output element: probability times bias written (4), read and added (2 + 4 + 4), rows of all experts joined
(4 + 4), narrowed (4 + 2).
Source: Megatron-LM, megatron/core/transformer/moe/experts.py (`_apply_bias`)."""

BACKWARD_BYTES: Final = 40.0
"""Its gradient: widened (2 + 4), narrowed for the product (4 + 2) and joined (2 + 2); times the probability and summed
for the bias (4 + 4 + 4); times the bias and summed for the probability (4 + 4 + 4).
Source: derived from the same."""


def expert_bias_bytes(*, B: Number, F: Number, element_bytes: float) -> Number:
    """Traffic of adding the experts' biases to B rows of F outputs.

    Formula: B · F · bytes

    Source: docs/gpu.md.

    >>> expert_bias_bytes(B=4.0, F=8.0, element_bytes=FORWARD_BYTES)
    896.0
    """
    return B * F * element_bytes
