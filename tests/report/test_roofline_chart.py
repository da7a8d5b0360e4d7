"""The charts of a roofline: what lies where, and that whatever is written can be drawn."""

from __future__ import annotations

from itertools import pairwise
from math import isclose, log

import pytest

import ridgeline
from ridgeline.report.chart import Axis, Chart, Curve
from ridgeline.report.drawing import HEIGHT, WIDTH, Words, drawing, ticks
from ridgeline.report.roofline_chart import roofline_charts
from ridgeline.report.stroke_font import glyphs, written


def charts(**arguments: object) -> tuple[Chart, ...]:
    sizes = {"B": 64, "D": 4096, "F": 16384, "on": "v5e"}
    return roofline_charts(ridgeline.roofline("matmul", **{**sizes, **arguments}), where="plot")


def height_at(curve: Curve, x: float) -> float:
    """A curve at a value, straight between its points on logarithmic axes."""
    for (left, low), (right, high) in pairwise(curve.points):
        if left <= x <= right:
            return low * (high / low) ** (log(x / left) / log(right / left))
    raise AssertionError(x)


def test_the_operation_lies_on_its_roof() -> None:
    (chart,) = charts()

    assert isclose(height_at(chart.curves[0], chart.marks[0].x), chart.marks[0].y, rel_tol=1e-9)
    assert chart.guides[0].name == "ridge 241"


def test_each_memory_and_link_has_a_roof_of_its_own() -> None:
    (chart,) = charts(on="v5e:4x4", axis="x")

    assert [curve.name for curve in chart.curves] == ["HBM", "links"]
    assert len(chart.marks) == len(chart.guides) == 2


def test_a_sweep_bends_exactly_where_compute_begins_to_bind() -> None:
    _, swept = charts(sweep="B=1:8192")

    assert [guide.name for guide in swept.guides] == ["compute-bound from 260"]
    knee = next(point for point in swept.curves[0].points if point[0] not in {1 << power for power in range(14)})
    assert (round(knee[0]), knee[1]) == (260, 197e12)


def test_a_sweep_that_never_reaches_the_peak_has_no_bend() -> None:
    _, swept = charts(sweep="B=1:64")

    assert not swept.guides


@pytest.mark.parametrize(
    ("low", "high", "step", "marked"),
    [(1, 1000, 10, [1, 10, 100, 1000]), (3, 40, 10, [10]), (1, 8, 2, [1, 2, 4, 8]), (1, 1e20, 10, None)],
)
def test_ticks_are_powers_of_the_step_and_few(low: float, high: float, step: int, marked: list[float] | None) -> None:
    values = ticks(Axis(title="", low=low, high=high, shown=str, step=step))

    assert values == marked or len(values) <= 12


def test_everything_drawn_lies_on_the_sheet() -> None:
    sheet = drawing(charts(on="v5e:4x4", axis="x", sweep="B=1:8192"))

    points = [
        point
        for element in sheet.elements
        if not isinstance(element, Words)
        for point in getattr(element, "points", [])
    ]
    assert (sheet.width, sheet.height) == (WIDTH, 2 * HEIGHT)
    assert all(0 <= x <= sheet.width and 0 <= y <= sheet.height for x, y in points)


def test_every_letter_that_a_chart_writes_has_strokes() -> None:
    sheet = drawing(charts(on="v5e:4x4", axis="x", sweep="B=1:8192"))

    letters = {letter for element in sheet.elements if isinstance(element, Words) for letter in element.text}
    assert letters - {" "} <= glyphs()


def test_words_grow_with_their_size_and_their_length() -> None:
    assert written("ridge", size=20)[1] == pytest.approx(2 * written("ridge", size=10)[1])
    assert written("ridge ridge", size=10)[1] > 2 * written("ridge", size=10)[1]
