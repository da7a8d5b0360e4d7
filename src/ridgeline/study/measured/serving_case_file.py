"""Case files of servers: a serving job with a `[measured]` table.

[measured]
tpot_s = 0.0254                         # any of tpot_s, ttft_s, output_tokens_per_s_per_chip
output_tokens_per_s_per_chip = 311.9
engine = "vllm"                         # optional: vllm, sglang, trtllm, jetstream, torch_xla
source = "who published it, where"
quality = "A"                           # optional
derived = true                          # optional: it was computed from what the source states
cluster = "my runs of this server"      # optional; else chip, model, chips, lengths and precision

`workload.batch` is the number of requests at hand at once; without it all are, and the engine takes what it holds.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ridgeline.job.document import is_serving
from ridgeline.job.reading import job_of_tables
from ridgeline.job.serving import ServingJob
from ridgeline.search.serving.pinned import ENGINES, engine_settings
from ridgeline.study.measured.case_file import MEASURED, check_keys
from ridgeline.study.measured.records import number, table, text, unusable
from ridgeline.study.measured.serving_case import SERVING_METRICS, ServingCase

if TYPE_CHECKING:
    from ridgeline.job.serving import AnyJob
    from ridgeline.study.measured.measurement import ServingMetric
    from ridgeline.study.measured.records import Record

SERVING_KEYS: Final = (*SERVING_METRICS, "engine", "source", "quality", "derived", "cluster", "id")
"""Keys of `[measured]`."""

_PLANNED: Final = "vllm"
"""The engine where none is said: the one that `serve` plans for."""


def is_of_serving(tables: Record) -> bool:
    """Whether the tables of a file describe a server."""
    return is_serving(tables.get("workload"))


def serving_cases_of_tables(tables: Record, *, file: str) -> tuple[ServingCase, ...]:
    """The cases that the tables of a file describe, one for each quantity that was measured.

    Args:
        tables: As TOML gives them.
        file: Its path.

    Raises:
        InputError: Nothing is measured, or the job is malformed.
    """
    measured = table(tables, MEASURED)
    if not measured:
        raise unusable("a job of which nothing is measured", f"no [{MEASURED}] table", key=file)
    check_keys(measured, SERVING_KEYS, file)
    values: list[tuple[ServingMetric, float]] = [
        (metric, value) for metric in SERVING_METRICS if (value := number(measured, metric)) is not None
    ]
    if not values:
        raise unusable("neither a time per token nor tokens/s", ", ".join(measured), key=f"{file}: {MEASURED}")
    said = text(measured, "engine") or _PLANNED
    if said not in ENGINES:
        raise unusable(f"an engine that is none of {', '.join(ENGINES)}", said, key=f"{file}: {MEASURED}.engine")
    rest = {key: content for key, content in tables.items() if key != MEASURED}
    job, assumed = _pinned(job_of_tables(rest, file=file, folder=str(Path(file).parent)), file)
    return tuple(
        ServingCase(
            id=text(measured, "id") or Path(file).stem,
            job=job,
            engine=engine_settings(said),
            metric=metric,
            measured=value,
            source_of_measured="derived" if measured.get("derived") is True else "direct",
            source=text(measured, "source") or "unstated",
            quality=text(measured, "quality") or "unstated",
            assumed=assumed if text(measured, "engine") else (*assumed, f"engine: {_PLANNED}"),
            cluster_name=text(measured, "cluster"),
        )
        for metric, value in values
    )


def _pinned(job: AnyJob, file: str) -> tuple[ServingJob, tuple[str, ...]]:
    """The job with a mesh: tensor parallelism over the slice where none is said."""
    if not isinstance(job, ServingJob):
        raise unusable("a training job among those of servers", job.workload.kind, key=f"{file}: workload.kind")
    if job.plan.decode:
        return job, ()
    devices = job.hardware.devices_per_slice
    return replace(job, plan=replace(job.plan, decode={"tp": devices})), (f"mesh: tp={devices}",)
