"""A line on standard error that says how far a long answer is."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

_PATIENCE_S = 1.0
_BAR_COLUMNS = 24
_CLEAR_LINE = "\r\x1b[K"


@contextmanager
def progress_line() -> Generator[Callable[[str, float], None]]:
    """Gives a function `(stage, fraction)` that redraws the line; on a terminal, and only after a second."""
    started_s = monotonic()
    drawn: list[str] = []

    def draw(stage: str, fraction: float) -> None:
        if sys.stderr is None or not sys.stderr.isatty() or monotonic() - started_s < _PATIENCE_S:
            return
        filled = round(min(max(fraction, 0.0), 1.0) * _BAR_COLUMNS)
        bar = "█" * filled + "░" * (_BAR_COLUMNS - filled)
        drawn[:] = [f"{stage} {bar} {fraction:4.0%}"]
        sys.stderr.write(_CLEAR_LINE + drawn[0])
        sys.stderr.flush()

    try:
        yield draw
    finally:
        if drawn:
            sys.stderr.write(_CLEAR_LINE)
            sys.stderr.flush()
