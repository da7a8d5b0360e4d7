"""The sharding decision in words: what kind of job it is, what carries it, what holds it up, and why.

It adds nothing to the search; it reads the plan that the search chose, section by section.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Final

from ridgeline.cost.causes import BUBBLE, COMMUNICATION, RECOMPUTE, time_by_cause
from ridgeline.cost.placement import NETWORKS
from ridgeline.model.operations import ExpertMatmul
from ridgeline.search.crossover import crossovers
from ridgeline.search.section import ATTENTION, EXPERTS, FEED_FORWARD, section_of
from ridgeline.units import format_bytes, format_fraction

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ridgeline.cost.columns import PlanColumns, TrainingSetting
    from ridgeline.cost.work import Part
    from ridgeline.search.answer import PlanEstimate
    from ridgeline.search.crossover import Crossover

STRATEGIES: Final[Mapping[str, tuple[str, ...]]] = {
    "FSDP": ("fsdp", "fsdp_transpose", "dcn_fsdp"),
    "data parallelism": ("dp", "dcn_dp"),
    "tensor parallelism": ("tp", "tp_sequence"),
    "context parallelism": ("cp",),
    "expert parallelism": ("ep",),
    "pipeline parallelism": ("pp", "dcn_pp"),
}
"""What mesh axes are called together."""

ONE_DEVICE: Final = "one device"
"""The strategy where nothing is split."""

FAST_LINKS: Final[Mapping[str, str]] = {"nvidia": "NVLink", "amd": "Infinity Fabric"}
"""What joins the GPUs of a server, by vendor."""

LONG_ATTENTION: Final = 0.3
"""Share of the matrix units' FLOPs from which attention over the sequence makes it a long one, whatever the mesh."""

LEAST_BOTTLENECK: Final = 0.08
"""Part of a step from which a section is named as a bottleneck."""

MOST_ACTIVATIONS: Final = 0.5
"""Part of the usable memory from which kept activations are named as a bottleneck."""

MOST_NAMED: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One part of the model's work on one device, all phases together.

    Attributes:
        name: In words.
        expected_s: Time of a step that it computes.
        intensity_flops_per_byte: FLOPs over the bytes that it brings over links; infinite where it brings none.
        bound: `compute` or `hbm`, whichever takes longer; or what its own collectives outlast both on: `ici` or
            `network`.
    """

    name: str
    expected_s: float
    intensity_flops_per_byte: float
    bound: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Why a plan is what it is.

    Attributes:
        workload: Kind of model, length of sequence, and whether its state is more than one slice holds.
        primary: What splits most.
        secondary: What splits the rest; empty where one strategy is all.
        bottlenecks: What the step goes to beside what cannot be saved, each with its share of the step; `activation
            memory` with its share of memory.
        reason: In a sentence.
        ridge_flops_per_byte: FLOPs that a device does while one byte comes over one axis of its links.
        ridges: The same over each kind of wire that the slice has, by its name; empty on one device.
        sections: Of the model's work, the longest first.
        crossovers: The batch or sequence from which each of them waits for its arithmetic, at peak rates.
    """

    workload: str
    primary: str
    secondary: tuple[str, ...]
    bottlenecks: tuple[tuple[str, float], ...]
    reason: str
    ridge_flops_per_byte: float
    sections: tuple[Section, ...]
    ridges: tuple[tuple[str, float], ...] = ()
    crossovers: tuple[Crossover, ...] = ()


def decide(setting: TrainingSetting, columns: PlanColumns, best: PlanEstimate) -> Decision:
    """The decision behind a plan.

    Args:
        setting: The job, as the plan was costed.
        columns: The plan (scalar columns).
        best: What it costs.
    """
    sections = tuple(sorted(_sections(best), key=lambda each: -each.expected_s))
    strategies = _strategies(best.plan.mesh)
    bottlenecks = tuple(_bottlenecks(best, sections))
    return Decision(
        workload=_workload(setting, best),
        primary=strategies[0] if strategies else ONE_DEVICE,
        secondary=strategies[1:],
        bottlenecks=bottlenecks,
        reason=_reason(setting, best, strategies),
        ridge_flops_per_byte=_ridge_flops_per_byte(setting),
        sections=sections,
        ridges=tuple(_ridges(setting)),
        crossovers=crossovers(setting, columns, best.step.parts),
    )


