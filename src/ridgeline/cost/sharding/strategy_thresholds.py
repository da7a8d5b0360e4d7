"""Where one strategy gives way to another, and from which size each is compute-bound.

    C    peak FLOP/s     W  bytes/s of one link, one way     n  links a device receives over at once
    b_w  bytes of a gathered element      b_o  of an element of the output

For x[B, D] @ W[D_X, F] the Scaling Book, ch. 3, question 4, compares gathering W with multiplying blocks and summing.
Its rules, with (N − 1)/N of a ring taken as 1, are formulas here; `winner_changes` finds the sizes by the exact times.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import inf, isclose
from typing import TYPE_CHECKING

from ridgeline.cost.critical_size import small_batch_critical_rows
from ridgeline.cost.sharding.strategy_cost import strategy_cost

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ridgeline.cost.sharding.sharded_matmul import Strategy
    from ridgeline.cost.sharding.strategy_cost import Setting

_STEP = 2**0.25
_SIZES = tuple(_STEP**step for step in range(4 * 30 + 1))
"""Where winners are looked for: four sizes an octave, up to 2^30."""

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
        courses = [course(strategy, setting, sizes, dim) for strategy in strategies]

        def fastest(size: float, courses: Sequence[Course] = courses) -> int:
            times_s = [each.time_s(size) for each in courses]
            least_s = min(times_s)
            return next(number for number, time_s in enumerate(times_s, start=1) if isclose(time_s, least_s))

        for low_size, high_size in pairwise(_SIZES):
            if fastest(low_size) != fastest(high_size):
                size = _boundary(fastest, low_size, high_size)
                changes.append(Threshold(dim=dim, size=size, below=fastest(low_size), above=fastest(high_size)))
    return tuple(changes)


def compute_bound_from(strategy: Strategy, setting: Setting, sizes: Mapping[str, float]) -> dict[str, float]:
    """By dimension, the size from which a strategy waits for arithmetic; infinite where it never does."""
    found: dict[str, float] = {}
    for dim in strategy.product.dims:
        along = course(strategy, setting, sizes, dim)
        waits = next((size for size in reversed(_SIZES) if not along.is_compute_bound(size)), None)
        if waits is None:
            found[dim] = _SIZES[0]
        elif waits == _SIZES[-1]:
            found[dim] = inf
        else:
            found[dim] = _boundary(along.is_compute_bound, waits, waits * _STEP)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A time that grows evenly with a size.

    Attributes:
        start_s: At size 0.
        growth_s: Per element.
    """

    start_s: float
    growth_s: float

    def at_s(self, size: float) -> float:
        """The time at a size."""
        return self.start_s + self.growth_s * size


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """The times of a strategy along one dimension: arithmetic and bytes grow evenly with it, latencies stay.

    Attributes:
        compute: Arithmetic.
        hbm: Memory traffic.
        collectives: Bandwidth of each.
        latencies_s: Floor of each.
    """

    compute: Line
    hbm: Line
    collectives: tuple[Line, ...]
    latencies_s: tuple[float, ...]

    def others_s(self, size: float) -> float:
        """All but arithmetic: memory, or the collectives one after another."""
        floors = zip(self.collectives, self.latencies_s, strict=True)
        return max(self.hbm.at_s(size), sum(max(line.at_s(size), floor_s) for line, floor_s in floors))

    def time_s(self, size: float) -> float:
        """Everything overlapped."""
        return max(self.compute.at_s(size), self.others_s(size))

    def is_compute_bound(self, size: float) -> bool:
        """Whether it waits for arithmetic."""
        return self.compute.at_s(size) >= self.others_s(size)


def course(strategy: Strategy, setting: Setting, sizes: Mapping[str, float], dim: str) -> Course:
    """The times of a strategy along one dimension, from those at two sizes."""
    one, two = (strategy_cost(1, strategy, setting, {**sizes, dim: size}) for size in (1.0, 2.0))
    return Course(
        compute=_line(one.compute_s, two.compute_s),
        hbm=_line(one.hbm_s, two.hbm_s),
        collectives=tuple(_line(a.bandwidth_s, b.bandwidth_s) for a, b in zip(one.steps, two.steps, strict=True)),
        latencies_s=tuple(step.latency_s for step in one.steps),
    )


def _line(at_one_s: float, at_two_s: float) -> Line:
    return Line(start_s=2 * at_one_s - at_two_s, growth_s=at_two_s - at_one_s)


def _boundary(side: Callable[[float], object], low_size: float, high_size: float) -> float:
    """Where the answer at the lower size ends, by halving."""
    first = side(low_size)
    for _ in range(_HALVINGS):
        middle_size = (low_size + high_size) / 2
        if side(middle_size) == first:
            low_size = middle_size
        else:
            high_size = middle_size
    return high_size
