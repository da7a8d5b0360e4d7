"""What XLA's GPU compiler writes: matmuls fused by Triton, collectives beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ridgeline.hlo.summary import HloSummary, summarise
from tests.hlo.programs import compiled

L, D, F, TOKENS = 4, 1024, 4096, 2048
FSDP, TP = 2, 4


@pytest.fixture(scope="module")
def summary() -> HloSummary:
    text = compiled(Path(__file__).parent / "data" / "h100_8_mlp.hlo")
    return summarise(text, mesh={"fsdp": FSDP, "tp": TP})


def test_a_matmul_fused_by_triton_counts(summary: HloSummary) -> None:
    product_flops = 2 * TOKENS * D * F / (FSDP * TP)

    # Two products forward; the first again; each has a gradient of its input and of its weights.
    assert summary.flops == L * (2 + 1 + 4) * product_flops
    assert summary.uncounted == ()


def test_collectives_are_those_of_fsdp_and_tensor_parallelism(summary: HloSummary) -> None:
    found = {
        (each.collective.kind, each.collective.axis, each.place.phase): each.collective for each in summary.collectives
    }
    both_weights_bytes = 2 * 2 * D * F / TP
    activations_bytes = 2 * TOKENS * D / FSDP

    assert {key: (each.count, each.array_bytes) for key, each in found.items()} == {
        ("all_gather", "fsdp", "forward"): (L, both_weights_bytes),
        ("all_gather", "fsdp", "recompute"): (L, both_weights_bytes),
        ("reduce_scatter", "fsdp", "backward"): (L, both_weights_bytes),
        ("all_reduce", "tp", "forward"): (L, activations_bytes),
        ("all_reduce", "tp", "backward"): (L, activations_bytes),
    }


def test_a_collective_that_a_started_fusion_carries_out_is_asynchronous(summary: HloSummary) -> None:
    is_async = {each.collective.kind: each.collective.is_async for each in summary.collectives}

    assert is_async == {"all_gather": False, "reduce_scatter": True, "all_reduce": True}
    assert {each.collective.engine for each in summary.collectives} == {""}


def test_memory_is_that_of_the_shards(summary: HloSummary) -> None:
    weights_bytes = L * 2 * D * F * 4 / (FSDP * TP)

    assert summary.memory.arguments_bytes == weights_bytes + 2 * TOKENS * D / FSDP
    assert summary.memory.aliased_bytes == weights_bytes
