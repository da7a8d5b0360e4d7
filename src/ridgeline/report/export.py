"""`ridgeline export JOB`: what another program is told, as a screen, as a file's text and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ridgeline.export.maxtext import config_yaml, train_words, value_text
from ridgeline.job.mesh import mesh_in_words
from ridgeline.job.writing import job_tables
from ridgeline.report.blocks import Cell, Facts, Paragraphs, Report, Table
from ridgeline.report.jsonable import jsonable
from ridgeline.report.train import VERDICTS, remat_in_words
from ridgeline.units import format_bytes, format_things

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ridgeline.report.blocks import Piece
    from ridgeline.report.jsonable import Json
    from ridgeline.study.export_job import ExportAnswer

_LINE: Final = 96


def export_report(answer: ExportAnswer, *, steps: int, file: str | None) -> Report:
    """The screen: the plan, what MaxText is told, the flags, the command.

    Args:
        answer: What was chosen.
        steps: Optimizer steps of the command.
        file: Where the configuration was written; None for nowhere.
    """
    job = answer.job
    return Report(
        headline=f"{job.model.name} on {job.hardware.name} for MaxText {answer.config.version}",
        pieces=(
            Facts(title="Plan", rows=tuple(_rows(answer))),
            Table(
                title="Configuration (the rest as in base.yml)",
                columns=("key", "value"),
                rows=tuple(
                    (Cell(text=key), Cell(text=value_text(value))) for key, value in answer.config.settings.items()
                ),
            ),
            *_flags(answer),
            Paragraphs(
                title="On every host of the slice",
                lines=tuple(Cell(text=line) for line in _folded(train_words(answer.config, steps=steps, file=file))),
            ),
        ),
    )


def export_json(answer: ExportAnswer, *, steps: int, file: str | None) -> dict[str, Json]:
    """The same for programs."""
    return {
        "job": jsonable(job_tables(answer.job)),
        "to": "maxtext",
        "version": answer.config.version,
        "settings": jsonable(answer.config.settings),
        "xla_flags": [{"name": flag.name, "value": flag.value, "reason": flag.reason} for flag in answer.config.flags],
        "command": " ".join(train_words(answer.config, steps=steps, file=file)),
        "compile_topology": answer.topology,
        "memory": {
            "predicted_bytes": jsonable(answer.estimate.memory.total_bytes),
            "usable_bytes": jsonable(answer.estimate.memory.usable_bytes),
            "verdict": answer.estimate.memory.verdict,
        },
    }


def export_text(answer: ExportAnswer, *, steps: int, is_command: bool) -> str:
    """The text of a file: the configuration, or a shell script of the whole command."""
    if not is_command:
        return config_yaml(answer.config)
    folded = "\n".join(_folded(train_words(answer.config, steps=steps)))
    said = f"# For MaxText {answer.config.version}; run it on every host of {answer.job.hardware.name}."
    return f"#!/bin/sh\n{said}\n{folded}\n"


def _rows(answer: ExportAnswer) -> Iterator[tuple[str, Cell]]:
    job, plan, memory = answer.job, answer.estimate.plan, answer.estimate.memory
    yield "mesh", Cell(text=mesh_in_words(plan.mesh), tone="strong")
    batch = f"{format_things(job.workload.global_batch or 0, 'sequence')} of {job.workload.seq_len:,} tokens"
    yield "batch", Cell(text=f"{batch}, {format_things(plan.gradient_accumulation, 'micro-step')}")
    yield "remat", Cell(text=remat_in_words(plan))
    word, tone = VERDICTS[memory.verdict]
    needed, usable = format_bytes(memory.total_bytes), format_bytes(memory.usable_bytes)
    yield "memory", Cell(text=f"{word}: {needed} of {usable} usable per device, by the equation", tone=tone)
    yield "compile_topology", Cell(text=answer.topology or "MaxText has no name for this slice")


def _flags(answer: ExportAnswer) -> Iterator[Piece]:
    if answer.config.flags:
        yield Table(
            title="XLA flags",
            columns=("flag", "because"),
            rows=tuple((Cell(text=flag.written), Cell(text=flag.reason)) for flag in answer.config.flags),
        )


def _folded(words: Sequence[str]) -> list[str]:
    r"""The words in lines that a shell reads as one command.

    >>> _folded(["python3", "-m", "train", "steps=30"])
    ['python3 -m train steps=30']
    >>> len(_folded(["word"] * 100)), _folded(["word"] * 100)[0][-6:]
    (6, 'word \\')
    """
    lines, line = list[str](), ""
    for word in words:
        if line and len(line) + len(word) + len(" ") > _LINE:
            lines.append(f"{line} \\")
            line = f"  {word}"
        else:
            line = f"{line} {word}" if line else word
    return [*lines, line]
