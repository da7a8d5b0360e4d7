"""`--sensitivity`: each field of machine, workload and model made larger by itself, and the job planned anew.

Of either job the fastest plan is taken. The recommended one may be simpler and as fast as the estimate can tell; were
it compared, a field that tips such a tie would seem to cost less, or more, than it does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from ridgeline.errors import InfeasibleError, InputError
from ridgeline.hardware.topology import torus_slice
from ridgeline.model.variations import COUNTED, VARIATIONS
from ridgeline.search.pinned import pinned_to
from ridgeline.search.train import cost_pinned, train

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ridgeline.hardware.chip import Chip
    from ridgeline.hardware.slice import Slice
    from ridgeline.job.job import Job
    from ridgeline.search.answer import PlanEstimate, TrainAnswer
    from ridgeline.search.train import Progress

FieldKind: TypeAlias = Literal["machine", "workload", "model"]

FACTOR: Final = 1.25
"""How much larger a field is made, where it can be any number."""

DOUBLED: Final = 2.0
"""How much larger a field is made that must divide evenly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """What a larger field does to the time of a token.

    Attributes:
        kind: Whose field it is.
        name: The field.
        factor: How much larger it was made.
        time_ratio: Time a token after over before; NaN without a plan.
        elasticity: Percent of time a percent of the field costs; negative where more of it saves time.
        mesh: The fastest plan's mesh with the larger field; empty without a plan.
        mesh_before: The fastest plan's mesh without.
        reason: Why there is no plan.
    """

    kind: FieldKind
    name: str
    factor: float
    time_ratio: float
    elasticity: float
    mesh: Mapping[str, int]
    mesh_before: Mapping[str, int]
    reason: str = ""

    @property
    def changes_mesh(self) -> bool:
        """Whether the larger field is planned on another mesh."""
        return not self.reason and dict(self.mesh) != dict(self.mesh_before)


def sensitivities(job: Job, answer: TrainAnswer, *, progress: Progress | None = None) -> tuple[Sensitivity, ...]:
    """Every field, the most telling first; those without a plan last.

    Args:
        job: The question.
        answer: Its answer.
        progress: Told how far it is.
    """
    whole = replace(job, workload=replace(job.workload, global_batch=answer.global_batch))
    asked, best = list(_larger(whole)), _fastest(answer)
    found: list[Sensitivity] = []
    for kind, name, factor, larger in asked:
        if progress is not None:
            progress(f"planning with more {name}", len(found) / len(asked))
        found.append(_sensitivity(kind, name, factor, larger, before=whole, best=best))
    return tuple(sorted(found, key=lambda each: (bool(each.reason), -abs(each.elasticity))))


def _fastest(answer: TrainAnswer) -> PlanEstimate:
    """Of the plans that fit, the recommended one's rivals among them."""
    return min((answer.best, *answer.alternatives), key=lambda each: each.step.expected_s)


def _s_per_token(job: Job, best: PlanEstimate) -> float:
    return best.step.expected_s / ((job.workload.global_batch or 1) * job.workload.seq_len)


def _sensitivity(
    kind: FieldKind, name: str, factor: float, larger: Job, *, before: Job, best: PlanEstimate
) -> Sensitivity:
    try:
        now = _fastest(train(larger))
    except (InfeasibleError, InputError) as error:
        reason = error.reasons[0] if isinstance(error, InfeasibleError) else error.what
        nothing = float("nan")
        return Sensitivity(
            kind=kind,
            name=name,
            factor=factor,
            time_ratio=nothing,
            elasticity=nothing,
            mesh={},
            mesh_before=best.plan.mesh,
            reason=reason,
        )
    if kind == "machine":  # it runs the plan of the smaller one too, which a simpler one may have replaced
        kept = cost_pinned(pinned_to(larger, best.plan, global_batch=larger.workload.global_batch or 1))
        now = min(now, kept, key=lambda each: each.step.expected_s)
    ratio = _s_per_token(larger, now) / _s_per_token(before, best)
    return Sensitivity(
        kind=kind,
        name=name,
        factor=factor,
        time_ratio=ratio,
        elasticity=log(ratio) / log(factor),
        mesh=now.plan.mesh,
        mesh_before=best.plan.mesh,
    )


def _larger(job: Job) -> list[tuple[FieldKind, str, float, Job]]:
    """The job with each field larger by itself: (whose, which, by what, the job)."""
    found: list[tuple[FieldKind, str, float, Job]] = []
    for name, change in _MACHINE.items():
        chip = change(job.hardware.chip)
        if chip is not None and (name != "network bandwidth" or _crosses_network(job)):
            found.append(("machine", name, FACTOR, replace(job, hardware=_with_chip(job, chip))))
    workload = job.workload
    batch = (workload.global_batch or 1) * int(DOUBLED)
    found.append(("workload", "global_batch", DOUBLED, replace(job, workload=replace(workload, global_batch=batch))))
    longer = workload.seq_len * int(DOUBLED)
    found.append(("workload", "seq_len", DOUBLED, replace(job, workload=replace(workload, seq_len=longer))))
    for name, vary in VARIATIONS.items():
        factor = DOUBLED if name in COUNTED else FACTOR
        model = vary(job.model, factor)
        if model is not None:
            found.append(("model", name, factor, replace(job, model=model)))
    return found


def _crosses_network(job: Job) -> bool:
    return job.hardware.num_slices > 1 or any(axis.name == "network" for axis in job.hardware.axes)


def _with_chip(job: Job, chip: Chip) -> Slice:
    hardware = job.hardware
    if chip.torus is not None:
        return torus_slice(chip, chip.torus, hardware.shape, hardware.num_slices)
    axes = tuple(
        replace(axis, bytes_per_s=chip.switch.bytes_per_s if axis.name == "nvlink" else chip.network_bytes_per_s)
        for axis in hardware.axes
        if chip.switch is not None
    )
    return replace(hardware, chip=chip, axes=axes)


def _faster_links(chip: Chip) -> Chip | None:
    if chip.torus is not None:
        core = chip.torus.core_link_bytes_per_s
        faster = replace(
            chip.torus,
            link_bytes_per_s=chip.torus.link_bytes_per_s * FACTOR,
            core_link_bytes_per_s=None if core is None else core * FACTOR,
        )
        return replace(chip, torus=faster)
    if chip.switch is not None:
        return replace(chip, switch=replace(chip.switch, bytes_per_s=chip.switch.bytes_per_s * FACTOR))
    return None


def _more_memory(chip: Chip) -> Chip:
    return replace(chip, hbm_bytes=chip.hbm_bytes * FACTOR, usable_hbm_bytes=chip.usable_hbm_bytes * FACTOR)


def _more_flops(chip: Chip) -> Chip:
    return replace(chip, peak_flops_per_s={dtype: peak * FACTOR for dtype, peak in chip.peak_flops_per_s.items()})


_MACHINE: Mapping[str, Callable[[Chip], Chip | None]] = {
    "matrix-unit rate": _more_flops,
    "HBM bandwidth": lambda chip: replace(chip, hbm_bytes_per_s=chip.hbm_bytes_per_s * FACTOR),
    "HBM size": _more_memory,
    "link bandwidth": _faster_links,
    "network bandwidth": lambda chip: replace(chip, network_bytes_per_s=chip.network_bytes_per_s * FACTOR),
    "PCIe bandwidth": lambda chip: (
        None if chip.pcie_bytes_per_s is None else replace(chip, pcie_bytes_per_s=chip.pcie_bytes_per_s * FACTOR)
    ),
}
"""Fields of a chip, and the chip with more of each."""
