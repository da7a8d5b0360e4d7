"""A job as a TOML file that reads back as the same job."""

from __future__ import annotations

import re
from dataclasses import asdict
from os.path import relpath
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from ridgeline.errors import InputError
from ridgeline.hardware.figures import PEAK, own_figures
from ridgeline.job.model_path import path_to
from ridgeline.job.reading import JOB_SUFFIX
from ridgeline.job.serving import ServingJob
from ridgeline.job.serving_writing import serving_plan_table, serving_workload_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.hardware.slice import Slice
    from ridgeline.job.job import PlanRequest
    from ridgeline.job.serving import AnyJob

Value: TypeAlias = "str | bool | int | float | list[Value] | dict[str, Value]"
"""What TOML can hold."""

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPED = re.compile(r'["\\\x00-\x1f\x7f]')
_READABLE_DIGITS = 1e6


def write_job(job: AnyJob, path: str, *, force: bool = False) -> None:
    """Writes a job file.

    Args:
        job: What to write.
        path: Where to; it must end in `.toml`.
        force: Whether a file that is there already may be replaced.

    Raises:
        InputError: The name is wrong, a file is in the way, or the place cannot be written to.
    """

    def refuse(what: str, expected: str, fix: str) -> InputError:
        return InputError(what, where="--save", value=path, expected=expected, fix=fix)

    if not path.endswith(JOB_SUFFIX):
        raise refuse("a job file needs its suffix", f"a name that ends in {JOB_SUFFIX}", f"write {path}{JOB_SUFFIX}")
    text = job_toml(job, folder=str(Path(path).parent))
    try:
        with Path(path).open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise refuse("the file exists", "a new file", "choose another name, or add --force to replace it") from None
    except OSError as error:
        what = f"cannot write the job file: {error.strerror}"
        raise refuse(what, "a place that can be written to", "check the path") from None


def job_toml(job: AnyJob, *, folder: str = ".") -> str:
    """The text of a job file, as it must be when it stands in `folder`."""
    tables = job_tables(job, folder=folder)
    if job.model_table is None:
        tables["model"] = path_to(job.model_reference, folder)
    if job.calibration is not None:
        tables["calibration"] = relpath(job.calibration.folder, folder)
    top = [f"{key} = {_toml(value)}\n" for key, value in tables.items() if not isinstance(value, dict)]
    sections = [
        f"\n[{key}]\n" + "".join(f"{name} = {_toml(inner)}\n" for name, inner in value.items())
        for key, value in tables.items()
        if isinstance(value, dict)
    ]
    return "".join(top + sections)


def job_tables(job: AnyJob, *, folder: str = ".") -> dict[str, Value]:
    """The job in the form of a job file that stands in `folder`; what was left to the planner is left out."""
    if isinstance(job, ServingJob):
        workload, plan = serving_workload_table(job.workload, folder), serving_plan_table(job.plan, folder)
    else:
        workload, plan = asdict(job.workload), plan_table(job.plan)
        if workload["tokens"] is not None:
            workload["tokens"] = int(workload["tokens"])
    return {
        "version": 1,
        "model": job.model_reference if job.model_table is None else cast("Value", dict(job.model_table)),
        "hardware": _hardware(job.hardware),
        "workload": _said(workload),
        "plan": _said(plan),
    }


def _hardware(hardware: Slice) -> Value:
    """The name of a slice; a table where figures of its chip are the user's own."""
    own = own_figures(hardware.chip)
    if not own:
        return hardware.name
    peaks: dict[str, Value] = {key.removeprefix(PEAK): value for key, value in own.items() if key.startswith(PEAK)}
    rest = {key: value for key, value in own.items() if not key.startswith(PEAK)}
    return _said({"name": hardware.name, **rest, "peak_flops_per_s": peaks})


def plan_table(plan: PlanRequest) -> dict[str, Value]:
    """The plan in the form of a job file."""
    table = asdict(plan)
    table["moe"] = table.pop("experts")
    if not plan.optimizer.distributed:
        del table["optimizer"]["distributed"]
    imbalance = table.pop("moe_imbalance")
    if imbalance != 1:
        table["moe"]["imbalance"] = imbalance
    if plan.remat is not None:
        table["remat"] = {"policy": plan.remat.policy, **plan.remat.tensors}
    return _said(table)


def _said(table: Mapping[str, Any]) -> dict[str, Value]:
    """A table without the entries that say nothing: None, and what is empty."""
    values: dict[str, Value] = {}
    for key, value in table.items():
        match value:
            case None:
                pass
            case dict():
                values[key] = _said(cast("Mapping[str, Any]", value))
            case tuple():
                values[key] = list(cast("tuple[Value, ...]", value))
            case _:
                values[key] = value
    return {key: value for key, value in values.items() if value not in ({}, [])}


def _toml(value: Value) -> str:
    """A value as TOML writes it, on one line.

    >>> _toml({"policy": "custom", "offload": [True, 1.5, 15_000_000, 8e12]})
    '{ policy = "custom", offload = [true, 1.5, 15_000_000, 8e+12] }'
    """
    match value:
        case bool():
            return str(value).lower()
        case int():
            return f"{value:_}" if value >= _READABLE_DIGITS else str(value)
        case float():
            short = f"{value:g}"
            return short if "e" in short and float(short) == value else repr(value)
        case str():
            return _quoted(value)
        case list():
            return f"[{', '.join(map(_toml, value))}]"
        case dict():
            pairs = (
                f"{key if _BARE_KEY.fullmatch(key) else _quoted(key)} = {_toml(inner)}" for key, inner in value.items()
            )
            return f"{{ {', '.join(pairs)} }}"


def _quoted(text: str) -> str:
    return '"' + _ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + '"'
