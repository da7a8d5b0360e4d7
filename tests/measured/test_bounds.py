"""No published run beats the bound; the estimates of the main job stand where they should."""

from __future__ import annotations

from statistics import median

import pytest

from ridgeline.search.train import cost_pinned
from tests.measured.cases import MeasuredCase, measured_cases

CASES = measured_cases()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_no_measured_run_is_faster_than_the_roofline(case: MeasuredCase) -> None:
    readings = (case.job, *case.alternatives)  # of what the source leaves open, the least work

    assert min(cost_pinned(job).step.roofline_s for job in readings) <= case.step_s


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_the_roofline_never_exceeds_the_estimate(case: MeasuredCase) -> None:
    step = cost_pinned(case.job).step

    assert step.roofline_s <= step.low_s <= step.expected_s <= step.high_s


def test_half_of_the_fully_stated_runs_are_estimated_within_a_seventh_before_any_fit() -> None:
    errors = [abs(cost_pinned(case.job).step.expected_s / case.step_s - 1) for case in CASES if not case.assumed]

    assert len(errors) > 90
    assert median(errors) < 1 / 7


def test_context_parallel_runs_on_v5p_are_estimated_within_a_third() -> None:
    cases = [case for case in CASES if case.id.startswith("v5p-llama3-8b-64c") and case.id.endswith("all_gather")]
    errors = [abs(cost_pinned(case.job).step.expected_s / case.step_s - 1) for case in cases]

    assert cases
    assert max(errors) < 1 / 3


@pytest.mark.parametrize(
    "name",
    [case.id for case in CASES if case.id.startswith("tpu7x-llama3.1") and "bf16" in case.id],
)
def test_dense_bf16_runs_on_ironwood_are_estimated_within_a_tenth_before_any_fit_to_whole_steps(name: str) -> None:
    case = next(case for case in CASES if case.id == name)

    assert cost_pinned(case.job).step.expected_s == pytest.approx(case.step_s, rel=0.10)
