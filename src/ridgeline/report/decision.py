"""The sharding decision in words, as a list and as JSON."""

from __future__ import annotations

from collections import defaultdict
from math import ceil, isfinite, isinf, isnan
from typing import TYPE_CHECKING

from ridgeline.report.blocks import Cell, Facts, Table
from ridgeline.report.jsonable import Json, jsonable
from ridgeline.search.decision import ONE_DEVICE
from ridgeline.units import format_count, format_fraction, format_things

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ridgeline.report.blocks import Tone
    from ridgeline.search.crossover import Crossover
    from ridgeline.search.decision import Decision, Section

_BOUNDS = {
    "ici": "bound by the interconnect",
    "network": "bound by the network",
    "hbm": "bound by HBM",
    "compute": "compute-bound",
}
_WIRES = {"hbm": "HBM", "ici": "links", "network": "network"}


def decision_facts(decision: Decision) -> Facts:
    """Kind of job, strategies, bottlenecks, reason, intensities."""
    return Facts(title="Why this sharding", rows=tuple(_rows(decision)))


def crossovers_table(decision: Decision) -> Table:
    """From which batch and sequence each section is compute-bound; sections with the same answer on one line."""
    alike: defaultdict[tuple[str, ...], list[Crossover]] = defaultdict(list)
    for each in decision.crossovers:
        alike[each.wire, each.moves, f"{each.critical_tokens:.6g}"].append(each)
    return Table(
        title="Compute-bound from",
        columns=("part", "beside its", "over", "from", "here", "global batch"),
        right=frozenset({3, 4, 5}),
        rows=tuple(_crossover_row(group) for group in alike.values()),
        note=(
            "by the laws, at peak rates; tokens that a device has at once (of gradients: in a step), and the batch, in "
            "sequences, for them under this mesh; below, a part waits for what it brings"
        ),
    )


def decision_json(decision: Decision) -> dict[str, Json]:
    """The same."""
    return {
        "workload": decision.workload,
        "primary": decision.primary,
        "secondary": list(decision.secondary),
        "bottlenecks": [{"name": name, "share": share} for name, share in decision.bottlenecks],
        "reason": decision.reason,
        "ridge_flops_per_byte": jsonable(decision.ridge_flops_per_byte),
        "ridges": [{"over": over, "flops_per_byte": jsonable(ridge)} for over, ridge in decision.ridges],
        "sections": [_section_json(section) for section in decision.sections],
        "crossovers": [_crossover_json(each) for each in decision.crossovers],
    }


def _rows(decision: Decision) -> Iterator[tuple[str, Cell]]:
    yield "workload", Cell(text=decision.workload)
    secondary = f", then {', '.join(decision.secondary)}" if decision.secondary else " alone"
    is_split = decision.primary != ONE_DEVICE
    strategy = f"{decision.primary}{secondary}" if is_split else f"none: {ONE_DEVICE} has the whole model"
    yield "strategy", Cell(text=strategy, tone="strong")
    named = [f"{name} {_share(name, share)}" for name, share in decision.bottlenecks]
    yield "goes to", Cell(text=", ".join(named) or "nothing above all")
    yield "because", Cell(text=decision.reason)
    ridges = [f"{format_count(round(ridge))} FLOP/B over {over}" for over, ridge in decision.ridges if not isnan(ridge)]
    asks = [f"a chip asks for {' and '.join(ridges)}"] if ridges else []
    yield "intensity" if asks else "bound by", Cell(text="; ".join([*asks, *_intensities(decision, is_split=is_split)]))


def _share(name: str, share: float) -> str:
    return f"{format_fraction(share)} of the {'memory' if name == 'activation memory' else 'step'}"


def _intensities(decision: Decision, *, is_split: bool) -> Iterator[str]:
    alone: dict[str, list[str]] = {}
    for section in decision.sections:
        if isinf(section.intensity_flops_per_byte):
            alone.setdefault(_BOUNDS[section.bound], []).append(section.name)
        else:
            intensity = format_count(round(section.intensity_flops_per_byte))
            yield f"{section.name}: {intensity} ({_BOUNDS[section.bound]})"
    for bound, names in alone.items():
        yield f"{', '.join(names)}: no traffic but weights ({bound})" if is_split else f"{', '.join(names)}: {bound}"


def _section_json(section: Section) -> dict[str, Json]:
    intensity = section.intensity_flops_per_byte
    return {
        "name": section.name,
        "expected_s": section.expected_s,
        "intensity_flops_per_byte": None if isinf(intensity) else intensity,
        "bound": section.bound,
    }


def _crossover_row(alike: list[Crossover]) -> tuple[Cell, ...]:
    first, names = alike[0], ", ".join(each.section for each in alike)
    tone: Tone = "plain" if first.is_reached else "warn"
    batch = "" if isnan(first.num_sequences) else format_count(_whole(first.num_sequences))
    if first.critical_tokens == 0 or isinf(first.critical_tokens):
        start, batch = ("any batch", "") if first.is_reached else ("no batch", "")
    else:
        size = _whole(first.critical_tokens)
        start = f"sequences of {format_count(size)}" if first.of_sequence else format_things(size, "token")
    return (
        Cell(text=names),
        Cell(text=first.moves),
        Cell(text=_WIRES[first.wire]),
        Cell(text=start, tone=tone),
        Cell(text=f"{'' if first.is_reached else 'below: '}{format_count(first.here_tokens)}", tone=tone),
        Cell(text=batch),
    )


def _whole(size: float) -> float:
    return ceil(size) if isfinite(size) else size


def _crossover_json(crossover: Crossover) -> dict[str, Json]:
    """A size that none reaches is null, and so is the batch of a length of sequence."""
    unit = "sequence" if crossover.of_sequence else "device"
    reachable = not isinf(crossover.critical_tokens)
    batch = crossover.num_sequences if reachable and not crossover.of_sequence else None
    return {
        "section": crossover.section,
        "wire": crossover.wire,
        "moves": crossover.moves,
        "tokens_of": unit,
        "critical_tokens": crossover.critical_tokens if reachable else None,
        "here_tokens": crossover.here_tokens,
        "global_batch": batch,
        "is_reached": crossover.is_reached,
    }
