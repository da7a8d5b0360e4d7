"""Run in a process of its own: the splash kernel, interpreted on the CPU, beside plain attention, as JSON.

    python -m tests.program.splash_interpreted < questions.json

A question is `{"model": {...}, "mesh": {...}, "fused_tiles": 16}`: up to so many tiles the backward pass is one kernel.
Its answer, of a model of one layer on as many emulated devices as its mesh has: the largest distances of output and
gradients over the largest of plain attention.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel

import ridgeline.program.splash as kernels
from ridgeline.model.accounting import operations
from ridgeline.model.operations import Attention
from ridgeline.program.attention import OwnKeys
from ridgeline.program.mesh import cpu_mesh
from tests.program.emulated import program_of

if TYPE_CHECKING:
    from jax import Array

SEQ_LEN, TILE, BATCH = 512, 128, 2


def errors(question: dict[str, Any]) -> list[float]:
    """Of the output, and of the gradients of queries, keys, values and sinks."""
    plan = {"attention": {"block_q": TILE, "block_kv": TILE}}
    program = program_of({**question, "seq_len": SEQ_LEN, "plan": plan})
    mesh = cpu_mesh(program.layout)
    scores = next(each for _, each, _ in operations(program.tree) if isinstance(each, Attention))
    random = np.random.default_rng(3)
    shapes = [
        (BATCH, SEQ_LEN, scores.num_heads, scores.qk_head_dim),
        (BATCH, SEQ_LEN, scores.num_kv_heads, scores.qk_head_dim),
        (BATCH, SEQ_LEN, scores.num_kv_heads, scores.v_head_dim),
        (scores.num_heads,),
    ]
    arrays = [jnp.asarray(random.standard_normal(shape), jnp.float32) for shape in shapes]
    arrays = arrays if scores.sinks is not None else arrays[:3]
    ahead = jnp.asarray(random.standard_normal((BATCH, SEQ_LEN, scores.num_heads, scores.v_head_dim)), jnp.float32)

    def plain(query: Array, key: Array, value: Array, sinks: Array | None = None) -> Array:
        return OwnKeys(program=program, mesh=mesh).attend(query, key, value, sinks, operation=scores)

    def splash(query: Array, key: Array, value: Array, sinks: Array | None = None) -> Array:
        return kernels.splash_attention((query, key, value), sinks, program=program, operation=scores, mesh=mesh)

    found = []
    kernels.FUSED_TILES = question["fused_tiles"]
    for attention in (plain, splash):
        output, back = jax.vjp(jax.jit(attention), *arrays)
        found.append([output, *back(ahead)])
    return [float(jnp.abs(ours - theirs).max() / jnp.abs(theirs).max()) for theirs, ours in zip(*found, strict=True)]


def main() -> None:
    """Answers for every question."""
    splash_attention_kernel.make_splash_mha = partial(splash_attention_kernel.make_splash_mha, interpret=True)
    json.dump([errors(question) for question in json.load(sys.stdin)], sys.stdout)


if __name__ == "__main__":
    main()
