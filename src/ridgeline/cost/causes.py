"""Where the time of a step goes, by cause: the tree's leaves, with hidden communication left out.

What a part hides adds nothing; what it cannot hide adds only the exposed rest, under its own name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ridgeline.cost.work import shown_shares

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.cost.columns import TrainingSetting
    from ridgeline.cost.work import Part

MATMUL = "matmuls"
ATTENTION = "attention"
VECTOR = "elementwise passes"
RECOMPUTE = "recomputation"
OPTIMIZER = "optimizer"
BUBBLE = "pipeline bubble"
OVERHEAD = "step overhead"
CONTENTION = "network contention"
HOST = "host transfers"

COMMUNICATION: Mapping[str, str] = {
    "tensor": "tensor-parallel collectives",
    "context": "context-parallel gathers",
    "expert": "expert token exchange",
    "weights": "weight gathers",
    "expert_weights": "expert weight gathers",
    "data": "gradient all-reduce",
    "expert_data": "gradient all-reduce",
    "stage": "pipeline hand-over",
}
"""By group of devices."""


def time_by_cause(step: Part) -> dict[str, float]:
    """Seconds of `step.expected_s` by cause; they add up to it.

    Args:
        step: The tree of one plan (scalar times).
    """
    totals: dict[str, float] = {}
    _add(step, 1.0, totals)
    return totals


def _add(part: Part, share: float, totals: dict[str, float]) -> None:
    match part.composition:
        case "leaf":
            cause = _cause(part)
            totals[cause] = totals.get(cause, 0.0) + share * float(part.expected_s)
        case "sequence":
            for child in part.children:
                _add(child, share, totals)
        case "overlap":
            _add(part.children[0], share, totals)
            for child, shown in shown_shares(part):
                _add(child, share * shown, totals)


def _cause(part: Part) -> str:
    """The cause a leaf stands for."""
    for resource in part.work.amounts:
        kind, _, group = resource.partition(".")
        if kind == "link":
            return COMMUNICATION[group]
    if part.resource == "host":
        return HOST
    if part.phase in {"recompute", "optimizer"}:
        return RECOMPUTE if part.phase == "recompute" else OPTIMIZER
    if part.resource == "overhead":
        return {"bubble": BUBBLE, "contention": CONTENTION}.get(part.name, OVERHEAD)
    if part.resource == "hbm":
        return VECTOR
    return ATTENTION if "scores" in part.name.split("/") else MATMUL


def busy_s(step: Part, setting: TrainingSetting) -> dict[str, float]:
    """Seconds each resource is busy in a step, hidden or not: compute, hbm, ici, network, host, overhead.

    A collective that spans hosts or slices keeps its fast links and the network busy, each for its own bytes.

    Args:
        step: The tree of one plan (scalar times).
        setting: The rates of its links.
    """
    efficiency, chip = setting.efficiency, setting.hardware.chip
    rates = {
        "ici": setting.link_bytes_per_s * efficiency.link,
        "network": chip.network_bytes_per_s * efficiency.network,
    }
    totals: dict[str, float] = {}
    for _, part in step.walk():
        if part.composition == "leaf" and part.resource != "ici":
            totals[part.resource] = totals.get(part.resource, 0.0) + float(part.expected_s)
        elif part.composition == "leaf":
            for resource, moved_bytes in part.work.amounts.items():
                wire = "network" if resource == "network" else "ici"
                wire_s = float(moved_bytes) / rates[wire]
                if wire == "ici" and not float(part.work.amounts.get("network", 0.0)):
                    wire_s = max(wire_s, float(part.expected_s))
                totals[wire] = totals.get(wire, 0.0) + wire_s
    return totals
