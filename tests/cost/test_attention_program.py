"""Attention by other programs than the fastest kernel."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ridgeline.cost.training.operation import operation_cost
from ridgeline.model.operations import Attention
from tests.cost.settings import one_plan, setting_on

if TYPE_CHECKING:
    from ridgeline.job.job import AttentionProgram


def attention_s(hardware: str, program: AttentionProgram | None) -> tuple[float, float]:
    """Forward and backward of one layer's attention over 2,048 tokens of 16 heads of width 128."""
    setting = replace(setting_on(hardware), attention_program=program)
    operation = next(
        op for block in setting.tree.layers[0].blocks for op in block.operations if isinstance(op, Attention)
    )
    cost = operation_cost(operation, rows=2048.0, setting=setting, columns=one_plan(setting, {"dp": 8}))
    forward_s, backward_s = (sum(float(part.expected_s) for part in each) for each in (cost.forward, cost.backward))
    return forward_s, backward_s


def test_scores_that_are_not_fused_are_written_and_read_six_times_forward_and_nine_times_backward() -> None:
    """Two products of 2·2048·2048·16·128 FLOPs each, masked ones too, four backward; 2 bytes a score and pass."""
    setting = setting_on("a100-80gb:8")
    efficiency = setting.efficiency
    product_s = 2 * 2048 * 2048 * 16 * 128 / (setting.peak_flops_per_s("bf16") * efficiency.matmul["bf16"])
    pass_s = 2048 * 2048 * 16 * 2 / (setting.hbm_bytes_per_s * efficiency.elementwise)

    forward_s, backward_s = attention_s("a100-80gb:8", "dot_product")

    assert forward_s == pytest.approx(2 * product_s + 6 * pass_s + efficiency.matmul_overhead_s)
    assert backward_s == pytest.approx(4 * product_s + 9 * pass_s + efficiency.matmul_overhead_s)


def test_the_first_fused_kernels_took_longer_on_hopper_and_are_what_was_timed_on_ampere() -> None:
    for hardware, ratios in (("a100-80gb:8", (1.0, 1.0)), ("h100:8", (1.66 * 1.4, 1.6 * 1.8))):
        overhead_s = setting_on(hardware).efficiency.matmul_overhead_s
        for ratio, slow_s, fast_s in zip(
            ratios, attention_s(hardware, "flash"), attention_s(hardware, None), strict=True
        ):
            assert (slow_s - overhead_s) / (fast_s - overhead_s) == pytest.approx(ratio)


def test_on_tpus_scores_that_are_not_fused_are_written_and_read_four_times_forward_and_eight_times_backward() -> None:
    """Masked scores are computed too: two products forward, four backward."""
    setting = setting_on("v5p:2x2x2")
    efficiency = setting.efficiency
    product_s = 2 * 2048 * 2048 * 16 * 128 / (setting.peak_flops_per_s("bf16") * efficiency.matmul["bf16"])
    pass_s = 2048 * 2048 * 16 * 2 / (setting.hbm_bytes_per_s * efficiency.elementwise)

    forward_s, backward_s = attention_s("v5p:2x2x2", "dot_product")

    assert forward_s == pytest.approx(2 * product_s + 4 * pass_s + efficiency.matmul_overhead_s)
    assert backward_s == pytest.approx(4 * product_s + 8 * pass_s + efficiency.matmul_overhead_s)
