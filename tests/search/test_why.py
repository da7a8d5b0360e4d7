"""A choice that was not taken, beside the one that was."""

from __future__ import annotations

import json

import pytest

from ridgeline.cli.app import main
from ridgeline.errors import InputError
from ridgeline.report.blocks import Report
from ridgeline.report.terminal import screen
from ridgeline.report.why import why_pieces
from ridgeline.search.train import train
from ridgeline.search.why import WhyNot, why_not
from tests.search.test_train import MAIN

QUESTION = ("train", "llama3.1-8b", "--on=v6e:4x4", "--seq-len=8192", "--global-batch=32")


def why(asked: str) -> WhyNot:
    return why_not(MAIN, train(MAIN).best, asked, global_batch=256)


def test_tensor_parallelism_costs_collectives_that_fsdp_has_not() -> None:
    found = why("tp=8")

    assert found.estimate is not None
    assert found.estimate.plan.mesh["tp"] == 8
    worst = found.causes[0]
    assert (worst.cause, worst.best_s) == ("tensor-parallel collectives", 0.0)
    assert "mostly for tensor-parallel collectives" in found.reason


def test_causes_of_both_plans_add_up_to_their_steps() -> None:
    best, found = train(MAIN).best, why("pp=4")

    assert found.estimate is not None
    assert sum(each.best_s for each in found.causes) == pytest.approx(best.step.expected_s)
    assert sum(each.asked_s for each in found.causes) == pytest.approx(found.estimate.step.expected_s)
    assert found.causes[0].cause == "pipeline bubble"


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ("fsdp=128", "the best plan does just that"),
        ("tp=64", "key-value heads 8 cannot be split 64 ways"),
        ("ep=2", "the model has no experts"),
        ("dcn_dp=2", "there is one slice, and dcn_dp splits over slices"),
        ("dp=128", "it does not fit: the least any such plan needs is"),
    ],
)
def test_what_cannot_be_or_is_done_already_is_said(asked: str, reason: str) -> None:
    assert reason in why(asked).reason


def test_what_is_no_degree_is_refused() -> None:
    with pytest.raises(InputError, match="item 1 is malformed"):
        why("tensor")


def test_an_open_degree_is_no_choice() -> None:
    with pytest.raises(InputError, match="an open degree is no choice"):
        why("tp=-1")


def test_the_screen_lays_both_plans_side_by_side() -> None:
    best = train(MAIN).best
    text = screen(Report(headline="", pieces=tuple(why_pieces(why("tp=8"), best))))

    assert "Why not tp=8" in text
    assert "fsdp=16 tp=8" in text


def test_json_has_the_reason_and_the_causes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUESTION, "--why=tp=4", "--json"]) == 0

    found = json.loads(capsys.readouterr().out)["why"]
    assert (found["asked"], found["plan"]["mesh"]["tp"]) == ("tp=4", 4)
    assert {"cause", "best_s", "asked_s"} == set(found["causes"][0])


def test_another_question_beside_it_leaves_the_answer_in(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUESTION, "--why=tp=4", "--communication", "--explain"]) == 0

    screen_text = capsys.readouterr().out
    for title in ("Why not tp=4", "Collectives of a step", "Where the numbers come from"):
        assert title in screen_text


def test_a_question_about_a_plan_that_there_is_not_is_answered_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("train", "llama3.1-70b", "--on=v6e:2x2", "--seq-len=8192", "--global-batch=16", "--remat=full")

    assert main([*words, "--communication", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["best"] is None


def test_the_laws_compare_no_plans(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUESTION, "--why=tp=4", "--laws"]) == 2
    assert "the laws compare no plans" in capsys.readouterr().err
