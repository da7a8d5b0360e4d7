"""A job asked of two witnesses: what the compiler says of its program, beside what the equation expects.

What the job leaves open, the planner chooses first, as far as programs know it.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from ridgeline.compiler.compilation import compile_program
from ridgeline.compiler.installed import own_compiler
from ridgeline.cost.training.memory import logits_gradient_bytes
from ridgeline.hlo.summary import summarise
from ridgeline.hlo.text import parse_hlo
from ridgeline.search.estimate import verdict
from ridgeline.search.pinned import pinned_columns
from ridgeline.study.beside_equation import beside_equation
from ridgeline.study.chosen_job import chosen_job, for_our_program
from ridgeline.study.compiled_program import readable_program, who_is_asked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ridgeline.compiler.compilation import Compilation
    from ridgeline.compiler.installed import CompilerName
    from ridgeline.compiler.process import Limits
    from ridgeline.hlo.summary import HloSummary, PlacedCollective
    from ridgeline.job.job import Job
    from ridgeline.search.answer import PlanEstimate, Verdict
    from ridgeline.study.beside_equation import BesideEquation
    from ridgeline.study.compiled_program import ProgramName, ReadableProgram


_ALIKE: Final = 1.15
"""The equation's memory over the compiler's, up to which they say the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileAnswer:
    """What `ridgeline compile JOB` answers.

    Attributes:
        job: The question, with nothing left to choose.
        estimate: What the equation expects of it.
        program: Whose program it is.
        why_ours: Why it is ours although MaxText is the usual choice; "" where it was said, or is MaxText's.
        compiler: Which was asked.
        is_stand_in: The slice's own compiler is not installed, and the CPU's stands in for it.
        compilation: What it says of the program's memory, or why there is no place for it.
        summary: What the compiled text says; None where nothing was compiled.
        beside: Both accounts of the step, row by row.
    """

    job: Job
    estimate: PlanEstimate
    program: ProgramName
    why_ours: str
    compiler: CompilerName
    is_stand_in: bool
    compilation: Compilation
    summary: HloSummary | None
    beside: BesideEquation

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
    def logits_gradient_bytes(self) -> float:
        """What of the equation's memory our program does without, where that is why they differ; else 0.

        The equation is MaxText's, whose logits and their gradient stand side by side; ours, compiled for TPUs, writes
        the gradient over the logits.
        """
        if self.program != "ours" or self.compiler != "tpu":
            return 0.0
        predicted_bytes = self.estimate.memory.total_bytes
        saved_bytes = logits_gradient_bytes(*pinned_columns(self.job))
        is_why = predicted_bytes > _ALIKE * self.peak_bytes >= predicted_bytes - saved_bytes
        return saved_bytes if is_why else 0.0

    @property
    def predicted_flops(self) -> float:
        """Matmul FLOPs that one device executes in one step by the equation, recomputed and masked-out ones too."""
        return self.beside.predicted_flops


def compile_job(
    job: Job,
    *,
    compiler: CompilerName | None = None,
    limits: Limits | None = None,
    program: ProgramName | None = None,
    maxtext_python: str | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> CompileAnswer:
    """What a compiler says of a job's program.

    Args:
        job: The question; what its plan leaves open is chosen.
        compiler: `tpu`, `gpu`, or `cpu` for emulated devices; the slice's own if none is said, or `cpu` where that is
            not installed.
        limits: What the compiler may use.
        program: `maxtext` or `ours`; MaxText's if none is said, where it is found and can be told the job.
        maxtext_python: The interpreter that has MaxText; None to look for it.
        progress: Told what is being done.

    Raises:
        InputError: The question contradicts itself, or the program lacks a part of it.
        MissingExtraError: The compiler or the program is not installed.
        InfeasibleError: The compiler was stopped, or failed.
    """
    asked = who_is_asked(job, program=program, compiler=compiler, maxtext_python=maxtext_python)
    progress("choosing a plan")
    chosen, estimate = chosen_job(job if asked.program == "maxtext" else for_our_program(job))
    readable = readable_program(chosen, asked)
    compilation = compile_program(readable.compilable, limits=limits, progress=progress)
    progress("reading the compiled program")
    summary, memory = compiled_summary(readable, compilation), compilation.outcome.memory
    return CompileAnswer(
        job=chosen,
        estimate=estimate,
        program=asked.program,
        why_ours=asked.why_ours,
        compiler=asked.compiler,
        is_stand_in=compiler is None and asked.compiler != own_compiler(job.hardware),
        compilation=compilation,
        summary=summary,
        beside=beside_equation(chosen, estimate, summary, host_bytes=None if memory is None else memory.host_bytes),
    )


def compiled_summary(readable: ReadableProgram, compilation: Compilation) -> HloSummary | None:
    """What the compiled text says of FLOPs, collectives and values, axes by our names."""
    if compilation.hlo is None:
        return None
    with gzip.open(compilation.hlo, "rt", encoding="utf-8") as lines:
        module = parse_hlo(lines, where=str(compilation.hlo))
    summary = summarise(module, mesh=readable.mesh, rules=readable.rules)
    return replace(summary, collectives=tuple(_with_our_axes(placed, readable.axes) for placed in summary.collectives))


def _with_our_axes(placed: PlacedCollective, ours: Mapping[str, str]) -> PlacedCollective:
    axis = "+".join(ours.get(each, each) for each in placed.collective.axis.split("+"))
    return replace(placed, collective=replace(placed.collective, axis=axis))
