"""`ridgeline validate`: how far the estimates are from measurements."""

from __future__ import annotations

from typing import Annotated

import typer

from ridgeline.cli import options


def validate(
    cases: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FOLDER|FILE",
            help="Case files (.toml), records (.json), folders of both; the published measurements if none is given.",
        ),
    ] = None,
    *,
    calibration: options.Calibration = None,
    plot: options.Plot = None,
    force: options.ForcePlot = False,
    json: options.Json = False,
) -> None:
    """Lay estimates beside measured runs: error by case and by group, bias, and what the interval covers.

    A case is a job file with a [measured] table; JSON is read in the formats of the published measurements. What cannot
    be used is listed with the reason.
    """
    from ridgeline.cli.output import complain, print_json, print_report
    from ridgeline.cli.plot_file import check_plot, write_plot
    from ridgeline.cli.progress import progress_line
    from ridgeline.report.validate import validate_charts, validate_json, validate_report
    from ridgeline.study.validate import validate as lay_beside

    if plot is not None:
        check_plot(plot, force=force)
    with progress_line() as progress:
        answer = lay_beside(*(cases or ()), calibration=calibration, progress=progress)
    if plot is not None and answer.rows:
        write_plot(validate_charts(answer), plot, force=force)
    elif plot is not None:
        complain(f"nothing is drawn to {plot}: no measured step is used")
    if json:
        print_json(validate_json(answer))
    else:
        print_report(validate_report(answer))
    if not answer.used and not answer.memory:
        raise typer.Exit(1)
