"""Of two published plans of one job, the estimate ranks the faster one first."""

from __future__ import annotations

from statistics import mean

from tests.measured.pairs import by_job, counted, not_stated, share_right


def test_the_faster_plan_is_ranked_first_in_four_fifths_of_the_pairs() -> None:
    assert len(counted()) >= 30
    assert share_right(counted()) >= 0.8


def test_the_faster_plan_is_ranked_first_in_four_fifths_when_every_job_counts_once() -> None:
    jobs = by_job(counted())

    assert len(jobs) >= 15
    assert mean(share_right(pairs) for pairs in jobs.values()) >= 0.8


def test_fsdp_is_ranked_before_tensor_parallelism_for_405b_on_two_pods_of_v6e() -> None:
    (pair,) = (pair for pair in counted() if pair.faster.job_in_words.startswith("llama3.1-405b on 512 v6e"))

    assert pair.faster.case.job.plan.mesh["tp"] == 1
    assert pair.slower.case.job.plan.mesh["tp"] == 4
    assert pair.is_right


def test_runs_that_no_job_can_state_are_in_no_pair() -> None:
    named = {side.case.id for pair in counted() for side in (pair.faster, pair.slower)}

    assert not named & set(not_stated())
