"""Our program of each family of models: against a reference, on a mesh against one device, and its parameters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ridgeline.job.origin import Setting
from ridgeline.job.reading import read_job
from ridgeline.model.parameters import count_parameters
from ridgeline.model.tree import model_tree
from ridgeline.model.zoo import load_model
from ridgeline.program.request import training_program
from tests.program.families import FAMILIES

ALONE, TOGETHER = {"fsdp": 1}, {"fsdp": 2, "cp": 2, "tp": 2}
WHOLE = {"weights": "f32", "compute": "f32", "gradients": "f32", "activations": "f32"}
TOLERANCE = 1e-5
"""Of gradients in f32: sums over devices are added in another order."""

ZOO = {
    "GPT-style multi-head": "gpt3-175b",
    "Llama, grouped-query": "llama3.1-70b",
    "multi-query": "palm-540b",
    "local-global": "gemma3-27b",
    "mixture of experts": "mixtral-8x7b",
    "experts with shared ones": "deepseek3-671b",
    "latent attention": "deepseek2-16b",
    "parallel blocks": "palm-8b",
}
"""A model of each of the eight families."""


@pytest.fixture(scope="module")
def answers() -> dict[tuple[str, bool], dict[str, Any]]:
    """Each family on one device and on eight."""
    pytest.importorskip("jax")
    asked = [(family, is_alone) for family in FAMILIES for is_alone in (True, False)]
    questions = [
        {
            "group": family,
            "model": FAMILIES[family],
            "mesh": ALONE if is_alone else TOGETHER,
            "plan": {"dtypes": WHOLE},
            "reference": is_alone,
            "steps": 20 * (is_alone and family == next(iter(FAMILIES))),
        }
        for family, is_alone in asked
    ]
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("families_emulated.py"))],
        input=json.dumps(questions),
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return dict(zip(asked, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_those_of_a_reference_written_token_by_token(
    answers: dict[tuple[str, bool], dict[str, Any]], family: str
) -> None:
    assert answers[family, True]["reference_error"] < TOLERANCE


@pytest.mark.parametrize("family", FAMILIES)
def test_loss_and_gradients_on_a_mesh_are_those_of_one_device(
    answers: dict[tuple[str, bool], dict[str, Any]], family: str
) -> None:
    alone, together = answers[family, True], answers[family, False]

    assert (alone["devices"], together["devices"]) == (1, 8)
    assert together["loss"] == pytest.approx(alone["loss"], rel=TOLERANCE)
    assert together["error"] < TOLERANCE
    assert alone["least_gradient"] > 0


def test_the_loss_of_a_model_of_several_layers_falls(answers: dict[tuple[str, bool], dict[str, Any]]) -> None:
    losses = answers[next(iter(FAMILIES)), True]["losses"]

    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize("family", ZOO)
def test_the_declared_weights_are_those_that_the_equation_counts(family: str) -> None:
    job = {"hardware": "v5e:1x1", "workload.seq_len": 1024, "workload.global_batch": 1, "plan.mesh": "fsdp=1"}
    settings = [Setting(key=key, value=value, where=key) for key, value in (job | {"plan.remat": "full"}).items()]
    program = training_program(read_job(ZOO[family], settings))

    stacked = sum(tensor.size * max(count, 1) for tensor, count in program.weights.values())

    assert stacked == count_parameters(model_tree(load_model(ZOO[family]))).total
