"""What a verb prints: a report for people or one JSON object for programs; complaints go to standard error."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TextIO

    from ridgeline.report.blocks import Report


def print_report(report: Report) -> None:
    """Prints a report, in colour on a terminal."""
    from ridgeline.report.terminal import screen

    _write(screen(report))


def print_json(answer: Mapping[str, object]) -> None:
    """Prints one JSON object; what is unknown or infinite becomes null."""
    from ridgeline.report.jsonable import jsonable

    _write(json.dumps(jsonable(answer), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def print_text(text: str) -> None:
    """Prints a text that is an answer as it stands, such as a program."""
    _write(text)


def complain(message: str) -> None:
    """Says on standard error what is wrong; where that cannot be written either, the exit code says it."""
    try:
        sys.stderr.write(f"{message}\n")
        sys.stderr.flush()
    except AttributeError:  # standard error is closed: there is no such stream
        return
    except OSError:
        _discard(sys.stderr)


def discard_output() -> None:
    """Gives up on standard output: what is still to be written there goes nowhere."""
    _discard(sys.stdout)


def _write(text: str) -> None:
    """Writes to standard output; a reader that has gone away (`| head`) is no error."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()


def _discard(stream: TextIO) -> None:
    """Python flushes each stream once more at exit; that must not fail a second time."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
