"""What every report is made of. A verb turns its result into a `Report`; a renderer shows it.

`terminal.py` renders to a terminal (or plain text when piped). Nothing here computes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Tone: TypeAlias = Literal["plain", "good", "warn", "bad", "dim", "strong"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A piece of text with a tone (colour when there is a terminal)."""

    text: str
    tone: Tone = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Label and value pairs, one a line."""

    rows: tuple[tuple[str, Cell], ...]
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows under a header; numeric columns are right-aligned.

    Attributes:
        columns: Header texts.
        rows: As many cells as columns.
        right: Indices of right-aligned columns.
        title: Above the table.
        note: Below it.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    right: frozenset[int] = frozenset()
    title: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar: its length is `value` over the largest `value` (or over the chart's `full`)."""

    label: str
    value: float
    text: str
    tone: Tone = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """A horizontal bar chart.

    Attributes:
        bars: Top to bottom.
        full: The value of a full-length bar; None for the largest.
        title: Above it.
        note: Below it.
    """

    bars: tuple[Bar, ...]
    full: float | None = None
    title: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paragraphs:
    """Running text, wrapped to the width."""

    lines: tuple[Cell, ...]
    title: str = ""


Piece: TypeAlias = Facts | Table | Bars | Paragraphs


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A screen: a headline and pieces."""

    headline: str
    pieces: tuple[Piece, ...]
