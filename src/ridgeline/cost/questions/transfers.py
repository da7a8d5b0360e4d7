"""From one chip to another over a torus: how far, over how many links, how soon, how long.

V  bytes      W  bytes/s of one link, one way      t_min  least time of a hop      N  chips along an axis
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ridgeline.cost.work import Number


def first_byte_s(*, hops: Number, t_min_s: float) -> Number:
    """Time until the first byte arrives.

    Formula: T_first = hops · t_min

    Source: Scaling Book, ch. 2, question 5.

    >>> round(first_byte_s(hops=6, t_min_s=1e-6) * 1e6, 9)
    6.0
    """
    return hops * t_min_s


def streamed_s(*, V_bytes: Number, ports: Number, W_bytes_per_s: float) -> Number:
    """Time for all bytes to leave over every port that leads there.

    Formula: T = V / (ports · W)

    Source: Scaling Book, ch. 2, question 5.

    >>> streamed_s(V_bytes=9e6, ports=2, W_bytes_per_s=4.5e10) * 1e6
    100.0
    """
    return V_bytes / (ports * W_bytes_per_s)


def point_to_point_s(*, V_bytes: Number, ports: Number, W_bytes_per_s: float, hops: Number, t_min_s: float) -> Number:
    """Time until the last byte arrives: all leave, and the last one travels.

    Formula: T = hops · t_min + V / (ports · W)

    Source: Scaling Book, ch. 2, question 5.

    >>> round(point_to_point_s(V_bytes=9e6, ports=2, W_bytes_per_s=4.5e10, hops=6, t_min_s=1e-6) * 1e6, 9)
    106.0
    """
    streaming_s = streamed_s(V_bytes=V_bytes, ports=ports, W_bytes_per_s=W_bytes_per_s)
    return first_byte_s(hops=hops, t_min_s=t_min_s) + streaming_s


def distance_hops(*, N: int, start: int, end: int, wraps: bool) -> int:
    """Hops between two chips of an axis, the shorter way around if it closes.

    Formula: hops = |start − end|, or with wraparound min(|start − end|, N − |start − end|)

    Source: Scaling Book, ch. 2.

    >>> [distance_hops(N=4, start=0, end=3, wraps=wraps) for wraps in (False, True)]
    [3, 1]
    """
    apart = abs(start - end)
    return min(apart, N - apart) if wraps else apart


def farthest_hops(*, N: int, wraps: bool) -> int:
    """Hops between the two chips of an axis that are farthest apart.

    Formula: hops = N − 1, or with wraparound ⌊N/2⌋

    Source: Scaling Book, ch. 2.

    >>> farthest_hops(N=16, wraps=True), farthest_hops(N=4, wraps=False)
    (8, 3)
    """
    return N // 2 if wraps else N - 1


def torus_ports(*, shape: Sequence[int], wraps: Sequence[bool], at: Sequence[int]) -> int:
    """Links of a chip that lead somewhere: two an axis, one at the end of a line or on an axis of two.

    Formula: ports = Σ over axes of neighbours

    Source: Scaling Book, ch. 2, question 5: two at the corner of an unwrapped v5e slice.

    >>> torus_ports(shape=(4, 4), wraps=(False, False), at=(0, 0))
    2
    """
    return sum(
        len({(x - 1) % N, (x + 1) % N} - {x}) if closes else (x > 0) + (x < N - 1)
        for N, closes, x in zip(shape, wraps, at, strict=True)
    )


def usable_ports(*, shape: Sequence[int], wraps: Sequence[bool], start: Sequence[int], end: Sequence[int]) -> int:
    """Links over which a chip can send to another at once, no link used twice.

    The narrowest place between the two: the links of either chip, or, on an axis along which they differ, those
    that join one half of the slice to the other.

    Formula: ports = min(ports of start, ports of end, links across the slice between them)

    Source: Scaling Book, ch. 2, question 5; the cut across the slice is derived here.

    >>> usable_ports(shape=(8,), wraps=(False,), start=(2,), end=(5,))  # a line has one way, though both have two links
    1
    """
    across = (
        prod(shape) // N * (2 if closes and N > 2 else 1)
        for N, closes, a, b in zip(shape, wraps, start, end, strict=True)
        if a != b
    )
    at_ends = (torus_ports(shape=shape, wraps=wraps, at=at) for at in (start, end))
    return min(*at_ends, *across)
