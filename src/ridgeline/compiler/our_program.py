"""Our own program of a job, to be compiled for TPUs, for GPUs, or for the emulated devices of this machine."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, assert_never

from ridgeline.compiler.cache import source_digest
from ridgeline.compiler.child import installed_versions
from ridgeline.compiler.compilable import Command, Found
from ridgeline.compiler.dump import dump_options, dumped_program, largest_at_peak
from ridgeline.compiler.gpu import gpu_topology
from ridgeline.compiler.installed import check_installed
from ridgeline.compiler.outcome import Errand, errand_json, read_outcome
from ridgeline.compiler.process import check_ended, tpu_environment
from ridgeline.compiler.topology import abstract_topology
from ridgeline.job.serving import ServingJob
from ridgeline.job.writing import job_toml
from ridgeline.program.request import training_program
from ridgeline.program.serving import serving_program

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ridgeline.compiler.compilable import Ended
    from ridgeline.compiler.gpu import GpuTopology
    from ridgeline.compiler.installed import CompilerName
    from ridgeline.compiler.topology import AbstractTopology
    from ridgeline.hardware.slice import Slice
    from ridgeline.job.serving import AnyJob, Phase
    from ridgeline.program.forward import ForwardProgram

_OFFLOADED = ("all_gather", "reduce_scatter", "all_reduce")
_ERRAND, _OUTCOME, _MODULE, _PHASE, _DUMP = "errand.json", "outcome.json", "module.hlo", "phase", "dump"
_COMPLAINT = "complaint.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class OurProgram:
    """A job's program by our own decoder.

    Attributes:
        job: With nothing left to choose.
        compiler: Which compiles it.
        serving: Which of a serving job's two programs; None of a training job, whose step it is.
    """

    job: AnyJob
    compiler: CompilerName
    serving: Phase | None = None

    @property
    def question(self) -> str:
        """All that the result follows from.

        Raises:
            InputError: Our program lacks a part, the mesh does not divide a dimension, or the compiler does not know
                the chip.
            MissingExtraError: The compiler is not installed.
        """
        check_installed(self.compiler)
        asked = (
            self._program,
            topology_of(self.job.hardware, self.compiler),
            sorted(self._options.items()),
            self.compiler,
        )
        return "\n".join((repr(asked), source_digest(), repr(sorted(installed_versions().items()))))

    def command(self, folder: Path) -> Command:
        """Writes the job and the errand."""
        file = folder / "job.toml"
        file.write_text(job_toml(self.job, folder=str(folder)), encoding="utf-8")
        errand = Errand(
            job=str(file),
            compiler=self.compiler,
            options={**self._options, **(dump_options(folder / _DUMP) if self.compiler == "tpu" else {})},
            outcome=str(folder / _OUTCOME),
            hlo=str(folder / _MODULE),
            phase=str(folder / _PHASE),
            complaint=str(folder / _COMPLAINT),
            serving=self.serving,
        )
        (folder / _ERRAND).write_text(errand_json(errand), encoding="utf-8")
        environment = dict(tpu_environment())
        if self.compiler == "cpu":
            environment["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={self.job.hardware.num_devices}"
        return Command(
            arguments=(sys.executable, "-m", "ridgeline.compiler.child", str(folder / _ERRAND)), environment=environment
        )

    def phase(self, folder: Path) -> str:
        """What the child last wrote that it does."""
        file = folder / _PHASE
        return file.read_text(encoding="utf-8") if file.exists() else "starting the compiler"

    def read(self, folder: Path, ended: Ended) -> Found:
        """The outcome and the module's text.

        Raises:
            InputError: The job asks for what cannot be lowered.
            InfeasibleError: The child failed.
        """
        check_ended(ended, folder / _COMPLAINT)
        module, dump = folder / _MODULE, folder / _DUMP
        outcome = read_outcome((folder / _OUTCOME).read_text(encoding="utf-8"))
        return Found(
            outcome=replace(outcome, largest=largest_at_peak(dump)),
            hlo=module if module.exists() else dumped_program(dump),
        )

    @property
    def _program(self) -> ForwardProgram:
        if not isinstance(self.job, ServingJob):
            return training_program(self.job)
        return serving_program(self.job, self.serving or "prefill")

    @property
    def _options(self) -> Mapping[str, str]:
        return compiler_options(self.job) if self.compiler == "tpu" else {}


def topology_of(hardware: Slice, compiler: CompilerName) -> AbstractTopology | GpuTopology | None:
    """A slice as a compiler wants it described; None for the CPU's, which emulates devices of no kind.

    Raises:
        InputError: The compiler does not know the chip.
    """
    match compiler:
        case "tpu":
            return abstract_topology(hardware)
        case "gpu":
            return gpu_topology(hardware)
        case "cpu":
            return None
        case _:
            assert_never(compiler)


def compiler_options(job: AnyJob) -> Mapping[str, str]:
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
