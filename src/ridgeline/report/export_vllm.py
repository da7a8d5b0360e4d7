"""`ridgeline export JOB --to vllm`: what vLLM is told, as a screen, as a file's text and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ridgeline.export.vllm import serve_line
from ridgeline.export.vllm_manifest import manifest_yaml
from ridgeline.job.mesh import mesh_in_words
from ridgeline.job.writing import job_tables
from ridgeline.report.blocks import Cell, Facts, Paragraphs, Report, Table
from ridgeline.report.jsonable import jsonable
from ridgeline.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ridgeline.report.jsonable import Json
    from ridgeline.study.export_vllm import VllmAnswer

_UNSAID: Final = "CHECKPOINT"
"""What stands for the weights where they are not said."""


def vllm_report(answer: VllmAnswer, *, checkpoint: str | None) -> Report:
    """The screen: the server, its memory, the flags, the command."""
    config, job = answer.config, answer.job
    notes = tuple(Cell(text=note) for note in config.notes)
    return Report(
        headline=f"{job.model.name} on {job.hardware.name} for vLLM {config.version}",
        pieces=(
            Facts(title="Server", rows=tuple(_rows(answer))),
            Table(
                title="Flags (the rest as vLLM has them)",
                columns=("flag", "value"),
                rows=tuple((Cell(text=key), Cell(text=_text(value))) for key, value in config.settings.items()),
            ),
            *((Paragraphs(title="Notes", lines=notes),) if notes else ()),
            Paragraphs(title="Command", lines=(Cell(text=serve_line(config, checkpoint or _UNSAID)),)),
        ),
    )


def vllm_json(answer: VllmAnswer, *, checkpoint: str | None) -> dict[str, Json]:
    """The same for programs."""
    config, memory = answer.config, answer.config.memory
    return {
        "job": jsonable(job_tables(answer.job)),
        "to": "vllm",
        "version": config.version,
        "settings": jsonable(config.settings),
        "command": serve_line(config, checkpoint or _UNSAID),
        "memory": {
            "usable_bytes": memory.usable_bytes,
            "weights_bytes": memory.weights_bytes,
            "pass_bytes": memory.pass_bytes,
            "cache_bytes": config.cache_bytes,
            "sequence_bytes": memory.sequence_bytes,
        },
        "sequences": config.num_sequences,
        "notes": jsonable(config.notes),
    }


def script_text(answer: VllmAnswer, *, checkpoint: str) -> str:
    """A shell script that starts one server."""
    said = f"# For vLLM {answer.config.version}; run it on the host of {answer.job.hardware.name}."
    return f"#!/bin/sh\n{said}\nexec {serve_line(answer.config, checkpoint)}\n"


def manifest_text(answer: VllmAnswer, *, checkpoint: str, replicas: int) -> str:
    """A Kubernetes manifest of so many servers."""
    job = answer.job
    return manifest_yaml(answer.config, job.hardware, name=job.model.name, checkpoint=checkpoint, replicas=replicas)


def _rows(answer: VllmAnswer) -> Iterator[tuple[str, Cell]]:
    config, memory = answer.config, answer.config.memory
    yield "mesh", Cell(text=mesh_in_words(answer.job.plan.decode), tone="strong")
    yield "weights", Cell(text=f"{format_bytes(memory.weights_bytes)} of {format_bytes(memory.usable_bytes)} usable")
    yield "a pass", Cell(text=format_bytes(memory.pass_bytes))
    each = format_bytes(memory.sequence_bytes)
    room = f"{config.num_sequences:,} sequences of {answer.job.workload.context_len:,} tokens, {each} each"
    yield "KV cache", Cell(text=f"{format_bytes(config.cache_bytes)} on a device: {room}")


def _text(value: str | float) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
