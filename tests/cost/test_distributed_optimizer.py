"""A distributed optimizer (ZeRO-1): weights whole on every replica, their state split over all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ridgeline.cost.training.collectives import step_collectives
from ridgeline.cost.training.held_weights import local_elements, state_elements
from ridgeline.cost.training.memory import training_memory
from ridgeline.cost.training.step import training_step
from ridgeline.job.job import Optimizer, Pipeline, PlanRequest, Remat
from ridgeline.model.parameters import count_parameters
from ridgeline.model.zoo import load_model
from ridgeline.search.pinned import pinned_columns
from tests.cost.settings import job_on

if TYPE_CHECKING:
    from ridgeline.cost.columns import PlanColumns, TrainingSetting
    from ridgeline.cost.work import Part

DENSE, EXPERTS = load_model("llama3-8b"), load_model("qwen3-30b-a3b")


def planned(
    mesh: dict[str, int], *, distributed: bool = True, experts: bool = False, chips: int = 8
) -> tuple[TrainingSetting, PlanColumns]:
    plan = PlanRequest(
        mesh=mesh,
        gradient_accumulation=None if mesh.get("pp", 1) > 1 else 2,
        pipeline=Pipeline(microbatches=8, repeats=1),
        remat=Remat(policy="full"),
        optimizer=Optimizer(distributed=distributed),
    )
    return pinned_columns(job_on(f"h100:{chips}", model=EXPERTS if experts else DENSE, global_batch=128, plan=plan))


def moved_bytes(setting: TrainingSetting, columns: PlanColumns, kinds: set[str]) -> float:
    return sum(each.total_bytes for each in step_collectives(setting, columns) if each.kind in kinds)


def test_weights_are_whole_on_every_replica_and_their_state_is_split() -> None:
    setting, columns = planned({"dp": 8})
    parameters = count_parameters(setting.tree).total

    assert float(local_elements(setting, columns)) == pytest.approx(parameters, rel=1e-3)
    assert float(state_elements(setting, columns)) == pytest.approx(parameters / 8, rel=1e-3)


def test_sequences_and_experts_split_no_dense_weight_but_its_state() -> None:
    whole = float(local_elements(*planned({"dp": 8})))

    assert float(local_elements(*planned({"dp": 4, "cp": 2}))) == whole
    assert float(state_elements(*planned({"dp": 4, "cp": 2}))) == pytest.approx(whole / 8)
    over_experts, replicated = (
        float(local_elements(*planned({"dp": 8 // ways, "ep": ways}, experts=True))) for ways in (8, 1)
    )
    assert 1 / 8 < over_experts / replicated < 1 / 5  # the experts' part of the weights, and the rest whole
    assert float(state_elements(*planned({"ep": 8}, experts=True))) == pytest.approx(replicated / 8)


def test_a_step_scatters_gradients_once_and_gathers_weights_once() -> None:
    setting, columns = planned({"dp": 8})
    whole = float(local_elements(setting, columns))

    assert moved_bytes(setting, columns, {"reduce_scatter"}) == pytest.approx(whole * setting.gradient_bytes)
    assert moved_bytes(setting, columns, {"all_gather"}) == pytest.approx(whole * setting.compute_bytes)
    assert moved_bytes(setting, columns, {"all_reduce"}) == 0


def test_memory_is_the_weights_and_gradients_whole_and_a_share_of_the_state() -> None:
    setting, columns = planned({"dp": 8})
    whole = float(local_elements(setting, columns))
    parts = training_memory(setting, columns).parts

    assert float(parts["compute_weights"]) == pytest.approx(2 * whole)
    assert float(parts["gradients"]) == pytest.approx(4 * whole)
    assert float(parts["gradient_accumulator"]) == 0
    assert float(parts["parameters"]) + float(parts["optimizer"]) == pytest.approx(12 * whole / 8)


def test_the_optimizer_takes_less_time_the_more_replicas_share_its_state() -> None:
    alone, shared = (training_step(*planned({"dp": 8}, distributed=each)) for each in (False, True))

    def update_s(step: Part) -> float:
        return sum(float(part.expected_s) for path, part in step.walk() if path == "step/optimizer/update")

    assert update_s(shared) == pytest.approx(update_s(alone) / 8, rel=1e-3)
