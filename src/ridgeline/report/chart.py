"""What a chart is made of: curves, marks and guides over two logarithmic axes. Renderers show it; none computes.

`drawing.py` lays it out for `svg.py` and `png.py`; `interactive.py` hands it to plotly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One logarithmic axis.

    Attributes:
        title: What it shows, with its unit.
        low: Its first value, above zero.
        high: Its last.
        shown: How a value is written at a tick.
        step: Ratio of neighbouring ticks: 10, or 2 for sizes that double.
    """

    title: str
    low: float
    high: float
    shown: Callable[[float], str]
    step: int = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A line through points.

    Attributes:
        name: For the legend.
        points: In the axes' units, left to right; straight between them on logarithmic axes.
        dashed: Whether it is a limit rather than a result.
    """

    name: str
    points: tuple[tuple[float, float], ...]
    dashed: bool = False


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
    """Curves, marks and guides over two axes."""

    title: str
    x: Axis
    y: Axis
    curves: tuple[Curve, ...]
    marks: tuple[Mark, ...] = ()
    guides: tuple[Guide, ...] = ()
