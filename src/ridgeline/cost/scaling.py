"""What more chips bring: throughput beside that of fewer chips, and beside what it could be."""

from __future__ import annotations


def scaling_speedup(*, tokens_per_s: float, first_tokens_per_s: float) -> float:
    """Throughput over that of the first size.

    Formula: s = tokens_per_s / first_tokens_per_s

    Source: Scaling Book, ch. 5, what scaling means.

    >>> scaling_speedup(tokens_per_s=300.0, first_tokens_per_s=100.0)
    3.0
    """
    return tokens_per_s / first_tokens_per_s


def scaling_efficiency(
    *, tokens_per_s: float, num_chips: float, first_tokens_per_s: float, first_chips: float
) -> float:
    """Throughput a chip over that of the first size.

    Formula: e = (tokens_per_s / num_chips) / (first_tokens_per_s / first_chips)

    Assumes: the first size wastes nothing; where it is short of memory, more chips can pass 1.

    Source: Scaling Book, ch. 5, what scaling means: throughput in proportion to chips.

    >>> scaling_efficiency(tokens_per_s=300.0, num_chips=4, first_tokens_per_s=100.0, first_chips=1)
    0.75
    """
    return (tokens_per_s / num_chips) / (first_tokens_per_s / first_chips)


def gained_share(*, tokens_per_s: float, num_chips: float, fewer_tokens_per_s: float, fewer_chips: float) -> float:
    """Throughput that more chips add, over what they would add in proportion to their number.

    Formula: g = (tokens_per_s / fewer_tokens_per_s − 1) / (num_chips / fewer_chips − 1)

    Source: derived here.

    >>> gained_share(tokens_per_s=150.0, num_chips=2, fewer_tokens_per_s=100.0, fewer_chips=1)
    0.5
    """
    return (tokens_per_s / fewer_tokens_per_s - 1) / (num_chips / fewer_chips - 1)
