"""What a chart is made of: curves, marks and guides over two axes. Renderers show it; none computes.

`drawing.py` lays it out for `svg.py` and `png.py`; `interactive.py` hands it to plotly.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One axis, logarithmic unless it is said to be linear.

    Attributes:
        title: What it shows, with its unit.
        low: Its first value; above zero on a logarithmic axis.
        high: Its last.
        shown: How a value is written at a tick.
        step: Ratio of neighbouring ticks: 10, or 2 for sizes that double; their distance on a linear axis.
        linear: Whether equal distances are equal differences.
    """

    title: str
    low: float
    high: float
    shown: Callable[[float], str]
    step: float = 10
    linear: bool = False

    def fraction(self, value: float) -> float:
        """How far along the axis a value lies: 0 at `low`, 1 at `high`.

        >>> Axis(title="", low=1, high=100, shown=str).fraction(10)
        0.5
        >>> Axis(title="", low=0, high=50, shown=str, step=10, linear=True).fraction(10)
        0.2
        """
        if self.linear:
            return (value - self.low) / (self.high - self.low)
        return log(value / self.low) / log(self.high / self.low)


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A line through points.

    Attributes:
        name: For the legend.
        points: In the axes' units, left to right; straight between them on the axes as they are.
        dashed: Whether it is a limit rather than a result.
        reference: Whether it is only there to read the others by: thin, in ink.
    """

    name: str
    points: tuple[tuple[float, float], ...]
    dashed: bool = False
    reference: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Scatter:
    """Dots of one kind.

    Attributes:
        name: For the legend.
        points: In the axes' units.
        names: Of each dot, where a renderer can show it.
    """

    name: str
    points: tuple[tuple[float, float], ...]
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A dot with words beside it."""

    name: str
    x: float
    y: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Guide:
    """A vertical line at a value that matters, with words at its foot."""

    name: str
    x: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Curves, marks and guides over two axes.

    Attributes:
        title: Above it.
        x: To the right.
        y: Upwards.
        curves: Lines.
        marks: Dots.
        guides: Vertical lines.
        scatters: Clouds of dots.
        numbered: Whether marks carry numbers, with their names in a list: for many that lie close together.
    """

    title: str
    x: Axis
    y: Axis
    curves: tuple[Curve, ...]
    marks: tuple[Mark, ...] = ()
    guides: tuple[Guide, ...] = ()
    scatters: tuple[Scatter, ...] = ()
    numbered: bool = False
