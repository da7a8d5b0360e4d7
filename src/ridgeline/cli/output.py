"""What a verb prints: a report for people or one JSON object for programs, and nothing else."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.report.blocks import Report


def print_report(report: Report) -> None:
    """Prints a report, in colour on a terminal."""
    from ridgeline.report.terminal import screen

    _write(screen(report))


def print_json(answer: Mapping[str, object]) -> None:
    """Prints one JSON object; what is unknown or infinite becomes null."""
    from ridgeline.report.jsonable import jsonable

    _write(json.dumps(jsonable(answer), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def _write(text: str) -> None:
    """Writes to standard output; a reader that has gone away (`| head`) is no error."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes once more at exit; that must not meet the broken pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
