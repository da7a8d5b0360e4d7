"""`ridgeline serve`: the best way to serve a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ridgeline.errors import InfeasibleError, InputError

if TYPE_CHECKING:
    from ridgeline.job.origin import Arguments

_Text = str | None


def serve(
    job: Annotated[
        str, typer.Argument(metavar="JOB|MODEL", help="A job file (.toml), a model's name, or its config.json.")
    ],
    *,
    on: Annotated[
        _Text, typer.Option(metavar="SLICE", help="Of one server: v6e:2x4, h200:8; a chip alone for all its sizes.")
    ] = None,
    prompt_len: Annotated[_Text, typer.Option(metavar="N", help="Tokens of a prompt.")] = None,
    generate_len: Annotated[_Text, typer.Option(metavar="N", help="Tokens of a reply.")] = None,
    batch: Annotated[_Text, typer.Option(metavar="N", help="Sequences that a server decodes at once.")] = None,
    rate: Annotated[_Text, typer.Option(metavar="N", help="Requests a second, for the number of chips.")] = None,
    ttft: Annotated[_Text, typer.Option(metavar="TIME", help="Longest time to the first token: 2s.")] = None,
    tpot: Annotated[_Text, typer.Option(metavar="TIME", help="Longest time per output token: 50ms.")] = None,
    mesh: Annotated[_Text, typer.Option(metavar="AXIS=N,...", help="Degrees of both phases: tp=8.")] = None,
    prefill_mesh: Annotated[_Text, typer.Option(metavar="AXIS=N,...", help="Degrees of prefill alone.")] = None,
    decode_mesh: Annotated[_Text, typer.Option(metavar="AXIS=N,...", help="Degrees of decode alone.")] = None,
    prefill_batch: Annotated[_Text, typer.Option(metavar="N", help="Prompts that are read at once.")] = None,
    weights_dtype: Annotated[
        _Text, typer.Option(metavar="DTYPE", help="Of the weights as stored; any leaves it open.")
    ] = None,
    kv_cache_dtype: Annotated[_Text, typer.Option(metavar="DTYPE", help="Of the KV cache; or any.")] = None,
    compute_dtype: Annotated[_Text, typer.Option(metavar="DTYPE", help="Of the matmuls; or any.")] = None,
    save: Annotated[_Text, typer.Option(metavar="FILE", help="Write the job to FILE (.toml).")] = None,
    plot: Annotated[
        _Text, typer.Option(metavar="FILE", help="Draw the frontier and its breakdown: .html, .svg or .png.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Let --save and --plot replace a file.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object, in base units.")] = False,
) -> None:
    """Find the best way to serve a model: the cheapest plan that meets the limits, and the frontier of all.

    Servers read prompts beside decoding (interleaved) or leave that to servers of their own (disaggregated, with how
    many for each). Times are means of a steady state in which all prompts and all replies are equally long.
    """
    from ridgeline.cli.output import print_json, print_report
    from ridgeline.cli.plot_file import write_plot
    from ridgeline.cli.progress import progress_line
    from ridgeline.job.origin import settings
    from ridgeline.job.reading import read_serving_job
    from ridgeline.job.serving_slices import slices_of_family
    from ridgeline.job.writing import write_job
    from ridgeline.report.serve import frontier_charts, no_serving_plan_json, serve_json, serve_report
    from ridgeline.search.serve import serve as plan_serving

    slices = slices_of_family(on)
    flags: Arguments = {
        "on": slices[0].name if slices else on,
        "prompt_len": prompt_len,
        "generate_len": generate_len,
        "batch": batch,
        "rate": rate,
        "ttft": ttft,
        "tpot": tpot,
        "mesh": mesh,
        "prefill_mesh": prefill_mesh,
        "decode_mesh": decode_mesh,
        "prefill_batch": prefill_batch,
        "weights_dtype": weights_dtype,
        "kv_cache_dtype": kv_cache_dtype,
        "compute_dtype": compute_dtype,
    }
    if slices and (mesh or prefill_mesh or decode_mesh):
        raise _open_slice(on)
    question = read_serving_job(job, settings(flags, written=lambda name: f"--{name.replace('_', '-')}"))
    if save is not None:
        write_job(question, save, force=force)
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
    else:
        print_report(serve_report(answer))


def _open_slice(on: str | None) -> InputError:
    return InputError(
        "a mesh is one slice's, and a chip alone leaves the slice open",
        where="--on",
        value=on,
        expected="a slice beside --mesh, --prefill-mesh or --decode-mesh",
        fix="name the slice, e.g. v6e:2x4, or leave the mesh out",
    )
