"""Experts shared out over devices, compiled for a TPU: kernels, exchanges and what the equation says of them."""

from __future__ import annotations

import pytest

from ridgeline.study.compile_job import compile_job
from tests.compiler.jobs import tiny_job

EMBED, WIDTH, EXPERTS, TOP_K = 256, 256, 4, 2
MODEL = {
    "name": "tiny",
    "embed_dim": EMBED,
    "vocab_size": 512,
    "num_layers": 3,
    "leading": ["dense"],
    "pattern": ["moe"],
    "attention": {"num_heads": 4, "num_kv_heads": 2, "head_dim": 64},
    "moe": {"num_experts": EXPERTS, "top_k": TOP_K, "expert_mlp_dim": WIDTH, "shared_mlp_dim": 128},
    "layer": {"dense": {"mlp": {"mlp_dim": 256}}},
}
TOKENS = 4 * 256 // 4
"""Of a device: 4 sequences of 256 over 4 devices."""


def test_experts_run_in_the_grouped_kernel_and_their_rows_travel_as_the_equation_has_it(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jax")
    pytest.importorskip("libtpu")
    monkeypatch.setenv("RIDGELINE_CACHE", str(tmp_path_factory.mktemp("cache")))
    job = tiny_job(model=MODEL, plan__mesh={"fsdp": 2, "ep": 2})

    answer = compile_job(job, program="ours", compiler="tpu")

    assert answer.summary is not None
    product = 2 * (2 * TOKENS * TOP_K * EMBED * WIDTH)  # in both layers that have experts
    found = {(part.place.part, part.place.phase): part.flops for part in answer.summary.parts}
    for name in ("gate", "up", "down"):
        for phase, times in (("forward", 1), ("recompute", 1), ("backward", 2)):
            assert found[f"moe_layer/moe/experts/{name}", phase] == times * product
    of_experts = [row for row in answer.beside.collectives if row.part.startswith("moe_layer/moe")]
    assert [row for row in of_experts if row.reason == "unexplained"] == []
    assert {row.kind for row in of_experts if row.agrees} >= {"all_gather", "all_to_all"}
    exchanged = [each.collective for each in answer.summary.collectives if each.collective.kind == "ragged_all_to_all"]
    # There and back, forward, again, and backward.
    assert sum(each.count for each in exchanged) == 2 * 2 * 3
    assert {(each.axis, each.array_bytes) for each in exchanged} == {("ep", TOKENS * TOP_K * EMBED * 2)}