def _strategies(mesh: Mapping[str, int]) -> tuple[str, ...]:
    """What a mesh uses, what splits most first."""
    ways: dict[str, float] = {}
    for name, axes in STRATEGIES.items():
        degree = 1
        for axis in axes:
            degree *= mesh.get(axis, 1)
        if degree > 1:
            ways[name] = degree
    return tuple(sorted(ways, key=lambda name: -ways[name]))


def _workload(setting: TrainingSetting, best: PlanEstimate) -> str:
    leaves = [(section_of(path), _flops(part)) for path, part in best.step.parts.walk() if part.composition == "leaf"]
    attention_flops = sum(flops for section, flops in leaves if section == ATTENTION)
    length = "long" if attention_flops > LONG_ATTENTION * sum(flops for _, flops in leaves) else "short"
    kind = "MoE" if _has_experts(setting) else "dense"
    beyond = ", beyond the memory of a slice" if _beyond_a_slice(setting, best) else ""
    return f"{kind}, {length} sequences{beyond}"


def _has_experts(setting: TrainingSetting) -> bool:
    operations = (each for layer in setting.tree.layers for block in layer.blocks for each in block.operations)
    return any(isinstance(each, ExpertMatmul) for each in operations)


def _beyond_a_slice(setting: TrainingSetting, best: PlanEstimate) -> bool:
    """Whether parameters, moments and gradients alone are more than all devices of one slice hold."""
    return _state_bytes(setting, best) > setting.hardware.devices_per_slice * setting.usable_hbm_bytes


def _sections(best: PlanEstimate) -> Iterator[Section]:
    time_s: defaultdict[str, float] = defaultdict(float)
    hbm_s: defaultdict[str, float] = defaultdict(float)
    work_flops: defaultdict[str, float] = defaultdict(float)
    moved_bytes: defaultdict[str, float] = defaultdict(float)
    moving_s: defaultdict[str, float] = defaultdict(float)
    wires: dict[str, str] = {}
    for path, part in best.step.parts.walk():
        name = section_of(path)
        if part.composition != "leaf" or not name:
            continue
        if part.resource in {"compute", "hbm"}:
            time_s[name] += float(part.expected_s)
            hbm_s[name] += float(part.expected_s) if part.resource == "hbm" else 0.0
            work_flops[name] += _flops(part)
        elif part.resource == "ici" and float(part.expected_s) > 0:
            moved_bytes[name] += _link_bytes(part)
            moving_s[name] += float(part.expected_s)
            wires[name] = "network" if float(part.work.amounts.get("network", 0.0)) else "ici"
    for name, spent_s in time_s.items():
        by_chip = "hbm" if 2 * hbm_s[name] > spent_s else "compute"
        bound = wires[name] if moving_s[name] > spent_s else by_chip
        intensity = work_flops[name] / moved_bytes[name] if moved_bytes[name] else float("inf")
        yield Section(name=name, expected_s=spent_s, intensity_flops_per_byte=intensity, bound=bound)


def _flops(part: Part) -> float:
    return sum(float(amount) for resource, amount in part.work.amounts.items() if resource.startswith("flops."))


def _link_bytes(part: Part) -> float:
    return sum(float(amount) for resource, amount in part.work.amounts.items() if resource.startswith("link."))


