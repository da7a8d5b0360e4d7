"""Passes over memory: a norm at one rate, what only maps at another."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ridgeline.cost.training.step import training_step
from tests.cost.settings import one_plan, setting_on


def test_a_norm_reaches_less_of_the_bandwidth_than_a_residual_add() -> None:
    """Both read and write the stream of bf16, 8 layers, 2 blocks: 131,072 tokens a device, 2,048 wide."""
    setting = setting_on("v5e:2x2")
    efficiency = replace(setting.efficiency, vector=0.4, elementwise=0.8)
    step = training_step(replace(setting, efficiency=efficiency), one_plan(setting, {"fsdp": 4}, policy="none"))
    forward = [part for path, part in step.walk() if path.startswith("step/forward/") and part.composition == "leaf"]

    stream_bytes = 131072 * 2048 * 2
    norms_s = sum(float(part.expected_s) for part in forward if part.name == "norm")
    adds_s = sum(float(part.expected_s) for part in forward if part.name == "residual")
    assert norms_s == pytest.approx(8 * 2 * 2 * stream_bytes / (819e9 * 0.4))
    assert adds_s == pytest.approx(8 * 2 * 2 * stream_bytes / (819e9 * 0.8))
