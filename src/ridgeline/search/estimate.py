"""One plan in full: its tree, its memory, what binds it. The same cost functions, on one row."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ridgeline.cost.causes import busy_s
from ridgeline.cost.laws.run import available_flops, chip_s, mfu
from ridgeline.cost.placement import describe
from ridgeline.cost.training.memory import largest_tensors, training_memory
from ridgeline.cost.training.step import roofline_s, training_step
from ridgeline.model.adapters import frozen_flops_per_token
from ridgeline.model.flop_convention import CONVENTIONS, training_flops_per_token
from ridgeline.search.answer import Bound, MemoryEstimate, Plan, PlanEstimate, StepEstimate, Verdict
from ridgeline.search.interval import interval_half_width, widened_by
from ridgeline.units import format_fraction, format_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.cost.columns import PlanColumns, TrainingSetting
    from ridgeline.cost.work import Part
    from ridgeline.job.job import Job, TokenExchange
    from ridgeline.search.plans import PlanTable

TIGHT = 0.06
"""Band around the limit in which the verdict is `tight`: what the memory estimate cannot resolve."""

MFU_CONVENTION = "maxtext"
"""How model FLOPs are counted for MFU (`model/flop_convention.py`); the denominator is the bf16 peak."""

_RESOURCES: dict[str, tuple[Bound, str]] = {
    "compute": ("compute", "matrix units are"),
    "hbm": ("hbm", "memory bandwidth is"),
    "ici": ("ici", "chip-to-chip links are"),
    "network": ("network", "the network between hosts is"),
    "host": ("host", "PCIe is"),
}

_WIRES = {"ici": "chip-to-chip links", "network": "the links of the network"}
"""What can be busy along several axes at once, and so for longer than the step."""


def verdict(total_bytes: float, usable_bytes: float) -> Verdict:
    """Whether a peak fits: `tight` within 6% of the limit, either way.

    >>> [verdict(part, 100.0) for part in (90.0, 97.0, 110.0)]
    ['fits', 'tight', 'does_not_fit']
    """
    ratio = total_bytes / usable_bytes
    if ratio <= 1 - TIGHT:
        return "fits"
    return "tight" if ratio <= 1 + TIGHT else "does_not_fit"


def estimate_row(job: Job, setting: TrainingSetting, table: PlanTable, index: int) -> PlanEstimate:
    """The full estimate of one row of a search."""
    columns = table.row(index)
    mesh = table.mesh_of(index)
    step = step_estimate(job, setting, columns, degrees=mesh.degrees)
    bound, reason = _bound(step.parts, setting)
    tokens = setting.global_batch * setting.seq_len
    chips = job.hardware.num_chips
    available = available_flops(
        chip_s=chip_s(num_chips=chips, run_s=step.expected_s), C_flops_per_s=mfu_peak_flops_per_s(setting)
    )
    return PlanEstimate(
        plan=_plan(job, table, index, expert_exchange=_token_exchange(step.parts, setting)),
        step=step,
        memory=memory_estimate(setting, columns),
        bound=bound,
        bound_reason=reason,
        mfu=float(mfu(run_flops=step_flops(setting), available_flops=available)),
        tokens_per_s_per_chip=tokens / step.expected_s / chips,
    )


def step_flops(setting: TrainingSetting) -> float:
    """Model FLOPs of one step, as MFU counts them; frozen weights have no gradient."""
    convention = CONVENTIONS[MFU_CONVENTION]
    per_token = training_flops_per_token(setting.tree, seq_len=setting.seq_len, convention=convention)
    if setting.has_adapters:
        per_token -= frozen_flops_per_token(setting.tree)
    return setting.global_batch * setting.seq_len * per_token


def mfu_peak_flops_per_s(setting: TrainingSetting) -> float:
    """The peak of a chip that MFU refers to: bf16, or the compute dtype's where the chip has no bf16."""
    return setting.hardware.chip.peak_flops_per_s.get("bf16", setting.peak_flops_per_s("bf16"))


def step_estimate(
    job: Job, setting: TrainingSetting, columns: PlanColumns, *, degrees: Mapping[str, float]
) -> StepEstimate:
    """Time of one plan: bound, estimate, interval, tree."""
    parts = training_step(setting, columns)
    expected_s, least_s = float(parts.expected_s), float(roofline_s(parts.work, setting))
    half_width = interval_half_width(job, degrees, parts)
    return StepEstimate(
        roofline_s=least_s,
        expected_s=expected_s,
        low_s=max(least_s, expected_s / (1 + half_width)),
        high_s=expected_s * (1 + half_width),
        widened_by=widened_by(job, degrees),
        parts=parts,
    )


def memory_estimate(setting: TrainingSetting, columns: PlanColumns) -> MemoryEstimate:
    """Memory of one plan."""
    memory, chip = training_memory(setting, columns), setting.hardware.chip
    total_bytes = float(memory.total_bytes)
    devices_per_host = min(chip.chips_per_host * chip.devices_per_chip, setting.hardware.devices_per_slice)
    return MemoryEstimate(
        verdict=verdict(total_bytes, setting.usable_hbm_bytes),
        total_bytes=total_bytes,
        usable_bytes=setting.usable_hbm_bytes,
        parts={name: float(part) for name, part in memory.parts.items()},
        largest=largest_tensors(setting, columns),
        host_bytes=float(memory.host_bytes) * devices_per_host,
        host_usable_bytes=chip.host_ram_bytes,
    )


def _token_exchange(step: Part, setting: TrainingSetting) -> TokenExchange | None:
    """How tokens reach the experts of other devices under one plan."""
    used = {
        path.rpartition("/")[2]
        for path, part in step.walk()
        if "link.expert" in part.work.amounts and float(part.times) * float(part.work.amounts["link.expert"]) > 0
    }
    if not used:
        return None
    return setting.expert_exchange or ("all_gather" if "all_gather" in used else "all_to_all")


def _plan(job: Job, table: PlanTable, index: int, *, expert_exchange: TokenExchange | None) -> Plan:
    mesh, plan = table.mesh_of(index), job.plan
    return Plan(
        mesh={axis: mesh.degrees[axis] for axis in mesh.parallel_axes},
        placement={axis: describe(pieces) for axis, pieces in mesh.pieces.items()},
        gradient_accumulation=int(table.accumulation[index]),
        microbatches=int(table.microbatches[index]),
        repeats=int(table.repeats[index]),
        gather_once=bool(table.gather_once[index]),
        expert_exchange=expert_exchange,
        remat=table.remat_of(index),
        dtypes=plan.dtypes,
        quantization=plan.quantization,
        lora=plan.lora,
        optimizer=replace(plan.optimizer, state="host" if table.moments_on_host[index] else "device"),
        vocab_tiling=plan.vocab_tiling,
    )


def _bound(parts: Part, setting: TrainingSetting) -> tuple[Bound, str]:
    """The resource that is busy longest, with how long."""
    busy = {resource: time_s for resource, time_s in busy_s(parts, setting).items() if resource in _RESOURCES}
    resource = max(busy, key=lambda name: busy[name])
    bound, what = _RESOURCES[resource]
    expected_s = float(parts.expected_s)
    if resource in _WIRES and busy[resource] > expected_s:
        work = f"{format_seconds(busy[resource])} of work for a step of {format_seconds(expected_s)}"
        return bound, f"{_WIRES[resource]} have {work}, along several axes at once"
    share = format_fraction(busy[resource] / expected_s)
    return bound, f"{what} busy {format_seconds(busy[resource])} of {format_seconds(expected_s)} ({share})"
