"""`ridgeline compile module:function`: what the XLA compiler says of a user's own function."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ridgeline.errors import InputError

if TYPE_CHECKING:
    from ridgeline.compiler.installed import CompilerName
    from ridgeline.compiler.process import Limits


def names_a_function(reference: str) -> bool:
    """Whether what stands in a job's place is `module:function` or `path/to/file.py:function`.

    >>> names_a_function("train:step"), names_a_function("src/train.py:step"), names_a_function("llama3.1-8b")
    (True, True, False)
    """
    place, colon, name = reference.rpartition(":")
    return bool(colon and place) and not Path(reference).exists() and all(map(str.isidentifier, name.split(".")))


def compile_function(
    reference: str,
    arguments: str | None,
    *,
    on: str | None,
    mesh: str | None,
    compiler: CompilerName | None,
    limits: Limits,
    json: bool,
) -> None:
    """Compiles a function and prints what came of it; ends with 1 where it does not fit."""
    from ridgeline.cli.output import print_json, print_report
    from ridgeline.cli.progress import elapsed_line
    from ridgeline.hardware.topology import parse_slice
    from ridgeline.job.abstract_arguments import EXAMPLE, read_arguments
    from ridgeline.report.compiled_function import compiled_function_json, compiled_function_report
    from ridgeline.study.compile_function import compile_reference, read_degrees

    if on is None:
        raise _missing("--on", expected="a slice: v5p:2x2x2", fix="add --on v5p:2x2x2")
    if arguments is None:
        raise _missing("--args", expected=f"what the function is called with: {EXAMPLE}", fix='add --args "…"')
    hardware = parse_slice(on)
    degrees = read_degrees(mesh, hardware, where="--mesh")
    said = read_arguments(arguments, mesh=degrees, where="--args")
    with elapsed_line() as progress:
        answer = compile_reference(
            reference, said, mesh=degrees, hardware=hardware, compiler=compiler, limits=limits, progress=progress
        )
    if json:
        print_json(compiled_function_json(answer))
    else:
        print_report(compiled_function_report(answer))
    if answer.verdict == "does_not_fit":
        raise typer.Exit(1)


def _missing(flag: str, *, expected: str, fix: str) -> InputError:
    return InputError(f"{flag} is missing", where=flag, value="", expected=expected, fix=fix)
