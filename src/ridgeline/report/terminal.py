"""A report as a screen: colour on a terminal, plain aligned text when piped.

One layout serves both; only the styles differ. A table never breaks a number: when the width is
short, its left-aligned columns fold between words, each inside itself.
"""

from __future__ import annotations

import os
import sys
from io import StringIO
from math import isfinite
from shutil import get_terminal_size
from typing import TYPE_CHECKING, assert_never

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from ridgeline.report.blocks import Bar, Bars, Cell, Facts, Paragraphs, Piece, Report, Table, Tone

if TYPE_CHECKING:
    from rich.console import RenderableType

_STYLES: dict[Tone, str] = {
    "plain": "",
    "good": "green",
    "warn": "yellow",
    "bad": "bold red",
    "dim": "dim",
    "strong": "bold",
}
_PLAIN_BAR_STYLE = "cyan"
_PIPED_WIDTH = 100
_WIDEST = 140
_LONGEST_BAR = 60
_SHORTEST_BAR = 10
_NARROWEST_PROSE = 24
_INDENT = 2
_GAP = 2
_EIGHTHS = " ▏▎▍▌▋▊▉"


def screen(report: Report) -> str:
    """A report as it suits standard output: in colour if that is a terminal and `NO_COLOR` is not set."""
    return render(report, width=_width(), colour=_wants_colour())


def render(report: Report, *, width: int, colour: bool) -> str:
    """The screen as text, every line at most `width` columns wide, with ANSI styles if `colour`."""
    target = StringIO()
    console = Console(
        file=target, width=width, color_system="standard" if colour else None, force_terminal=colour, highlight=False
    )
    console.print(_text(report.headline, "strong"))
    for piece in report.pieces:
        console.print()
        if piece.title:
            console.print(_text(piece.title, "strong"))
        console.print(Padding(_body(piece, width - _INDENT), (0, 0, 0, _INDENT)))
        if isinstance(piece, Table | Bars) and piece.note:
            console.print(Padding(_text(piece.note, "dim"), (0, 0, 0, _INDENT)))
    return "".join(f"{line.rstrip()}\n" for line in target.getvalue().splitlines())


def _width() -> int:
    """Columns to fill: the terminal's, within reason; a fixed number when piped (`COLUMNS` overrides it)."""
    if sys.stdout.isatty():
        return min(get_terminal_size().columns, _WIDEST)
    return get_terminal_size((_PIPED_WIDTH, 24)).columns if "COLUMNS" in os.environ else _PIPED_WIDTH


def _wants_colour() -> bool:
    """Whether to style the text (https://no-color.org, https://force-color.org)."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (sys.stdout.isatty() and os.environ.get("TERM") != "dumb")


def _body(piece: Piece, width: int) -> RenderableType:
    match piece:
        case Facts():
            return _facts(piece)
        case Table():
            return _table(piece, width)
        case Bars():
            return _bars(piece, width)
        case Paragraphs():
            return _paragraphs(piece)
        case _:
            assert_never(piece)


def _facts(piece: Facts) -> Grid:
    grid = _grid()
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for label, cell in piece.rows:
        grid.add_row(_text(label, "dim"), _cell(cell))
    return grid


def _table(piece: Table, width: int) -> Grid:
    grid = Grid(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for index, (header, columns) in enumerate(zip(piece.columns, _column_widths(piece, width), strict=True)):
        is_number = index in piece.right
        grid.add_column(
            _text(header, "dim"), justify="right" if is_number else "left", width=columns, no_wrap=is_number
        )
    for row in piece.rows:
        grid.add_row(*map(_cell, row))
    return grid


def _column_widths(piece: Table, width: int) -> list[int]:
    """Natural widths; on a short line the left-aligned columns give way.

    First the last of them, which holds prose, down to a width that still reads well; then the widest ones,
    down to their longest word.
    """
    columns = [[header, *(row[index].text for row in piece.rows)] for index, header in enumerate(piece.columns)]
    widths = [max(map(len, texts)) for texts in columns]
    words = [max((len(word) for text in texts for word in text.split()), default=0) for texts in columns]
    *labels, prose = [index for index in range(len(columns)) if index not in piece.right] or [0]
    labels.sort(key=lambda index: -widths[index])
    excess = sum(widths) + _GAP * (len(widths) - 1) - width
    for index, floor in [
        (prose, _NARROWEST_PROSE),
        *((index, words[index]) for index in labels),
        (prose, words[prose]),
    ]:
        cut = min(max(excess, 0), max(widths[index] - floor, 0))
        widths[index] -= cut
        excess -= cut
    return widths


def _bars(piece: Bars, width: int) -> Grid:
    labels = max((len(bar.label) for bar in piece.bars), default=0)
    texts = max((len(bar.text) for bar in piece.bars), default=0)
    columns = max(_SHORTEST_BAR, min(_LONGEST_BAR, width - labels - texts - 2 * _GAP - 1))
    largest = max((bar.value for bar in piece.bars if isfinite(bar.value)), default=0.0)
    grid = _grid()
    grid.add_column(no_wrap=True, overflow="ellipsis")
    grid.add_column(no_wrap=True, justify="right")
    grid.add_column(no_wrap=True)
    for bar in piece.bars:
        grid.add_row(_text(bar.label), _text(bar.text, bar.tone), _drawn(bar, largest, piece.full, columns))
    return grid


def _drawn(bar: Bar, largest: float, full: float | None, columns: int) -> Text:
    """The bar itself, to an eighth of a column; a stroke marks `full`, an arrow a value beyond it."""
    scale = full or largest
    filled = bar.value / scale * columns if isfinite(bar.value) and scale > 0 else 0.0
    # Something that is there must show, however small.
    eighths = max(round(filled * 8), 1) if bar.value > 0 else 0
    blocks = ("█" * (eighths // 8) + _EIGHTHS[eighths % 8]).rstrip()
    if full is None:
        end = ""
    elif len(blocks) > columns:
        blocks, end = blocks[:columns], "▶"
    else:
        end = " " * (columns - len(blocks)) + "│"
    return Text.assemble((blocks, _STYLES[bar.tone] or _PLAIN_BAR_STYLE), (end, _STYLES["dim"]))


def _paragraphs(piece: Paragraphs) -> Text:
    return Text("\n").join(map(_cell, piece.lines))


def _grid() -> Grid:
    return Grid.grid(padding=(0, _GAP, 0, 0))


def _cell(cell: Cell) -> Text:
    return _text(cell.text, cell.tone)


def _text(text: str, tone: Tone = "plain") -> Text:
    return Text(text, style=_STYLES[tone])
