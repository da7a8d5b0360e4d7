"""From what a user wrote (a job file, or a model and some flags) to a `Job`.

A file becomes tables, settings are laid over them, short forms are written out; then `document.py` checks
the shape and `assembly.py` the sense.
"""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast, get_args

from ridgeline.errors import InputError
from ridgeline.job.assembly import assembled
from ridgeline.job.document import is_serving, job_document
from ridgeline.job.file_size import regular_size_bytes
from ridgeline.job.mesh import parse_pairs
from ridgeline.job.origin import Origin, Setting
from ridgeline.job.serving import Phase, ServingJob

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ridgeline.job.job import Job
    from ridgeline.job.serving import AnyJob

Tables: TypeAlias = dict[str, object]

JOB_SUFFIX = ".toml"
"""What tells a job file from a model."""

_LARGEST_FILE_BYTES = 1_000_000

_PAIRS_OF_WORKLOAD: Mapping[str, str] = {
    "prompt_len": "p50=800,p90=2000",
    "generate_len": "mean=256,sigma=0.6",
    "ttft_s": "p90=2s",
    "tpot_s": "p90=50ms",
}
"""Keys of a workload that may be pairs instead of a number, with an example."""


def read_job(reference: str, settings: Sequence[Setting] = ()) -> Job:
    """The training job that a user asks for.

    Args:
        reference: A job file (it ends in `.toml`), or a model: a zoo name or the path of a config.json.
        settings: What else was said; each overrides the file.

    Raises:
        InputError: Anything is unknown, missing, contradictory or malformed, or the job is one of serving.
    """
    job = read_any_job(reference, settings)
    if isinstance(job, ServingJob):
        raise _wrong_kind(reference, "serve", expected="train", fix="ask `ridgeline compile` about a serving job")
    return job


def read_serving_job(reference: str, settings: Sequence[Setting] = ()) -> ServingJob:
    """The serving job that a user asks for.

    Args:
        reference: As for `read_job`.
        settings: As for `read_job`.

    Raises:
        InputError: Anything is unknown, missing, contradictory or malformed, or the job is one of training.
    """
    said = {setting.key for setting in settings}
    if not reference.endswith(JOB_SUFFIX) and not said & {"workload.kind", "workload.seq_len"}:
        settings = (Setting(key="workload.kind", value="serve", where="job"), *settings)
    job = read_any_job(reference, settings)
    if not isinstance(job, ServingJob):
        raise _wrong_kind(reference, "train", expected="serve", fix="ask `ridgeline train` about a training job")
    return job


def _wrong_kind(reference: str, kind: str, *, expected: str, fix: str) -> InputError:
    names = {"train": "training", "serve": "serving"}
    what = f"a {names[kind]} job, where one of {names[expected]} is asked for"
    return InputError(what, where=f"{reference}: workload.kind", value=kind, expected=expected, fix=fix)


def read_any_job(reference: str, settings: Sequence[Setting] = ()) -> AnyJob:
    """The job that a user asks for, of whatever kind.

    Args:
        reference: As for `read_job`.
        settings: As for `read_job`.

    Raises:
        InputError: Anything is unknown, missing, contradictory or malformed.
    """
    tables: Tables = {"version": 1}
    origin, folder = origin_of(reference, settings), "."
    if reference.endswith(JOB_SUFFIX):
        tables = read_tables(reference)
        folder = str(Path(reference).parent)
    for setting in origin.settings:
        _put(tables, setting, origin)
    return _job_of(tables, origin, folder=folder)


def origin_of(reference: str, settings: Sequence[Setting]) -> Origin:
    """Where the values of a job are written.

    Args:
        reference: As for `read_job`.
        settings: As for `read_job`.
    """
    if reference.endswith(JOB_SUFFIX):
        return Origin(file=reference, settings=tuple(settings))
    return Origin(file="job", settings=(Setting(key="model", value=reference, where="MODEL"), *settings))


def job_of_tables(tables: Tables, *, file: str, folder: str = ".") -> AnyJob:
    """The job that the tables of a job file describe, wherever they come from.

    Args:
        tables: As TOML would give them, `version` among them.
        file: Where they stand, for error messages.
        folder: What a relative path of a model counts from.

    Raises:
        InputError: Anything is unknown, missing, contradictory or malformed.
    """
    return _job_of(tables, Origin(file=file), folder=folder)


def _job_of(tables: Tables, origin: Origin, *, folder: str) -> AnyJob:
    """The job of tables over which all settings are laid."""
    if is_serving(tables.get("workload")):
        origin = _with_meshes_of_phases(tables, origin)
    _write_out_short_forms(tables, origin)
    return assembled(job_document(tables, where=origin.of), origin, folder=folder)


