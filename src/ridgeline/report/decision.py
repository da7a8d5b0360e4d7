"""The sharding decision in words, as a list and as JSON."""

from __future__ import annotations

from math import isinf, isnan
from typing import TYPE_CHECKING

from ridgeline.report.blocks import Cell, Facts
from ridgeline.report.jsonable import Json, jsonable
from ridgeline.units import format_count, format_fraction

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ridgeline.search.decision import Decision, Section

_BOUNDS = {
    "ici": "bound by the interconnect",
    "network": "bound by the network",
    "hbm": "bound by HBM",
    "compute": "compute-bound",
}


def decision_facts(decision: Decision) -> Facts:
    """Kind of job, strategies, bottlenecks, reason, intensities."""
    return Facts(title="Why this sharding", rows=tuple(_rows(decision)))


def decision_json(decision: Decision) -> dict[str, Json]:
    """The same."""
    return {
        "workload": decision.workload,
        "primary": decision.primary,
        "secondary": list(decision.secondary),
        "bottlenecks": [{"name": name, "share": share} for name, share in decision.bottlenecks],
        "reason": decision.reason,
        "ridge_flops_per_byte": jsonable(decision.ridge_flops_per_byte),
        "sections": [_section_json(section) for section in decision.sections],
    }


def _rows(decision: Decision) -> Iterator[tuple[str, Cell]]:
    yield "workload", Cell(text=decision.workload)
    secondary = f", then {', '.join(decision.secondary)}" if decision.secondary else " alone"
    yield "strategy", Cell(text=f"{decision.primary}{secondary}", tone="strong")
    named = [f"{name} {_share(name, share)}" for name, share in decision.bottlenecks]
    yield "goes to", Cell(text=", ".join(named) or "nothing above all")
    yield "because", Cell(text=decision.reason)
    if not isnan(decision.ridge_flops_per_byte):
        ridge = f"{format_count(round(decision.ridge_flops_per_byte))} FLOP/B over one axis of links"
        yield "intensity", Cell(text="; ".join([f"a chip asks for {ridge}", *_intensities(decision)]))


def _share(name: str, share: float) -> str:
    return f"{format_fraction(share)} of the {'memory' if name == 'activation memory' else 'step'}"


def _intensities(decision: Decision) -> Iterator[str]:
    alone: dict[str, list[str]] = {}
    for section in decision.sections:
        if isinf(section.intensity_flops_per_byte):
            alone.setdefault(_BOUNDS[section.bound], []).append(section.name)
        else:
            intensity = format_count(round(section.intensity_flops_per_byte))
            yield f"{section.name}: {intensity} ({_BOUNDS[section.bound]})"
    for bound, names in alone.items():
        yield f"{', '.join(names)}: no traffic but weights ({bound})"


def _section_json(section: Section) -> dict[str, Json]:
    intensity = section.intensity_flops_per_byte
    return {
        "name": section.name,
        "expected_s": section.expected_s,
        "intensity_flops_per_byte": None if isinf(intensity) else intensity,
        "bound": section.bound,
    }
