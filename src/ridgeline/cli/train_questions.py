"""What `ridgeline train` answers beside the plan: each question is a section of the screen and a key of the JSON."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ridgeline.cli.output import print_json, print_report
from ridgeline.cli.progress import progress_line
from ridgeline.report.train import train_json, train_report
from ridgeline.search.train import train as plan_training

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ridgeline.job.job import Job
    from ridgeline.report.blocks import Piece
    from ridgeline.report.jsonable import Json
    from ridgeline.search.answer import TrainAnswer
    from ridgeline.search.train import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """Which are asked.

    Attributes:
        sensitivity: What the step is sensitive to.
        precision: What int8 and fp8 would do.
        communication: How the plan communicates.
        batch_levers: What each lever does to the batch.
    """

    sensitivity: bool
    precision: bool
    communication: bool
    batch_levers: bool

    @property
    def asked(self) -> tuple[str, ...]:
        """The flags that were given."""
        flags = {
            "--sensitivity": self.sensitivity,
            "--precision": self.precision,
            "--communication": self.communication,
            "--batch-levers": self.batch_levers,
        }
        return tuple(flag for flag, is_asked in flags.items() if is_asked)


def answer_questions(job: Job, questions: Questions, *, json: bool) -> None:
    """Prints the best plan and the answers.

    Raises:
        InputError: The question contradicts itself.
        InfeasibleError: No plan fits.
    """
    with progress_line() as progress:
        answer = plan_training(job, progress=progress)
        sections = list(_sections(job, answer, questions, progress))
    if json:
        print_json(train_json(answer) | {key: value for key, _, value in sections})
        return
    report = train_report(answer)
    first, *_ = report.pieces
    print_report(replace(report, pieces=(first, *(piece for _, pieces, _ in sections for piece in pieces))))


def _sections(
    job: Job, answer: TrainAnswer, questions: Questions, progress: Progress
) -> Iterator[tuple[str, list[Piece], Json]]:
    """Of each question its key, its pieces and its JSON."""
    if questions.sensitivity:
        from ridgeline.report.sensitivity import sensitivity_json, sensitivity_table
        from ridgeline.search.sensitivity import sensitivities

        fields = sensitivities(job, answer, progress=progress)
        yield "sensitivity", [sensitivity_table(fields)], sensitivity_json(fields)
    if questions.precision:
        from ridgeline.report.precision import precision_json, precision_pieces
        from ridgeline.search.precision import precisions

        found, chip = precisions(job, global_batch=answer.global_batch, progress=progress), job.hardware.chip.name
        yield "precision", list(precision_pieces(found, chip=chip)), precision_json(found, chip=chip)
    if questions.communication:
        from ridgeline.report.communication import communication_json, communication_pieces
        from ridgeline.study.communication import flagged_communication

        flagged = flagged_communication(job, answer.best, global_batch=answer.global_batch)
        yield "communication", list(communication_pieces(flagged)), communication_json(flagged)
    if questions.batch_levers:
        from ridgeline.report.batch_levers import batch_levers_json, batch_levers_table
        from ridgeline.search.batch_levers import batch_levers

        levers = batch_levers(job, progress=progress)
        yield "batch_levers", [batch_levers_table(levers)], batch_levers_json(levers)
