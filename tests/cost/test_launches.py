"""Kernels that a host issues one by one bound a step of small microbatches."""

from __future__ import annotations

from dataclasses import replace

from ridgeline.cost.training.launches import num_kernels
from ridgeline.cost.training.step import training_step
from tests.cost.settings import one_plan, setting_on


def test_a_host_that_issues_every_kernel_bounds_a_step_of_small_microbatches_only() -> None:
    setting = setting_on("h100:8", global_batch=512)
    eager = replace(setting, is_eager=True)
    small, large = (one_plan(setting, {"dp": 8}, accumulation=steps) for steps in (64.0, 1.0))
    layers = setting.tree.layers
    kernels = sum(layer.count * num_kernels(layer, setting=setting, columns=small) for layer in layers)

    assert float(training_step(eager, large).expected_s) == float(training_step(setting, large).expected_s)
    assert float(training_step(eager, small).expected_s) >= float(kernels * 64 * setting.efficiency.launch_s) * (
        1 - 1e-9
    )
