"""`ridgeline calibrate`: what measured steps, measured servers or kernel times say of a chip."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from ridgeline.cli import options
from ridgeline.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import date

    from ridgeline.report.blocks import Report
    from ridgeline.report.calibrate import Files
    from ridgeline.study.measured.case import Skipped
    from ridgeline.study.measured.measurement import Measurement
    from ridgeline.study.steps.record import Calibration, Record

_Case = TypeVar("_Case", bound="Measurement[Any, Any]")


def calibrate(
    *,
    cases: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            metavar="CASES",
            help="Measured steps or servers as validate reads them, or a table of kernel times (.csv, .csv.gz); "
            "'published' for those that ship. May be repeated.",
        ),
    ] = None,
    serving: Annotated[bool, typer.Option("--serving", help="Of measured servers, not of training steps.")] = False,
    shipped: Annotated[
        bool, typer.Option("--shipped", help="Show what ships: held-out errors as recorded when it was fitted.")
    ] = False,
    output: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Write the files that --calibration of train and serve uses."),
    ] = None,
    plot: Annotated[
        str | None, typer.Option(metavar="FILE", help="Draw held-out estimates: .html, .svg or .png.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Let --output and --plot replace files.")] = False,
    json: options.Json = False,
) -> None:
    """Fit a chip's efficiencies to measured steps, and say how far estimates are from steps that the fit did not see.

    Few parameters of every chip may move, each near what kernels and microbenchmarks say; what steps do not identify
    stays. Errors are cross-validated: by job, family of models, number of chips, chip and parallelism. The interval is
    fitted to them. It takes some minutes. With --serving the same of servers: by server, chip, engine, model and
    precision.
    """
    from ridgeline.cli.calibration_folder import check_folder
    from ridgeline.cli.plot_file import check_plot

    if bool(cases) == shipped:
        raise InputError(
            "what to fit, or to show, is one of two" if shipped else "measuring this machine is planned, not built yet",
            where="calibrate",
            value="--from and --shipped" if shipped else "no --from",
            expected="--from CASES, or --shipped",
            fix="leave one out" if shipped else "give measured steps, a table of kernel times, or --from published",
        )
    if output is not None:
        if shipped:
            raise InputError(
                "nothing to write", where="--output", value=output, expected="--from CASES beside it", fix="add --from"
            )
        check_folder(output, force=force)
    if plot is not None:
        check_plot(plot, force=force)
    tables = [path for path in cases or () if path.endswith((".csv", ".csv.gz"))]
    if tables and serving:
        raise InputError(
            "kernel times say nothing of servers",
            where="--from",
            value=", ".join(tables),
            expected="measured servers beside --serving",
            fix="leave --serving or the table out",
        )
    if tables:
        _answer_by_kernels(cases or (), tables, output, json=json)
    elif serving:
        _answer_by_servers(cases, output, plot, force=force, json=json)
    else:
        _answer_by_steps(cases, output, plot, force=force, json=json)


def _answer_by_steps(
    cases: Sequence[str] | None, output: str | None, plot: str | None, *, force: bool, json: bool
) -> None:
    """Fits what whole steps settle; without cases, shows what ships."""
    from ridgeline.cli.plot_file import write_plot
    from ridgeline.report.calibration_record import steps_charts, steps_report
    from ridgeline.study.steps.calibrate import calibrate_steps
    from ridgeline.study.steps.record import shipped_record

    record, files, skipped = _settled(cases, shipped_record, calibrate_steps, output)
    if plot is not None:
        write_plot(steps_charts(record), plot, force=force)
    _say(steps_report(record, files, skipped=skipped), record, files, skipped, json=json)


def _answer_by_servers(
    cases: Sequence[str] | None, output: str | None, plot: str | None, *, force: bool, json: bool
) -> None:
    """Fits what servers settle; without cases, shows what ships."""
    from ridgeline.cli.plot_file import write_plot
    from ridgeline.report.calibration_record import servers_charts, servers_report
    from ridgeline.study.servers.calibrate import calibrate_servers
    from ridgeline.study.servers.record import shipped_serving_record

    record, files, skipped = _settled(cases, shipped_serving_record, calibrate_servers, output)
    if plot is not None:
        write_plot(servers_charts(record), plot, force=force)
    _say(servers_report(record, files, skipped=skipped), record, files, skipped, json=json)


def _settled(
    cases: Sequence[str] | None,
    shipped: Callable[[], Record[_Case]],
    fit: Callable[..., Calibration[_Case]],
    output: str | None,
) -> tuple[Record[_Case], Files, Sequence[Skipped]]:
    """What a fit to cases says, its files written; without cases, what ships."""
    from ridgeline.cli.calibration_folder import write_folder
    from ridgeline.cli.progress import progress_line
    from ridgeline.report.calibrate import Files

    if cases is None:
        return shipped(), Files(), ()
    with progress_line() as progress:
        answer = fit(*cases, progress=progress)
    if output is not None:
        write_folder(answer.files, output)
    return answer.record, Files(texts=answer.files, folder=output), answer.skipped


def _say(report: Report, record: Record[_Case], files: Files, skipped: Sequence[Skipped], *, json: bool) -> None:
    from ridgeline.cli.output import print_json, print_report
    from ridgeline.report.calibration_record import record_json

    if json:
        print_json(record_json(record, files, skipped=skipped))
    else:
        print_report(report)


def _today() -> date:
    from datetime import UTC, datetime

    return datetime.now(tz=UTC).date()


def _answer_by_kernels(cases: Sequence[str], tables: Sequence[str], output: str | None, *, json: bool) -> None:
    """Refits the kernel models of every chip."""
    from pathlib import Path

    from ridgeline.cli.calibration_folder import write_folder
    from ridgeline.cli.output import print_json, print_report
    from ridgeline.report.calibrate import Files, kernels_json, kernels_report
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
    read = [read_kernel_times(Path(path)) for path in tables]
    if not any(table.times for table in read):
        raise InputError(
            "no kernel time that can be used",
            where="--from",
            value=", ".join(tables),
            expected="times of kernels and chips that docs/calibration.md names",
            fix="give another table",
        )
    answer = calibrate_kernels(read, fitted_on=_today())
    files = Files(texts={f"{chip}.toml": text for chip, text in answer.files.items()}, folder=output)
    if output is not None:
        write_folder(files.texts, output)
    if json:
        print_json(kernels_json(answer, files))
    else:
        print_report(kernels_report(answer, files))
