"""How far estimates are from measurements: errors, and their means over clusters of rows that measure one job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, median
from typing import TypeAlias

CLOSE = 0.15
"""An error up to which a row counts as close."""

LEAST_DIFFERENCE = 0.05
"""By how much two configurations must differ, measured, for their order to count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredRow:
    """A measurement beside its estimate, in one unit.

    Attributes:
        cluster: What joins it with other measurements of one job.
        measured: Value.
        expected: Estimate.
        low: Lower end of its interval.
        high: Upper end.
    """

    cluster: str
    measured: float
    expected: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """Of the estimate, as a fraction of the measurement.

        >>> ScoredRow(cluster="", measured=10.0, expected=9.0, low=8.0, high=11.0).error
        -0.09999999999999998
        """
        return self.expected / self.measured - 1

    @property
    def is_close(self) -> bool:
        """Whether the error is at most 15%."""
        return abs(self.error) <= CLOSE

    @property
    def is_covered(self) -> bool:
        """Whether the measurement lies in the interval."""
        return self.low <= self.measured <= self.high

    @property
    def width(self) -> float:
        """Full width of the interval, as a fraction of the estimate."""
        return (self.high - self.low) / self.expected


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How far a set of estimates is from measurements; a cluster counts once, however many rows it has.

    Attributes:
        rows: How many.
        clusters: Of how many jobs.
        mape: Mean of the absolute errors.
        bias: Mean of the errors.
        within_15_percent: Part whose error is at most 15%.
        interval_coverage: Part that lies in the interval.
        interval_width: Full width of the interval over the estimate, at the median.
    """

    rows: int
    clusters: int
    mape: float
    bias: float
    within_15_percent: float
    interval_coverage: float
    interval_width: float


Attribute: TypeAlias = Callable[[ScoredRow], float]


def score(rows: Sequence[ScoredRow]) -> Score | None:
    """The score of some rows; None of none.

    Means are taken over the rows of each cluster, then over clusters.
    """
    clusters = _clusters(rows)
    if not clusters:
        return None

    def means(attribute: Attribute) -> list[float]:
        return [fmean(attribute(row) for row in those) for those in clusters]

    return Score(
        rows=len(rows),
        clusters=len(clusters),
        mape=fmean(means(lambda row: abs(row.error))),
        bias=fmean(means(lambda row: row.error)),
        within_15_percent=fmean(means(lambda row: float(row.is_close))),
        interval_coverage=fmean(means(lambda row: float(row.is_covered))),
        interval_width=median(means(lambda row: row.width)),
    )


def _clusters(rows: Iterable[ScoredRow]) -> list[list[ScoredRow]]:
    found: dict[str, list[ScoredRow]] = {}
    for row in rows:
        found.setdefault(row.cluster, []).append(row)
    return list(found.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class RankAgreement:
    """How often the estimate ranks two configurations as the measurement does.

    Attributes:
        pairs: Pairs that differ by over 5%, measured.
        right: Of these, how many are ranked alike.
    """

    pairs: int
    right: int

    @property
    def fraction(self) -> float | None:
        """Part that is right; None of no pair."""
        return self.right / self.pairs if self.pairs else None


def rank_agreement(rates: Sequence[tuple[float, float]]) -> RankAgreement:
    """Of all pairs of configurations of one model, how many are ranked alike.

    >>> rank_agreement([(100.0, 90.0), (200.0, 210.0), (203.0, 190.0), (400.0, 205.0)])
    RankAgreement(pairs=5, right=4)

    Args:
        rates: Of each configuration, measured and expected throughput.
    """
    counted = [pair for pair in combinations(sorted(rates), 2) if pair[1][0] > pair[0][0] * (1 + LEAST_DIFFERENCE)]
    return RankAgreement(pairs=len(counted), right=sum(faster[1] > slower[1] for slower, faster in counted))
