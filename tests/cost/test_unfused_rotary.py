"""Queries and keys that a framework rotates operation by operation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ridgeline.cost.training.step import training_step
from tests.cost.settings import one_plan, setting_on


def rotary_s(*, fuses_rotary: bool) -> float:
    setting = replace(setting_on("h100:8", global_batch=8), fuses_rotary=fuses_rotary)
    step = training_step(setting, one_plan(setting, {"dp": 8}, policy="none"))
    return sum(float(part.expected_s) for path, part in step.walk() if "rotary" in path and not part.once)


def test_every_operation_passes_over_queries_and_keys() -> None:
    """8 layers of 2,048 tokens, 16 heads and 8 key heads of 128: 12 moves of 2 bytes forward and 17 backward."""
    setting = setting_on("h100:8")
    rate_bytes_per_s = setting.hbm_bytes_per_s * setting.efficiency.elementwise

    assert rotary_s(fuses_rotary=False) == pytest.approx(8 * 2048 * 24 * 128 * 2 * (12 + 17) / rate_bytes_per_s)


def test_one_kernel_reads_and_writes_them_once_and_its_gradient_as_often() -> None:
    assert rotary_s(fuses_rotary=False) == pytest.approx((12 + 17) / (2 + 4) * rotary_s(fuses_rotary=True))
