"""Lays a chart out in pixels: lines, dots and words, for any renderer that can draw those."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, log
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ridgeline.report.chart import Axis, Chart, Curve, Guide, Mark, Scatter

WIDTH, HEIGHT = 880, 520
"""Of one chart; several stand one above the other."""

Anchor: TypeAlias = Literal["start", "middle", "end"]

INK, FAINT, PAPER = "#1f2933", "#d9dee4", "#ffffff"
COLOURS = ("#1a6faf", "#c2571a", "#2d8a4e", "#7d4fa3", "#b38600", "#6b7280")
"""Of curves, in their order: blue, orange, green, purple, ochre and grey, told apart by the colour-blind too."""

DOT_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7d4fa3", "#8a8f98")
"""Of clouds of dots: more kinds than there are curves."""

_LEFT, _RIGHT, _TOP, _BOTTOM = 124, 24, 48, 56
_MOST_TICKS = 12
_WORDS, _SMALL = 13, 11
_LONGEST_NAME = 180


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line through points."""

    points: tuple[tuple[float, float], ...]
    colour: str
    width: float = 1.0
    dashed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """A filled circle."""

    x: float
    y: float
    radius: float
    colour: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """Text on a baseline that starts, centres or ends at a point; upright text reads from below."""

    x: float
    y: float
    text: str
    size: int = _WORDS
    colour: str = INK
    anchor: Anchor = "start"
    upright: bool = False


Element: TypeAlias = Line | Dot | Words


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """Elements on a sheet of paper, the last on top."""

    width: int
    height: int
    elements: tuple[Element, ...]


def drawing(charts: Sequence[Chart]) -> Drawing:
    """Charts one above the other."""
    elements = [element for row, chart in enumerate(charts) for element in _Frame(chart=chart, row=row).elements()]
    return Drawing(width=WIDTH, height=HEIGHT * len(charts), elements=tuple(elements))


