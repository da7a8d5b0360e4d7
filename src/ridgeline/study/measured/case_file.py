"""Case files: a job file with a `[measured]` table.

[measured]
step_time_s = 12.37                     # or tokens_per_s_per_chip
source = "who published it, where"
quality = "A"                           # optional
derived = true                          # optional: it was computed from what the source states
cluster = "my runs of this job"         # optional; else chip, model, chips, sequence and precision
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from ridgeline.errors import InputError, nearest
from ridgeline.job.job import Job
from ridgeline.job.reading import job_of_tables
from ridgeline.study.measured.assumed import filled
from ridgeline.study.measured.case import MeasuredCase
from ridgeline.study.measured.records import number, table, text, unusable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ridgeline.study.measured.measurement import Metric
    from ridgeline.study.measured.records import Record

MEASURED: Final = "measured"
"""The table that makes a job file a case."""

_METRICS: Final[tuple[Metric, ...]] = ("step_time_s", "tokens_per_s_per_chip")
KEYS: Final = (*_METRICS, "source", "quality", "derived", "cluster", "id")
"""Keys of `[measured]`."""


def case_of_tables(tables: Record, *, file: str) -> MeasuredCase:
    """The case that the tables of a file describe.

    Args:
        tables: As TOML gives them.
        file: Its path.

    Raises:
        InputError: Nothing is measured, or the job is malformed, open in its batch, or one of serving.
    """
    measured = table(tables, MEASURED)
    if not measured:
        raise unusable("a job of which nothing is measured", f"no [{MEASURED}] table", key=file)
    check_keys(measured, KEYS, file)
    metric, value = _measured(measured, file)
    rest = {key: content for key, content in tables.items() if key != MEASURED}
    job = job_of_tables(rest, file=file, folder=str(Path(file).parent))
    if not isinstance(job, Job):
        raise unusable("a serving job among those of training", "serve", key=f"{file}: workload.kind")
    if job.workload.global_batch is None:
        raise unusable("no batch", None, key=f"{file}: workload.global_batch")
    pinned = filled(job)
    return MeasuredCase(
        id=text(measured, "id") or Path(file).stem,
        job=pinned.job,
        metric=metric,
        measured=value,
        source_of_measured="derived" if measured.get("derived") is True else "direct",
        source=text(measured, "source") or "unstated",
        quality=text(measured, "quality") or "unstated",
        assumed=pinned.assumed,
        alternatives=pinned.alternatives,
        cluster_name=text(measured, "cluster"),
    )


def check_keys(measured: Record, keys: Sequence[str], file: str) -> None:
    """Refuses a key of `[measured]` that is none of those there are.

    Raises:
        InputError: There is one.
    """
    for key in measured:
        if key not in keys:
            raise InputError(
                f"unknown key {key}",
                where=f"{file}: {MEASURED}",
                value=key,
                expected=", ".join(keys),
                fix=nearest(key, keys) or "leave it out",
            )


def _measured(measured: Record, file: str) -> tuple[Metric, float]:
    for metric in _METRICS:
        value = number(measured, metric)
        if value is not None:
            return metric, value
    raise unusable("neither a step time nor tokens/s", ", ".join(measured), key=f"{file}: {MEASURED}")
