"""A job asked of two witnesses: what the compiler says of its program, beside what the equation expects.

What the job leaves open, the planner chooses first, among the plans that our program knows.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ridgeline.compiler.compilation import compile_program
from ridgeline.compiler.installed import check_installed, own_compiler, usable_compiler
from ridgeline.compiler.our_program import OurProgram
from ridgeline.errors import InfeasibleError
from ridgeline.hlo.summary import summarise
from ridgeline.hlo.text import parse_hlo
from ridgeline.job.job import DCN_AXES, ICI_AXES
from ridgeline.job.mesh import FREE
from ridgeline.model.operations import Attention
from ridgeline.program.request import check_model, training_program
from ridgeline.program.splash import splash_flops
from ridgeline.search.answer import NoPlan
from ridgeline.search.estimate import verdict
from ridgeline.search.train import train

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ridgeline.compiler.compilation import Compilation
    from ridgeline.compiler.installed import CompilerName
    from ridgeline.compiler.process import Limits
    from ridgeline.hlo.module import Computation, Instruction
    from ridgeline.hlo.summary import HloSummary, KernelRule
    from ridgeline.job.job import Job
    from ridgeline.program.request import TrainingProgram
    from ridgeline.search.answer import PlanEstimate, Verdict

_SEARCHED_AXES = ("dp", "fsdp", "tp", "dcn_dp", "dcn_fsdp")
"""Axes that the planner may choose for our program when a job names none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileAnswer:
    """What `ridgeline compile JOB` answers.

    Attributes:
        job: The question, with nothing left to choose.
        estimate: What the equation expects of it.
        compiler: Which was asked.
        is_stand_in: The slice's own compiler is not installed, and the CPU's stands in for it.
        compilation: What it says of the program's memory, or why there is no place for it.
        summary: What the compiled text says; None where nothing was compiled.
    """

    job: Job
    estimate: PlanEstimate
    compiler: CompilerName
    is_stand_in: bool
    compilation: Compilation
    summary: HloSummary | None

    @property
    def peak_bytes(self) -> float:
        """Memory of a device by the compiler; where it refused, what it says it needs (NaN if the host lacks it)."""
        memory, refusal = self.compilation.outcome.memory, self.compilation.outcome.refusal
        if memory is not None:
            return memory.peak_bytes
        return refusal.needed_bytes if refusal is not None and refusal.where == "hbm" else float("nan")

    @property
    def verdict(self) -> Verdict:
        """Whether the program fits on the chip, by the compiler."""
        if self.compilation.outcome.memory is None:
            return "does_not_fit"
        return verdict(self.peak_bytes, self.estimate.memory.usable_bytes)

    @property
    def predicted_flops(self) -> float:
        """Matmul FLOPs of one device in one step by the equation, recomputation included."""
        amounts = self.estimate.step.parts.work.amounts
        return sum(float(amount) for resource, amount in amounts.items() if resource.startswith("flops."))


def compile_job(
    job: Job,
    *,
    compiler: CompilerName | None = None,
    limits: Limits | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> CompileAnswer:
    """What a compiler says of a job's program.

    Args:
        job: The question; what its plan leaves open is chosen.
        compiler: `tpu`, `gpu`, or `cpu` for emulated devices; the slice's own if none is said, or `cpu` where that is
            not installed.
        limits: What the compiler may use.
        progress: Told what is being done.

    Raises:
        InputError: The question contradicts itself, or our program lacks a part of it.
        MissingExtraError: The compiler is not installed.
        InfeasibleError: The compiler was stopped, or failed.
    """
    asked = compiler or usable_compiler(job.hardware)
    check_installed(asked)
    check_model(job.model)
    progress("choosing a plan")
    chosen, estimate = _chosen(job)
    compilation = compile_program(OurProgram(job=chosen, compiler=asked), limits=limits, progress=progress)
    progress("reading the compiled program")
    summary = _summary(chosen, compilation)
    return CompileAnswer(
        job=chosen,
        estimate=estimate,
        compiler=asked,
        is_stand_in=compiler is None and asked != own_compiler(job.hardware),
        compilation=compilation,
        summary=summary,
    )


def _chosen(job: Job) -> tuple[Job, PlanEstimate]:
    """The job with the fastest plan that fits, or else the one that needs the least memory."""
    mesh = job.plan.mesh
    if not mesh:
        axes = [axis for axis in _SEARCHED_AXES if axis in ICI_AXES or job.hardware.num_slices > 1]
        mesh = dict.fromkeys(axes, FREE)
    elif job.hardware.num_slices > 1 and not any(axis in DCN_AXES for axis in mesh):
        mesh = {**mesh, "dcn_dp": FREE, "dcn_fsdp": FREE}
    question = replace(job, plan=replace(job.plan, mesh=mesh))
    try:
        answer = train(question)
        estimate, batch = answer.best, answer.global_batch
    except InfeasibleError as error:
        if not isinstance(error.answer, NoPlan):
            raise
        estimate, batch = error.answer.closest, error.answer.global_batch
    plan = estimate.plan
    chosen = replace(
        job,
        workload=replace(job.workload, global_batch=batch),
        plan=replace(
            job.plan,
            mesh=plan.mesh,
            gradient_accumulation=plan.gradient_accumulation,
            remat=plan.remat,
        ),
    )
    return chosen, estimate


def _summary(job: Job, compilation: Compilation) -> HloSummary | None:
    """What the compiled text says of FLOPs, collectives and values."""
    if compilation.hlo is None:
        return None
    with gzip.open(compilation.hlo, "rt", encoding="utf-8") as lines:
        module = parse_hlo(lines, where=str(compilation.hlo))
    program = training_program(job)
    return summarise(module, mesh=program.layout.axes_of_a_slice, rules=dict(_kernel_rules(program)))


def _kernel_rules(program: TrainingProgram) -> Iterator[tuple[str, KernelRule]]:
    """FLOPs of our program's kernels, which their text does not tell."""
    for block in (block for layer in program.tree.layers for block in layer.blocks):
        for operation in block.operations:
            if isinstance(operation, Attention):
                for name, kernel_flops in splash_flops(program, operation).items():
                    yield name, _constant(kernel_flops)


def _constant(kernel_flops: float) -> KernelRule:
    """A rule for a kernel that does the same in every run."""

    def rule(computation: Computation, instruction: Instruction) -> float:
        del computation, instruction
        return kernel_flops

    return rule
