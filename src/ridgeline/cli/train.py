"""`ridgeline train`: the best way to train a model on a slice."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from ridgeline.cli import options
from ridgeline.errors import InfeasibleError, InputError

if TYPE_CHECKING:
    from ridgeline.job.job import Job
    from ridgeline.report.chart import Chart
    from ridgeline.search.answer import TrainAnswer


def train(
    job: options.JobOrModel,
    *,
    on: Annotated[options.Text, typer.Option(metavar="SLICE", help="tpu7x:4x4x4, 2*v5e:16x16, h100:64.")] = None,
    global_batch: options.GlobalBatch = None,
    batch_tokens: options.BatchTokens = None,
    seq_len: options.SeqLen = None,
    tokens: options.Tokens = None,
    mesh: Annotated[
        options.Text, typer.Option(metavar="AXIS=N,...", help="Degrees: fsdp=32,tp=4; -1 is left to choose.")
    ] = None,
    remat: options.Remat = None,
    quantization: options.Quantization = None,
    gradient_accumulation: options.GradientAccumulation = None,
    vocab_tiling: options.VocabTiling = None,
    weights_dtype: options.WeightsDtype = None,
    compute_dtype: options.ComputeDtype = None,
    gradients_dtype: Annotated[options.Text, typer.Option(metavar="DTYPE", help="Of the gradients.")] = None,
    activations_dtype: Annotated[options.Text, typer.Option(metavar="DTYPE", help="Of what backward reads.")] = None,
    optimizer: options.Optimizer = None,
    lora_rank: Annotated[
        options.Text, typer.Option(metavar="N", help="Train adapters of this rank; the weights are frozen.")
    ] = None,
    mu_dtype: options.MuDtype = None,
    nu_dtype: options.NuDtype = None,
    optimizer_state: options.OptimizerState = None,
    calibration: options.Calibration = None,
    save: options.Save = None,
    laws: Annotated[
        bool, typer.Option("--laws", help="Answer at once, by the laws of the Scaling Book, without a search.")
    ] = False,
    given: Annotated[
        options.Text,
        typer.Option(metavar="NAME=VALUE,...", help="For --laws, in place of the job's own: mfu=0.45, stage=1."),
    ] = None,
    why: Annotated[
        options.Text,
        typer.Option(metavar="AXIS=N,...", help="Why not tp=8? That choice beside the best, cause by cause."),
    ] = None,
    sensitivity: Annotated[
        bool, typer.Option("--sensitivity", help="Plan anew with more of each field, and rank them.")
    ] = False,
    precision: Annotated[
        bool, typer.Option("--precision", help="bf16, int8 and fp8 side by side, and why no more.")
    ] = False,
    communication: Annotated[
        bool, typer.Option("--communication", help="Every collective of the plan, what hides it, and the flags.")
    ] = False,
    batch_levers: Annotated[
        bool, typer.Option("--batch-levers", help="The largest batch that fits, and what each lever does to it.")
    ] = False,
    architectures: Annotated[
        bool, typer.Option("--architectures", help="Other shapes of the model's size: which runs fastest here.")
    ] = False,
    plot: Annotated[
        options.Text,
        typer.Option(
            metavar="FILE", help="Draw remat policies, or what else is asked (--why: its degrees): .html, .svg or .png."
        ),
    ] = None,
    force: options.ForceSaveAndPlot = False,
    explain: options.Explain = False,
    json: options.Json = False,
) -> None:
    """Find the best way to train a model on a slice.

    Answers with the plan, step time, memory, bottleneck, alternatives with what makes them slower, and with
    days and dollars if --tokens is given. What is not said is searched; flags override the job file.

    With --laws nothing is searched: which gates the batch passes on this slice (memory, sequences, FSDP, FSDP with
    tensor parallelism, network), the best split, and how long the run takes. --given puts quantities in place of the
    job's: stage=1 asks for the memory of ZeRO-1; chip_hours=2.79e6 (or chip_s, run_s) for the MFU of a published run.
    """
    from ridgeline.cli.laws import answer_by_laws
    from ridgeline.cli.train_questions import Questions, answer_questions
    from ridgeline.job.origin import Arguments, settings
    from ridgeline.job.reading import read_job
    from ridgeline.job.writing import write_job

    flags: Arguments = {
        "on": on,
        "global_batch": global_batch,
        "batch_tokens": batch_tokens,
        "seq_len": seq_len,
        "tokens": tokens,
        "mesh": mesh,
        "remat": remat,
        "quantization": quantization,
        "gradient_accumulation": gradient_accumulation,
        "vocab_tiling": vocab_tiling,
        "weights_dtype": weights_dtype,
        "compute_dtype": compute_dtype,
        "gradients_dtype": gradients_dtype,
        "activations_dtype": activations_dtype,
        "optimizer": optimizer,
        "lora_rank": lora_rank,
        "mu_dtype": mu_dtype,
        "nu_dtype": nu_dtype,
        "optimizer_state": optimizer_state,
        "calibration": calibration,
    }
    _check_companions(given, laws=laws, force=force, writes=save is not None or plot is not None)
    questions = Questions(
        sensitivity=sensitivity,
        precision=precision,
        communication=communication,
        batch_levers=batch_levers,
        architectures=architectures,
        why=why,
    )
    for flag, value in (("--plot", plot), ("--why", why), *((flag, flag) for flag in questions.asked)):
        if value is not None and laws:
            raise _alone("the laws compare no plans", flag, value, companion="a search, without --laws,")
    question = read_job(job, settings(flags, written=lambda name: f"--{name.replace('_', '-')}"))
    if save is not None:
        write_job(question, save, force=force)
    if laws:
        answer_by_laws(question, given, explain=explain, json=json)
    elif questions.asked:
        answer_questions(question, questions, plot=plot, force=force, explain=explain, json=json)
    else:
        _answer_by_search(question, why, plot, force=force, explain=explain, json=json)


def _check_companions(given: str | None, *, laws: bool, force: bool, writes: bool) -> None:
    """Refuses flags that mean nothing by themselves."""
    if given is not None and not laws:
        raise _alone("the search takes no quantities", "--given", given, companion="--laws")
    if force and not writes:
        raise _alone("nothing to replace", "--force", "--force without --save", companion="--save FILE")


def _answer_by_search(
    question: Job, why: str | None, plot: str | None, *, force: bool, explain: bool, json: bool
) -> None:
    """Prints the best plan and draws its remat policies, or prints as JSON why there is none."""
    from ridgeline.cli.output import print_json, print_report
    from ridgeline.cli.plot_file import write_plot
    from ridgeline.cli.progress import progress_line
    from ridgeline.report.derivations import explained
    from ridgeline.report.remat import remat_chart
    from ridgeline.report.train import no_plan_json, train_json, train_report
    from ridgeline.report.why import why_json, why_pieces
    from ridgeline.search.train import train as plan_training
    from ridgeline.search.why import why_not

    try:
        with progress_line() as progress:
            answer = plan_training(question, progress=progress)
    except InfeasibleError as error:
        if json:
            print_json(no_plan_json(error))
        raise
    best = answer.best
    because = None if why is None else why_not(question, best, why, global_batch=answer.global_batch)
    if plot is not None:
        chart = remat_chart(answer) if why is None else _chart_of_degrees(question, answer, why)
        write_plot([chart], plot, force=force)
    if json:
        print_json(train_json(answer) | ({} if because is None else {"why": why_json(because)}))
        return
    report = train_report(answer)
    if because is not None:
        report = replace(report, pieces=(*report.pieces, *why_pieces(because, best)))
    print_report(explained(report, answer.derivations) if explain else report)


def _chart_of_degrees(question: Job, answer: TrainAnswer, why: str) -> Chart:
    """The step over the degrees of the axis that is asked about."""
    from ridgeline.report.degrees import degrees_chart
    from ridgeline.search.degrees import over_degrees

    axis, points = over_degrees(question, answer.best, why, global_batch=answer.global_batch)
    title = f"{question.model.name} on {question.hardware.name}"
    return degrees_chart(axis, points, answer.best, title=title)


def _alone(what: str, flag: str, value: str, *, companion: str) -> InputError:
    """A flag that means something only beside another."""
    return InputError(
        what,
        where=flag,
        value=value,
        expected=f"{companion} beside it",
        fix=f"add {companion}, or leave {flag} out",
    )
