"""Which program of a job is compiled, MaxText's or our own, and what reading its text needs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import nan
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from ridgeline.compiler.installed import check_installed, own_compiler, usable_compiler
from ridgeline.compiler.maxtext import MaxTextProgram
from ridgeline.compiler.maxtext_environment import find_maxtext, need_maxtext
from ridgeline.compiler.our_program import OurProgram
from ridgeline.errors import InputError
from ridgeline.export.maxtext import maxtext_config, topology_name
from ridgeline.hlo.parts import place_of
from ridgeline.job.job import Remat
from ridgeline.model.accounting import operations
from ridgeline.model.operations import Attention, ExpertMatmul
from ridgeline.program.attention import chosen_kernel
from ridgeline.program.grouped_matmul import gmm_flops
from ridgeline.program.request import check_model, training_program
from ridgeline.program.splash import splash_flops
from ridgeline.study.maxtext_kernels import maxtext_kernel_rules

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.compiler.compilable import Compilable
    from ridgeline.compiler.installed import CompilerName
    from ridgeline.compiler.maxtext_environment import MaxTextEnvironment
    from ridgeline.hlo.module import Computation, Instruction
    from ridgeline.hlo.summary import KernelRule
    from ridgeline.job.job import Job
    from ridgeline.program.forward import ForwardProgram

ProgramName: TypeAlias = Literal["maxtext", "ours"]
"""MaxText's training step, or that of our own decoder."""

_MAXTEXT_AXES: Final[Mapping[str, str]] = {
    "data": "dp",
    "stage": "pp",
    "fsdp": "fsdp",
    "fsdp_transpose": "fsdp_transpose",
    "context": "cp",
    "tensor": "tp",
    "tensor_sequence": "tp_sequence",
    "expert": "ep",
}
"""MaxText's mesh axes, outermost first, and ours. Source: `mesh_axes` of base.yml in MaxText 0.2.5."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Who is asked of a job, before its plan is chosen.

    Attributes:
        program: Whose program is compiled.
        compiler: By which compiler.
        environment: Where MaxText is; None for our program.
        why_ours: Why it is our program although MaxText is the usual choice; "" where it was said.
    """

    program: ProgramName
    compiler: CompilerName
    environment: MaxTextEnvironment | None = None
    why_ours: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadableProgram:
    """A program, and what reading its compiled text needs.

    Attributes:
        compilable: What is compiled.
        mesh: Degrees of a slice's axes, outermost first, by our names.
        rules: FLOPs of its kernels.
        axes: Names of axes in its text that are not ours, and ours.
    """

    compilable: Compilable
    mesh: Mapping[str, int]
    rules: Mapping[str, KernelRule]
    axes: Mapping[str, str] = field(default_factory=dict[str, str])


def who_is_asked(
    job: Job, *, program: ProgramName | None, compiler: CompilerName | None, maxtext_python: str | None
) -> Asked:
    """MaxText where nothing else is said, it is found, and it can be told the job; else our own program.

    Args:
        job: The question; its plan may leave things open.
        program: What the user said; None for nothing.
        compiler: What the user said; None for nothing.
        maxtext_python: The interpreter that has MaxText; None to look for it.

    Raises:
        InputError: What was said contradicts itself, or the program lacks a part of the job.
        MissingExtraError: What was said is not installed.
    """
    if program == "maxtext" or (program is None and maxtext_python is not None):
        if compiler not in {None, "tpu"}:
            raise _other_compiler(str(compiler))
        environment = need_maxtext(maxtext_python)
        _check_maxtext(job)
        return Asked(program="maxtext", compiler="tpu", environment=environment)
    why_ours = ""
    if program is None and compiler in {None, "tpu"} and own_compiler(job.hardware) == "tpu":
        try:
            if (environment := find_maxtext()) is not None:
                _check_maxtext(job)
                return Asked(program="maxtext", compiler="tpu", environment=environment)
            why_ours = "MaxText is not found"
        except InputError as error:
            why_ours = f"{error.what} ({error.where})"
    asked = compiler or usable_compiler(job.hardware)
    check_installed(asked)
    check_model(job.model)
    return Asked(program="ours", compiler=asked, why_ours=why_ours)


def readable_program(job: Job, asked: Asked) -> ReadableProgram:
    """The program of a job in which nothing is left to choose.

    Raises:
        InputError: The program lacks a part of the job.
    """
    if asked.environment is not None:
        return ReadableProgram(
            compilable=MaxTextProgram(job=job, environment=asked.environment),
            mesh={ours: degree for ours in _MAXTEXT_AXES.values() if (degree := job.plan.mesh.get(ours, 1)) > 1},
            rules=maxtext_kernel_rules(job),
            axes=_axes_of_maxtext(job),
        )
    program = training_program(job)
    return ReadableProgram(
        compilable=OurProgram(job=job, compiler=asked.compiler),
        mesh=program.layout.axes_of_a_slice,
        rules=kernel_rules(program, is_tpu=asked.compiler == "tpu"),
    )


def _check_maxtext(job: Job) -> None:
    """Refuses what MaxText cannot be told, whatever is chosen for what the job leaves open."""
    chosen = replace(
        job,
        workload=replace(job.workload, global_batch=job.workload.global_batch or job.hardware.num_devices),
        plan=replace(job.plan, remat=job.plan.remat or Remat(policy="full")),
    )
    maxtext_config(chosen)
    topology_name(job.hardware)


def _axes_of_maxtext(job: Job) -> Mapping[str, str]:
    """MaxText has one axis for what lies inside a slice and across slices: it gets the name of the part it has."""
    mesh = job.plan.mesh
    return {
        theirs: f"dcn_{ours}" if mesh.get(ours, 1) == 1 and mesh.get(f"dcn_{ours}", 1) > 1 else ours
        for theirs, ours in _MAXTEXT_AXES.items()
    }


def _other_compiler(compiler: str) -> InputError:
    return InputError(
        "MaxText's program is compiled for TPUs alone",
        where="--compiler",
        value=compiler,
        expected="tpu",
        fix="leave --compiler out, or use --program ours",
    )


def kernel_rules(program: ForwardProgram, *, is_tpu: bool) -> Mapping[str, KernelRule]:
    """FLOPs of our program's kernels, which their text does not tell.

    Raises:
        InputError: A kernel of attention is asked for, or tiles of one, that cannot run here.
    """
    found: dict[str, dict[str, float]] = {}
    for path, operation, _ in operations(program.tree):
        match operation:
            case Attention() if chosen_kernel(program, operation, is_tpu=is_tpu) == "splash":
                flops_of_kernels = splash_flops(program, operation)
            case ExpertMatmul():
                flops_of_kernels = gmm_flops(program, operation)
            case _:
                continue
        for kernel, kernel_flops in flops_of_kernels.items():
            found.setdefault(kernel, {})[path] = kernel_flops
    return {kernel: _by_part(flops_of_parts) for kernel, flops_of_parts in found.items()}


def _by_part(flops_of_parts: Mapping[str, float]) -> KernelRule:
    """A rule for a kernel that does the same in every run for a part: layers see windows, or whole sequences."""
    everywhere = set(flops_of_parts.values())

    def rule(computation: Computation, instruction: Instruction) -> float:
        del computation
        if len(everywhere) == 1:
            return min(everywhere)
        return flops_of_parts.get(place_of(instruction.op_name, trains=True).part, nan)

    return rule
