"""Experts with a capacity: room for more rows than arrive, plain matmuls, masks that bring tokens to their places."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ridgeline.cost.training.step import training_step
from ridgeline.job.job import ExpertKernel, PlanRequest
from ridgeline.search.setting import training_setting
from tests.cost.settings import SPARSE, job_on, one_plan, setting_on

if TYPE_CHECKING:
    from ridgeline.cost.work import Part

DEVICE_TOKENS = 256 * 2048 / 4
LAYERS, TOP_K, WIDTH, EXPERT_WIDTH = 8, 2, 2048, 4096
EXPERT_FLOPS = 6 * 3 * WIDTH * EXPERT_WIDTH * TOP_K  # a token and layer, forward and backward


def flops_of(step: Part) -> float:
    return sum(float(amount) for resource, amount in step.work.amounts.items() if resource.startswith("flops"))


def step_with(capacity_ratio: float | None) -> Part:
    setting = replace(setting_on("v5e:2x2", model=SPARSE), expert_capacity_ratio=capacity_ratio)
    return training_step(setting, one_plan(setting, {"fsdp": 4}, policy="none"))


def test_experts_fill_their_capacity_and_masks_multiply_every_token_with_every_place_of_its_sequence() -> None:
    """The dispatch mask meets tokens once in each pass, the combine mask twice in the backward pass: five products."""
    places = 2048 * TOP_K * 1.25
    more = DEVICE_TOKENS * LAYERS * (0.25 * EXPERT_FLOPS + 5 * 2 * WIDTH * places)

    assert flops_of(step_with(1.25)) - flops_of(step_with(None)) == pytest.approx(more)


def test_with_a_capacity_nothing_is_sorted() -> None:
    names = [path for path, _ in step_with(1.25).walk()]

    assert any(name.endswith("dispatch/mask") for name in names)
    assert not any(name.endswith("/sort") for name in names)
    assert any(path.endswith("dispatch/sort") for path, _ in step_with(None).walk())


@pytest.mark.parametrize(
    ("experts", "ratio"),
    [
        (ExpertKernel(), None),
        (ExpertKernel(dispatch="dropless"), None),
        (ExpertKernel(dispatch="capacity"), 1.0),
        (ExpertKernel(dispatch="capacity", capacity_factor=1.25), 1.25),
    ],
)
def test_a_jobs_capacity_is_the_settings(experts: ExpertKernel, ratio: float | None) -> None:
    job = job_on("v5e:2x2", model=SPARSE, plan=PlanRequest(experts=experts))

    assert training_setting(job, global_batch=256).expert_capacity_ratio == ratio


def test_the_product_that_adds_up_what_experts_made_runs_once_though_all_else_of_the_branch_runs_again() -> None:
    """Only the stream reads what it makes, and the stream is kept as the next layer's input."""
    setting = replace(setting_on("v5e:2x2", model=SPARSE), expert_capacity_ratio=1.25)
    step = training_step(setting, one_plan(setting, {"fsdp": 4}, policy="full"))
    again = [path for path, part in step.walk() if "/recompute/" in path and part.expected_s > 0]

    assert any(path.endswith("dispatch/mask") for path in again)
    assert any(path.endswith("experts/down") for path in again)
    assert not any(path.endswith("combine/mask") for path in again)
