"""The progress line: for a person who waits, and for no one else."""

import io
import sys

import pytest

from ridgeline.cli import progress
from ridgeline.cli.progress import progress_line


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the clock reads; a test may change it."""
    readings = [0.0]
    monkeypatch.setattr(progress, "monotonic", lambda: readings[0])
    return readings


def test_a_wait_of_over_a_second_is_shown_and_then_wiped(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())

    with progress_line() as draw:
        clock[0] = 2.0
        draw("costing plans", 0.5)

    assert sys.stderr.getvalue() == f"\r\x1b[Kcosting plans {'█' * 12}{'░' * 12}  50%\r\x1b[K"


def test_a_short_wait_shows_nothing(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())

    with progress_line() as draw:
        clock[0] = 0.9
        draw("costing plans", 0.5)

    assert sys.stderr.getvalue() == ""


def test_nothing_is_drawn_where_there_is_no_terminal(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())

    with progress_line() as draw:
        clock[0] = 2.0
        draw("costing plans", 0.5)

    assert sys.stderr.getvalue() == ""


def test_a_program_without_standard_error_draws_nothing(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)

    with progress_line() as draw:
        clock[0] = 2.0
        draw("costing plans", 0.5)
