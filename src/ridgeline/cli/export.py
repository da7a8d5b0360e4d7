"""`ridgeline export`: the configuration that runs a plan in another program."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ridgeline.errors import InputError

if TYPE_CHECKING:
    from ridgeline.study.export_job import ExportAnswer

_Text = str | None
_CONFIGURATION, _COMMAND = ".yml", ".sh"


def export(
    job: Annotated[
        str, typer.Argument(metavar="JOB|MODEL", help="A job file (.toml), a model's name, or its config.json.")
    ],
    *,
    to: Annotated[Literal["maxtext"], typer.Option(help="The program that is to run it.")] = "maxtext",
    on: Annotated[_Text, typer.Option(metavar="SLICE", help="tpu7x:4x4x4, 2*v5p:4x4x4.")] = None,
    global_batch: Annotated[_Text, typer.Option(metavar="N", help="Sequences a step.")] = None,
    seq_len: Annotated[_Text, typer.Option(metavar="N", help="Tokens a sequence.")] = None,
    mesh: Annotated[_Text, typer.Option(metavar="AXIS=N,...", help="Degrees: fsdp=32,tp=4.")] = None,
    remat: Annotated[_Text, typer.Option(metavar="POLICY", help="full, minimal, or context=device,...")] = None,
    quantization: Annotated[_Text, typer.Option(metavar="KIND", help="fp8, int8 or none.")] = None,
    gradient_accumulation: Annotated[_Text, typer.Option(metavar="N", help="Micro-steps a step.")] = None,
    vocab_tiling: Annotated[_Text, typer.Option(metavar="N", help="Chunks of logits and loss.")] = None,
    weights_dtype: Annotated[_Text, typer.Option(metavar="DTYPE", help="Of the weights: f32 or bf16.")] = None,
    mu_dtype: Annotated[_Text, typer.Option(metavar="DTYPE", help="Of Adam's first moment.")] = None,
    optimizer_state: Annotated[
        _Text, typer.Option(metavar="PLACE", help="Of both moments: device or host; chosen if left out.")
    ] = None,
    steps: Annotated[_Text, typer.Option(metavar="N", help="Optimizer steps of the run; 30 if not said.")] = None,
    output: Annotated[
        _Text, typer.Option(metavar="FILE", help="Write it to FILE: the configuration (.yml), or a script (.sh).")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Let --output replace a file.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object, in base units.")] = False,
) -> None:
    """The exact configuration, XLA flags and command that run a job in MaxText.

    What the job leaves open is chosen first, as `compile` does. Keys and values are checked against those of the
    version of MaxText that is named; what MaxText cannot be told is refused by name. The run measures: it reads
    synthetic data and writes no checkpoints.
    """
    from ridgeline.cli.output import print_json, print_report
    from ridgeline.job.origin import Arguments, settings
    from ridgeline.job.reading import read_job
    from ridgeline.report.export import export_json, export_report
    from ridgeline.study.export_job import export_job
    from ridgeline.units import parse_whole

    del to  # there is one so far, and typer has checked its name
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
        "mu_dtype": mu_dtype,
        "optimizer_state": optimizer_state,
    }
    if force and output is None:
        raise _nothing_to_replace()
    count = parse_whole("30" if steps is None else steps, where="--steps", unit="steps")
    answer = export_job(read_job(job, settings(flags, written=lambda name: f"--{name.replace('_', '-')}")))
    if output is not None:
        _write(answer, output, steps=count, force=force)
    file = output if output is not None and output.endswith(_CONFIGURATION) else None
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

    def refuse(what: str, expected: str, fix: str) -> InputError:
        return InputError(what, where="--output", value=path, expected=expected, fix=fix)

    suffix = Path(path).suffix
    if suffix not in {_CONFIGURATION, _COMMAND}:
        expected = f"a name that ends in {_CONFIGURATION} (configuration) or {_COMMAND} (script)"
        raise refuse("unknown kind of file", expected, f"write {path}{_CONFIGURATION}")
    text = export_text(answer, steps=steps, is_command=suffix == _COMMAND)
    try:
        with Path(path).open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise refuse("the file exists", "a new file", "choose another name, or add --force to replace it") from None
    except OSError as error:
        what = f"cannot write the file: {error.strerror}"
        raise refuse(what, "a place that can be written to", "check the path") from None


def _nothing_to_replace() -> InputError:
    return InputError(
        "nothing to replace",
        where="--force",
        value="--force without --output",
        expected="--output FILE beside it",
        fix="add --output FILE, or leave --force out",
    )
