"""The splash kernel sees what plain attention sees: interpreted on the CPU, its outputs and gradients are the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

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

TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def errors() -> dict[str, list[float]]:
    pytest.importorskip("jax")
    asked = {alone: (ALONE, model) for alone, model in MODELS.items()}
    asked |= {f"{name}, split": split for name, split in TOGETHER.items()}
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("splash_interpreted.py"))],
        input=json.dumps([{"model": SIZES | model, "mesh": mesh} for mesh, model in asked.values()]),
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return dict(zip(asked, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("model", MODELS)
def test_the_kernel_computes_what_plain_attention_does(errors: dict[str, list[float]], model: str) -> None:
    assert max(errors[model]) < TOLERANCE


@pytest.mark.parametrize("name", TOGETHER)
def test_devices_that_share_a_sequence_out_compute_it_as_one(errors: dict[str, list[float]], name: str) -> None:
    assert max(errors[f"{name}, split"]) < TOLERANCE
