"""`ridgeline export JOB --to jetstream`: what MaxText's engine is told, as a screen, as a script and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ridgeline.export.jetstream import server_words
from ridgeline.export.maxtext import config_yaml, value_text
from ridgeline.job.writing import job_tables
from ridgeline.report.blocks import Cell, Facts, Paragraphs, Report, Table
from ridgeline.report.jsonable import jsonable
from ridgeline.units import format_bytes, format_things

if TYPE_CHECKING:
    from ridgeline.report.jsonable import Json
    from ridgeline.study.export_jetstream import JetstreamAnswer

_CHECKPOINT: Final = "CHECKPOINT"
_TOKENIZER: Final = "TOKENIZER"
"""What stands for what is not said."""

_NOTES: Final = (
    "JetStream reads a prompt whole between two passes: the times of serve are of pieces beside them.",
    "The checkpoint is MaxText's own, converted with scan_layers=false, and quantized where the weights are int8.",
)


def jetstream_report(answer: JetstreamAnswer, *, checkpoint: str | None) -> Report:
    """The screen: the server, its memory, the keys, the command."""
    job, config = answer.job, answer.config
    held, usable = format_bytes(answer.held_bytes), format_bytes(answer.usable_bytes)
    return Report(
        headline=f"{job.model.name} on {job.hardware.name} for JetStream with MaxText {config.version}",
        pieces=(
            Facts(
                title="Server",
                rows=(
                    ("mesh", Cell(text=f"tp={config.settings['ici_tensor_parallelism']}", tone="strong")),
                    ("slots", Cell(text=format_things(answer.batch, "sequence"))),
                    ("memory", Cell(text=f"fits: {held} of {usable} usable per device, by the equation")),
                ),
            ),
            Table(
                title="Configuration (the rest as in base.yml)",
                columns=("key", "value"),
                rows=tuple((Cell(text=key), Cell(text=value_text(value))) for key, value in config.settings.items()),
            ),
            Paragraphs(title="On every host of the slice", lines=(Cell(text=_line(answer, checkpoint)),)),
            Paragraphs(title="Notes", lines=tuple(Cell(text=note) for note in _NOTES)),
        ),
    )


def jetstream_json(answer: JetstreamAnswer, *, checkpoint: str | None) -> dict[str, Json]:
    """The same for programs."""
    return {
        "job": jsonable(job_tables(answer.job)),
        "to": "jetstream",
        "version": answer.config.version,
        "settings": jsonable(answer.config.settings),
        "command": _line(answer, checkpoint),
        "slots": answer.batch,
        "memory": {"held_bytes": answer.held_bytes, "usable_bytes": answer.usable_bytes},
        "notes": jsonable(_NOTES),
    }


def jetstream_text(answer: JetstreamAnswer, *, checkpoint: str, is_command: bool) -> str:
    """The text of a file: the configuration, or a shell script of the whole command."""
    if not is_command:
        return config_yaml(answer.config)
    said = f"# For MaxText {answer.config.version}; run it on every host of {answer.job.hardware.name}."
    return f"#!/bin/sh\n{said}\nexec {_line(answer, checkpoint)}\n"


def _line(answer: JetstreamAnswer, checkpoint: str | None) -> str:
    return " ".join(server_words(answer.config, checkpoint=checkpoint or _CHECKPOINT, tokenizer=_TOKENIZER))
