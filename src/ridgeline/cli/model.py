"""`ridgeline model`: what a model is made of and what it asks for."""

from __future__ import annotations

from typing import Annotated

import typer

from ridgeline.cli import options

_USUAL_TOKENS = 8192
_MOST_TOKENS = 1e9


def model(
    reference: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            help="A name (llama3.1-70b), the path of a config.json, a job file (.toml) for its model, or letters "
            "(L=64,D=4096,F=16384,N=32,K=8,H=256,V=32128,E=16,k=2,tied). None lists the names.",
        ),
    ] = None,
    seq_len: Annotated[
        str | None,
        typer.Option(metavar="N", help="Tokens a sequence. 8192, or the model's context if that is shorter."),
    ] = None,
    dtype: Annotated[
        str, typer.Option(metavar="DTYPE", help="Of KV cache and activations: f32, bf16, fp8, int8.")
    ] = "bf16",
    explain: options.Explain = False,
    json: options.Json = False,
) -> None:
    """Parameters, FLOPs, KV-cache and activation bytes of a model, part by part."""
    from ridgeline.cli.output import print_json, print_report
    from ridgeline.job.precision import parse_dtype
    from ridgeline.job.reading import JOB_SUFFIX, read_any_job
    from ridgeline.model.zoo import model_names, resolve_model
    from ridgeline.report.derivations import explained
    from ridgeline.report.model import model_answer, model_json, model_report, names_json, names_report
    from ridgeline.units import parse_whole

    if reference is None:
        names = model_names()
        if json:
            print_json(names_json(names))
        else:
            print_report(names_report(names))
        return
    is_job = reference.endswith(JOB_SUFFIX)
    spec = read_any_job(reference).model if is_job else resolve_model(reference, where="MODEL")
    usual_tokens = min(_USUAL_TOKENS, spec.context_length or _USUAL_TOKENS)
    tokens = parse_whole(
        usual_tokens if seq_len is None else seq_len, where="--seq-len", unit="tokens", most=_MOST_TOKENS
    )
    answer = model_answer(spec, seq_len=tokens, dtype=parse_dtype(dtype, where="--dtype"))
    if json:
        print_json(model_json(answer))
    else:
        report = model_report(answer)
        print_report(explained(report, answer.derivations) if explain else report)
