"""Our program against itself on one device, and against what the equation counts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jax")

SIZES = {"name": "tiny", "embed_dim": 32, "vocab_size": 64, "num_layers": 3}
GQA = {**SIZES, "attention": {"num_heads": 8, "num_kv_heads": 4, "head_dim": 8}, "mlp": {"mlp_dim": 64}}
MODELS: dict[str, dict[str, Any]] = {
    "grouped-query": GQA,
    "multi-query, tied": {
        **GQA,
        "attention": {"num_heads": 8, "num_kv_heads": 1, "head_dim": 8},
        "tied_embeddings": True,
    },
    "multi-head with biases, learned positions and LayerNorm": {
        **GQA,
        "attention": {
            "num_heads": 4,
            "num_kv_heads": 4,
            "head_dim": 8,
            "qkv_bias": True,
            "out_bias": True,
            "rotary": False,
        },
        "mlp": {"mlp_dim": 128, "gated": False, "bias": True},
        "norm": {"bias": True},
        "max_position_embeddings": 32,
        "tied_embeddings": True,
    },
    "normed heads and norms after blocks": {
        **GQA,
        "attention": {"num_heads": 8, "num_kv_heads": 4, "head_dim": 8, "qk_norm": "head"},
        "post_norm": True,
    },
}
MESHES = [
    {"dp": 8},
    {"fsdp": 8},
    {"tp": 4},
    {"dp": 2, "tp": 4},
    {"fsdp": 4, "tp": 2},
    {"fsdp": 2, "fsdp_transpose": 2, "tp_sequence": 2},
    {"fsdp": 2, "cp": 2, "tp": 2},
]
WHOLE = {"weights": "f32", "compute": "f32", "gradients": "f32", "activations": "f32"}
TOLERANCE = 1e-5
"""Of gradients in f32: sums over devices are added in another order."""


def question(model: str, mesh: dict[str, int], **more: int) -> dict[str, Any]:
    return {"group": model, "model": MODELS[model], "mesh": mesh, "plan": {"dtypes": WHOLE}, **more}


QUESTIONS = {
    **{f"{model} on one device": question(model, {"fsdp": 1}, steps=20) for model in MODELS},
    **{f"grouped-query on {mesh}": question("grouped-query", mesh) for mesh in MESHES},
    **{f"{model} on a mesh": question(model, {"fsdp": 4, "tp": 2}) for model in MODELS if model != "grouped-query"},
    "micro-steps": question("grouped-query", {"fsdp": 4}) | {"plan": {"dtypes": WHOLE, "gradient_accumulation": 2}},
    "nothing recomputed": question("grouped-query", {"fsdp": 4}) | {"plan": {"dtypes": WHOLE, "remat": "none"}},
    "some kept": question("grouped-query", {"fsdp": 4})
    | {"plan": {"dtypes": WHOLE, "remat": {"policy": "custom", "query_proj": "device", "mlpwo": "device"}}},
    "bf16": question("grouped-query", {"fsdp": 4, "tp": 2}, steps=20) | {"plan": {}},
}


@pytest.fixture(scope="module")
def answers() -> dict[str, dict[str, Any]]:
    """All questions, answered by one process with 8 emulated devices."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("emulated.py"))],
        input=json.dumps(list(QUESTIONS.values())),
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return dict(zip(QUESTIONS, json.loads(done.stdout), strict=True))


EXACT = [name for name in QUESTIONS if name != "bf16"]


@pytest.mark.parametrize("name", EXACT)
def test_loss_and_gradients_are_those_of_one_device(answers: dict[str, dict[str, Any]], name: str) -> None:
    alone = answers[f"{QUESTIONS[name]['group']} on one device"]

    assert answers[name]["loss"] == pytest.approx(alone["loss"], rel=TOLERANCE)
    assert answers[name]["error"] < TOLERANCE


def test_bf16_gradients_are_close_to_those_in_f32(answers: dict[str, dict[str, Any]]) -> None:
    assert 0 < answers["bf16"]["error"] < 0.06


@pytest.mark.parametrize("name", ["bf16", *(f"{model} on one device" for model in MODELS)])
def test_the_loss_of_a_repeated_batch_falls(answers: dict[str, dict[str, Any]], name: str) -> None:
    losses = answers[name]["losses"]

    assert losses[0] == pytest.approx(answers[name]["loss"], rel=0.01)
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize("name", EXACT)
def test_every_weight_takes_part(answers: dict[str, dict[str, Any]], name: str) -> None:
    assert answers[name]["least_gradient"] > 0


@pytest.mark.parametrize("model", MODELS)
def test_the_parameters_are_those_that_the_equation_counts(answers: dict[str, dict[str, Any]], model: str) -> None:
    from ridgeline.model.parameters import count_parameters
    from ridgeline.model.tree import model_tree
    from ridgeline.model.zoo import inline_model

    declared = count_parameters(model_tree(inline_model(MODELS[model], where="model")))

    assert answers[f"{model} on one device"]["parameters"] == declared.total
