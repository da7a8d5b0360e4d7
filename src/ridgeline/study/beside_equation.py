"""What is read from a compiled program laid beside what the equation says of the same plan.

Collectives row by row, each difference with its reason; FLOPs by part and phase; the share that is computed again;
what all devices of a host keep in its memory.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import nan
from typing import TYPE_CHECKING, Final

from ridgeline.cost.roofline import ATTENTION_BACKWARD_FACTOR
from ridgeline.cost.training.collectives import step_collectives
from ridgeline.cost.training.executed import executed_flops
from ridgeline.cost.training.memory import training_memory
from ridgeline.hlo.parts import Place
from ridgeline.search.explain import explain_plan
from ridgeline.search.pinned import pinned_columns
from ridgeline.study.collective_join import join_collectives

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ridgeline.cost.columns import PlanColumns, TrainingSetting
    from ridgeline.cost.explain import Derivation
    from ridgeline.cost.training.executed import ExecutedFlops
    from ridgeline.hlo.summary import HloSummary
    from ridgeline.job.job import Job
    from ridgeline.search.answer import PlanEstimate
    from ridgeline.study.collective_row import CollectiveRow

_RECOMPUTED: Final = "recompute"
_TILE: Final = 512
"""Queries and keys of a tile of splash attention where a job gives none, in our program and in MaxText's."""

_GRADIENT_OF_QUERIES: Final = re.compile(r"splash_m[hq]a_dq")
_TWO_KERNELS_FACTOR: Final = 3.5
"""Backward over forward FLOPs where the gradient of queries has a kernel of its own: 7 products over 2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRow:
    """One part in one phase, by both witnesses; of one device and one step.

    Attributes:
        place: Part and phase.
        flops: By the compiled text; NaN where something is not counted.
        predicted_flops: By the equation; None where it has no matmul there.
        hbm_bytes: Read and written, by the compiled text.
        estimated_cycles: The compiler's own; NaN where it has none.
    """

    place: Place
    flops: float
    predicted_flops: float | None
    hbm_bytes: float
    estimated_cycles: float

    @property
    def ratio(self) -> float:
        """The equation's FLOPs over the compiler's; NaN where either has none."""
        return self.predicted_flops / self.flops if self.predicted_flops and self.flops else nan


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMemory:
    """What the devices of one host keep in its memory together.

    Attributes:
        device_bytes: Of one device, by the compiler; None where it refused.
        num_devices: That share a host.
        ram_bytes: The host's memory; None where the catalogue does not know it.
        predicted_bytes: Of all its devices, by the equation.
    """

    device_bytes: float | None
    num_devices: int
    ram_bytes: float | None
    predicted_bytes: float

    @property
    def total_bytes(self) -> float:
        """Of all its devices: by the compiler, or where it refused by the equation."""
        return self.predicted_bytes if self.device_bytes is None else self.device_bytes * self.num_devices

    @property
    def exceeds(self) -> bool:
        """Whether it is more than the host has; the compiler looks at one device alone."""
        return self.ram_bytes is not None and self.total_bytes > self.ram_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class BesideEquation:
    """Both accounts of a step.

    Attributes:
        collectives: Missing and unexpected ones first; empty where nothing was compiled.
        parts: By part and phase, in the order of the text; then what only the equation has.
        predicted: FLOPs by the equation, by part and phase.
        host: Memory of a host.
        derivations: Where the equation's main numbers come from.
    """

    collectives: tuple[CollectiveRow, ...]
    parts: tuple[PartRow, ...]
    predicted: tuple[ExecutedFlops, ...]
    host: HostMemory
    derivations: tuple[Derivation, ...]

    @property
    def predicted_flops(self) -> float:
        """All FLOPs by the equation."""
        return sum(each.flops for each in self.predicted)

    @property
    def recomputed_share(self) -> float:
        """What is computed again, over all FLOPs of the compiled text; NaN where some are not counted."""
        return _share([(row.place.phase, row.flops) for row in self.parts])

    @property
    def predicted_recomputed_share(self) -> float:
        """The same by the equation."""
        return _share([(each.phase, each.flops) for each in self.predicted])


def beside_equation(
    job: Job, estimate: PlanEstimate, summary: HloSummary | None, *, host_bytes: float | None
) -> BesideEquation:
    """The compiled program of a job beside the equation.

    Args:
        job: With nothing left to choose.
        estimate: What the equation expects of it.
        summary: What the compiled text says; None where nothing was compiled.
        host_bytes: Of one device in the host's memory, by the compiler; None where it refused.
    """
    setting, columns = pinned_columns(job)
    has_two = summary is not None and any(_GRADIENT_OF_QUERIES.match(name) for name in summary.kernels)
    predicted = executed_flops(
        setting,
        columns,
        block_keys=_block_keys(job, summary),
        backward_factor=_TWO_KERNELS_FACTOR if has_two else ATTENTION_BACKWARD_FACTOR,
    )
    mesh = {axis: degree for axis, degree in job.plan.mesh.items() if degree > 1}
    micro_steps = job.plan.gradient_accumulation or 1
    return BesideEquation(
        collectives=()
        if summary is None
        else join_collectives(
            summary.collectives, step_collectives(setting, columns), mesh=mesh, micro_steps=micro_steps
        ),
        parts=tuple(_parts(summary, predicted)),
        predicted=predicted,
        host=_host(setting, columns, host_bytes),
        derivations=explain_plan(setting, columns, estimate),
    )


def _block_keys(job: Job, summary: HloSummary | None) -> float | None:
    """Keys of a tile of the attention kernel; None where the compiled text calls none."""
    if summary is not None and not any(name.startswith("splash") for name in summary.kernels):
        return None
    kernel, seq_len = job.plan.attention, job.workload.seq_len
    own_queries = seq_len // job.plan.mesh.get("cp", 1)
    return float(max(min(kernel.block_q or _TILE, own_queries), min(kernel.block_kv or _TILE, seq_len)))


def _parts(summary: HloSummary | None, predicted: Sequence[ExecutedFlops]) -> Iterator[PartRow]:
    """Every part that either witness has."""
    expected = {Place(part=each.part, phase=each.phase): each.flops for each in predicted if each.phase != "step"}
    for part in () if summary is None else summary.parts:
        yield PartRow(
            place=part.place,
            flops=part.flops,
            predicted_flops=expected.pop(part.place, None),
            hbm_bytes=part.hbm_bytes,
            estimated_cycles=part.estimated_cycles,
        )
    for place, flops in expected.items():
        yield PartRow(place=place, flops=0.0, predicted_flops=flops, hbm_bytes=0.0, estimated_cycles=nan)


def _host(setting: TrainingSetting, columns: PlanColumns, host_bytes: float | None) -> HostMemory:
    chip = setting.hardware.chip
    num_devices = min(chip.chips_per_host * chip.devices_per_chip, setting.hardware.num_devices)
    return HostMemory(
        device_bytes=host_bytes,
        num_devices=num_devices,
        ram_bytes=chip.host_ram_bytes,
        predicted_bytes=float(training_memory(setting, columns).host_bytes) * num_devices,
    )


def _share(flops_by_phase: Sequence[tuple[str, float]]) -> float:
    total = sum(flops for _, flops in flops_by_phase)
    again = sum(flops for phase, flops in flops_by_phase if phase == _RECOMPUTED)
    return again / total if total else nan
