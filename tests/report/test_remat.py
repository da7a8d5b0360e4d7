"""What is kept, and where, as a table, as a chart and as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ridgeline.cli.app import main
from ridgeline.report.drawing import Words, drawing, ticks
from ridgeline.report.remat import remat_chart
from ridgeline.report.terminal import screen
from ridgeline.report.train import train_report
from ridgeline.search.remat_answer import BEYOND
from ridgeline.search.train import train
from tests.search.test_custom_remat import DENSE, TIGHT_HBM

if TYPE_CHECKING:
    from pathlib import Path

    from ridgeline.search.answer import TrainAnswer

QUESTION = ("train", "llama3.1-8b", "--on=v6e:4x4", "--seq-len=8192", "--global-batch=32")


@pytest.fixture(scope="module")
def answer() -> TrainAnswer:
    return train(DENSE)


def test_the_table_shows_what_attention_alone_costs_to_compute_again(answer: TrainAnswer) -> None:
    context = next(value for value in answer.remat.values if value.name == "context")

    # Scores and their product with the values: half of 4·S²·N·H FLOPs a sequence and layer are not masked.
    flops = 256 / 128 * 80 * 4 * 8192 * 8192 * 64 * 128 / 2
    assert context.placement == "device"
    assert context.recompute_s > flops / 1153.5e12
    # 2 sequences of 8192 tokens and 8192 features in bf16, in each of 80 layers; that of the layer which is in its
    # backward pass may be there anyway.
    assert context.device_bytes == pytest.approx(80 * 2 * 8192 * 8192 * 2, rel=1 / 80)
    assert "What is kept, and where" in screen(train_report(answer))


def test_no_preset_lies_below_the_frontier(answer: TrainAnswer) -> None:
    drawn_bytes = BEYOND * answer.best.memory.usable_bytes
    for preset in (each for each in answer.remat.presets if each.needed_bytes <= drawn_bytes):
        reachable = [each for each in answer.remat.frontier if each.needed_bytes <= preset.needed_bytes * 1.000001]

        assert min(each.expected_s for each in reachable) <= preset.expected_s * 1.000001


def test_the_best_plan_lies_on_the_frontier(answer: TrainAnswer) -> None:
    assert any(each.remat == answer.best.plan.remat for each in answer.remat.frontier)


def test_the_chart_numbers_the_presets_and_draws_the_limit(answer: TrainAnswer) -> None:
    chart = remat_chart(answer)
    texts = [element.text for element in drawing([chart]).elements if isinstance(element, Words)]

    assert {"1", "2", "the best plan", "full", "usable 94.8 GiB"} <= set(texts)
    assert ticks(chart.x)[:3] == [0, 32 * 2**30, 64 * 2**30]


def test_on_a_chip_with_little_memory_the_table_weighs_the_host() -> None:
    values = {value.name: value for value in train(TIGHT_HBM).remat.values}

    assert values["context"].placement == "offload"
    assert values["context"].offload_s < values["context"].recompute_s


def test_the_command_draws_and_prints_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "remat.html"

    assert main([*QUESTION, f"--plot={page}", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["remat"]
    assert {choice["remat"]["policy"] for choice in found["presets"]} >= {"full", "minimal"}
    assert found["frontier"][0]["needed_bytes"] < found["frontier"][-1]["needed_bytes"]
    assert "minimal_with_context" in page.read_text(encoding="utf-8")
    assert main([*QUESTION, f"--plot={page}"]) == 2
    assert "the file exists" in capsys.readouterr().err
