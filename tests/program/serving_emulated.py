"""Run in a process of its own, with 8 emulated devices: prefill and decoding, beside the whole forward pass.

    python tests/program/serving_emulated.py < questions.json

A question is `{"model": {...}, "prefill": {...}, "decode": {...}, ...}`; its answer has the largest distance of the
logits from those of the training program's forward pass over all tokens at once, on one device, as a fraction of the
largest logit.
"""

from __future__ import annotations

import json
import math
import os
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.job.serving import Phase, ServingJob

FLAGS = "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0"
"""Eight devices, and programs that are compiled fast rather than run fast."""

os.environ |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": FLAGS}

import jax  # noqa: E402 - after the number of devices is set
import jax.numpy as jnp  # noqa: E402 - as jax
import numpy as np  # noqa: E402 - as jax

from ridgeline.job.origin import Setting  # noqa: E402 - as jax
from ridgeline.job.reading import read_job, read_serving_job  # noqa: E402 - as jax
from ridgeline.program.decoder import Decoder  # noqa: E402 - as jax
from ridgeline.program.inference import (  # noqa: E402 - as jax
    abstract_cache,
    abstract_weights,
    decode_step,
    prefill_step,
)
from ridgeline.program.mesh import cpu_mesh  # noqa: E402 - as jax
from ridgeline.program.request import training_program  # noqa: E402 - as jax
from ridgeline.program.serving import serving_program  # noqa: E402 - as jax
from ridgeline.program.training import initial_state  # noqa: E402 - as jax

PROMPT_LEN, GENERATE_LEN, BATCH = 8, 8, 8
SLICES = {1: "v5e:1x1", 4: "v5e:2x2", 8: "v5e:2x4"}
WHOLE = {"weights": "f32", "compute": "f32"}


def settings(tables: Mapping[str, object]) -> list[Setting]:
    """What a job file would say."""
    return [Setting(key=key, value=value, where=key) for key, value in tables.items()]


def tokens_of(model: Mapping[str, Any]) -> np.ndarray:
    """The same sequences for all questions about a model."""
    shape = BATCH, PROMPT_LEN + GENERATE_LEN
    return np.random.default_rng(0).integers(0, model["vocab_size"], shape).astype(np.int32)


@cache
def reference(text: str) -> tuple[Mapping[str, Any], np.ndarray]:
    """Weights of a model, and the logits after every token by the training program's forward pass on one device."""
    model = json.loads(text)
    tables = {
        "model": model,
        "hardware": "v5e:1x1",
        "workload": {"seq_len": PROMPT_LEN + GENERATE_LEN, "global_batch": BATCH},
        "plan": {"mesh": {"fsdp": 1}, "remat": "none", "dtypes": WHOLE | {"activations": "f32"}},
    }
    program = training_program(read_job("question", settings(tables)))
    mesh = cpu_mesh(program.layout)
    weights = initial_state(program, mesh, seed=1)["weights"]
    logits = jax.jit(Decoder(program=program, mesh=mesh).logits)(weights, tokens_of(model))
    return jax.device_get(weights), np.asarray(logits, np.float64)


def job_of(question: Mapping[str, Any]) -> ServingJob:
    """The serving job of a question."""
    plan = {phase: question[phase] for phase in ("prefill", "decode")}
    dtypes = WHOLE | {"kv_cache": question.get("kv_cache", "f32")}
    tables = {
        "model": question["model"],
        "hardware": SLICES[math.prod(question["decode"].values())],
        "workload": {"prompt_len": PROMPT_LEN, "generate_len": GENERATE_LEN, "batch": BATCH},
        "plan": plan | {"dtypes": dtypes, "prefill_batch": BATCH, "cache": question.get("cache", "heads")},
    }
    return read_serving_job("question", settings(tables))


def answered(question: Mapping[str, Any]) -> dict[str, float]:
    """Largest distances of logits, of prefill and of all steps of decoding."""
    weights, whole = reference(json.dumps(question["model"]))
    job, tokens = job_of(question), tokens_of(question["model"])

    def placed(phase: Phase) -> tuple[Any, Any, Any]:
        program = serving_program(job, phase)
        mesh = cpu_mesh(program.layout)
        shardings = jax.tree.map(lambda shape: shape.sharding, abstract_weights(program, mesh))
        return program, mesh, jax.device_put(weights, shardings)

    program, mesh, laid_out = placed("prefill")
    logits, kept = prefill_step(program, mesh)(laid_out, tokens[:, :PROMPT_LEN])
    scale = np.abs(whole).max()
    answer = {"prefill": np.abs(np.asarray(logits) - whole[:, PROMPT_LEN - 1]).max() / scale, "decode": 0.0}
    program, mesh, laid_out = placed("decode")
    kept = jax.device_put(kept, jax.tree.map(lambda shape: shape.sharding, abstract_cache(program, mesh)))
    step = decode_step(program, mesh)
    for position in range(PROMPT_LEN, PROMPT_LEN + GENERATE_LEN):
        logits, kept = step(laid_out, kept, tokens[:, position : position + 1], jnp.int32(position))
        distance = np.abs(np.asarray(logits) - whole[:, position]).max() / scale
        answer["decode"] = max(answer["decode"], float(distance))
    return {name: float(value) for name, value in answer.items()}


def main() -> None:
    """Answers every question."""
    json.dump([answered(question) for question in json.load(sys.stdin)], sys.stdout)


if __name__ == "__main__":
    main()
