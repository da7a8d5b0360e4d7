"""Estimates beside measurements: rows, groups, intervals, readings, and memory."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import pytest

import ridgeline
from ridgeline.job.job import Remat
from ridgeline.search.train import cost_pinned
from ridgeline.study.measured.files import MeasuredCases, published_cases
from ridgeline.study.validate import ValidateAnswer, validate_cases

if TYPE_CHECKING:
    from ridgeline.study.measured.case import MeasuredCase


def published(name: str) -> MeasuredCase:
    return next(case for case in published_cases().training if case.id == name)


@cache
def seventy() -> MeasuredCase:
    return published("v6e-llama3.1-70b-256c-8k-bf16-20250715")


def answer_to(*cases: MeasuredCase) -> ValidateAnswer:
    return validate_cases(MeasuredCases(training=cases))


def test_an_estimate_that_equals_the_measurement_has_no_error() -> None:
    expected_s = cost_pinned(seventy().job).step.expected_s
    (row,) = answer_to(replace(seventy(), measured=expected_s)).rows

    assert row.scored.error == 0
    assert row.scored.low <= row.scored.measured <= row.scored.high
    assert sum(row.causes.values()) == pytest.approx(1)


def test_the_error_of_a_throughput_has_the_other_sign_than_that_of_a_time() -> None:
    as_time = replace(seventy(), measured=2 * cost_pinned(seventy().job).step.expected_s)
    as_rate = replace(as_time, id="rate", metric="tokens_per_s_per_chip", measured=as_time.tokens_per_s_per_chip)
    answer = answer_to(as_time, as_rate)
    time, rate = answer.rows

    assert (time.scored.error, rate.scored.error) == (pytest.approx(-0.5), pytest.approx(1.0))
    assert rate.scored.low < rate.scored.expected < rate.scored.high
    assert answer.step_bias == pytest.approx(-0.5)


def test_what_was_derived_is_a_group_of_its_own() -> None:
    answer = answer_to(seventy(), replace(seventy(), id="derived", source_of_measured="derived"))

    assert {name: score.rows for name, score in answer.groups["source_of_measured"].items()} == {
        "direct": 1,
        "derived": 1,
    }


def test_a_policy_that_was_assumed_has_the_spread_of_its_readings() -> None:
    plan = seventy().job.plan
    other = replace(seventy().job, plan=replace(plan, remat=Remat(policy="none")))
    (row,) = answer_to(replace(seventy(), alternatives=(other,))).rows

    assert row.spread is not None
    assert row.spread[0] == pytest.approx(cost_pinned(other).step.expected_s)
    assert row.spread[1] == pytest.approx(row.scored.expected)


def test_a_case_that_cannot_be_estimated_is_skipped_with_the_reason() -> None:
    job = seventy().job
    mesh = dict.fromkeys(job.plan.mesh, 1) | {"fsdp": 128, "ep": 2}
    answer = answer_to(seventy(), replace(seventy(), id="experts", job=replace(job, plan=replace(job.plan, mesh=mesh))))

    assert [row.case.id for row in answer.rows] == [seventy().id]
    assert [each.id for each in answer.skipped] == ["experts"]
    assert answer.skipped[0].reason.startswith("cannot be estimated: ")


def test_runs_of_one_plan_rank_against_other_plans_by_the_fastest() -> None:
    slow, fast = replace(seventy(), measured=9.0), replace(seventy(), id="fast", measured=8.0)
    other = replace(published("v6e-llama3.1-70b-64c-8k-bf16-20250715"), measured=16.0)

    assert answer_to(slow, fast, other).ranked.pairs == 1


def test_every_published_verdict_on_memory_is_right_or_tight() -> None:
    answer = validate_cases(replace(published_cases(), training=()))

    assert len(answer.memory) >= 12
    assert {run.verdict for run in answer.memory} <= {"right", "tight"}


def test_python_asks_the_same_question() -> None:
    with pytest.raises(ridgeline.InputError, match="cannot read it"):
        ridgeline.validate("no-such-file.json")
