"""What records of servers have in common: model, slice, mesh and dtypes under their sources' names become a job."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Final

from ridgeline.errors import InputError
from ridgeline.job.job import BATCH_AXES
from ridgeline.job.reading import job_of_tables
from ridgeline.job.serving import ServingJob
from ridgeline.model.spec import MoeSpec
from ridgeline.model.zoo import load_model
from ridgeline.study.measured.records import unusable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.model.spec import ModelSpec

_CONVERTED = re.compile(r"[-_](nvfp4|mxfp4|fp4|fp8|bf16)(-.*)?$", re.IGNORECASE)
_MXFP4_EXPERTS: Final = "gpt-oss"


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What a record says of a server, in a job's words.

    Attributes:
        model: Its name in the zoo.
        hardware: `hardware` of a job file: one server's chips.
        prompt_len: Tokens of a prompt.
        generate_len: Tokens of a reply.
        concurrency: Requests at hand at once; None for as many as the server takes.
        mesh: Degrees by axis.
        dtypes: By the keys of a job.
        expert_split: How experts lie on devices of tensor parallelism.
    """

    model: str
    hardware: str | Mapping[str, object]
    prompt_len: int
    generate_len: int
    concurrency: int | None
    mesh: Mapping[str, int]
    dtypes: Mapping[str, str]
    expert_split: str = "width"


def served_job(name: str, served: Served) -> tuple[ServingJob, tuple[str, ...]]:
    """The job of a record, pinned, and what was assumed.

    Args:
        name: What the record is called, for error messages.
        served: It.

    Raises:
        InputError: The chip is unknown, or the mesh does not fill the slice.
    """
    mesh = {axis: degree for axis, degree in served.mesh.items() if degree > 1} or {"tp": 1}
    ranks = prod(mesh.get(axis, 1) for axis in BATCH_AXES)
    batch = served.concurrency if served.concurrency is None else -(-served.concurrency // ranks) * ranks
    tables: dict[str, object] = {
        "version": 1,
        "model": served.model,
        "hardware": served.hardware,
        "workload": {
            "kind": "serve",
            "prompt_len": served.prompt_len,
            "generate_len": served.generate_len,
            **({} if batch is None else {"batch": batch}),
        },
        "plan": {
            "prefill": dict(mesh),
            "decode": dict(mesh),
            "dtypes": dict(served.dtypes),
            "expert_split": served.expert_split,
        },
    }
    job = job_of_tables(tables, file=name)
    if not isinstance(job, ServingJob):
        raise unusable("no serving job", name, key="workload")
    is_rounded = batch != served.concurrency
    return job, (f"{batch} requests, so that each rank has as many",) if is_rounded else ()


def model_named(said: str) -> ModelSpec:
    """The model that a source names: with or without its owner, and whatever it was converted to.

    >>> model_named("Qwen/Qwen3-235B-A22B-FP8").name, model_named("nvidia/Llama-3.1-70B-Instruct-FP4").name
    ('qwen3-235b-a22b', 'llama3.1-70b')

    Raises:
        InputError: The zoo knows none of these names.
    """
    alone = said.rpartition("/")[2]
    plain = _CONVERTED.sub("", alone)
    for spelling in (said, alone, plain, plain.removesuffix("-Instruct")):
        try:
            return load_model(spelling)
        except InputError:
            continue
    raise unusable("unknown model", said or None, key="model")


def has_experts(model: ModelSpec) -> bool:
    """Whether tokens are routed in any layer."""
    return any(isinstance(layer.mlp, MoeSpec) for layer, _ in model.layers)


def checkpoint_dtypes(model: ModelSpec, precision: str, *, has_fp4: bool, kv_cache: str) -> dict[str, str]:
    """What a checkpoint of a precision holds in what, and computes in.

    In 4 bits, mixtures have their experts alone; gpt-oss is published so, with activations in fp8 where a chip has fp4.

    Source: `quantization_config` of openai/gpt-oss-120b; `hf_quant_config.json` of nvidia/DeepSeek-R1-FP4.

    Args:
        model: It.
        precision: `bf16`, `fp8`, `fp4`, `int8`.
        has_fp4: Whether the chip multiplies in 4 bits.
        kv_cache: Dtype of the cache.
    """
    if model.name.startswith(_MXFP4_EXPERTS) and precision != "bf16":
        computed = "fp8" if has_fp4 else "bf16"
        return {"weights": "bf16", "experts": "mxfp4", "compute": computed, "kv_cache": kv_cache}
    if precision == "fp4" and has_experts(model):
        return {"weights": "bf16", "experts": "fp4", "compute": "fp4", "kv_cache": kv_cache}
    return {"weights": precision, "compute": precision, "kv_cache": kv_cache}
