"""A line on standard error that says how far a long answer is, or how long it has taken."""

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
    with _line() as draw:

        def draw_bar(stage: str, fraction: float) -> None:
            filled = round(min(max(fraction, 0.0), 1.0) * _BAR_COLUMNS)
            bar = "█" * filled + "░" * (_BAR_COLUMNS - filled)
            draw(f"{stage} {bar} {fraction:4.0%}")

        yield draw_bar


@contextmanager
def elapsed_line() -> Generator[Callable[[str], None]]:
    """Gives a function `(stage)` that redraws the line with the time since the start; otherwise as `progress_line`."""
    started_s = monotonic()
    with _line() as draw:
        yield lambda stage: draw(f"{stage} ({monotonic() - started_s:.0f} s)")


@contextmanager
def _line() -> Generator[Callable[[str], None]]:
    """Gives a function that replaces the line's text; the line is gone at the end."""
    started_s = monotonic()
    drawn: list[str] = []

    def draw(text: str) -> None:
        if sys.stderr is None or not sys.stderr.isatty() or monotonic() - started_s < _PATIENCE_S:
            return
        drawn[:] = [text]
        sys.stderr.write(_CLEAR_LINE + text)
        sys.stderr.flush()

    try:
        yield draw
    finally:
        if drawn:
            sys.stderr.write(_CLEAR_LINE)
            sys.stderr.flush()
