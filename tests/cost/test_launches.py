"""Kernels that a host issues one by one bound a step of small microbatches."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ridgeline.cost.training.launches import COMBINE, DISPATCH, Kernels, num_kernels
from ridgeline.cost.training.step import training_step
from ridgeline.job.job import Quantization
from tests.cost.settings import DENSE, SPARSE, one_plan, setting_on

if TYPE_CHECKING:
    from ridgeline.cost.columns import TrainingSetting


def test_a_host_that_issues_every_kernel_bounds_a_step_of_small_microbatches_only() -> None:
    setting = setting_on("h100:8", global_batch=512)
    eager = replace(setting, is_eager=True)
    small, large = (one_plan(setting, {"dp": 8}, accumulation=steps) for steps in (64.0, 1.0))
    kernels = [num_kernels(layer, setting=setting, columns=small) * layer.count for layer in setting.tree.layers]
    issued_s = sum(each.num_forward + each.num_backward for each in kernels) * 64 * setting.efficiency.launch_s

    assert float(training_step(eager, large).expected_s) == float(training_step(setting, large).expected_s)
    assert float(training_step(eager, small).expected_s) >= float(issued_s) * (1 - 1e-9)


def test_every_expert_of_a_device_has_products_of_its_own_but_gate_and_up_are_one_and_rows_are_narrowed_together() -> (
    None
):
    """Of 16 experts over 4 ways, two products each: 4 · 2 forward, twice as many backward; narrowed, one more each."""
    setting = setting_on("h100:8", model=SPARSE)
    columns = one_plan(setting, {"ep": 4, "dp": 2})
    (layer,) = setting.tree.layers
    wide = num_kernels(layer, setting=setting, columns=columns)
    experts = Kernels(num_forward=4 * 2.0, num_backward=2 * 4 * 2.0)
    few = num_kernels(layer, setting=setting, columns=one_plan(setting, {"ep": 8}))
    narrow = num_kernels(layer, setting=replace(setting, quantization=Quantization(kind="fp8")), columns=columns)

    assert wide.num_forward - few.num_forward == experts.num_forward / 2
    assert wide.num_backward - few.num_backward == experts.num_backward / 2
    assert narrow.num_forward - wide.num_forward == narrow.num_backward - wide.num_backward == 2 + 4
    assert wide.num_forward > experts.num_forward + DISPATCH.num_forward + COMBINE.num_forward


def test_a_host_that_waits_for_routing_shows_even_where_it_is_quicker_than_the_device() -> None:
    """Experts that tokens choose freely stop the host in every layer; dense models and capacities do not."""

    def shown_s(setting: TrainingSetting) -> float:
        step = training_step(replace(setting, is_eager=True), one_plan(setting, {"dp": 8}, policy="none"))
        return sum(float(part.expected_s) for path, part in step.walk() if path == "step/launches")

    dense, sparse = (setting_on("h100:8", model=model, global_batch=8) for model in (DENSE, SPARSE))

    assert shown_s(dense) == 0
    assert shown_s(replace(sparse, expert_capacity_ratio=1.0)) == 0
    assert shown_s(sparse) > 0


def test_passes_that_the_host_and_the_device_take_alike_take_a_fifth_more() -> None:
    """Each pass by itself: its launches as long as its kernels are (2^(1/4) - 1) of it more."""
    setting = replace(setting_on("h100:8", model=SPARSE, global_batch=8), is_eager=True)
    columns = one_plan(setting, {"dp": 8}, policy="none")
    quiet = training_step(replace(setting, is_eager=False), columns)
    (forward,) = (part for part in quiet.children if part.name == "forward")
    (layer,) = setting.tree.layers
    issued = num_kernels(layer, setting=setting, columns=columns) * layer.count
    launch_s = float(forward.expected_s) / float(issued.num_forward)
    device_s = float(quiet.expected_s) - float(forward.expected_s)
    host_s = float(issued.num_backward) * launch_s
    expected_s = (2**0.25 - 1) * float(forward.expected_s) + (host_s**4 + device_s**4) ** 0.25 - device_s

    eager = training_step(replace(setting, efficiency=replace(setting.efficiency, launch_s=launch_s)), columns)
    (launches,) = (part for part in eager.children if part.name == "launches")
    assert float(launches.expected_s) == pytest.approx(expected_s)
