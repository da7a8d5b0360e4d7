"""A job's program, compiled: from the cache, or by a child process.

`compile_program` is the one entry. The job must leave nothing to choose; `study/` chooses where it does.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from ridgeline.compiler.cache import Entry, load, prepare, source_digest, store
from ridgeline.compiler.child import installed_versions
from ridgeline.compiler.outcome import Errand
from ridgeline.compiler.process import Limits, send
from ridgeline.compiler.topology import abstract_topology
from ridgeline.errors import MissingExtraError
from ridgeline.job.writing import job_toml
from ridgeline.program.request import training_program

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ridgeline.compiler.outcome import Outcome
    from ridgeline.job.job import Job

CompilerName: TypeAlias = Literal["tpu", "cpu"]
"""XLA for TPUs (in libtpu), or XLA for this machine's CPU, whose devices are emulated."""

_OFFLOADED = ("all_gather", "reduce_scatter", "all_reduce")


@dataclass(frozen=True, slots=True, kw_only=True)
class Compilation:
    """What the compiler says of a program.

    Attributes:
        outcome: Time, memory, versions, or why there is no place for it.
        hlo: Path of the compiled module's text, packed with gzip; None where nothing was compiled.
        is_cached: It had been compiled before.
        compiler: Which.
    """

    outcome: Outcome
    hlo: Path | None
    is_cached: bool
    compiler: CompilerName


def compile_program(
    job: Job,
    *,
    compiler: CompilerName = "tpu",
    limits: Limits | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Compilation:
    """Compiles our program of a job.

    Args:
        job: With batch, mesh, micro-steps and remat policy.
        compiler: Which.
        limits: What the child process may use.
        progress: Told what the child is doing.

    Raises:
        InputError: Our program lacks a part, the mesh does not divide a dimension, or the slice is no TPU slice.
        MissingExtraError: The compiler is not installed.
        InfeasibleError: The compiler was stopped, or failed.
    """
    check_installed(compiler)
    program = training_program(job)
    topology = abstract_topology(job.hardware) if compiler == "tpu" else None
    options = compiler_options(job) if compiler == "tpu" else {}
    key = _key(repr((program, topology, sorted(options.items()), compiler)))
    entry = load(key)
    is_cached = entry is not None
    if entry is None:
        entry = _compiled(key, job, compiler, options, limits or Limits(), progress)
    return Compilation(outcome=entry.outcome, hlo=entry.hlo, is_cached=is_cached, compiler=compiler)


def check_installed(compiler: CompilerName) -> None:
    """Refuses a compiler that is not installed, with the line that installs it."""
    for library in ("jax", "libtpu") if compiler == "tpu" else ("jax",):
        if find_spec(library) is None:
            raise MissingExtraError("jax", needed_for="compiling for TPUs" if compiler == "tpu" else "compiling")


def compiler_options(job: Job) -> Mapping[str, str]:
    """What a job tells the TPU compiler, as its own options."""
    compiler = job.plan.compiler
    options: dict[str, str] = {}
    if compiler.scoped_vmem_kib is not None:
        options["xla_tpu_scoped_vmem_limit_kib"] = str(compiler.scoped_vmem_kib)
    if compiler.sparse_core_offload:
        for kind in _OFFLOADED:
            said = str(kind in compiler.sparse_core_offload).lower()
            options[f"xla_tpu_enable_sparse_core_collective_offload_{kind}"] = said
    return options


def _compiled(
    key: str,
    job: Job,
    compiler: CompilerName,
    options: Mapping[str, str],
    limits: Limits,
    progress: Callable[[str], None],
) -> Entry:
    """Compiles in a child process and keeps the result."""
    prepare()
    with tempfile.TemporaryDirectory(prefix="ridgeline-") as name:
        folder = Path(name)
        file = folder / "job.toml"
        file.write_text(job_toml(job, folder=name), encoding="utf-8")
        errand = Errand(
            job=str(file),
            compiler=compiler,
            options=options,
            outcome=str(folder / "outcome.json"),
            hlo=str(folder / "module.hlo"),
            phase=str(folder / "phase"),
        )
        num_devices = job.hardware.num_devices
        outcome = send(errand, folder / "errand.json", num_devices=num_devices, limits=limits, progress=progress)
        return store(key, outcome, Path(errand.hlo))


def _key(question: str) -> str:
    """What a compilation follows from: the program, the machine, the options, the code and the libraries."""
    parts = (question, source_digest(), sys.version, repr(sorted(installed_versions().items())))
    return sha256("\n".join(parts).encode()).hexdigest()
