"""Reads `compiled.json` and `boundaries.json`.

`compiled.json` holds XLA's assignment of memory for the jobs in `jobs/`: arguments, and the heap of temporaries with
what lies unused between them. Their sum is `peak_memory_in_bytes` of the compiled program, to 0.02%.
`boundaries.json` holds runs of which somebody has told whether they fitted. Where the job cannot be expressed,
`not_expressed` says why.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgeline.hardware.topology import parse_slice
from ridgeline.job.job import MESH_AXES, Job, PlanRequest, Remat, Workload
from ridgeline.job.reading import read_job
from ridgeline.model.zoo import load_model
from ridgeline.search.train import cost_pinned

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.search.answer import PlanEstimate

FOLDER = Path(__file__).parent
JOBS = FOLDER / "jobs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchanged:
    """The collectives of one step of one device, beside the equation's.

    Attributes:
        compiled_bytes: Of all arrays, by the compiler.
        predicted_bytes: By the equation.
        rows: Kinds, axes, parts and phases that either has.
        agree: Of these, how many both have alike.
        unexplained: How many differ for no known reason.
        reasons: Why the others differ, with the bytes of the larger side.
    """

    compiled_bytes: float
    predicted_bytes: float
    rows: int
    agree: int
    unexplained: int
    reasons: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """One job, compiled.

    Attributes:
        name: Of its file in `jobs/`.
        peak_bytes: Of one device: of the compiled program, where it was compiled to the end, else arguments and
            temporaries by the assignment of buffers.
        host_bytes: What one device places in host memory.
        exchanged: Its collectives; None where they were not read.
    """

    name: str
    peak_bytes: float
    host_bytes: float
    exchanged: Exchanged | None

    @property
    def path(self) -> Path:
        """Its file."""
        return JOBS / f"{self.name}.toml"

    @property
    def job(self) -> Job:
        """What was compiled."""
        return read_job(str(self.path))

    @property
    def estimate(self) -> PlanEstimate:
        """What the equation says of it."""
        return cost_pinned(self.job)

    @property
    def error(self) -> float:
        """Of the equation's peak, as a fraction of the compiler's."""
        return self.estimate.memory.total_bytes / self.peak_bytes - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """One run that fitted or did not.

    Attributes:
        name: Its id.
        fits: What happened.
        source: Who tells of it.
        job: What was run; None where we cannot say it.
        measured_bytes: What it needed, as the source has it; None where it does not say.
        not_expressed: Why there is no job; "" where there is one.
        assumed: What the source left open.
        compiled_bytes: What the compiler says that it needs; None where it was not asked.
        reason: Why the equation or the compiler is wrong, where one is.
    """

    name: str
    fits: bool
    source: str
    job: Job | None
    measured_bytes: float | None
    not_expressed: str
    assumed: str
    compiled_bytes: float | None
    reason: str


def compiled_jobs() -> tuple[Compiled, ...]:
    """Every job of `compiled.json`."""
    return tuple(
        Compiled(
            name=name,
            peak_bytes=row.get("peak_bytes", row["arguments_bytes"] + row["temporaries_bytes"]),
            host_bytes=row["host_bytes"],
            exchanged=Exchanged(**row["collectives"]) if "collectives" in row else None,
        )
        for name, row in _record()["jobs"].items()
    )


def told_by() -> str:
    """Which program and libraries `compiled.json` tells of, and when."""
    record = _record()
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    return f"{record['program']}, {versions}, {record['date']}"


def boundaries() -> tuple[Boundary, ...]:
    """Every case of `boundaries.json`."""
    rows = json.loads((FOLDER / "boundaries.json").read_text(encoding="utf-8"))
    return tuple(
        Boundary(
            name=row["id"],
            fits=row["fits"],
            source=row["source"],
            job=_job(row["job"]) if "job" in row else None,
            measured_bytes=_gib(row.get("measured_gib")),
            not_expressed=row.get("not_expressed", ""),
            assumed=row.get("assumed", ""),
            compiled_bytes=_gib(row.get("compiled_gib")),
            reason=row.get("reason", ""),
        )
        for row in rows
    )


@cache
def _record() -> dict[str, Any]:
    return json.loads((FOLDER / "compiled.json").read_text(encoding="utf-8"))


def _gib(number: float | None) -> float | None:
    return None if number is None else number * 2**30


def _job(row: dict[str, Any]) -> Job:
    plan = row["plan"]
    remat = {"policy": plan["remat"]} if isinstance(plan["remat"], str) else dict(plan["remat"])
    return Job(
        model_reference=row["model"],
        model=load_model(row["model"]),
        hardware=parse_slice(row["hardware"]),
        workload=Workload(**row["workload"]),
        plan=PlanRequest(
            mesh={**dict.fromkeys(MESH_AXES, 1), **plan["mesh"]},
            gradient_accumulation=plan["gradient_accumulation"],
            remat=Remat(policy=remat.pop("policy"), tensors=remat),
        ),
    )
