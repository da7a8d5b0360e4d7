"""Biases of experts that a framework adds after their products."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ridgeline.cost.training.step import training_step
from ridgeline.model.spec import LayerSpec, MoeSpec
from tests.cost.settings import ATTENTION, SPARSE, one_plan, setting_on


def passes_s(hardware: str, *, bias: bool, is_eager: bool = True) -> float:
    """Time of what a step of one layer and microbatch adds biases in."""
    experts = MoeSpec(num_experts=16, top_k=2, expert_mlp_dim=4096, bias=bias)
    model = replace(SPARSE, layers=((LayerSpec(mixer=ATTENTION, mlp=experts), 1),))
    setting = replace(setting_on(hardware, model=model, global_batch=8), is_eager=is_eager)
    step = training_step(setting, one_plan(setting, {"dp": 8}, policy="none"))
    return sum(float(part.expected_s) for path, part in step.walk() if path.endswith("down/bias"))


def test_each_copy_of_a_token_is_passed_over_in_f32_forward_and_backward() -> None:
    """2,048 tokens of 2 copies, 2,048 wide: 28 bytes an element forward and 40 backward."""
    setting = setting_on("h100:8")
    rate_bytes_per_s = setting.hbm_bytes_per_s * setting.efficiency.elementwise

    assert passes_s("h100:8", bias=True) == pytest.approx(2048 * 2 * 2048 * (28 + 40) / rate_bytes_per_s)


def test_without_biases_or_where_programs_are_compiled_there_are_no_such_passes() -> None:
    assert passes_s("h100:8", bias=False) == 0
    assert passes_s("h100:8", bias=True, is_eager=False) == 0
