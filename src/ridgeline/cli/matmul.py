"""`ridgeline matmul`: what a product of sharded arrays needs, and which way is fastest."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from ridgeline.cli import options
from ridgeline.errors import InputError


def matmul(
    notation: Annotated[str, typer.Argument(metavar="NOTATION", help="Arrays with their layouts; see above.")],
    *,
    sizes: Annotated[options.Text, typer.Option(metavar="DIM=N,...", help="Elements: B=4096,D=8Ki,F=32Ki.")] = None,
    mesh: Annotated[
        options.Text,
        typer.Option(metavar="AXIS=N,...", help="Devices along each mesh axis; those of the slice if not said."),
    ] = None,
    on: Annotated[
        options.Text, typer.Option(metavar="SLICE", help="v5p:4x4x8; the axis written first chooses its wires first.")
    ] = None,
    figures: options.Figures = None,
    dtype: Annotated[
        options.Text, typer.Option(metavar="DTYPE", help="Of all arrays: bf16; or of some: W=int8.")
    ] = None,
    compute_dtype: Annotated[
        options.Text, typer.Option(metavar="DTYPE", help="Whose matmul rate counts; the widest operand's if not said.")
    ] = None,
    memory: Annotated[
        options.Text, typer.Option(metavar="BYTES", help="Of a device, that a search may use: 1GiB.")
    ] = None,
    strategy: Annotated[
        int | None, typer.Option(metavar="N", help="The number of the strategy to emit; the fastest if not said.")
    ] = None,
    emit: Annotated[Literal["jax"] | None, typer.Option(help="Print the strategy as a JAX program instead.")] = None,
    peak: Annotated[
        options.Text, typer.Option("--peak", "--C", metavar="FLOP/S", help="Of a device: 459TFLOP/s.")
    ] = None,
    hbm_bandwidth: Annotated[options.Text, typer.Option(metavar="BYTES/S", help="Of a device's memory.")] = None,
    link_bandwidth: Annotated[
        options.Text, typer.Option("--link-bandwidth", "--W", metavar="BYTES/S", help="Of one link, one way.")
    ] = None,
    axis_bandwidth: Annotated[
        options.Text,
        typer.Option("--axis-bandwidth", "--W-ici", metavar="BYTES/S", help="Of both links of a ring axis."),
    ] = None,
    hop: options.Hop = None,
    wiring: Annotated[
        options.Text, typer.Option(metavar="ring|line", help="Of every axis, whatever the slice.")
    ] = None,
    explain: options.Explain = False,
    json: options.Json = False,
) -> None:
    """What a product of sharded arrays needs: layouts, collectives, times, the best strategy.

    A[I_X,J_YZ] is an array on a mesh, I split over mesh axis X, J over Y and Z: asks how it lies.

    A[I_XY,J] -> A[I_Y,J] asks what another layout needs.

    A[B,D] @ W[D_X,F_Y] -> C[B,F_Y] asks what a product needs. Without `-> C[…]` the result stays as it falls;
    C[B,F]{U_X} leaves its sums partial over X. Where no array is split, or an operand is written W?[D,F], the best
    layouts are searched.

    Mesh axes with names longer than a letter stand in braces: D_{data,model}.
    """
    from ridgeline import matmul_program
    from ridgeline.cli.output import print_json, print_report, print_text
    from ridgeline.job.matmul_question import MatmulArguments, read_matmul
    from ridgeline.report.derivations import explained
    from ridgeline.report.matmul import matmul_report
    from ridgeline.report.matmul_json import matmul_json
    from ridgeline.search.matmul import answer_matmul

    arguments = MatmulArguments(
        sizes=sizes,
        mesh=mesh,
        on=on,
        figures=figures,
        dtype=dtype,
        compute_dtype=compute_dtype,
        memory=memory,
        peak=peak,
        hbm_bandwidth=hbm_bandwidth,
        link_bandwidth=link_bandwidth,
        axis_bandwidth=axis_bandwidth,
        hop=hop,
        wiring=wiring,
    )
    if strategy is not None and emit is None:
        raise InputError(
            "a strategy is chosen for a program",
            where="--strategy",
            value=strategy,
            expected="--emit jax beside it",
            fix="add --emit jax; without it every strategy is shown",
        )
    answer = answer_matmul(read_matmul(notation, arguments, written=_flag))
    where = "--emit" if strategy is None else "--strategy"
    program = matmul_program(answer, strategy=strategy, where=where) if emit else None
    if json:
        print_json(matmul_json(answer) | ({} if program is None else {"program": program}))
    elif program is not None:
        print_text(program)
    else:
        report = matmul_report(answer)
        print_report(explained(report, answer.derivations) if explain else report)


def _flag(name: str) -> str:
    return "NOTATION" if name == "notation" else f"--{name.replace('_', '-')}"