def _bottlenecks(best: PlanEstimate, sections: tuple[Section, ...]) -> Iterator[tuple[str, float]]:
    """What the step goes to, the largest first."""
    causes = time_by_cause(best.step.parts)
    waits = {name: causes.get(name, 0.0) for name in (*COMMUNICATION.values(), BUBBLE, RECOMPUTE)}
    found = {name: time_s for name, time_s in waits.items() if time_s > 0}
    found |= {each.name: each.expected_s for each in sections if each.name in {FEED_FORWARD, EXPERTS, ATTENTION}}
    step_s = best.step.expected_s
    kept = best.memory.parts.get("saved_activations", 0.0) / best.memory.usable_bytes
    shares = [(name, time_s / step_s) for name, time_s in found.items() if time_s > LEAST_BOTTLENECK * step_s]
    yield from sorted(shares, key=lambda share: -share[1])[:MOST_NAMED]
    if kept > MOST_ACTIVATIONS:
        yield "activation memory", kept


def _ridge_flops_per_byte(setting: TrainingSetting) -> float:
    """FLOP/s of a chip over the bytes/s of both links of one axis: what splitting over one axis must earn."""
    return setting.hardware.chip.link_flops_per_byte * _faster_ratio(setting)


def _faster_ratio(setting: TrainingSetting) -> float:
    """The peak of the compute dtype over that of bf16."""
    return setting.peak_flops_per_s(setting.dtypes.compute) / setting.peak_flops_per_s("bf16")


def _ridges(setting: TrainingSetting) -> Iterator[tuple[str, float]]:
    """By what joins devices: the fast links, and the network where some are reached over nothing else."""
    hardware, chip = setting.hardware, setting.hardware.chip
    axes = {axis.name for axis in hardware.axes if axis.size > 1}
    if axes - set(NETWORKS):
        links = "one axis of links" if chip.torus is not None else FAST_LINKS[chip.vendor]
        yield links, _ridge_flops_per_byte(setting)
    if axes & set(NETWORKS) or hardware.num_slices > 1:
        yield "the network", chip.network_flops_per_byte * _faster_ratio(setting)


def _state_bytes(setting: TrainingSetting, best: PlanEstimate) -> float:
    """Parameters, moments (those on devices) and gradients of the model, once: of all devices over their replicas."""
    parts, mesh = best.memory.parts, best.plan.mesh
    of_a_device = sum(parts.get(name, 0.0) for name in ("parameters", "optimizer", "gradients"))
    replicas = mesh.get("dp", 1) * mesh.get("dcn_dp", 1)
    return of_a_device * setting.hardware.num_devices / replicas


def _reason(setting: TrainingSetting, best: PlanEstimate, strategies: tuple[str, ...]) -> str:
    """Why these strategies and no others, with the numbers."""
    mesh, usable_bytes = best.plan.mesh, best.memory.usable_bytes
    whole_bytes = _state_bytes(setting, best)
    causes, step_s = time_by_cause(best.step.parts), best.step.expected_s
    there = "fit" if whole_bytes <= usable_bytes else "do not fit"
    whole, usable = format_bytes(whole_bytes), format_bytes(usable_bytes)
    kept = "parameters and gradients" if best.plan.optimizer.state == "host" else "parameters, moments and gradients"
    words = [f"{whole} of {kept} {there} in the {usable} of one device"]
    for name in strategies:
        waits_s = sum(causes.get(cause, 0.0) for cause in _COSTS[name])
        ways = " ".join(f"{axis}={mesh[axis]}" for axis in STRATEGIES[name] if axis in mesh)
        words.append(f"{ways} costs {format_fraction(waits_s / step_s)} of the step in collectives")
    batch, devices = setting.global_batch, setting.hardware.num_devices
    if batch < devices:
        words.append(f"of {batch} sequences on {devices} devices at least {ceil(devices / batch)} share each")
    return "; ".join(words)


_COSTS: Final[Mapping[str, tuple[str, ...]]] = {
    "FSDP": (COMMUNICATION["weights"], COMMUNICATION["expert_weights"]),
    "data parallelism": (COMMUNICATION["data"],),
    "tensor parallelism": (COMMUNICATION["tensor"],),
    "context parallelism": (COMMUNICATION["context"],),
    "expert parallelism": (COMMUNICATION["expert"],),
    "pipeline parallelism": (COMMUNICATION["stage"], BUBBLE),
}
"""Causes of time that each strategy brings."""
