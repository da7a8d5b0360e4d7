"""How the columns of a table share a line: which stand side by side, how wide each is, and which go under the row.

Nothing is ever cut. When a line is short, in this order: the last left-aligned column folds if it is wide (it holds
prose); headers fold; the prose goes under its row; the other left-aligned columns fold between words; then they, the
widest first, and at last the numbers, from the right, go under the row too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ridgeline.report.blocks import Table

GAP = 2
"""Blanks between columns."""

_NARROWEST_PROSE = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where each column of a table stands.

    Attributes:
        widths: Of the columns that stand side by side, by index.
        below: Indices of those that go under the row.
        prose: Index of the column that holds prose, if there is one.
    """

    widths: dict[int, int]
    below: tuple[int, ...]
    prose: int | None


def laid_out(table: Table, *, width: int) -> Layout:
    """The layout of a table on lines of a width."""
    columns = list(range(len(table.columns)))
    labels = [index for index in columns if index not in table.right]
    prose = labels[-1] if labels and labels[-1] > 0 and _natural(table, labels[-1]) > _NARROWEST_PROSE else None
    leaving = [index for index in [prose] if index is not None]
    leaving += sorted((index for index in labels if index not in {0, prose}), key=lambda index: -_natural(table, index))
    leaving += [index for index in reversed(columns) if index in table.right and index > 0]
    below: list[int] = []
    while True:
        shown = [index for index in columns if index not in below]
        widths = _fitted(table, shown, prose, width=width)
        if sum(widths.values()) + GAP * (len(shown) - 1) <= width or len(below) == len(leaving):
            return Layout(widths=widths, below=tuple(sorted(below)), prose=prose)
        below.append(leaving[len(below)])


def _fitted(table: Table, shown: Sequence[int], prose: int | None, *, width: int) -> dict[int, int]:
    """Widths of the columns that are shown, as narrow as they may become to fit; they may still be too wide."""
    widths = {index: _natural(table, index) for index in shown}
    excess = sum(widths.values()) + GAP * (len(shown) - 1) - width
    for index, floor in _floors(table, shown, prose):
        cut = min(max(excess, 0), max(widths[index] - floor, 0))
        widths[index] -= cut
        excess -= cut
    return widths


def _floors(table: Table, shown: Sequence[int], prose: int | None) -> list[tuple[int, int]]:
    """Columns that may give way, in their order, and the width down to which each may."""
    has_prose = prose is not None and prose in shown
    floors = [(prose, max(_NARROWEST_PROSE, _longest_word(table, prose)))] if prose is not None and has_prose else []
    floors += [(index, _number(table, index)) for index in shown if index in table.right]
    if not has_prose:  # prose goes under the row before the others fold
        folding = sorted((index for index in shown if index not in table.right), key=lambda i: -_natural(table, i))
        floors += [(index, _longest_word(table, index)) for index in folding]
    return floors


def _texts(table: Table, index: int) -> list[str]:
    return [row[index].text for row in table.rows]


def _natural(table: Table, index: int) -> int:
    return max(map(len, [table.columns[index], *_texts(table, index)]))


def _number(table: Table, index: int) -> int:
    """The longest number, or word of the header; a header may fold after a hyphen too."""
    return max(map(len, [*table.columns[index].replace("-", "- ").split(), *_texts(table, index)]), default=0)


def _longest_word(table: Table, index: int) -> int:
    words = [word for text in [table.columns[index], *_texts(table, index)] for word in text.split()]
    return max(map(len, words), default=0)
