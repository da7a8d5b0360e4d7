"""`ridgeline serve`: the best way to serve a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from ridgeline.cli import options
from ridgeline.errors import InfeasibleError, InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ridgeline.hardware.slice import Slice
    from ridgeline.job.origin import Arguments
    from ridgeline.job.serving import ServingJob

_Text: TypeAlias = options.Text


def serve(
    job: options.JobOrModel,
    *,
    on: Annotated[
        _Text, typer.Option(metavar="SLICE", help="Of one server: v6e:2x4, h200:8; a chip alone for all its sizes.")
    ] = None,
    prompt_len: Annotated[
        _Text, typer.Option(metavar="N|KEY=N,...", help="Tokens of a prompt; or p50=800,p90=2000, or file=lengths.txt.")
    ] = None,
    generate_len: Annotated[
        _Text, typer.Option(metavar="N|KEY=N,...", help="Tokens of a reply; or mean=256,sigma=0.6, or min=16,max=512.")
    ] = None,
    trace: Annotated[
        _Text, typer.Option(metavar="FILE", help="Replay arrivals and lengths (.csv, .jsonl) instead of those.")
    ] = None,
    batch: Annotated[_Text, typer.Option(metavar="N", help="Sequences that a server decodes at once.")] = None,
    rate: Annotated[_Text, typer.Option(metavar="N", help="Requests a second, for the number of chips.")] = None,
    ttft: Annotated[
        _Text, typer.Option(metavar="TIME|pNN=TIME", help="Longest time to the first token, mean: 2s; or p90=3s.")
    ] = None,
    tpot: Annotated[
        _Text, typer.Option(metavar="TIME|pNN=TIME", help="Longest time per output token, mean: 50ms; or p99=80ms.")
    ] = None,
    prefix_hit_rate: Annotated[
        _Text, typer.Option(metavar="PART", help="Part of prompts that the KV cache has already: 0.6 or 60%.")
    ] = None,
    prefix_shared: Annotated[
        bool, typer.Option("--prefix-shared", help="That part is the same for all, and is kept once.")
    ] = False,
    mode: Annotated[
        _Text, typer.Option(metavar="MODE", help="interleaved or disaggregated; both are searched if left out.")
    ] = None,
    server_ratio: Annotated[
        _Text, typer.Option(metavar="N:N", help="Prefill and decode servers of a disaggregated fleet: 1:3.")
    ] = None,
    mesh: Annotated[
        _Text, typer.Option(metavar="AXIS=N,...", help="Degrees of phases without their own: tp=8.")
    ] = None,
    prefill_mesh: Annotated[_Text, typer.Option(metavar="AXIS=N,...", help="Degrees of prefill alone.")] = None,
    decode_mesh: Annotated[_Text, typer.Option(metavar="AXIS=N,...", help="Degrees of decode alone.")] = None,
    prefill_batch: Annotated[_Text, typer.Option(metavar="N", help="Prompts that are read at once.")] = None,
    prefill_chunk: Annotated[
        _Text, typer.Option(metavar="N", help="Tokens of prompts beside a pass, interleaved, on each rank.")
    ] = None,
    memory_utilization: Annotated[
        _Text, typer.Option(metavar="PART", help="Part of memory that the engine takes: 0.9 if left out.")
    ] = None,
    page_tokens: Annotated[_Text, typer.Option(metavar="N", help="Tokens of a page of the KV cache.")] = None,
    draft_tokens: Annotated[_Text, typer.Option(metavar="N", help="Tokens drafted ahead of each pass.")] = None,
    acceptance: Annotated[
        _Text, typer.Option(metavar="PART", help="How often a draft is accepted where all before it were: 0.8.")
    ] = None,
    draft_model: Annotated[
        _Text, typer.Option(metavar="MODEL|mtp", help="What drafts: a small model, or mtp; free if left out.")
    ] = None,
    weights_dtype: Annotated[
        _Text, typer.Option(metavar="DTYPE", help="Of the weights as stored, else as published; or any.")
    ] = None,
    experts_dtype: Annotated[
        _Text, typer.Option(metavar="DTYPE", help="Of the weights of experts, where they are stored in another.")
    ] = None,
    kv_cache_dtype: Annotated[_Text, typer.Option(metavar="DTYPE", help="Of the KV cache; or any.")] = None,
    compute_dtype: Annotated[_Text, typer.Option(metavar="DTYPE", help="Of the matmuls; or any.")] = None,
    calibration: options.Calibration = None,
    save: options.Save = None,
    plot: Annotated[
        _Text, typer.Option(metavar="FILE", help="Draw the frontier and its breakdown: .html, .svg or .png.")
    ] = None,
    force: options.ForceSaveAndPlot = False,
    explain: options.Explain = False,
    json: options.Json = False,
) -> None:
    """Find the best way to serve a model: the cheapest plan that meets the limits, and the frontier of all.

    Servers read prompts beside decoding (interleaved) or leave that to servers of their own (disaggregated, with how
    many for each). Times are means of a steady state; with --rate or --trace requests are served one by one, and what
    50, 90 and 99 of 100 of them meet is told, too.
    """
    from ridgeline.job.origin import settings, told_where_written
    from ridgeline.job.reading import origin_of, read_serving_job
    from ridgeline.job.serving_slices import slices_of_family
    from ridgeline.job.writing import write_job

    slices = slices_of_family(on)
    flags: Arguments = {
        "on": slices[0].name if slices else on,
        "prompt_len": prompt_len,
        "generate_len": generate_len,
        "trace": trace,
        "batch": batch,
        "rate": rate,
        "ttft": ttft,
        "tpot": tpot,
        "prefix_hit_rate": prefix_hit_rate,
        "prefix_shared": prefix_shared or None,
        "mode": mode,
        "server_ratio": server_ratio,
        "mesh": mesh,
        "prefill_mesh": prefill_mesh,
        "decode_mesh": decode_mesh,
        "prefill_batch": prefill_batch,
        "prefill_chunk": prefill_chunk,
        "memory_utilization": memory_utilization,
        "page_tokens": page_tokens,
        "draft_tokens": draft_tokens,
        "acceptance": acceptance,
        "draft_model": draft_model,
        "weights_dtype": weights_dtype,
        "experts_dtype": experts_dtype,
        "kv_cache_dtype": kv_cache_dtype,
        "compute_dtype": compute_dtype,
        "calibration": calibration,
    }
    if slices and (mesh or prefill_mesh or decode_mesh):
        raise _open_slice(on)
    said = settings(flags, written=lambda name: f"--{name.replace('_', '-')}")
    question = read_serving_job(job, said)
    if save is not None:
        write_job(question, save, force=force)
    with told_where_written(origin_of(job, said)):
        _answer(question, slices, plot, force=force, explain=explain, json=json)


def _answer(
    question: ServingJob, slices: Sequence[Slice], plot: str | None, *, force: bool, explain: bool, json: bool
) -> None:
    """Prints the best plan and draws the frontier, or prints as JSON why there is none."""
    from ridgeline.cli.output import print_json, print_report
    from ridgeline.cli.plot_file import write_plot
    from ridgeline.cli.progress import progress_line
    from ridgeline.report.derivations import explained
    from ridgeline.report.serve import no_serving_plan_json, serve_json, serve_report
    from ridgeline.report.serving_frontier import frontier_charts
    from ridgeline.search.serve import serve as plan_serving

    try:
        with progress_line() as progress:
            answer = plan_serving(question, slices=slices, progress=progress)
    except InfeasibleError as error:
        if json:
            print_json(no_serving_plan_json(error))
        raise
    if plot is not None:
        write_plot(frontier_charts(answer), plot, force=force)
    if json:
        print_json(serve_json(answer))
        return
    report = serve_report(answer)
    print_report(explained(report, answer.derivations) if explain else report)


def _open_slice(on: str | None) -> InputError:
    return InputError(
        "a mesh is one slice's, and a chip alone leaves the slice open",
        where="--on",
        value=on,
        expected="a slice beside --mesh, --prefill-mesh or --decode-mesh",
        fix="name the slice, e.g. v6e:2x4, or leave the mesh out",
    )
