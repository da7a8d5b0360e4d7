"""`ridgeline export`: the configuration that runs a plan in another program."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ridgeline.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ridgeline.hardware.slice import Slice
    from ridgeline.job.origin import Setting
    from ridgeline.study.export_job import ExportAnswer

_Text = str | None
CONFIGURATION, COMMAND = ".yml", ".sh"
"""Suffixes of what is written."""

_OWN: Mapping[str, tuple[str, ...]] = {
    "maxtext": ("--steps",),
    "vllm": ("--checkpoint", "--replicas", "--rate", "--mode", "--prefill-mesh"),
    "jetstream": ("--checkpoint",),
}
"""Flags that each program alone has a use for."""


def export(
    job: Annotated[
        str, typer.Argument(metavar="JOB|MODEL", help="A job file (.toml), a model's name, or its config.json.")
    ],
    *,
    to: Annotated[
        Literal["maxtext", "vllm", "jetstream"], typer.Option(help="The program that is to run it.")
    ] = "maxtext",
    on: Annotated[_Text, typer.Option(metavar="SLICE", help="tpu7x:4x4x4, 2*v5p:4x4x4.")] = None,
    global_batch: Annotated[_Text, typer.Option(metavar="N", help="Sequences a step.")] = None,
    seq_len: Annotated[_Text, typer.Option(metavar="N", help="Tokens a sequence.")] = None,
    mesh: Annotated[_Text, typer.Option(metavar="AXIS=N,...", help="Degrees: fsdp=32,tp=4.")] = None,
    remat: Annotated[_Text, typer.Option(metavar="POLICY", help="full, minimal, or context=device,...")] = None,
    quantization: Annotated[_Text, typer.Option(metavar="KIND", help="fp8, int8 or none.")] = None,
    gradient_accumulation: Annotated[_Text, typer.Option(metavar="N", help="Micro-steps a step.")] = None,
    vocab_tiling: Annotated[_Text, typer.Option(metavar="N", help="Chunks of logits and loss.")] = None,
    weights_dtype: Annotated[
        _Text, typer.Option(metavar="DTYPE", help="Of the weights: f32, bf16; serving: fp8, int8, int4.")
    ] = None,
    optimizer: Annotated[_Text, typer.Option(metavar="KIND", help="adamw or muon.")] = None,
    mu_dtype: Annotated[_Text, typer.Option(metavar="DTYPE", help="Of the first moment.")] = None,
    optimizer_state: Annotated[
        _Text, typer.Option(metavar="PLACE", help="Of both moments: device or host; chosen if left out.")
    ] = None,
    prompt_len: Annotated[_Text, typer.Option(metavar="N", help="Serving: longest prompt, in tokens.")] = None,
    generate_len: Annotated[_Text, typer.Option(metavar="N", help="Serving: longest reply, in tokens.")] = None,
    batch: Annotated[_Text, typer.Option(metavar="N", help="Serving: sequences at once; chosen if left out.")] = None,
    rate: Annotated[_Text, typer.Option(metavar="N", help="To vllm: requests a second, for how many servers.")] = None,
    ttft: Annotated[_Text, typer.Option(metavar="TIME", help="Serving: longest time to the first token: 2s.")] = None,
    tpot: Annotated[_Text, typer.Option(metavar="TIME", help="Serving: longest time per output token: 50ms.")] = None,
    mode: Annotated[
        _Text, typer.Option(metavar="MODE", help="To vllm: interleaved or disaggregated; chosen if left out.")
    ] = None,
    prefill_mesh: Annotated[_Text, typer.Option(metavar="AXIS=N,...", help="To vllm: degrees of prefill.")] = None,
    decode_mesh: Annotated[_Text, typer.Option(metavar="AXIS=N,...", help="Serving: degrees of decode.")] = None,
    compute_dtype: Annotated[_Text, typer.Option(metavar="DTYPE", help="Of the matmuls: bf16; fp8.")] = None,
    kv_cache_dtype: Annotated[_Text, typer.Option(metavar="DTYPE", help="Serving: bf16, fp8, int8, int4.")] = None,
    checkpoint: Annotated[
        _Text, typer.Option(metavar="REPOSITORY", help="To vllm or jetstream: the model's repository, or its folder.")
    ] = None,
    replicas: Annotated[
        _Text, typer.Option(metavar="N", help="To vllm: servers that decode; as --rate asks, or 1.")
    ] = None,
    steps: Annotated[_Text, typer.Option(metavar="N", help="Optimizer steps of the run; 30 if not said.")] = None,
    output: Annotated[
        _Text, typer.Option(metavar="FILE", help="Write it: configuration or manifest (.yml), or a script (.sh).")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Let --output replace a file.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object, in base units.")] = False,
) -> None:
    """The exact configuration and command that run a job in MaxText, or serve it in vLLM or JetStream.

    What the job leaves open is chosen first, as `compile` does. Keys and values are checked against those of the
    version that is named; what that program cannot be told is refused by name. A run in MaxText measures: it reads
    synthetic data and writes no checkpoints. vLLM gets the plan of `serve`, with servers that do both or two kinds of
    them, as much memory as lets it start, and a Kubernetes manifest.
    """
    from ridgeline.job.origin import Arguments, settings, told_where_written
    from ridgeline.job.reading import origin_of
    from ridgeline.job.serving_slices import slices_of_family

    flags: Arguments = {
        "on": on,
        "global_batch": global_batch,
        "seq_len": seq_len,
        "mesh": mesh,
        "remat": remat,
        "quantization": quantization,
        "gradient_accumulation": gradient_accumulation,
        "vocab_tiling": vocab_tiling,
        "weights_dtype": weights_dtype,
        "optimizer": optimizer,
        "mu_dtype": mu_dtype,
        "optimizer_state": optimizer_state,
        "prompt_len": prompt_len,
        "generate_len": generate_len,
        "batch": batch,
        "rate": rate,
        "ttft": ttft,
        "tpot": tpot,
        "mode": mode,
        "prefill_mesh": prefill_mesh,
        "decode_mesh": decode_mesh,
        "compute_dtype": compute_dtype,
        "kv_cache_dtype": kv_cache_dtype,
    }
    if force and output is None:
        raise _nothing_to_replace()
    slices = slices_of_family(on) if to == "vllm" else ()
    if slices:
        flags["on"] = slices[0].name
    said = settings(flags, written=lambda name: f"--{name.replace('_', '-')}")
    if to == "maxtext":
        _refuse_serving({"--prompt-len": prompt_len, "--generate-len": generate_len})
    own = {"--checkpoint": checkpoint, "--replicas": replicas, "--steps": steps}
    _refuse_other(to, {**own, "--rate": rate, "--mode": mode, "--prefill-mesh": prefill_mesh})
    with told_where_written(origin_of(job, said)):
        _export(to, job, said, slices=slices, own=own, form=_Form(output=output, force=force, json=json))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """How the answer is given: as a file too, over another one, as JSON."""

    output: str | None
    force: bool
    json: bool


def _export(
    to: str,
    job: str,
    said: Sequence[Setting],
    *,
    slices: Sequence[Slice],
    own: Mapping[str, str | None],
    form: _Form,
) -> None:
    """What the program is told."""
    output, force, json, checkpoint = form.output, form.force, form.json, own["--checkpoint"]
    if to == "vllm":
        from ridgeline.cli.export_vllm import export_vllm

        count = own["--replicas"]
        export_vllm(
            job, said, slices=slices, checkpoint=checkpoint, replicas=count, output=output, force=force, json=json
        )
    elif to == "jetstream":
        from ridgeline.cli.export_jetstream import export_jetstream

        export_jetstream(job, said, checkpoint=checkpoint, output=output, force=force, json=json)
    else:
        _export_maxtext(job, said, steps=own["--steps"], output=output, force=force, json=json)


def _export_maxtext(
    job: str, said: Sequence[Setting], *, steps: str | None, output: str | None, force: bool, json: bool
) -> None:
    """Prints what MaxText is told, and writes it where that was asked for."""
    from ridgeline.cli.output import print_json, print_report
    from ridgeline.job.reading import read_job
    from ridgeline.report.export import export_json, export_report
    from ridgeline.study.export_job import export_job
    from ridgeline.units import parse_whole

    count = parse_whole("30" if steps is None else steps, where="--steps", unit="steps")
    answer = export_job(read_job(job, said))
    if output is not None:
        _write(answer, output, steps=count, force=force)
    file = output if output is not None and output.endswith(CONFIGURATION) else None
    if json:
        print_json(export_json(answer, steps=count, file=file))
    else:
        print_report(export_report(answer, steps=count, file=file))


def _write(answer: ExportAnswer, path: str, *, steps: int, force: bool) -> None:
    """Writes the configuration or the script.

    Raises:
        InputError: The suffix is none of ours, a file is in the way, or the place cannot be written to.
    """
    from ridgeline.report.export import export_text

    suffix = output_suffix(path, {CONFIGURATION: "configuration", COMMAND: "script"})
    write_output(path, export_text(answer, steps=steps, is_command=suffix == COMMAND), force=force)


def output_suffix(path: str, kinds: Mapping[str, str]) -> str:
    """The suffix of a file that is to be written.

    Args:
        path: Of the file.
        kinds: By suffix that may be, what is then written.

    Raises:
        InputError: It is none of them.
    """
    suffix = Path(path).suffix
    if suffix not in kinds:
        ends = " or ".join(f"{each} ({kind})" for each, kind in kinds.items())
        raise _refused("unknown kind of file", path, f"a name that ends in {ends}", f"write {path}{next(iter(kinds))}")
    return suffix


def write_output(path: str, text: str, *, force: bool) -> None:
    """Writes a file.

    Raises:
        InputError: A file is in the way, or the place cannot be written to.
    """
    try:
        with Path(path).open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise _refused(
            "the file exists", path, "a new file", "choose another name, or add --force to replace it"
        ) from None
    except OSError as error:
        what = f"cannot write the file: {error.strerror}"
        raise _refused(what, path, "a place that can be written to", "check the path") from None


def _refused(what: str, path: str, expected: str, fix: str) -> InputError:
    return InputError(what, where="--output", value=path, expected=expected, fix=fix)


def _refuse_other(to: str, flags: Mapping[str, str | None]) -> None:
    """Refuses flags that only another program has a use for."""
    for flag, value in flags.items():
        if value is not None and flag not in _OWN[to]:
            raise InputError(
                f"{to} has no use for {flag}",
                where=flag,
                value=value,
                expected=f"a flag for {to}",
                fix=f"leave {flag} out, or export to the other program",
            )


def _refuse_serving(flags: Mapping[str, str | None]) -> None:
    """Refuses what only a serving job has, where MaxText is to train."""
    for flag, value in flags.items():
        if value is not None:
            raise InputError(
                "MaxText's run is one of training",
                where=flag,
                value=value,
                expected="a training job: --seq-len, --global-batch",
                fix="add --to vllm or --to jetstream to serve the model",
            )


def _nothing_to_replace() -> InputError:
    return InputError(
        "nothing to replace",
        where="--force",
        value="--force without --output",
        expected="--output FILE beside it",
        fix="add --output FILE, or leave --force out",
    )
