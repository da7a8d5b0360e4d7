"""Charts as one HTML page that works offline, drawn by plotly: zoom, hover, save."""

from __future__ import annotations

from importlib import import_module
from math import log10
from typing import TYPE_CHECKING, TypeAlias, cast

from ridgeline.report.drawing import COLOURS, DOT_COLOURS, HEIGHT, INK, ticks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ridgeline.report.chart import Axis, Chart

Setting: TypeAlias = "dict[str, object]"
"""A part of a plotly figure, in plotly's words."""

_GAP = 0.08
"""Between charts that stand one above the other, as a fraction of the page."""


def html(charts: Sequence[Chart]) -> str:
    """The text of an HTML file; plotly's code is in it."""
    to_html = cast("Callable[..., str]", import_module("plotly.io").to_html)
    places = [("" if row == 0 else str(row + 1), chart) for row, chart in enumerate(charts)]
    figure: Setting = {
        "data": [trace for place, chart in places for trace in _traces(chart, place)],
        "layout": {
            "height": HEIGHT * len(charts),
            "hovermode": "closest",
            "plot_bgcolor": "white",
            "title": {"text": charts[0].title},
            "shapes": [shape for place, chart in places for shape in _guides(chart, place)],
            "annotations": [words for place, chart in places for words in _words(chart, place)],
            **{
                key: axis
                for row, (place, chart) in enumerate(places)
                for key, axis in _axes(chart, place, row, len(charts))
            },
        },
    }
    return to_html(figure, include_plotlyjs=True, full_html=True)


def _traces(chart: Chart, place: str) -> Iterator[Setting]:
    """Curves, marks and clouds of dots."""
    axes = {"type": "scatter", "xaxis": f"x{place}", "yaxis": f"y{place}"}
    for index, curve in enumerate(chart.curves):
        colour, width = (INK, 1) if curve.reference else (COLOURS[index % len(COLOURS)], 3)
        line = {"color": colour, "width": width, "dash": "dash" if curve.dashed else "solid"}
        xs, ys = [x for x, _ in curve.points], [y for _, y in curve.points]
        yield {**axes, "x": xs, "y": ys, "name": curve.name, "mode": "lines", "line": line}
    for index, mark in enumerate(chart.marks):
        marker = {"color": COLOURS[index % len(COLOURS)], "size": 13}
        yield {**axes, "x": [mark.x], "y": [mark.y], "name": mark.name, "mode": "markers", "marker": marker}
    for index, scatter in enumerate(chart.scatters):
        dots = {"color": DOT_COLOURS[index % len(DOT_COLOURS)], "size": 7}
        xs, ys = [x for x, _ in scatter.points], [y for _, y in scatter.points]
        yield {**axes, "x": xs, "y": ys, "text": scatter.names, "name": scatter.name, "mode": "markers", "marker": dots}


def _guides(chart: Chart, place: str) -> Iterator[Setting]:
    for guide in chart.guides:
        line = {"color": INK, "dash": "dot", "width": 1}
        ends = {"x0": guide.x, "x1": guide.x, "y0": 0, "y1": 1}
        yield {"type": "line", "xref": f"x{place}", "yref": f"y{place} domain", "line": line, **ends}


def _words(chart: Chart, place: str) -> Iterator[Setting]:
    """The words of guides; plotly places words on logarithmic axes by their logarithm."""
    for guide in chart.guides:
        at = {"xref": f"x{place}", "x": _place(chart.x, guide.x), "yref": f"y{place} domain", "y": 0.03}
        yield {"text": guide.name, "showarrow": False, "xanchor": "left", **at}


def _axes(chart: Chart, place: str, row: int, rows: int) -> Iterator[tuple[str, Setting]]:
    height = (1 - _GAP * (rows - 1)) / rows
    top = 1 - row * (height + _GAP)
    yield f"xaxis{place}", {**_scale(chart.x), "anchor": f"y{place}"}
    yield f"yaxis{place}", {**_scale(chart.y), "anchor": f"x{place}", "domain": [max(top - height, 0.0), top]}


def _scale(axis: Axis) -> Setting:
    marked = ticks(axis)
    return {
        "type": "linear" if axis.linear else "log",
        "title": {"text": axis.title},
        "range": [_place(axis, axis.low), _place(axis, axis.high)],
        "tickvals": marked,
        "ticktext": [axis.shown(value) for value in marked],
        "gridcolor": "#d9dee4",
        "linecolor": INK,
    }


def _place(axis: Axis, value: float) -> float:
    """A value in plotly's words: of a logarithmic axis it takes the logarithm."""
    return value if axis.linear else log10(value)