def read_tables(path: str) -> Tables:
    """The tables of a TOML file.

    Raises:
        InputError: There is no such file, it is too large, or it is not TOML.
    """

    def refuse(what: str, expected: str, fix: str) -> InputError:
        return InputError(what, where="JOB", value=path, expected=expected, fix=fix)

    file = Path(path)
    try:
        size_bytes = regular_size_bytes(file)
        if size_bytes is None:
            raise refuse("not a file", "a job file", "give the path of a .toml file")
        if size_bytes > _LARGEST_FILE_BYTES:
            what = f"job file too large: {size_bytes:,} bytes"
            raise refuse(what, f"at most {_LARGEST_FILE_BYTES:,} bytes", "check that this is a job file")
        return tomllib.loads(file.read_bytes().decode("utf-8"))
    except UnicodeDecodeError:
        raise refuse("job file is not text", "TOML in UTF-8", "check that this is a job file") from None
    except RecursionError:
        raise refuse(
            "job file is nested too deeply", "tables a few levels deep", "check that this is a job file"
        ) from None
    except ValueError as error:  # not only TOMLDecodeError: numbers have limits too
        raise refuse(f"job file is not TOML: {error}", "TOML", "mend it there, or write the file again") from None
    except FileNotFoundError:
        raise refuse("no such job file", "a job file", "check the path") from None
    except OSError as error:
        raise refuse(f"cannot read job file: {error.strerror}", "a readable file", "check the path") from None


def _put(tables: Tables, setting: Setting, origin: Origin) -> None:
    """Lays a setting over what the file says."""
    *path, name = setting.key.split(".")
    table = tables
    for step in path:
        inner = table.setdefault(step, {})
        if not isinstance(inner, dict):
            raise InputError(
                f"wrong value of {step}",
                where=origin.of(step),
                value=inner,
                expected="a table",
                fix=f"change {step} to a table",
            )
        table = cast("Tables", inner)
    table[name] = setting.value
    # The batch has two forms; a flag in one takes the place of the file's in the other.
    other = {"global_batch": "batch_tokens", "batch_tokens": "global_batch"}.get(name)
    if other is not None and not origin.gives(f"workload.{other}"):
        table.pop(other, None)


def _with_meshes_of_phases(tables: Tables, origin: Origin) -> Origin:
    """Gives a serving job's `mesh` to each phase that has none of its own, and says that it was written there."""
    plan = cast("Tables", tables["plan"]) if isinstance(tables.get("plan"), dict) else {}
    if "mesh" not in plan:
        return origin
    mesh, where = plan.pop("mesh"), origin.of("plan.mesh")
    own = [f"plan.{phase}" for phase in ("prefill", "decode") if phase in plan]
    if len(own) == len(get_args(Phase)) and all(origin.gives(key) == origin.gives("plan.mesh") for key in own):
        raise InputError(
            "mesh is of phases that have none of their own, and both have",
            where=where,
            value=mesh,
            expected="a mesh for both, or one for each",
            fix="leave it out, or leave out that of a phase",
        )
    shared = [phase for phase in ("prefill", "decode") if phase not in plan]
    plan |= dict.fromkeys(shared, mesh)
    said = (Setting(key=f"plan.{phase}", value=mesh, where=where) for phase in shared)
    return replace(origin, settings=(*origin.settings, *said))


def _write_out_short_forms(tables: Tables, origin: Origin) -> None:
    """Turns `mesh = "fsdp=32,tp=4"`, `remat = "full"`, `quantization = "fp8"`, `ttft_s = "p90=2s"` into tables."""
    workload = cast("Tables", tables["workload"]) if isinstance(tables.get("workload"), dict) else {}
    for key, example in _PAIRS_OF_WORKLOAD.items():
        match workload.get(key):
            case str(text) if "=" in text:
                workload[key] = parse_pairs(text, where=origin.of(f"workload.{key}"), example=example)
            case _:
                pass
    plan = cast("Tables", tables["plan"]) if isinstance(tables.get("plan"), dict) else {}
    for mesh in ("mesh", "prefill", "decode"):
        match plan.get(mesh):
            case str(text):
                plan[mesh] = parse_pairs(text, where=origin.of(f"plan.{mesh}"), example="fsdp=32,tp=4")
            case _:
                pass
    match plan.get("remat"):
        case str(text) if "=" in text:
            pairs = parse_pairs(text, where=origin.of("plan.remat"), example="out_proj=device,context=offload")
            plan["remat"] = {"policy": "custom"} | pairs
        case str(text):
            plan["remat"] = {"policy": text}
        case _:
            pass
    match plan.get("quantization"):
        case "none":
            del plan["quantization"]
        case str(text):
            plan["quantization"] = {"kind": text}
        case _:
            pass
