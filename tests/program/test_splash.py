"""The splash kernel sees what plain attention sees: interpreted on the CPU, its outputs and gradients are the same."""

from __future__ import annotations

from typing import Any

import pytest

from ridgeline.model.accounting import operations
from ridgeline.model.operations import Attention
from ridgeline.program.request import training_program
from ridgeline.program.splash import splash_flops
from tests.compiler.jobs import tiny_job
from tests.program.processes import answered

ALONE = {"fsdp": 1}
SIZES: dict[str, Any] = {"name": "tiny", "embed_dim": 64, "vocab_size": 64, "num_layers": 1, "mlp": {"mlp_dim": 64}}
HEADS = {"num_heads": 2, "num_kv_heads": 1, "head_dim": 64}
MODELS: dict[str, dict[str, Any]] = {
    "a window that is no multiple of a tile": {
        "attention": {**HEADS, "span": {"kind": "sliding", "window": 300}, "sinks": True}
    },
    "chunks": {"attention": {**HEADS, "v_head_dim": 128, "span": {"kind": "chunked", "window": 192}}},
    "latent attention": {
        "mla": {
            "num_heads": 2,
            "q_lora_rank": 32,
            "kv_lora_rank": 32,
            "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64,
            "v_head_dim": 128,
        }
    },
}
GROUPED = {"attention": {"num_heads": 4, "num_kv_heads": 2, "head_dim": 64}}
TOGETHER: dict[str, tuple[dict[str, int], dict[str, Any]]] = {
    "whole sequences": ({"cp": 4}, GROUPED),
    "a head of each device": ({"cp": 2, "tp": 2}, {"attention": {**HEADS, "num_kv_heads": 2}}),
    "one key head for all": ({"fsdp": 2, "cp": 2, "tp": 2}, MODELS["a window that is no multiple of a tile"]),
    "chunks": ({"fsdp": 2, "cp": 4}, MODELS["chunks"]),
    "latent attention": ({"cp": 4, "tp": 2}, MODELS["latent attention"]),
}
"""On meshes that split the sequence."""

LONG = ("one key head for all", "latent attention")
"""Of which the backward pass is computed by two kernels too, as that of long sequences is."""

TOLERANCE = 1e-5


def question(mesh: dict[str, int], model: dict[str, Any], *, fused_tiles: int = 16) -> dict[str, Any]:
    return {"model": SIZES | model, "mesh": mesh, "fused_tiles": fused_tiles}


@pytest.fixture(scope="module")
def errors() -> dict[str, list[float]]:
    pytest.importorskip("jax")
    asked = {name: question(ALONE, model) for name, model in MODELS.items()}
    asked |= {f"{name}, split": question(mesh, model) for name, (mesh, model) in TOGETHER.items()}
    asked |= {f"{name}, two kernels": question(*TOGETHER[name], fused_tiles=0) for name in LONG}
    said = answered("tests.program.splash_interpreted", list(asked.values()))
    return dict(zip(asked, said, strict=True))


@pytest.mark.parametrize("model", MODELS)
def test_the_kernel_computes_what_plain_attention_does(errors: dict[str, list[float]], model: str) -> None:
    assert max(errors[model]) < TOLERANCE


@pytest.mark.parametrize("name", TOGETHER)
def test_devices_that_share_a_sequence_out_compute_it_as_one(errors: dict[str, list[float]], name: str) -> None:
    assert max(errors[f"{name}, split"]) < TOLERANCE


@pytest.mark.parametrize("name", LONG)
def test_two_kernels_compute_the_gradients_that_one_does(errors: dict[str, list[float]], name: str) -> None:
    assert max(errors[f"{name}, two kernels"]) < TOLERANCE


@pytest.mark.parametrize(("tiles", "products"), [(16, {"dkv": 5}), (32, {"dkv": 4, "dq": 3})])
def test_long_sequences_have_two_backward_kernels(tiles: int, products: dict[str, int]) -> None:
    program = training_program(tiny_job(workload__seq_len=tiles * 512, plan__mesh={"cp": 4}))
    scores = next(each for _, each, _ in operations(program.tree) if isinstance(each, Attention))

    flops = splash_flops(program, scores)

    # On average 1 + 2 + ... of the tiles in a row, over 4 devices; 4 sequences of 4 heads of 128.
    product = 2 * 4 * 4 * 128 * 512 * 512 * tiles * (tiles + 1) / 2 / 4
    assert flops["splash_mha_fwd_residuals"] == 2 * product
    for kernel, number in products.items():
        assert flops[f"splash_mha_{kernel}_no_residuals"] == number * product
