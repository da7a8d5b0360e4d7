"""What `ridgeline train` answers beside the plan: each question is a section of the screen and a key of the JSON."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ridgeline.cli.output import print_json, print_report
from ridgeline.cli.plot_file import write_plot
from ridgeline.cli.progress import progress_line
from ridgeline.errors import InfeasibleError
from ridgeline.report.derivations import explained
from ridgeline.report.remat import remat_chart
from ridgeline.report.train import no_plan_json, train_json, train_report
from ridgeline.search.train import train as plan_training

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ridgeline.cost.explain import Derivation
    from ridgeline.job.job import Job
    from ridgeline.report.blocks import Piece
    from ridgeline.report.chart import Chart
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
        architectures: Which shape of the model's size runs fastest.
        why: A choice that was not taken; None to ask of none. By itself it shortens no screen.
    """

    sensitivity: bool
    precision: bool
    communication: bool
    batch_levers: bool
    architectures: bool
    why: str | None = None

    @property
    def asked(self) -> tuple[str, ...]:
        """The flags that were given."""
        flags = {
            "--sensitivity": self.sensitivity,
            "--precision": self.precision,
            "--communication": self.communication,
            "--batch-levers": self.batch_levers,
            "--architectures": self.architectures,
        }
        return tuple(flag for flag, is_asked in flags.items() if is_asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Section:
    """The answer to one question.

    Attributes:
        key: Of the JSON.
        value: Under it.
        pieces: Of the screen.
        charts: For `--plot`.
        derivations: For `--explain`.
    """

    key: str
    value: Json
    pieces: tuple[Piece, ...]
    charts: tuple[Chart, ...] = ()
    derivations: tuple[Derivation, ...] = ()


def answer_questions(
    job: Job, questions: Questions, *, plot: str | None, force: bool, explain: bool, json: bool
) -> None:
    """Prints the best plan and the answers, and draws those that can be drawn.

    Args:
        job: The question.
        questions: What is asked beside.
        plot: Where to draw to.
        force: Whether the drawing may replace a file.
        explain: Whether to show where the numbers of the plan come from.
        json: Whether to print JSON.

    Raises:
        InputError: The question contradicts itself, or the drawing has no place.
        InfeasibleError: No plan fits.
    """
    with progress_line() as progress:
        try:
            answer = plan_training(job, progress=progress)
        except InfeasibleError as error:
            if json:
                print_json(no_plan_json(error))
            raise
        sections = list(_sections(job, answer, questions, progress))
    if plot is not None:
        charts = [chart for section in sections for chart in section.charts]
        write_plot(charts or [remat_chart(answer)], plot, force=force)
    if json:
        print_json(train_json(answer) | {section.key: section.value for section in sections})
        return
    report = train_report(answer)
    first, *_ = report.pieces
    report = replace(report, pieces=(first, *(piece for section in sections for piece in section.pieces)))
    derivations = (*answer.derivations, *(step for section in sections for step in section.derivations))
    print_report(explained(report, derivations) if explain else report)


def _sections(job: Job, answer: TrainAnswer, questions: Questions, progress: Progress) -> Iterator[_Section]:
    """The questions that are asked, in order."""
    title = f"{job.model.name} on {job.hardware.name}"
    if questions.why is not None:
        from ridgeline.report.why import why_json, why_pieces
        from ridgeline.search.why import why_not

        why = why_not(job, answer.best, questions.why, global_batch=answer.global_batch)
        yield _Section(key="why", value=why_json(why), pieces=tuple(why_pieces(why, answer.best)))
    if questions.sensitivity:
        from ridgeline.report.sensitivity import sensitivity_json, sensitivity_table
        from ridgeline.search.sensitivity import sensitivities

        fields = sensitivities(job, answer, progress=progress)
        yield _Section(key="sensitivity", value=sensitivity_json(fields), pieces=(sensitivity_table(fields),))
    if questions.precision:
        from ridgeline.report.precision import precision_chart, precision_json, precision_pieces
        from ridgeline.search.precision import precisions

        found, chip = precisions(job, global_batch=answer.global_batch, progress=progress), job.hardware.chip.name
        yield _Section(
            key="precision",
            value=precision_json(found, chip=chip),
            pieces=tuple(precision_pieces(found, chip=chip)),
            charts=(precision_chart(found, title=title),),
            derivations=tuple(step for recipe in found.recipes for step in recipe.derivations),
        )
    if questions.communication:
        from ridgeline.report.communication import communication_chart, communication_json, communication_pieces
        from ridgeline.study.communication import flagged_communication

        flagged = flagged_communication(job, answer.best, global_batch=answer.global_batch)
        yield _Section(
            key="communication",
            value=communication_json(flagged),
            pieces=tuple(communication_pieces(flagged)),
            charts=(communication_chart(flagged, title=title),) if flagged.answer.accumulation else (),
        )
    if questions.batch_levers:
        from ridgeline.report.batch_levers import batch_levers_chart, batch_levers_json, batch_levers_table
        from ridgeline.search.batch_levers import batch_levers

        levers = batch_levers(job, progress=progress)
        yield _Section(
            key="batch_levers",
            value=batch_levers_json(levers),
            pieces=(batch_levers_table(levers),),
            charts=(batch_levers_chart(levers, title=title),),
        )
    if questions.architectures:
        yield _architectures(job, answer, progress, title=title)


def _architectures(job: Job, answer: TrainAnswer, progress: Progress, *, title: str) -> _Section:
    from ridgeline.report.architectures import architectures_chart, architectures_json, architectures_pieces
    from ridgeline.search.architectures import architectures

    found = architectures(job, answer, progress=progress)
    return _Section(
        key="architectures",
        value=architectures_json(found),
        pieces=tuple(architectures_pieces(found)),
        charts=(architectures_chart(found, title=title),),
    )
