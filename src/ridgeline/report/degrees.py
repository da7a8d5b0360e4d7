"""The step over the degrees of one mesh axis, drawn."""

from __future__ import annotations

from math import floor, log10
from typing import TYPE_CHECKING, Final

from ridgeline.job.mesh import mesh_in_words
from ridgeline.report.chart import Axis, Chart, Curve, Mark
from ridgeline.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ridgeline.search.answer import PlanEstimate
    from ridgeline.search.degrees import DegreePoint

_MARGIN: Final = 1.15
"""Room above the longest step."""


def degrees_chart(axis: str, points: Sequence[DegreePoint], best: PlanEstimate, *, title: str) -> Chart:
    """Time of a step, and of its exposed collectives, over the degree of an axis; the best plan marked."""
    longest_s = max((each.estimate.step.expected_s for each in points), default=best.step.expected_s)
    most = max((each.degree for each in points), default=1)
    chosen = best.plan.mesh.get(axis, 1)
    return Chart(
        title=f"{title}: the step over the degree of {axis}",
        x=Axis(title=f"{axis}, the rest planned anew", low=1, high=max(most, 2), shown=_whole, step=2),
        y=Axis(
            title="time of a step",
            low=0,
            high=_MARGIN * longest_s,
            shown=format_seconds,
            step=_tick_s(longest_s),
            linear=True,
        ),
        curves=(
            Curve(name="the step", points=tuple((each.degree, each.estimate.step.expected_s) for each in points)),
            Curve(name="exposed collectives", points=tuple((each.degree, each.communication_s) for each in points)),
        ),
        marks=(Mark(name=f"chosen: {mesh_in_words(best.plan.mesh)}", x=chosen, y=best.step.expected_s),),
    )


def _tick_s(longest_s: float) -> float:
    """A round distance of which at least three fit.

    >>> _tick_s(14.2), _tick_s(9.0)
    (2.0, 2.0)
    """
    decade = 10.0 ** floor(log10(longest_s))
    return max(times * decade for times in (0.2, 0.5, 1.0, 2.0) if 3 * times * decade <= longest_s)


def _whole(value: float) -> str:
    return f"{value:,.0f}"
