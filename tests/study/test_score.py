"""Scores: means over clusters, the interval, and how often the faster of two is ranked first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.study.score import RankAgreement, ScoredRow, rank_agreement, score

RATES = st.floats(min_value=1.0, max_value=1e6)


def row(cluster: str, *, measured: float, expected: float, width: float = 0.2) -> ScoredRow:
    return ScoredRow(
        cluster=cluster,
        measured=measured,
        expected=expected,
        low=expected * (1 - width / 2),
        high=expected * (1 + width / 2),
    )


def test_a_job_that_is_measured_often_counts_once() -> None:
    often = [row("often", measured=10.0, expected=15.0) for _ in range(9)]
    found = score([*often, row("once", measured=10.0, expected=9.0)])

    assert found is not None
    assert (found.rows, found.clusters) == (10, 2)
    assert found.mape == pytest.approx((0.5 + 0.1) / 2)
    assert found.bias == pytest.approx((0.5 - 0.1) / 2)
    assert found.within_15_percent == 0.5


def test_coverage_is_the_part_of_measurements_inside_the_interval() -> None:
    rows = [row("a", measured=10.0, expected=10.9), row("b", measured=10.0, expected=12.0)]
    found = score(rows)

    assert found is not None
    assert found.interval_coverage == 0.5
    assert found.interval_width == pytest.approx(0.2)


def test_nothing_has_no_score() -> None:
    assert score([]) is None
    assert rank_agreement([]).fraction is None


@given(st.lists(st.tuples(RATES, RATES), max_size=12))
def test_an_estimate_that_is_right_ranks_every_pair_right(rates: list[tuple[float, float]]) -> None:
    agreement = rank_agreement([(measured, measured) for measured, _ in rates])

    assert agreement.right == agreement.pairs


def test_configurations_that_differ_by_less_than_5_percent_are_no_pair() -> None:
    assert rank_agreement([(100.0, 1.0), (104.0, 2.0)]) == RankAgreement(pairs=0, right=0)


def test_a_tie_of_estimates_ranks_nothing_first() -> None:
    assert rank_agreement([(100.0, 7.0), (200.0, 7.0)]) == RankAgreement(pairs=1, right=0)
