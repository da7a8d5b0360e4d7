"""`ridgeline export --to vllm`: the flags, the command and the manifest of a serving job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ridgeline.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ridgeline.hardware.slice import Slice
    from ridgeline.job.origin import Setting


def export_vllm(
    job: str,
    said: Sequence[Setting],
    *,
    slices: Sequence[Slice],
    checkpoint: str | None,
    replicas: str | None,
    output: str | None,
    force: bool,
    json: bool,
) -> None:
    """Prints what vLLM is told, and writes it where that was asked for."""
    from ridgeline.cli.export import COMMAND, CONFIGURATION, output_suffix, write_output
    from ridgeline.cli.output import print_json, print_report
    from ridgeline.job.reading import read_serving_job
    from ridgeline.report.export_vllm import manifest_text, script_text, vllm_json, vllm_report
    from ridgeline.study.export_vllm import export_vllm as export_job
    from ridgeline.units import parse_whole

    count = None if replicas is None else parse_whole(replicas, where="--replicas", unit="servers")
    suffix = None if output is None else output_suffix(output, {CONFIGURATION: "manifest", COMMAND: "script"})
    answer = export_job(read_serving_job(job, said), slices=slices, to_manifest=suffix == CONFIGURATION)
    if output is not None:
        model = _needed(checkpoint, answer.job.model.name)
        text = (
            script_text(answer, checkpoint=model)
            if suffix == COMMAND
            else manifest_text(answer, checkpoint=model, replicas=count)
        )
        write_output(output, text, force=force)
    if json:
        print_json(vllm_json(answer, checkpoint=checkpoint, replicas=count))
    else:
        print_report(vllm_report(answer, checkpoint=checkpoint, replicas=count))


def _needed(checkpoint: str | None, model: str) -> str:
    """What a file needs so that it runs.

    Raises:
        InputError: It was not said.
    """
    if not checkpoint:
        raise InputError(
            "a file for vLLM names the weights",
            where="--checkpoint",
            value=checkpoint or "(absent)",
            expected="a Hugging Face repository, or a folder",
            fix=f"add --checkpoint OWNER/NAME, the repository of {model}",
        )
    return checkpoint
