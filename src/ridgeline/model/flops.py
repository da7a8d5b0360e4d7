"""FLOPs of the two operations that matter: a matmul, and attention's scores and values.

B, D, F  rows, contracted and output width     T  queries     S  keys a query sees     N, H  query heads, head width
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Number: TypeAlias = "float | NDArray[np.float64]"
"""One value, or a column of values."""


def matmul_flops(*, B: Number, D: Number, F: Number) -> Number:  # noqa: N803 - letters, as in cost
    """FLOPs of x[B, D] @ W[D, F].

    Formula: 2·B·D·F

    Source: Scaling Book, ch. 1.

    >>> matmul_flops(B=2, D=3, F=5)
    60
    """
    return 2 * B * D * F


def attention_flops(*, T: Number, S: Number, N: Number, H: Number) -> Number:  # noqa: N803 - letters, as in cost
    """FLOPs of scores and values for T queries that see S keys each, H the mean of the widths of key and value.

    Formula: 4·T·S·N·H

    Source: Scaling Book, ch. 4.

    >>> attention_flops(T=1, S=2, N=3, H=4)
    96
    """
    return 4 * T * S * N * H
