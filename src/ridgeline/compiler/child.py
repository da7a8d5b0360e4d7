"""The child process that compiles: `python -m ridgeline.compiler.child ERRAND.json`.

It is alone with the compiler, which may use all memory, take too long, or crash, without harm to whoever asked.
"""

from __future__ import annotations

import resource
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from ridgeline.compiler.outcome import (
    CompiledMemory,
    Outcome,
    complaint_json,
    out_of_memory,
    outcome_json,
    read_errand,
)
from ridgeline.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jax.sharding import Mesh

    from ridgeline.compiler.function_errand import FunctionErrand
    from ridgeline.compiler.outcome import Errand
    from ridgeline.hardware.slice import Slice
    from ridgeline.job.job import Job
    from ridgeline.job.serving import ServingJob
    from ridgeline.program.layout import Layout

LIBRARIES: Final = ("jax", "jaxlib", "libtpu", "jax-cuda13-plugin", "jax-cuda13-pjrt", "optax", "qwix", "tokamax")
"""What decides a compilation beside the program."""

AT_FAULT: Final = 3
"""Exit code of a child that has complained of what it was to compile."""

_KIB = 1024 if sys.platform != "darwin" else 1  # getrusage counts in KiB, on macOS in bytes


def main(arguments: Sequence[str]) -> None:
    """Does the errand: compiles, writes the module's text, then the outcome; or a complaint."""
    errand = read_errand(Path(arguments[0]).read_text(encoding="utf-8"))
    try:
        outcome = run(errand)
    except InputError as error:
        Path(errand.complaint).write_text(complaint_json(error), encoding="utf-8")
        sys.exit(AT_FAULT)
    Path(errand.outcome).write_text(outcome_json(outcome), encoding="utf-8")


def run(errand: Errand) -> Outcome:
    """Traces, lowers and compiles the training step of a job, or a phase of serving.

    Raises:
        InputError: A kernel cannot run as the job asks for it, or the compiler does not know the slice.
    """
    from ridgeline.job.reading import read_any_job
    from ridgeline.job.serving import ServingJob

    phase = Path(errand.phase)
    phase.write_text("describing the machine", encoding="utf-8")
    job = read_any_job(errand.job)
    step, arguments = _of_serving(job, errand) if isinstance(job, ServingJob) else _of_training(job, errand)
    phase.write_text("lowering", encoding="utf-8")
    began_s = perf_counter()
    lowered: Any = step.lower(*arguments)
    return compile_lowered(lowered, errand, began_s=began_s)


def _of_training(job: Job, errand: Errand) -> tuple[Any, tuple[Any, ...]]:
    """The jitted step, and the shapes that it is called with."""
    from ridgeline.program.request import training_program
    from ridgeline.program.training import abstract_state, abstract_tokens, training_step

    program = training_program(job)
    mesh = _mesh(job.hardware, program.layout, errand.compiler)
    return training_step(program, mesh), (abstract_state(program, mesh), abstract_tokens(program, mesh))


def _of_serving(job: ServingJob, errand: Errand) -> tuple[Any, tuple[Any, ...]]:
    """The same of a phase of serving."""
    from ridgeline.program.inference import abstract_arguments, phase_step
    from ridgeline.program.serving import serving_program

    program = serving_program(job, errand.serving or "prefill")
    mesh = _mesh(job.hardware, program.layout, errand.compiler)
    return phase_step(program, mesh), abstract_arguments(program, mesh)


def compile_lowered(lowered: Any, errand: Errand | FunctionErrand, *, began_s: float) -> Outcome:  # noqa: ANN401 - of JAX, untyped
    """Compiles a lowered program and writes its text.

    Args:
        lowered: The program.
        errand: By which compiler, with which options, and where to write.
        began_s: When lowering began.
    """
    lowered_s, phase = perf_counter(), Path(errand.phase)
    phase.write_text("compiling", encoding="utf-8")
    try:
        compiled = lowered.compile(compiler_options=dict(errand.options) or None)
    except Exception as error:
        refusal = out_of_memory(str(error))
        if refusal is None:
            raise
        return _outcome(began_s, lowered_s, perf_counter(), refusal=refusal)
    compiled_s = perf_counter()
    phase.write_text("reading the result", encoding="utf-8")
    Path(errand.hlo).write_text(compiled.as_text(), encoding="utf-8")
    return _outcome(began_s, lowered_s, compiled_s, memory=_memory(compiled.memory_analysis(), errand.compiler))


def _mesh(hardware: Slice, layout: Layout, compiler: str) -> Mesh:
    """The devices: of a topology for the compilers of TPUs and GPUs, else this process's own emulated ones."""
    from ridgeline.compiler.gpu import describe_gpus, gpu_topology
    from ridgeline.compiler.topology import abstract_topology, describe_devices
    from ridgeline.program.mesh import cpu_mesh, mesh_in_order, torus_mesh

    if compiler == "cpu":
        return cpu_mesh(layout)
    if compiler == "gpu":
        return mesh_in_order(layout, describe_gpus(gpu_topology(hardware)))
    topology = abstract_topology(hardware)
    return torus_mesh(layout, describe_devices(topology), num_slices=topology.num_slices)


def _memory(found: Any, compiler: str) -> CompiledMemory:  # noqa: ANN401 - jaxlib's CompiledMemoryStats has no type
    """The account that jaxlib gives of a compiled program."""
    together_bytes = found.argument_size_in_bytes + found.output_size_in_bytes - found.alias_size_in_bytes
    together_bytes += found.temp_size_in_bytes
    return CompiledMemory(
        # Other compilers tell no peak of their own; their temporaries are one allocation, in which values share places.
        # The TPU compiler's counts host memory and the chip's inner memory too, so it can exceed all of HBM's arrays.
        peak_bytes=min(found.peak_memory_in_bytes, together_bytes) if compiler == "tpu" else together_bytes,
        arguments_bytes=found.argument_size_in_bytes,
        outputs_bytes=found.output_size_in_bytes,
        aliased_bytes=found.alias_size_in_bytes,
        temporaries_bytes=found.temp_size_in_bytes,
        code_bytes=found.generated_code_size_in_bytes,
        host_bytes=found.host_argument_size_in_bytes
        + found.host_output_size_in_bytes
        - found.host_alias_size_in_bytes
        + found.host_temp_size_in_bytes,
    )


def _outcome(began_s: float, lowered_s: float, compiled_s: float, **found: Any) -> Outcome:  # noqa: ANN401 - see Outcome
    return Outcome(
        compile_s=compiled_s - lowered_s,
        lower_s=lowered_s - began_s,
        process_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIB,
        versions=installed_versions(),
        **found,
    )


def installed_versions() -> dict[str, str]:
    """The libraries that are installed, by name."""
    found: dict[str, str] = {}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
