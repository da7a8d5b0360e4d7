"""How long an operation takes: as long as the slower of its arithmetic and its memory traffic.

C    peak FLOP/s   W    bandwidth, bytes/s            B, D, F  rows, contracted and output width
T    queries       S    keys a query sees             N, H     query heads, head width
b_a  bytes of an activation's element      b_w  of a weight's      b_o  of an output's
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ridgeline.cost.work import smaller
from ridgeline.model.flops import attention_flops as attention_flops  # noqa: PLC0414 - beside its kin, for importers
from ridgeline.model.flops import matmul_flops as matmul_flops  # noqa: PLC0414 - beside its kin, for importers

if TYPE_CHECKING:
    from ridgeline.cost.work import Number

ATTENTION_BACKWARD_FACTOR = 2.5
"""FLOPs of a fused attention backward over its forward: five matmuls (scores again, and four gradients) to two.
Source: Dao, FlashAttention-2, arXiv:2307.08691, section 4.1."""

ATTENTION_BACKWARD_LEAST = 2.0
"""FLOPs that any attention backward needs, over the forward's: four gradient matmuls to two. For bounds."""


def compute_s(*, flops: Number, C_flops_per_s: Number) -> Number:
    """Time of arithmetic at its peak rate.

    Formula: T_math = flops / C

    Source: Scaling Book, ch. 1.

    >>> compute_s(flops=6.0, C_flops_per_s=2.0)
    3.0
    """
    return flops / C_flops_per_s


def transfer_s(*, traffic_bytes: Number, W_bytes_per_s: Number) -> Number:
    """Time of moving bytes at full bandwidth.

    Formula: T_comms = traffic / W

    Source: Scaling Book, ch. 1.

    >>> transfer_s(traffic_bytes=8.0, W_bytes_per_s=2.0)
    4.0
    """
    return traffic_bytes / W_bytes_per_s


def overlapped_s(**times_s: float) -> float:
    """Least time of an operation: its slowest resource, everything else behind it.

    Formula: T_lower = max(T_math, T_comms)

    Assumes: perfect overlap.

    Source: Scaling Book, ch. 1.

    >>> overlapped_s(T_math=3.0, T_comms=4.0)
    4.0
    """
    return max(times_s.values())


def summed_s(**times_s: float) -> float:
    """Most time of an operation: its resources one after the other.

    Formula: T_upper = T_math + T_comms

    Assumes: no overlap at all, each resource at its peak; at most as many times T_lower as there are resources.

    Source: Scaling Book, ch. 1.

    >>> summed_s(T_math=3.0, T_comms=4.0)
    7.0
    """
    return sum(times_s.values())


def intensity_flops_per_byte(*, flops: Number, traffic_bytes: Number) -> Number:
    """Arithmetic done per byte moved.

    Formula: AI = flops / traffic

    Source: Scaling Book, ch. 1.

    >>> intensity_flops_per_byte(flops=6.0, traffic_bytes=4.0)
    1.5
    """
    return flops / traffic_bytes


def ridge_flops_per_byte(*, C_flops_per_s: Number, W_bytes_per_s: Number) -> Number:
    """The intensity from which arithmetic takes longer than moving the bytes: the ridge of the roofline.

    Formula: AI = C / W

    Source: Scaling Book, ch. 1.

    >>> round(ridge_flops_per_byte(C_flops_per_s=197e12, W_bytes_per_s=820e9))  # v5e, bf16
    240
    """
    return C_flops_per_s / W_bytes_per_s


def attainable_flops_per_s(*, intensity_flops_per_byte: Number, C_flops_per_s: Number, W_bytes_per_s: Number) -> Number:
    """The roofline: the rate that bandwidth feeds, up to the peak.

    Formula: rate = min(C, intensity · W)

    Source: Scaling Book, ch. 1.

    >>> [attainable_flops_per_s(intensity_flops_per_byte=ai, C_flops_per_s=6.0, W_bytes_per_s=2.0) for ai in (1, 9)]
    [2.0, 6.0]
    """
    return smaller(C_flops_per_s, intensity_flops_per_byte * W_bytes_per_s)


def matmul_bytes(*, B: Number, D: Number, F: Number, b_a: float, b_w: float, b_o: float) -> Number:
    """Bytes moved by x[B, D] @ W[D, F], each array once.

    Formula: b_a·B·D + b_w·D·F + b_o·B·F

    Source: Scaling Book, ch. 1.

    >>> matmul_bytes(B=1, D=2, F=3, b_a=2.0, b_w=1.0, b_o=4.0)
    22.0
    """
    return b_a * B * D + b_w * D * F + b_o * B * F


def attained_s(
    *, flops: Number, C_flops_per_s: float, traffic_bytes: Number, W_bytes_per_s: float, fill_bytes: float
) -> Number:
    """Time of a matmul: the first tiles arrive, then the rest of the traffic runs beside the arithmetic.

    Formula: T = T_fill + ((FLOPs/C)^p + (bytes/W - T_fill)^p)^(1/p), T_fill = min(bytes, fill)/W, p = 3

    Assumes: a knee of p = 3 between the two resources; p without end, and no fill, is the bound of the Scaling Book,
    ch. 1. Gated units, which wait for memory as much as for arithmetic, are told within 4% by p = 2 and by p = 3.

    Source: docs/calibration.md.

    >>> sizes = {"flops": 10.0, "C_flops_per_s": 10.0, "traffic_bytes": 3.0, "W_bytes_per_s": 2.0}  # 1 s and 1.5 s
    >>> both_s = attained_s(**sizes, fill_bytes=1.0)  # 0.5 s, then 1 s beside 1 s
    >>> print(round((both_s - 0.5) ** 3, 9))
    2.0
    """
    import numpy as np

    arithmetic_s = compute_s(flops=flops, C_flops_per_s=C_flops_per_s)
    fill_s = transfer_s(traffic_bytes=smaller(traffic_bytes, fill_bytes), W_bytes_per_s=W_bytes_per_s)
    beside_s = transfer_s(traffic_bytes=traffic_bytes, W_bytes_per_s=W_bytes_per_s) - fill_s
    return fill_s + np.cbrt(arithmetic_s**3 + beside_s**3)
