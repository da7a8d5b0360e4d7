"""What a pipeline of GPUs waits for: the stage that has the head, and transfers that nothing hides."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ridgeline.cost.training.pipeline import held_tables_share, spared_share
from ridgeline.cost.training.step import training_step
from tests.cost.settings import DENSE, one_plan, setting_on

if TYPE_CHECKING:
    from ridgeline.cost.work import Part


def part_s(step: Part, name: str) -> float:
    return next(float(part.expected_s) for path, part in step.walk() if path == f"step/pipeline/{name}")


def test_even_stages_wait_for_the_one_that_has_the_head_on_gpus() -> None:
    on_gpus, on_tpus = setting_on("h100:8"), setting_on("v5p:2x2x2")
    waits = [
        part_s(training_step(setting, one_plan(setting, {"pp": 4, "dp": 2}, microbatches=16.0)), "last_stage")
        for setting in (on_gpus, on_tpus)
    ]

    assert waits[0] > 0
    assert waits[1] == 0


def test_the_last_stage_is_spared_layers_that_do_not_divide() -> None:
    layer = DENSE.layers[0][0]
    uneven = setting_on("h100:8", model=replace(DENSE, layers=((layer, 30),)))
    even = setting_on("h100:8", model=replace(DENSE, layers=((layer, 32),)))
    columns = one_plan(even, {"pp": 4, "dp": 2}, microbatches=16.0)

    assert float(spared_share(even, columns)) == 0
    assert float(spared_share(uneven, columns)) == pytest.approx(2 / 8)  # 8, 8, 8 and 6 layers


def test_a_stage_holds_one_of_two_tables() -> None:
    setting = setting_on("h100:8")

    assert float(held_tables_share(setting, one_plan(setting, {"dp": 8}))) == 1
    assert float(held_tables_share(setting, one_plan(setting, {"pp": 2, "dp": 4}, microbatches=8.0))) == 0.5


def test_interleaved_stages_hide_what_they_hand_over() -> None:
    setting = setting_on("h100:16")
    plain = one_plan(setting, {"pp": 4, "dp": 4}, microbatches=16.0)
    twice = replace(plain, repeats=2.0)
    once_s, twice_s = (part_s(training_step(setting, each), "hand_over/permute") for each in (plain, twice))

    assert twice_s == pytest.approx(2 * once_s * (1 - setting.efficiency.overlap))
