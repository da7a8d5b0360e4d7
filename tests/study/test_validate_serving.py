"""Estimates of servers beside measurements."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import pytest

from ridgeline.report.validate import validate_json
from ridgeline.search.serving.pinned import pinned_server
from ridgeline.study.measured.files import MeasuredCases, published_serving_cases
from ridgeline.study.validate import ValidateAnswer, validate_cases

if TYPE_CHECKING:
    from ridgeline.study.measured.serving_case import ServingCase


@cache
def seventy() -> tuple[ServingCase, ...]:
    return tuple(case for case in published_serving_cases().serving if case.id == "v6e-llama3.3-70b-8c-1k1k-c64")


def answer_to(*cases: ServingCase) -> ValidateAnswer:
    return validate_cases(MeasuredCases(serving=cases))


def test_an_estimate_that_equals_the_measurement_has_no_error() -> None:
    case = seventy()[1]
    expected = case.expected(pinned_server(case.job, case.engine).times())
    (row,) = answer_to(replace(case, measured=expected)).serving

    assert row.scored.error == 0
    assert row.scored.low < expected < row.scored.high


def test_llama_70b_on_eight_v6e_yields_what_was_measured_within_a_fifth() -> None:
    by_metric = {row.case.metric: row.scored.error for row in answer_to(*seventy()).serving}

    assert abs(by_metric["tpot_s"]) < 0.2
    assert abs(by_metric["output_tokens_per_s_per_chip"]) < 0.2


def test_the_scores_at_the_top_are_of_servers_where_there_are_no_steps() -> None:
    found = validate_json(answer_to(*seventy()))

    assert (found["cases"], found["used"]) == (1, 1)
    serving = found["serving"]
    assert isinstance(serving, dict)
    assert serving["mape"] == found["mape"]
    assert isinstance(found["rows"], list)
    assert [row["metric"] for row in found["rows"] if isinstance(row, dict)] == [case.metric for case in seventy()]


def test_a_server_that_cannot_be_estimated_is_skipped_with_the_reason() -> None:
    case = seventy()[0]
    plan = replace(case.job.plan, decode={"tp": 1, "ep": 8})
    answer = answer_to(replace(case, job=replace(case.job, plan=plan)))

    assert answer.serving == ()
    assert answer.skipped[0].reason.startswith("cannot be estimated: no legal mesh")


@pytest.mark.parametrize("batch", [16, 64])
def test_with_more_requests_at_hand_tokens_take_longer_and_the_server_yields_more(batch: int) -> None:
    case = seventy()[1]
    few, many = (
        pinned_server(replace(case.job, workload=replace(case.job.workload, batch=size)), case.engine).times()
        for size in (batch, 2 * batch)
    )

    assert few.tpot_s < many.tpot_s
    assert few.output_tokens_per_s_per_chip < many.output_tokens_per_s_per_chip
