"""`ridgeline export --to jetstream`: the configuration and the command of a serving job."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ridgeline.job.origin import Setting


def export_jetstream(
    job: str, said: Sequence[Setting], *, checkpoint: str | None, output: str | None, force: bool, json: bool
) -> None:
    """Prints what MaxText's engine is told, and writes it where that was asked for."""
    from ridgeline.cli.export import COMMAND, CONFIGURATION, output_suffix, write_output
    from ridgeline.cli.output import print_json, print_report
    from ridgeline.job.reading import read_serving_job
    from ridgeline.report.export_jetstream import jetstream_json, jetstream_report, jetstream_text
    from ridgeline.study.export_jetstream import export_jetstream as export_job

    answer = export_job(read_serving_job(job, said))
    if output is not None:
        suffix = output_suffix(output, {CONFIGURATION: "configuration", COMMAND: "script"})
        text = jetstream_text(answer, checkpoint=checkpoint or "CHECKPOINT", is_command=suffix == COMMAND)
        write_output(output, text, force=force)
    if json:
        print_json(jetstream_json(answer, checkpoint=checkpoint))
    else:
        print_report(jetstream_report(answer, checkpoint=checkpoint))
