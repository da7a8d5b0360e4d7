"""The charts of `ridgeline roofline`: the roofline with the operation on it, and the rate against a swept size."""

from __future__ import annotations

from math import isfinite, isnan
from typing import TYPE_CHECKING

from ridgeline.errors import InputError
from ridgeline.report.chart import Axis, Chart, Curve, Guide, Mark
from ridgeline.report.roofline import BOUNDS, shown_shape
from ridgeline.units import format_count, format_flops_per_s

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ridgeline.cost.questions.roofline_answer import OperationRoofline, Traffic

_ROOM = 10.0
"""How far an axis goes beyond what it shows, as a factor."""


def roofline_charts(answer: OperationRoofline, *, where: str) -> tuple[Chart, ...]:
    """The roofline of an operation, and its sweep if there is one.

    Args:
        answer: With arithmetic and traffic.
        where: The flag that asked for it, for the error message.

    Raises:
        InputError: The operation has no arithmetic, or moves nothing: it has no place on logarithmic axes.
    """
    if not answer.flops or not answer.traffic:
        raise InputError(
            "a roofline needs arithmetic and traffic",
            where=where,
            value=answer.question.kind,
            expected="an operation with both",
            fix="leave the chart out",
        )
    swept = () if not answer.sweep else (_swept(answer),)
    return (_roofline(answer), *swept)


def _roofline(answer: OperationRoofline) -> Chart:
    """One roof for each memory or link, and the operation under each."""
    seen = [value for each in answer.traffic for value in (each.intensity_flops_per_byte, each.ridge_flops_per_byte)]
    x = _axis("arithmetic intensity, FLOP/B", seen, shown=lambda value: f"{value:g}")
    roofs = tuple(_roof(each, answer.peak_flops_per_s, x) for each in answer.traffic)
    rates = [rate for roof in roofs for _, rate in roof.points]
    marks = tuple(
        Mark(
            name=f"{answer.question.kind}, {BOUNDS[each.resource]}",
            x=each.intensity_flops_per_byte,
            y=answer.flops / max(each.transfer_s, _known_s(answer.compute_s)),
        )
        for each in answer.traffic
    )
    return Chart(
        title=f"{answer.question.kind} {shown_shape(answer)} on {answer.question.machine}",
        x=x,
        y=_axis("FLOP/s of a chip", [*rates, *(mark.y for mark in marks)], shown=_rate, room=1.6),
        curves=roofs,
        marks=marks,
        guides=tuple(
            Guide(name=f"ridge {each.ridge_flops_per_byte:,.0f}", x=each.ridge_flops_per_byte)
            for each in answer.traffic
            if isfinite(each.ridge_flops_per_byte)
        ),
    )


def _roof(traffic: Traffic, peak_flops_per_s: float, x: Axis) -> Curve:
    """Along the bandwidth up to the ridge, then along the peak; without a known peak, along the bandwidth."""
    ridge = traffic.ridge_flops_per_byte
    slope = [(x.low, x.low * traffic.bytes_per_s)]
    if isnan(ridge):
        roof = [*slope, (x.high, x.high * traffic.bytes_per_s)]
    else:
        roof = [*slope, (ridge, peak_flops_per_s), (x.high, peak_flops_per_s)]
    return Curve(name=BOUNDS[traffic.resource], points=tuple(roof))


def _swept(answer: OperationRoofline) -> Chart:
    letter = "" if answer.question.sweep is None else answer.question.sweep.letter
    points = [(float(point.size), point.attained_flops_per_s) for point in answer.sweep]
    x = Axis(title=letter, low=points[0][0], high=max(points[-1][0], points[0][0] * 2), shown=format_count, step=2)
    peak = answer.peak_flops_per_s
    ceiling = () if isnan(peak) else (Curve(name="peak", points=((x.low, peak), (x.high, peak)), dashed=True),)
    knees = [size for size in _knees(answer, letter) if x.low < size < x.high]
    points = sorted({*points, *((knee, peak) for knee in knees)})
    rates = [rate for curve in (*ceiling, Curve(name="", points=tuple(points))) for _, rate in curve.points]
    return Chart(
        title=f"Most FLOP/s with {letter}",
        x=x,
        y=_axis("FLOP/s of a chip", rates, shown=_rate, room=1.6),
        curves=(Curve(name=answer.question.kind, points=tuple(points)), *ceiling),
        guides=tuple(Guide(name=f"compute-bound from {format_count(round(knee))}", x=knee) for knee in knees),
    )


def _knees(answer: OperationRoofline, letter: str) -> Iterator[float]:
    """Where the curve meets the peak, if that is before its end."""
    if answer.sweep[-1].bound == "compute":
        yield from (each.exact_size for each in answer.critical if each.letter == letter)


def _axis(title: str, values: Iterable[float], *, shown: Callable[[float], str], room: float = _ROOM) -> Axis:
    known = [value for value in values if isfinite(value) and value > 0]
    return Axis(title=title, low=min(known) / room, high=max(known) * room, shown=shown)


def _known_s(time_s: float) -> float:
    return 0.0 if isnan(time_s) else time_s


def _rate(rate_flops_per_s: float) -> str:
    return format_flops_per_s(rate_flops_per_s).replace(".00 ", " ").replace(".0 ", " ")
