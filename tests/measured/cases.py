"""Reads `tpu_training.json`: each row is a published measurement and the plan it was made with.

`assumed` names what a source left open: the topology is then the cloud's default for that many chips, the mesh
fsdp over all of them, the remat policy `none`, which asks for the least work. `not_stated` says what of a run no job
can say.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ridgeline.hardware.topology import parse_slice
from ridgeline.job.job import (
    MESH_AXES,
    ContextParallelism,
    Dtypes,
    Job,
    Optimizer,
    PlanRequest,
    Quantization,
    Remat,
    Workload,
)
from ridgeline.job.precision import parse_quantization
from ridgeline.model.zoo import load_model

_FILE = Path(__file__).parent / "tpu_training.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCase:
    """One measurement.

    Attributes:
        name: Its id.
        job: The job it measured, everything pinned.
        step_s: The measured step time.
        source: Where it was published; its first word is by whom.
        assumed: What the source left open.
        not_stated: What of the run no job can say; "" when it is all said.
    """

    name: str
    job: Job
    step_s: float
    source: str
    assumed: tuple[str, ...]
    not_stated: str

    @property
    def step_tokens(self) -> int:
        """Tokens of one step."""
        assert self.job.workload.global_batch is not None
        return self.job.workload.global_batch * self.job.workload.seq_len

    @property
    def tokens_per_s_per_chip(self) -> float:
        """Measured throughput."""
        return self.step_tokens / self.step_s / self.job.hardware.num_chips


def measured_cases() -> list[MeasuredCase]:
    """Every row."""
    return [_case(row) for row in json.loads(_FILE.read_text())["rows"]]


def _case(row: dict[str, Any]) -> MeasuredCase:
    plan = PlanRequest(
        mesh={**dict.fromkeys(MESH_AXES, 1), **row["mesh"]},
        gradient_accumulation=row["gradient_accumulation"],
        dtypes=Dtypes(weights=row["weights_dtype"], gradients=row["gradients_dtype"]),
        quantization=_quantization(row),
        remat=Remat(policy=row["remat"]["policy"], tensors=row["remat"]["tensors"]),
        optimizer=Optimizer(mu_dtype=row["mu_dtype"]),
        vocab_tiling=row.get("vocab_tiling", 1),
        context=ContextParallelism(**row.get("context", {})),
    )
    workload = Workload(seq_len=row["seq_len"], global_batch=row["global_batch"])
    job = Job(
        model_reference=row["model"],
        model=load_model(row["model"]),
        hardware=parse_slice(row["hardware"]),
        workload=workload,
        plan=plan,
    )
    return MeasuredCase(
        name=row["id"],
        job=job,
        step_s=row["step_time_s"],
        source=row["source"],
        assumed=tuple(row["assumed"]),
        not_stated=row.get("not_stated", ""),
    )


def _quantization(row: dict[str, Any]) -> Quantization | None:
    if row["quantization"] is None:
        return None
    recipe = {"kind": row["quantization"], **({"scaling": row["scaling"]} if "scaling" in row else {})}
    return parse_quantization(recipe, where=row["id"])
