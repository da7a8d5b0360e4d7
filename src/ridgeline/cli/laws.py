"""`ridgeline train --laws`: what the laws of training say of a job, without a search."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ridgeline.job.job import Job

_EXAMPLE = "mfu=0.45,hbm_bytes=96GB"


def answer_by_laws(job: Job, given: str | None, *, explain: bool, json: bool) -> None:
    """Prints what follows from a job and from the quantities given beside it."""
    from ridgeline.cli.output import print_json, print_report
    from ridgeline.cost.laws.of_job import laws_of_job
    from ridgeline.job.mesh import parse_pairs
    from ridgeline.report.derivations import explained
    from ridgeline.report.laws import laws_json, laws_report

    pairs = {} if given is None else parse_pairs(given, where="--given", example=_EXAMPLE)
    answer = laws_of_job(job, dict(pairs), where="--given")
    if json:
        print_json(laws_json(answer))
        return
    report = laws_report(answer)
    print_report(explained(report, answer.derivations) if explain else report)