def ticks(axis: Axis) -> list[float]:
    """Values at which an axis is marked: powers of its step (multiples on a linear axis), fewer where they are many."""
    if axis.linear:
        first, last = ceil(axis.low / axis.step - 1e-9), floor(axis.high / axis.step + 1e-9)
        every = ceil((last - first + 1) / _MOST_TICKS)
        return [axis.step * count for count in range(first, last + 1, max(every, 1))]
    first, last = ceil(log(axis.low, axis.step) - 1e-9), floor(log(axis.high, axis.step) + 1e-9)
    every = ceil((last - first + 1) / _MOST_TICKS)
    return [float(axis.step) ** power for power in range(first, last + 1, max(every, 1))]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """A chart in its place on the sheet.

    Attributes:
        chart: What to draw.
        row: Its place, from the top.
    """

    chart: Chart
    row: int

    def elements(self) -> Iterator[Element]:
        """Grid first, curves over it, words last."""
        chart, top = self.chart, self.row * HEIGHT
        yield Words(x=_LEFT, y=top + 26, text=chart.title, size=_WORDS + 2)
        yield from self._grid()
        yield from (element for guide in chart.guides for element in self._guide(guide))
        for index, curve in enumerate(chart.curves):
            yield from self._curve(curve, index)
        for index, scatter in enumerate(chart.scatters):
            yield from self._scatter(scatter, index)
        for index, mark in enumerate(chart.marks):
            yield from self._mark(mark, index)

    def _grid(self) -> Iterator[Element]:
        x, y = self.chart.x, self.chart.y
        left, right = _LEFT, WIDTH - _RIGHT
        top, bottom = self.row * HEIGHT + _TOP, (self.row + 1) * HEIGHT - _BOTTOM
        for value in ticks(x):
            yield Line(points=((self._x(value), top), (self._x(value), bottom)), colour=FAINT)
            yield Words(x=self._x(value), y=bottom + 18, text=x.shown(value), size=_SMALL, anchor="middle")
        for value in ticks(y):
            yield Line(points=((left, self._y(value)), (right, self._y(value))), colour=FAINT)
            yield Words(x=left - 8, y=self._y(value) + 4, text=y.shown(value), size=_SMALL, anchor="end")
        yield Line(points=((left, top), (left, bottom), (right, bottom)), colour=INK)
        yield Words(x=(left + right) / 2, y=bottom + 42, text=x.title, anchor="middle")
        yield Words(x=18, y=(top + bottom) / 2, text=y.title, anchor="middle", upright=True)

    def _guide(self, guide: Guide) -> Iterator[Element]:
        x, bottom = self._x(guide.x), (self.row + 1) * HEIGHT - _BOTTOM
        yield Line(points=((x, self.row * HEIGHT + _TOP), (x, bottom)), colour=INK, dashed=True)
        at_end = x > WIDTH - _RIGHT - _LONGEST_NAME
        yield Words(
            x=x - 5 if at_end else x + 5,
            y=bottom - 8,
            text=guide.name,
            size=_SMALL,
            anchor="end" if at_end else "start",
        )

    def _curve(self, curve: Curve, index: int) -> Iterator[Element]:
        """The curve, and its name in the legend at the right: low, or high where none rises."""
        colour = INK if curve.reference else COLOURS[index % len(COLOURS)]
        width = 1.0 if curve.reference else 2.5
        points = tuple((self._x(x), self._y(y)) for x, y in curve.points)
        yield Line(points=points, colour=colour, width=width, dashed=curve.dashed)
        high, low = self.row * HEIGHT + _TOP + 18, (self.row + 1) * HEIGHT - _BOTTOM - 30
        y = high + 18 * index if self._falls else low - 18 * index
        right = WIDTH - _RIGHT - 150
        yield Line(points=((right, y - 4), (right + 24, y - 4)), colour=colour, width=width, dashed=curve.dashed)
        yield Words(x=right + 32, y=y, text=curve.name, size=_SMALL)

    def _scatter(self, scatter: Scatter, index: int) -> Iterator[Element]:
        """The dots, and their name in the legend at the upper left."""
        colour = DOT_COLOURS[index % len(DOT_COLOURS)]
        for x, y in scatter.points:
            yield Dot(x=self._x(x), y=self._y(y), radius=3.5, colour=colour)
        left, y = _LEFT + 16, self.row * HEIGHT + _TOP + 18 + 18 * index
        yield Dot(x=left, y=y - 4, radius=3.5, colour=colour)
        yield Words(x=left + 12, y=y, text=scatter.name, size=_SMALL)

    def _mark(self, mark: Mark, index: int) -> Iterator[Element]:
        """The dot, and its name to the lower right, clear of roofs that rise; to the left where the sheet ends."""
        x, y, colour = self._x(mark.x), self._y(mark.y), COLOURS[index % len(COLOURS)]
        if self.chart.numbered:
            yield from self._numbered(mark, index, colour)
            return
        at_end = x > WIDTH - _RIGHT - _LONGEST_NAME
        yield Dot(x=x, y=y, radius=6, colour=colour)
        yield Words(x=x - 10 if at_end else x + 10, y=y + 20, text=mark.name, anchor="end" if at_end else "start")

    def _numbered(self, mark: Mark, index: int, colour: str) -> Iterator[Element]:
        """The dot with a number above it, and the number with the name in a list at the upper right, below curves'."""
        x, y = self._x(mark.x), self._y(mark.y)
        yield Dot(x=x, y=y, radius=5, colour=colour)
        yield Words(x=x + 3, y=y - 8, text=str(index + 1), size=_SMALL, colour=colour)
        above = len(self.chart.curves) if self._falls else 0
        top = self.row * HEIGHT + _TOP + 18 + 18 * (above + index)
        yield Words(x=WIDTH - _RIGHT - 232, y=top, text=str(index + 1), size=_SMALL, colour=colour, anchor="end")
        yield Words(x=WIDTH - _RIGHT - 226, y=top, text=mark.name, size=_SMALL)

    @property
    def _falls(self) -> bool:
        """Whether no curve rises: the upper right is free then."""
        return all(each.points[-1][1] <= each.points[0][1] for each in self.chart.curves if each.points)

    def _x(self, value: float) -> float:
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * self.chart.x.fraction(value)

    def _y(self, value: float) -> float:
        return (self.row + 1) * HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * self.chart.y.fraction(value)
