"""The frontier of a serving job, as a table and as a chart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ridgeline.job.mesh import mesh_in_words
from ridgeline.report.blocks import Cell, Table
from ridgeline.report.chart import Axis, Chart, Curve, Mark
from ridgeline.units import format_count, format_request_rate, format_seconds, format_usd

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.search.serving.answer import Fleet, ServeAnswer, ServingBound, ServingChoice, ServingPoint

_SHORT_BOUNDS: Final[Mapping[ServingBound, str]] = {
    "hbm": "HBM",
    "compute": "compute",
    "ici": "links",
    "network": "network",
    "overhead": "host",
}
BREAKDOWN: Final = {
    "weights_s": "reading weights",
    "kv_cache_s": "reading KV cache",
    "collectives_s": "collectives",
    "overhead_s": "host",
    "other_s": "all else",
}
"""What a pass is made of; its arithmetic runs beside the reading."""

_ROOM: Final = 1.15
"""Space around the points of the chart."""

_LEGEND_ROOM: Final = 16
"""Space above the curves of the breakdown, for their names."""

_SHOWN_POINTS: Final = 12


def frontier_table(answer: ServeAnswer) -> Table:
    """Plans that no other beats: of full servers, or at a rate of fleets, as they were simulated."""
    points, best, fleet = answer.frontier, answer.best, answer.best.fleet
    step = -(-len(points) // _SHOWN_POINTS)
    shown = tuple(point for place, point in enumerate(points) if place % step == 0 or point is best)
    several, is_queued = len(answer.slices) > 1, best.is_simulated
    hidden = "; --json lists them all" if len(shown) < len(points) else ""
    reason = f"; {answer.frontier_note}" if answer.frontier_note else ""
    return Table(
        title=f"Frontier of fleets for {format_request_rate(fleet.requests_per_s)}"
        if is_queued and fleet
        else "Frontier",
        columns=(
            "tok/s per chip",
            "tok/s per user",
            "$/M output",
            "first token",
            *(("chips",) if is_queued else ()),
            "batch",
            *(("slice",) if several else ()),
            "servers",
            "waits for",
            "",
        ),
        right=frozenset(range(6 if is_queued else 5)),
        rows=tuple(_frontier_row(point, several=several, is_best=point is best) for point in shown),
        note=f"no plan beats these in both{hidden}{reason}",
    )


def _frontier_row(point: ServingPoint, *, several: bool, is_best: bool) -> tuple[Cell, ...]:
    plan, fleet = point.plan, point.fleet if point.is_simulated else None
    usd = point.cost_per_million_output_tokens_usd if fleet is None else fleet.usd_per_million_output_tokens
    return (
        Cell(text=format_count(point.fleet_tokens_per_s_per_chip)),
        Cell(text=format_count(point.user_tokens_per_s)),
        Cell(text="unknown" if usd is None else format_usd(usd)),
        Cell(text=format_seconds(point.ttft.mean_s)),
        *([] if fleet is None else [Cell(text=format_count(fleet.chips))]),
        Cell(text=format_count(plan.batch)),
        *([slice_cell(plan)] if several else []),
        Cell(text=_servers(plan, fleet)),
        Cell(text=_SHORT_BOUNDS[point.bound], tone="dim"),
        Cell(text="chosen" if is_best else "", tone="strong"),
    )


def _servers(plan: ServingChoice, fleet: Fleet | None) -> str:
    """The meshes of both kinds of servers: how many there are for a rate, or of the one for each of the other."""
    decode, prefill = mesh_in_words(plan.decode), mesh_in_words(plan.prefill)
    if fleet is None:
        return f"{decode} + {plan.prefill_server_ratio:.2f} × ({prefill})" if plan.mode == "disaggregated" else decode
    readers = f" + {fleet.prefill_servers:,} × ({prefill})" if plan.mode == "disaggregated" else ""
    return f"{fleet.servers:,} × ({decode}){readers}"


def slice_cell(plan: ServingChoice) -> Cell:
    """The slice without its chip, which all share."""
    return Cell(text=plan.slice.partition(":")[2])


def frontier_charts(answer: ServeAnswer) -> tuple[Chart, ...]:
    """Tokens per second of a chip, and what a pass of decoding is made of, both over those of a user."""
    points = sorted(answer.frontier, key=lambda point: point.user_tokens_per_s)
    hardware, rate = answer.job.hardware, answer.job.workload.rate
    on = hardware.name if len(answer.slices) == 1 else hardware.chip.name
    chosen = "chosen" if rate is None else f"chosen for {format_request_rate(rate)}"
    users = [point.user_tokens_per_s for point in points]
    chips = [point.fleet_tokens_per_s_per_chip for point in points]
    best = answer.best
    frontier = Chart(
        title=f"{answer.job.model.name} on {on}",
        x=_axis("tokens/s per user", [*users, best.user_tokens_per_s], step=2),
        y=_axis("tokens/s per chip", [*chips, best.fleet_tokens_per_s_per_chip]),
        curves=(Curve(name="frontier", points=tuple(zip(users, chips, strict=True))),),
        marks=(Mark(name=chosen, x=best.user_tokens_per_s, y=best.fleet_tokens_per_s_per_chip),),
    )
    return (frontier, _breakdown_chart(sorted(points, key=lambda point: point.tokens_per_s_per_user)))


def _axis(title: str, values: list[float], *, step: float = 10) -> Axis:
    return Axis(title=title, low=min(values) / _ROOM, high=max(values) * _ROOM, shown=format_count, step=step)


def _breakdown_chart(points: list[ServingPoint]) -> Chart:
    """Time of a pass of each point of the frontier, by part."""
    parts = {
        name: tuple((point.tokens_per_s_per_user, float(getattr(point.step.breakdown, key))) for point in points)
        for key, name in (*BREAKDOWN.items(), ("flops_s", "arithmetic"))
    }
    shown = {name: curve for name, curve in parts.items() if all(value > 0 for _, value in curve)}
    values = [value for curve in shown.values() for _, value in curve]
    return Chart(
        title="Time of a pass of decoding; arithmetic runs beside the reading",
        x=_axis("tokens/s per user", [point.tokens_per_s_per_user for point in points], step=2),
        y=Axis(title="time", low=min(values) / _ROOM, high=max(values) * _LEGEND_ROOM, shown=format_seconds),
        curves=tuple(Curve(name=name, points=curve) for name, curve in shown.items()),
    )
