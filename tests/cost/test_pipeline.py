"""Pipelines: layers that do not divide, bubbles, what waits in the stages, and weights gathered once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ridgeline.cost.causes import BUBBLE, time_by_cause
from ridgeline.cost.training.held_weights import held_weights
from ridgeline.cost.training.memory import training_memory
from ridgeline.cost.training.pipeline import held_share, microbatches_in_flight, pipelined_share, worked_share
from ridgeline.cost.training.step import training_step
from ridgeline.model.spec import LayerSpec, MlpSpec, ModelSpec
from tests.cost.settings import ATTENTION, DENSE, SPARSE, one_plan, setting_on

if TYPE_CHECKING:
    from ridgeline.cost.columns import PlanColumns


def layers(count: int) -> ModelSpec:
    return replace(DENSE, layers=((LayerSpec(mixer=ATTENTION, mlp=MlpSpec(mlp_dim=8192)), count),))


@pytest.mark.parametrize(
    ("stages", "microbatches", "repeats", "expected"), [(4, 8, 1, 3 / 8), (4, 8, 2, 3 / 16), (2, 16, 4, 1 / 64)]
)
def test_the_bubble_is_that_of_the_published_interleaved_schedule(
    stages: int, microbatches: int, repeats: int, expected: float
) -> None:
    """Narayanan et al. 2021, section 2.2: (p − 1)/(v · m) of the time of the layers."""
    setting = setting_on("h100:8")
    columns = replace(
        one_plan(setting, {"pp": stages, "fsdp": 8 // stages}, microbatches=microbatches), repeats=float(repeats)
    )
    step = training_step(setting, columns)
    times = {path.rpartition("/")[2]: float(part.expected_s) for path, part in step.walk()}

    bubble_s = time_by_cause(step)[BUBBLE]

    assert bubble_s / (times["forward"] + times["backward"]) == pytest.approx(expected)


def test_more_repeats_hand_over_more_often() -> None:
    """A microbatch passes all stages once a repeat: 4 times for 1."""
    setting = setting_on("h100:8")
    once = one_plan(setting, {"pp": 2, "fsdp": 4}, microbatches=8)

    def handed_bytes(columns: PlanColumns) -> float:
        leaves = training_step(setting, columns).walk()
        return sum(float(part.array_bytes) * float(part.times) for path, part in leaves if "hand_over" in path)

    assert handed_bytes(replace(once, repeats=4.0)) == pytest.approx(4 * handed_bytes(once))


@pytest.mark.parametrize(("repeats", "expected"), [(1, 4), (3, 5)])
def test_a_gpu_keeps_what_one_forward_one_backward_lets_in(repeats: int, expected: float) -> None:
    """Korthikanti et al. 2022, section 4.2.3: L·(1 + (p − 1)/(p · v)) layers' activations, so p + (p − 1)/v."""
    setting = setting_on("h100:8")
    columns = replace(one_plan(setting, {"pp": 4, "fsdp": 2}, microbatches=16), repeats=float(repeats))

    assert float(microbatches_in_flight(setting, columns)) == expected


def test_a_tpu_keeps_every_microbatch_until_the_way_back() -> None:
    setting = setting_on("v5p:2x2x2")

    assert float(microbatches_in_flight(setting, one_plan(setting, {"pp": 4, "fsdp": 2}, microbatches=16))) == 16


def test_layers_left_over_lie_outside_the_pipeline_of_a_tpu() -> None:
    """Of 126 layers, 4 stages share 124; 2 are on every stage, which shares out their tokens."""
    setting = setting_on("v5p:2x2x2", model=layers(126))
    columns = one_plan(setting, {"pp": 4, "fsdp": 2}, microbatches=8)
    (layer,) = setting.tree.layers

    assert float(pipelined_share(layer, setting, columns)) * 126 == pytest.approx(124)
    assert float(held_share(layer, setting, columns)) * 126 == pytest.approx(31 + 2)
    assert float(worked_share(setting, columns)) * 126 == pytest.approx(126 / 4)


def test_the_busiest_stage_of_a_gpu_has_a_layer_more() -> None:
    """Of 126 layers, 4 stages have 31 or 32, which sets the pace; in 2 turns 16 and 16."""
    setting = setting_on("h100:8", model=layers(126))
    columns = one_plan(setting, {"pp": 4, "fsdp": 2}, microbatches=8)
    (layer,) = setting.tree.layers

    assert float(worked_share(setting, columns)) * 126 == pytest.approx(32)
    assert float(held_share(layer, setting, replace(columns, repeats=2.0))) * 126 == pytest.approx(32)


def test_leading_layers_of_another_kind_lie_outside_the_pipeline() -> None:
    """As DeepSeek's dense ones: 58 with experts are 2 times 29; 3 without are on both stages."""
    leading, experts = DENSE.layers[0][0], SPARSE.layers[0][0]
    setting = setting_on("v5p:2x2x2", model=replace(SPARSE, layers=((leading, 3), (experts, 58))))
    columns = one_plan(setting, {"pp": 2, "fsdp": 4}, microbatches=8)

    held = {
        tensor.name.partition("/")[0]: float(count)
        for tensor, count, outside in held_weights(setting, columns)
        if not outside
    }

    assert held == {"dense_layer": 3, "moe_layer": 29}


def test_weights_gathered_once_move_less_and_take_more_room() -> None:
    """8 microbatches gather in both passes and sum as often: 24 moves; or 2, with all weights of the stage whole."""
    setting = setting_on("v5p:2x2x2")
    often = one_plan(setting, {"pp": 2, "fsdp": 4}, microbatches=8)
    once = replace(often, gather_once=1.0)

    def moved(columns: PlanColumns) -> float:
        leaves = training_step(setting, columns).walk()
        return sum(
            float(part.array_bytes) * float(part.times)
            for path, part in leaves
            if "/weights/" in path and "layer" in path
        )

    of_stage = sum(tensor.size * float(held) for tensor, held, outside in held_weights(setting, often) if not outside)
    weights_and_sums_bytes = 2 * 2 * of_stage
    assert moved(once) == pytest.approx(2 / 24 * moved(often))
    assert float(training_memory(setting, once).parts["gathered_weights"]) == pytest.approx(weights_and_sums_bytes)
    assert float(training_memory(setting, often).parts["gathered_weights"]) == 0.0
