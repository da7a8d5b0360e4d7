"""`ridgeline compile` of a serving job: prefill and decode."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from ridgeline.errors import InputError

if TYPE_CHECKING:
    from ridgeline.compiler.installed import CompilerName
    from ridgeline.compiler.process import Limits
    from ridgeline.job.serving import ServingJob
    from ridgeline.study.compiled_program import ProgramName


def compile_serving(
    job: ServingJob, *, program: ProgramName, compiler: CompilerName | None, limits: Limits, json: bool
) -> None:
    """Compiles both programs and prints what came of it; ends with 1 where one of them does not fit."""
    from ridgeline.cli.output import print_json, print_report
    from ridgeline.cli.progress import elapsed_line
    from ridgeline.report.compiled_serving import compiled_serving_json, compiled_serving_report
    from ridgeline.study.compile_serving import compile_serving as compile_both

    if program == "maxtext":
        raise InputError(
            "MaxText's program is a training step",
            where="--program",
            value="maxtext",
            expected="ours for a serving job",
            fix="leave --program and --maxtext-python out",
        )
    with elapsed_line() as progress:
        answer = compile_both(job, compiler=compiler, limits=limits, progress=progress)
    if json:
        print_json(compiled_serving_json(answer))
    else:
        print_report(compiled_serving_report(answer))
    if answer.verdict == "does_not_fit":
        raise typer.Exit(1)
