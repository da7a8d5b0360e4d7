"""`ridgeline compile`: what the XLA compiler says of a program."""

from __future__ import annotations

from typing import Annotated

import typer

_Text = str | None


def compile(  # noqa: A001 - the verb's name, called as ridgeline.cli.compile.compile
    *,
    hlo: Annotated[_Text, typer.Option(metavar="FILE", help="Read an HLO text or dump; nothing is compiled.")] = None,
    mesh: Annotated[
        _Text, typer.Option(metavar="AXIS=N,...", help="Names the axes of collectives: fsdp=32,tp=4, outermost first.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object, in base units.")] = False,
) -> None:
    """What the XLA compiler says of a program: FLOPs, collectives, memory, its estimate of cycles.

    Reads an HLO text that exists already; neither JAX nor an accelerator is needed.
    """
    from ridgeline.cli.output import print_json, print_report
    from ridgeline.errors import InputError
    from ridgeline.hlo.summary import summarise
    from ridgeline.hlo.text import read_hlo
    from ridgeline.report.compile import compile_json, compile_report

    if hlo is None:
        raise InputError(
            "nothing to read",
            where="compile",
            value="",
            expected="--hlo FILE",
            fix="ridgeline compile --hlo step.after_codegen.txt",
        )
    summary = summarise(read_hlo(hlo, where="--hlo"), mesh=None if mesh is None else _degrees(mesh))
    if json:
        print_json(compile_json(summary))
    else:
        print_report(compile_report(summary))


def _degrees(mesh: str) -> dict[str, int]:
    """Devices along each axis, under whatever names the program gave them."""
    from ridgeline.job.mesh import parse_pairs
    from ridgeline.units import parse_whole

    pairs = parse_pairs(mesh, where="--mesh", example="fsdp=32,tp=4")
    return {axis: parse_whole(degree, where=f"--mesh: {axis}", unit="devices") for axis, degree in pairs.items()}
