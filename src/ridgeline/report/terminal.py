"""A report as a screen: colour on a terminal, plain aligned text when piped.

One layout serves both; only the styles differ. A number is never cut, nor parted from its unit; what has no room
folds between words, or goes under its row (`table_layout.py`).
"""

from __future__ import annotations

import os
import re
import sys
from io import StringIO
from math import isfinite
from shutil import get_terminal_size
from textwrap import wrap
from typing import TYPE_CHECKING, Literal, assert_never

from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from ridgeline.report.blocks import Bar, Bars, Cell, Facts, Paragraphs, Piece, Report, Table, Tone
from ridgeline.report.table_layout import GAP, Layout, laid_out

if TYPE_CHECKING:
    from collections.abc import Iterator

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
_SHORTEST_BAR = 5
_INDENT = 2
_ABSENT = "–"
_EIGHTHS = " ▏▎▍▌▋▊▉"
_WITH_UNIT = re.compile(r"(?<![\w=])([\d.,]*\d) (?=[A-Za-zµ])")
_GLUE = "\ue000"
"""Stands for the blank between a number and its unit while lines are folded."""


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
    return "".join(f"{line.rstrip()}\n" for line in target.getvalue().replace(_GLUE, " ").split("\n")[:-1])


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


def _table(piece: Table, width: int) -> RenderableType:
    layout = laid_out(piece, width=width)
    headers = [_header(piece, index, columns) for index, columns in layout.widths.items()]
    lines: list[RenderableType] = [
        _row(piece, layout, headers, vertical="bottom"),
        _text("─" * (sum(layout.widths.values()) + GAP * (len(layout.widths) - 1))),
    ]
    for row in piece.rows:
        lines.append(_row(piece, layout, [_cell(row[index]) for index in layout.widths]))
        lines.extend(Padding(text, (0, 0, 0, _INDENT)) for text in _under(piece, layout, row))
    return Group(*lines)


def _row(piece: Table, layout: Layout, texts: list[Text], *, vertical: Literal["top", "bottom"] = "top") -> Grid:
    grid = _grid()
    for index, columns in layout.widths.items():
        justify = "right" if index in piece.right else "left"
        grid.add_column(justify=justify, width=columns, vertical=vertical, overflow="fold")
    grid.add_row(*texts)
    return grid


def _header(piece: Table, index: int, columns: int) -> Text:
    return _text("\n".join(wrap(piece.columns[index], max(columns, 1))), "dim")


def _under(piece: Table, layout: Layout, row: tuple[Cell, ...]) -> Iterator[Text]:
    """What goes under a row: each small value that is there, after its header; then the prose."""
    labelled = [
        Text.assemble((f"{piece.columns[index]} ", _STYLES["dim"]), _cell(row[index]))
        for index in layout.below
        if index != layout.prose and row[index].text not in {"", _ABSENT}
    ]
    if labelled:
        yield Text(" · ", style=_STYLES["dim"]).join(labelled)
    if layout.prose in layout.below and row[layout.prose].text:
        yield _cell(row[layout.prose])


def _bars(piece: Bars, width: int) -> Grid:
    labels = max((len(bar.label) for bar in piece.bars), default=0)
    texts = max((len(bar.text) for bar in piece.bars), default=0)
    columns = min(_LONGEST_BAR, width - labels - texts - 2 * GAP - 1)
    largest = max((bar.value for bar in piece.bars if isfinite(bar.value)), default=0.0)
    grid = _grid()
    grid.add_column(overflow="fold")
    grid.add_column(no_wrap=True, justify="right")
    for bar in piece.bars:
        drawn = [_drawn(bar, largest, piece.full, columns)] if columns >= _SHORTEST_BAR else []
        grid.add_row(_text(bar.label), _text(bar.text, bar.tone), *drawn)
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
    return Grid.grid(padding=(0, GAP, 0, 0))


def _cell(cell: Cell) -> Text:
    return _text(cell.text, cell.tone)


def _text(text: str, tone: Tone = "plain") -> Text:
    return Text(_WITH_UNIT.sub(rf"\1{_GLUE}", text), style=_STYLES[tone])
