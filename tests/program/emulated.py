"""Run in a process of its own, with 8 emulated devices: what each mesh computes, as one JSON object.

    python tests/program/emulated.py < questions.json

A question is `{"model": {...}, "mesh": {...}, ...}`; its answer has the loss, the gradients' distance from those of
one device, the parameters, and the losses of some steps.
"""

from __future__ import annotations

import json
import math
import os
import sys
from functools import cache, partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

FLAGS = "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0"
"""Eight devices, and programs that are compiled fast rather than run fast."""

os.environ |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": FLAGS}

SMALL = 1e-3
"""A gradient of a smaller norm is nothing but rounding: that of a key's bias, which softmax does not see, is zero."""

CHIPS = {1: "v5e:1x1", 4: "v5e:2x2", 8: "v5e:2x4"}
"""By their devices."""

import jax  # noqa: E402 - after the number of devices is set
import numpy as np  # noqa: E402 - as jax

from ridgeline.job.job import DCN_AXES  # noqa: E402 - as jax
from ridgeline.job.origin import Setting  # noqa: E402 - as jax
from ridgeline.job.reading import read_job  # noqa: E402 - as jax
from ridgeline.program.mesh import cpu_mesh  # noqa: E402 - as jax
from ridgeline.program.optimizer import AdamW  # noqa: E402 - as jax
from ridgeline.program.pipeline import in_stages  # noqa: E402 - as jax
from ridgeline.program.request import TrainingProgram, training_program  # noqa: E402 - as jax
from ridgeline.program.training import abstract_state, initial_state, loss_and_gradients, training_step  # noqa: E402 - as jax


def slices_of(mesh: dict[str, int]) -> str:
    """The slices that a mesh needs."""
    num_slices = math.prod(degree for axis, degree in mesh.items() if axis in DCN_AXES)
    own = CHIPS[math.prod(mesh.values()) // num_slices]
    return f"{num_slices}*{own}" if num_slices > 1 else own


def program_of(question: dict[str, Any]) -> TrainingProgram:
    """The program of a question, on as many chips as its mesh has devices."""
    mesh = question["mesh"]
    tables = {
        "model": question["model"],
        "hardware": slices_of(mesh),
        "workload": {"seq_len": question.get("seq_len", 16), "global_batch": 8},
        "plan": {"mesh": mesh, "remat": "full"} | question.get("plan", {}),
    }
    settings = [Setting(key=key, value=value, where=key) for key, value in tables.items()]
    return training_program(read_job("question", settings))


@cache
def _first_state(model: str) -> Mapping[str, Any]:
    """The same random weights for all questions about a model, whatever their mesh."""
    program = program_of({"model": json.loads(model), "mesh": {"fsdp": 1}})
    return jax.device_get(initial_state(program, cpu_mesh(program.layout), seed=1))


def first_state(question: dict[str, Any]) -> Mapping[str, Any]:
    """The state in which a question's steps begin."""
    return _first_state(json.dumps(question["model"]))


def measured(question: dict[str, Any]) -> dict[str, Any]:
    """Loss and gradients of the first batch, and the losses of some steps."""
    program = program_of(question)
    mesh = cpu_mesh(program.layout)
    state = jax.tree.map(
        lambda array, shape: jax.device_put(_stacked(array, shape.shape, program).astype(shape.dtype), shape.sharding),
        first_state(question),
        abstract_state(program, mesh),
    )
    shape = program.global_batch, program.seq_len + 1
    tokens = np.random.default_rng(0).integers(0, question["model"]["vocab_size"], shape).astype(np.int32)
    loss, gradients = jax.jit(partial(loss_and_gradients, program, mesh))(state["weights"], tokens)
    found = {name: _in_order(np.asarray(gradient, np.float64), name, program) for name, gradient in gradients.items()}
    step = training_step(program, mesh, optimizer=AdamW(learning_rate=1e-2))
    losses = []
    for _ in range(question.get("steps", 0)):
        state, value = step(state, tokens)
        losses.append(float(value))
    return {
        "loss": float(loss),
        "gradients": found,
        "parameters": sum(array.size for array in found.values()),
        "devices": len(mesh.devices.flat),
        "losses": losses,
    }


def _stacked(array: np.ndarray, shape: tuple[int, ...], program: TrainingProgram) -> np.ndarray:
    """An array of one device, as a program with stages holds it."""
    return array if array.shape == shape else in_stages(array, program.pipeline)


def _in_order(array: np.ndarray, name: str, program: TrainingProgram) -> np.ndarray:
    """A weight's gradient with its layers in order, whatever the stages."""
    tensor, count = program.weights[name]
    stages, repeats = program.pipeline.num_stages, program.pipeline.num_repeats
    if not count or stages == 1:
        return array
    return array.reshape(repeats, -1, stages, *tensor.shape).swapaxes(1, 2).reshape(count, *tensor.shape)


def answers(questions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The answer to every question; the first of each group is what the others are compared with."""
    references: dict[str, dict[str, Any]] = {}
    found = []
    for question in questions:
        answer = measured(question)
        gradients = answer.pop("gradients")
        reference = references.setdefault(question["group"], gradients)
        answer["error"] = max(
            float(np.linalg.norm(gradients[name] - whole)) / max(float(np.linalg.norm(whole)), SMALL)
            for name, whole in reference.items()
        )
        answer["least_gradient"] = min(float(np.abs(gradient).max()) for gradient in gradients.values())
        found.append(answer)
    return found


if __name__ == "__main__":
    json.dump(answers(json.load(sys.stdin)), sys.stdout)
