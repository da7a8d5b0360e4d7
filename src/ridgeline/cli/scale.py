"""`ridgeline scale`: the same job on more and more chips."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ridgeline.cli import options

if TYPE_CHECKING:
    from ridgeline.job.origin import Arguments


def scale(
    job: options.JobOrModel,
    *,
    chips: Annotated[str, typer.Option(metavar="FIRST:LAST", help="64:4096 doubles; 64,96,256 is a list.")],
    weak: Annotated[bool, typer.Option("--weak", help="Let the batch grow with the chips.")] = False,
    on: Annotated[
        options.Text, typer.Option(metavar="SLICE", help="The chip (v5e); for --weak the slice of the batch.")
    ] = None,
    global_batch: Annotated[
        options.Text,
        typer.Option(metavar="N", help="Sequences a step; if none, the largest sensible at the smallest size."),
    ] = None,
    batch_tokens: options.BatchTokens = None,
    seq_len: options.SeqLen = None,
    tokens: options.Tokens = None,
    mesh: Annotated[
        options.Text, typer.Option(metavar="AXIS=N,...", help="Degrees to hold; -1 grows: fsdp=-1,tp=4.")
    ] = None,
    remat: options.Remat = None,
    quantization: options.Quantization = None,
    calibration: options.Calibration = None,
    plot: options.Plot = None,
    force: options.ForcePlot = False,
    explain: options.Explain = False,
    json: options.Json = False,
) -> None:
    """Plan a job for more and more chips: time, efficiency, what binds, and where scaling ends.

    The slice is the most cube-like of each size; beyond the largest, several slices over DCN. A job on several slices
    keeps their shape, and their number grows. Without a batch, the largest sensible one at the smallest size is held.
    Scaling has ended where more chips bring less than half of the speed that they could.
    """
    from ridgeline.cli.output import print_json, print_report
    from ridgeline.cli.plot_file import write_plot
    from ridgeline.cli.progress import progress_line
    from ridgeline.job.chip_counts import parse_chip_counts, slice_to_start_from
    from ridgeline.job.origin import settings
    from ridgeline.job.reading import read_job
    from ridgeline.report.derivations import explained
    from ridgeline.report.scale import scale_charts, scale_json, scale_report
    from ridgeline.search.scale import scale as plan_sizes

    counts = parse_chip_counts(chips)
    flags: Arguments = {
        "on": None if on is None else slice_to_start_from(on, counts),
        "global_batch": global_batch,
        "batch_tokens": batch_tokens,
        "seq_len": seq_len,
        "tokens": tokens,
        "mesh": mesh,
        "remat": remat,
        "quantization": quantization,
        "calibration": calibration,
    }
    question = read_job(job, settings(flags, written=lambda name: f"--{name.replace('_', '-')}"))
    with progress_line() as progress:
        answer = plan_sizes(question, chips=counts, weak=weak, progress=progress)
    if plot is not None:
        write_plot(scale_charts(answer), plot, force=force)
    if json:
        print_json(scale_json(answer))
    else:
        report = scale_report(answer)
        print_report(explained(report, answer.derivations) if explain else report)
