"""What the degree of one mesh axis does to a step, planned anew at each, and drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ridgeline.cli.app import main
from ridgeline.hardware.topology import parse_slice
from ridgeline.job.job import Job, PlanRequest, Remat, Workload
from ridgeline.model.zoo import load_model
from ridgeline.report.degrees import degrees_chart
from ridgeline.search.degrees import over_degrees
from ridgeline.search.train import train

if TYPE_CHECKING:
    from pathlib import Path

JOB = Job(
    model_reference="llama3.1-8b",
    model=load_model("llama3.1-8b"),
    hardware=parse_slice("tpu7x:2x2x1"),
    workload=Workload(seq_len=8192, global_batch=8),
    plan=PlanRequest(remat=Remat(policy="full")),
)


def test_two_ways_on_the_pair_of_a_chip_cost_little_and_four_over_links_much() -> None:
    best = train(JOB).best
    axis, points = over_degrees(JOB, best, "tp=4", global_batch=8)
    communication_s = {each.degree: each.communication_s for each in points}

    assert axis == "tp"
    assert {1, 2, 4} <= set(communication_s)
    assert communication_s[4] > 3 * communication_s[2]
    assert best.step.expected_s == pytest.approx(
        next(each.estimate.step.expected_s for each in points if each.degree == best.plan.mesh.get("tp", 1)), rel=0.11
    )


def test_the_chart_marks_the_plan_that_was_chosen() -> None:
    best = train(JOB).best
    axis, points = over_degrees(JOB, best, "tp=2", global_batch=8)
    chart = degrees_chart(axis, points, best, title="a job")

    assert chart.marks[0].y == best.step.expected_s
    assert [curve.name for curve in chart.curves] == ["the step", "exposed collectives"]


def test_a_choice_not_taken_is_drawn_over_its_degrees(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "degrees.svg"
    words = ["--on=tpu7x:2x2x1", "--seq-len=8192", "--global-batch=8", "--remat=full", "--why=tp=2", f"--plot={path}"]

    assert main(["train", "llama3.1-8b", *words]) == 0
    assert "the step over the degree of tp" in path.read_text(encoding="utf-8")
    assert "Why not tp=2" in capsys.readouterr().out
