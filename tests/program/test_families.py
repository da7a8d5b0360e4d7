"""Our program of each family of models: against a reference, on a mesh against one device, and its parameters."""

from __future__ import annotations

from typing import Any

import pytest

from ridgeline.job.origin import Setting
from ridgeline.job.reading import read_job
from ridgeline.model.parameters import count_parameters
from ridgeline.model.tree import model_tree
from ridgeline.model.zoo import load_model
from ridgeline.program.request import training_program
from tests.program.families import FAMILIES, PLAIN
from tests.program.processes import answered

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


def question(model: dict[str, Any], mesh: dict[str, int], *, group: str = "", steps: int = 0) -> dict[str, Any]:
    return {"group": group, "model": model, "mesh": mesh, "plan": {"dtypes": WHOLE}, "steps": steps}


@pytest.fixture(scope="module")
def answers() -> dict[str, Any]:
    """Of all families the distance from the reference; of those of several kinds one device, then eight."""
    pytest.importorskip("jax")
    first = next(iter(FAMILIES))
    asked = {
        "references": [question(model, ALONE) for model in (PLAIN | FAMILIES).values()],
        "measured": [
            question(model, mesh, group=family, steps=20 * (mesh == ALONE and family == first))
            for family, model in FAMILIES.items()
            for mesh in (ALONE, TOGETHER)
        ],
    }
    said = answered("tests.program.families_emulated", asked)
    return {
        "references": dict(zip(PLAIN | FAMILIES, said["references"], strict=True)),
        "alone": dict(zip(FAMILIES, said["measured"][0::2], strict=True)),
        "together": dict(zip(FAMILIES, said["measured"][1::2], strict=True)),
    }


@pytest.mark.parametrize("family", PLAIN | FAMILIES)
def test_logits_and_loss_are_those_of_a_reference_written_token_by_token(answers: dict[str, Any], family: str) -> None:
    errors = answers["references"][family]

    assert errors["logits"] < TOLERANCE
    assert errors["loss"] < TOLERANCE


@pytest.mark.parametrize("family", FAMILIES)
def test_loss_and_gradients_on_a_mesh_are_those_of_one_device(answers: dict[str, Any], family: str) -> None:
    alone, together = answers["alone"][family], answers["together"][family]

    assert (alone["devices"], together["devices"]) == (1, 8)
    assert together["loss"] == pytest.approx(alone["loss"], rel=TOLERANCE)
    assert together["error"] < TOLERANCE
    assert alone["least_gradient"] > 0


def test_the_loss_of_a_model_of_several_layers_falls(answers: dict[str, Any]) -> None:
    losses = answers["alone"][next(iter(FAMILIES))]["losses"]

    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize("family", ZOO)
def test_the_declared_weights_are_those_that_the_equation_counts(family: str) -> None:
    job = {"hardware": "v5e:1x1", "workload.seq_len": 1024, "workload.global_batch": 1, "plan.mesh": "fsdp=1"}
    settings = [Setting(key=key, value=value, where=key) for key, value in (job | {"plan.remat": "full"}).items()]
    program = training_program(read_job(ZOO[family], settings))

    stacked = sum(tensor.size * max(count, 1) for tensor, count in program.weights.values())

    assert stacked == count_parameters(model_tree(load_model(ZOO[family]))).total
