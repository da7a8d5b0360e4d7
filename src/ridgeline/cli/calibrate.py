"""`ridgeline calibrate`: what measured steps or kernel times say of a chip."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ridgeline.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence


def calibrate(
    *,
    cases: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            metavar="CASES",
            help="Measured steps as validate reads them, or a table of kernel times (.csv, .csv.gz); 'published' for "
            "the steps that ship. May be repeated.",
        ),
    ] = None,
    output: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Write the calibration files; train --calibration uses them.")
    ] = None,
    plot: Annotated[
        str | None, typer.Option(metavar="FILE", help="Draw held-out estimates: .html, .svg or .png.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Let --output and --plot replace files.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object, in base units.")] = False,
) -> None:
    """Fit a chip's efficiencies to measured steps, and say how far estimates are from steps that the fit did not see.

    Few parameters of every chip may move, each near what kernels and microbenchmarks say; what steps do not identify
    stays. Errors are cross-validated: by job, family of models, number of chips, chip and parallelism. The interval is
    fitted to them. It takes some minutes.
    """
    from datetime import UTC, datetime

    from ridgeline.cli.calibration_folder import check_folder, write_folder
    from ridgeline.cli.output import print_json, print_report
    from ridgeline.cli.plot_file import write_plot
    from ridgeline.cli.progress import progress_line
    from ridgeline.report.calibrate import steps_chart_of, steps_json, steps_report
    from ridgeline.study.steps.calibrate import calibrate_steps

    if not cases:
        raise InputError(
            "measuring this machine is planned, not built yet",
            where="calibrate",
            value="no --from",
            expected="--from CASES",
            fix="give measured steps, a table of kernel times, or --from published",
        )
    if output is not None:
        check_folder(output, force=force)
    today = datetime.now(tz=UTC).date()
    tables = [path for path in cases if path.endswith((".csv", ".csv.gz"))]
    if tables:
        _answer_by_kernels(cases, tables, output, json=json)
        return
    with progress_line() as progress:
        answer = calibrate_steps(*cases, fitted_on=today, progress=progress)
    if output is not None:
        write_folder(answer.files, output)
    if plot is not None:
        write_plot([steps_chart_of(answer)], plot, force=force)
    if json:
        print_json(steps_json(answer, written=output))
    else:
        print_report(steps_report(answer, written=output))


def _answer_by_kernels(cases: Sequence[str], tables: Sequence[str], output: str | None, *, json: bool) -> None:
    """Refits the kernel models of every chip."""
    from datetime import UTC, datetime
    from pathlib import Path

    from ridgeline.cli.calibration_folder import write_folder
    from ridgeline.cli.output import print_json, print_report
    from ridgeline.report.calibrate import kernels_json, kernels_report
    from ridgeline.study.kernels.calibrate import calibrate_kernels
    from ridgeline.study.kernels.reading import read_kernel_times

    for path in cases:
        if path not in tables or not Path(path).is_file():
            what = "kernel times and steps are fitted one after the other" if path not in tables else "no such file"
            raise InputError(
                what,
                where="--from",
                value=path,
                expected="tables of kernel times alone",
                fix="ask twice: kernels first",
            )
    answer = calibrate_kernels(
        [read_kernel_times(Path(path)) for path in tables], fitted_on=datetime.now(tz=UTC).date()
    )
    if output is not None:
        write_folder({f"{chip}.toml": text for chip, text in answer.files.items()}, output)
    if json:
        print_json(kernels_json(answer, written=output))
    else:
        print_report(kernels_report(answer, written=output))
