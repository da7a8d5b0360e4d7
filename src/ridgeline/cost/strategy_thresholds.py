"""Where one strategy gives way to another, and from which size each is compute-bound.

    C    peak FLOP/s     W  bytes/s of one link, one way     n  links a device receives over at once
    b_w  bytes of a gathered element      b_o  of an element of the output

For x[B, D] @ W[D_X, F] the Scaling Book, ch. 3, question 4, compares gathering W with multiplying blocks and summing.
Its rules, with (N − 1)/N of a ring taken as 1, are formulas here; `winner_changes` finds the sizes by the exact times.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from ridgeline.cost.critical_size import small_batch_critical_rows
from ridgeline.cost.strategy_cost import communication_s, math_s, strategy_s, traffic_s
from ridgeline.cost.work import larger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from ridgeline.cost.sharded_matmul import Strategy
    from ridgeline.cost.strategy_cost import Setting
    from ridgeline.cost.work import Number

_SIZES = 2.0 ** np.arange(0.0, 30.25, 0.25)
"""Where winners are looked for: four sizes an octave."""

_SAME = 1e-12
_HALVINGS = 60


def gather_critical_rows(*, b_w: float, C_flops_per_s: float, n: float, W_bytes_per_s: float) -> float:
    """Rows from which gathering the weights, then multiplying, is compute-bound.

    Formula: B = C·b_w / (2·n·W)

    Assumes: (N − 1)/N taken as 1; the product is not split over the gathered axis. In bf16 over one ring this is α.

    Source: Scaling Book, ch. 3, question 4: 2·B·D·F/C against b_w·D·F/W_ici. It prints the condition on F; it is on B.

    >>> gather_critical_rows(b_w=2.0, C_flops_per_s=4.59e14, n=2, W_bytes_per_s=9e10)  # v5p
    2550.0
    """
    return small_batch_critical_rows(b_w=b_w, C_flops_per_s=C_flops_per_s, W_bytes_per_s=n * W_bytes_per_s)


def reduce_over_compute_size(*, b_o: float, C_flops_per_s: float, n: float, W_bytes_per_s: float) -> float:
    """Contracted width from which multiplying blocks, then summing, beats a gather that is compute-bound.

    Formula: D = C·b_o / (n·W)

    Assumes: B large, so that the gather's strategy waits for arithmetic and the other for its all-reduce.

    Source: Scaling Book, ch. 3, question 4: 2·B·D·F/C against 2·b_o·B·F/W_ici; in bf16, D > 2·α.

    >>> reduce_over_compute_size(b_o=2.0, C_flops_per_s=4.59e14, n=2, W_bytes_per_s=9e10)  # v5p
    5100.0
    """
    return C_flops_per_s * b_o / (n * W_bytes_per_s)


def reduce_over_gather_rows(*, D: float, b_w: float, b_o: float) -> float:
    """Rows up to which multiplying blocks, then summing, beats a gather while both wait for their collective.

    Formula: B = D·b_w / (2·b_o)

    Assumes: B small, so that neither is compute-bound.

    Source: Scaling Book, ch. 3, question 4, later edition: b_w·D·F/W_ici against 2·b_o·B·F/W_ici; in bf16, D > 2·B.

    >>> reduce_over_gather_rows(D=8192, b_w=2.0, b_o=2.0)
    4096.0
    """
    return D * b_w / (2 * b_o)


def gather_over_scatter_ratio(*, M: float, K: float) -> float:
    """Bytes of gathering A[N, M_X] over those of reduce-scattering C[N, K], for A[N, M_X] @ B[M, K].

    Formula: M/K

    Assumes: A and C of one dtype.

    Source: Scaling Book, ch. 3, question 9.

    >>> gather_over_scatter_ratio(M=8192, K=2048)
    4.0
    """
    return M / K


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """A size at which another strategy becomes the fastest, the other sizes as asked.

    Attributes:
        dim: The dimension.
        size: Elements along it.
        below: Number of the strategy that is fastest just below.
        above: The same, just above.
    """

    dim: str
    size: float
    below: int
    above: int


def winner_changes(
    strategies: Sequence[Strategy], setting: Setting, sizes: Mapping[str, float]
) -> tuple[Threshold, ...]:
    """Every change of the fastest strategy along each dimension, from 1 element up.

    Args:
        strategies: In the order of their numbers, from 1.
        setting: The arrays' machine.
        sizes: As asked.
    """
    changes: list[Threshold] = []
    for dim in strategies[0].product.dims if len(strategies) > 1 else ():

        def winners(size: NDArray[np.float64], dim: str = dim) -> NDArray[np.int64]:
            return _fastest(strategies, setting, {**sizes, dim: size})

        found = winners(_SIZES)
        for index in np.flatnonzero(found[1:] != found[:-1]):
            size = _boundary(winners, float(_SIZES[index]), float(_SIZES[index + 1]))
            changes.append(Threshold(dim=dim, size=size, below=int(found[index]) + 1, above=int(found[index + 1]) + 1))
    return tuple(changes)


def compute_bound_from(strategy: Strategy, setting: Setting, sizes: Mapping[str, float]) -> dict[str, float]:
    """By dimension, the size from which a strategy waits for arithmetic; infinite where it never does."""

    def is_compute_bound(dim: str, size: NDArray[np.float64]) -> NDArray[np.bool_]:
        at = {**sizes, dim: size}
        others = larger(traffic_s(strategy, setting, at), communication_s(strategy.collectives, setting, at))
        return np.asarray(math_s(strategy, setting, at) >= others)

    found: dict[str, float] = {}
    for dim in strategy.product.dims:
        bound = is_compute_bound(dim, _SIZES)
        if not bound[-1]:
            found[dim] = inf
        elif bound.all():
            found[dim] = 1.0
        else:
            last = int(np.flatnonzero(~bound)[-1])
            edges = float(_SIZES[last]), float(_SIZES[last + 1])
            found[dim] = _boundary(lambda size, dim=dim: is_compute_bound(dim, size), *edges)
    return found


def _fastest(strategies: Sequence[Strategy], setting: Setting, sizes: Mapping[str, Number]) -> NDArray[np.int64]:
    """Index of the first strategy that is as fast as any, for each row."""
    times_s = np.array(np.broadcast_arrays(*(strategy_s(way, setting, sizes) for way in strategies)))
    return np.argmax(times_s <= times_s.min(axis=0) * (1 + _SAME), axis=0)


def _boundary(sides: Callable[[NDArray[np.float64]], NDArray[np.generic]], low_size: float, high_size: float) -> float:
    """Where the answer at the lower size ends, by halving."""
    first = sides(np.array([low_size]))[0]
    for _ in range(_HALVINGS):
        middle_size = (low_size + high_size) / 2
        if sides(np.array([middle_size]))[0] == first:
            low_size = middle_size
        else:
            high_size = middle_size
    return high_size
