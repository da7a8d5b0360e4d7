"""`--communication`: every collective of the best plan, what hides it, what carries it, and what accumulation costs.

The collectives are those of `cost/training/collectives.py`; their times are those of the tree that costed the plan.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from ridgeline.cost.placement import TORUS_AXES
from ridgeline.cost.training.collectives import KINDS, step_collectives
from ridgeline.cost.training.memory import training_memory
from ridgeline.cost.training.step import training_step
from ridgeline.cost.work import shown_shares
from ridgeline.job.job import BATCH_AXES, DCN_AXES
from ridgeline.search.estimate import verdict
from ridgeline.search.pinned import pinned_columns, pinned_to
from ridgeline.units import format_bytes, format_decimal_bytes, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ridgeline.cost.columns import PlanColumns, TrainingSetting
    from ridgeline.cost.work import Part, Phase
    from ridgeline.hardware.chip import Chip
    from ridgeline.job.job import Job
    from ridgeline.search.answer import PlanEstimate, Verdict

Engine: TypeAlias = Literal["sparse_core", "continuation_fusion", "tensor_core", "megascale", "gpu"]
"""What carries a collective: `megascale` between slices, by the hosts, `gpu` by kernels of the GPU itself."""

SPARSE_CORE_KINDS: Final = ("all_gather", "reduce_scatter", "all_reduce")
"""Collectives that XLA can run on SparseCores."""

SPARSE_CORE_CHIPS: Final = frozenset({"tpu7x"})
"""Chips on which XLA does so by default.
Source: AI-Hypercomputer/maxtext e591f30cb, benchmarks/xla_flags_library.py."""

FUSION_CHIPS: Final = frozenset({"v5e"})
"""Chips on which a collective continues inside the fusions beside it, on the TensorCore, by default.
Source: openxla/xla 28192b98, docs/flags_guidance.md; programs compiled by libtpu 0.0.50 start gathers early on v5e."""

FUSION_BY_FLAG_CHIPS: Final = frozenset({"v5p", "v6e"})
"""Chips on which recipes have it done by flags; without them the TensorCore waits.
Source: AI-Hypercomputer/maxtext e591f30cb, src/maxtext/configs/README.md; programs compiled by libtpu 0.0.50 wait."""

FUSED_KINDS: Final = frozenset({"all_gather"})
"""Collectives of which that is true. Source: openxla/xla 28192b98, docs/flags_guidance.md."""

_OF_TENSOR_CORE: Final = frozenset({"tensor_core", "continuation_fusion"})

_BEHIND: Final[Mapping[str, str]] = {
    "weights": "a layer's computation",
    "expert_weights": "a layer's computation",
    "data": "the last micro-step's backward pass",
    "tensor": "the matmul beside it",
    "context": "nothing: attention waits for it",
    "expert": "nothing: the experts wait for it",
    "stage": "nothing: the next stage waits for it",
}
"""By group of devices: what runs beside its collectives in the estimate."""

_OF_WEIGHTS: Final = frozenset({"weights", "expert_weights", "data", "expert_data"})
"""Groups whose collectives move weights, or their gradients."""

_GATHERED: Final = frozenset({"weights", "expert_weights"})
"""Those over which weights are gathered, and their gradients scattered."""

_ROWS: Final = "all_to_all"
"""What moves over such a group and is no weight: rows looked up in a table that is not gathered."""

_RING: Final = "attention over the keys at hand"
"""What runs beside the hand-over of keys and values around a ring."""

_WAITED_FOR: Final = "nothing: it waits"
"""The same where the compiler makes a collective synchronous and the estimate says so, or where all of it shows."""

_RESIDUE: Final = 1e-9
"""What rounding leaves of a difference of two times."""

MICRO_STEPS: Final = (1, 2, 4, 8, 16)
"""Micro-steps that are laid side by side, as far as the batch divides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveUse:
    """All collectives of one kind, group and phase in a step, on one device.

    Attributes:
        kind: As HLO calls it.
        carried_out_as: The kind that the compiler makes of it.
        group: Of devices that communicate.
        axes: Mesh axes that it lies along.
        physical: Axes of the machine under them.
        phase: Of the step.
        count: Runs in a step.
        array_bytes: Of the gathered, scattered, summed or exchanged arrays, all runs together.
        busy_s: How long the links are busy with them.
        exposed_s: What of that the step waits for.
        behind: What hides the rest.
        engine: What carries it.
        is_asynchronous: Whether other work goes on beside it by default; where not, nothing is hidden.
        reason: Why that.
    """

    kind: str
    carried_out_as: str
    group: str
    axes: tuple[str, ...]
    physical: tuple[str, ...]
    phase: Phase
    count: float
    array_bytes: float
    busy_s: float
    exposed_s: float
    behind: str
    engine: Engine
    is_asynchronous: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AccumulationCost:
    """The best plan's mesh and remat policy with another number of micro-steps, at the same batch.

    Attributes:
        micro_steps: Of one step.
        gathered_bytes: Weights gathered and gradients scattered in a step, per device.
        exposed_s: Time of the step that waits for them.
        expected_s: The step.
        needed_bytes: Memory of a device.
        verdict: Whether it fits.
    """

    micro_steps: int
    gathered_bytes: float
    exposed_s: float
    expected_s: float
    needed_bytes: float
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class CommunicationAnswer:
    """How the best plan communicates.

    Attributes:
        collectives: What shows longest first.
        accumulation: By number of micro-steps; empty for a pipeline, which has its microbatches instead.
        step_s: The step.
        layer_bytes: Weights or gradients of a layer in one collective, by kind; a table's and a head's share is in it.
        advice: On pipelined and two-stage gathers, in sentences.
    """

    collectives: tuple[CollectiveUse, ...]
    accumulation: tuple[AccumulationCost, ...]
    step_s: float
    layer_bytes: Mapping[str, float]
    advice: tuple[str, ...]

    @property
    def kinds(self) -> frozenset[str]:
        """Of the collectives inside a slice."""
        return frozenset(use.kind for use in self.collectives if use.engine != "megascale")


def communication(job: Job, best: PlanEstimate, *, global_batch: int) -> CommunicationAnswer:
    """The collectives of a plan.

    Args:
        job: The question.
        best: The plan.
        global_batch: Sequences of a step.
    """
    setting, columns = pinned_columns(pinned_to(job, best.plan, global_batch=global_batch))
    collectives = tuple(sorted(_uses(job, best, setting, columns), key=lambda use: (-use.exposed_s, -use.busy_s)))
    gathered_bytes = _gathered_layer_bytes(job, best, collectives)
    return CommunicationAnswer(
        collectives=collectives,
        accumulation=tuple(_accumulations(setting, columns)),
        step_s=best.step.expected_s,
        layer_bytes=_layer_bytes(job, best, collectives),
        advice=tuple(_advice(setting, best, collectives, layer_bytes=gathered_bytes)),
    )


def _layer_bytes(job: Job, best: PlanEstimate, collectives: Sequence[CollectiveUse]) -> dict[str, float]:
    """The largest of each kind; gradients are summed once a step, the rest moves in every micro-step."""
    moved: defaultdict[str, float] = defaultdict(float)
    layers, passes = _layers_and_passes(job, best)
    for use in collectives:
        if use.group in _OF_WEIGHTS and use.kind != _ROWS:
            runs = layers * (1 if use.kind == "all_reduce" else passes)
            moved[use.kind] = max(moved[use.kind], use.array_bytes / runs)
    return dict(moved)


def _gathered_layer_bytes(job: Job, best: PlanEstimate, collectives: Sequence[CollectiveUse]) -> float:
    """Gathered weights of a layer, those of its experts too: of a backward pass, which gathers no table and no head."""
    of_group: dict[str, float] = {}
    for use in collectives:
        if use.kind == "all_gather" and use.group in _GATHERED and use.array_bytes > 0:
            of_group[use.group] = min(of_group.get(use.group, use.array_bytes), use.array_bytes)
    return sum(of_group.values()) / prod(_layers_and_passes(job, best))


def _layers_and_passes(job: Job, best: PlanEstimate) -> tuple[float, int]:
    """Layers of a stage, and how often a step passes through them."""
    plan = best.plan
    stages = plan.mesh.get("pp", 1) * plan.mesh.get("dcn_pp", 1)
    return job.model.num_layers / stages, plan.gradient_accumulation * plan.microbatches


def _uses(job: Job, best: PlanEstimate, setting: TrainingSetting, columns: PlanColumns) -> Iterator[CollectiveUse]:
    counts: defaultdict[tuple[str, str, Phase], float] = defaultdict(float)
    moved: defaultdict[tuple[str, str, Phase], float] = defaultdict(float)
    axes: dict[str, tuple[str, ...]] = {}
    for each in step_collectives(setting, columns):
        key = each.kind, each.group, each.phase
        counts[key] += each.count
        moved[key] += each.total_bytes
        axes[each.group] = each.axes
    times = _times_s(training_step(setting, columns), setting)
    for key, array_bytes in moved.items():
        kind, group, phase = key
        busy_s, exposed_s = times[key]
        is_whole = kind == "reduce_scatter" and group in _GATHERED and setting.efficiency.sum_passes > 1
        carried_out_as = "all_reduce" if is_whole else kind
        engine, reason = carried_by(job, carried_out_as, axes[group])
        is_asynchronous = engine not in _OF_TENSOR_CORE or _runs_beside_compute(job.hardware.chip, kind)
        yield CollectiveUse(
            kind=kind,
            carried_out_as=carried_out_as,
            group=group,
            axes=axes[group],
            physical=tuple(best.plan.placement[axis] for axis in axes[group] if axis in best.plan.placement),
            phase=phase,
            count=counts[key],
            array_bytes=array_bytes,
            busy_s=busy_s,
            exposed_s=exposed_s,
            behind=_behind(kind, group, waits=exposed_s >= busy_s * (1 - _RESIDUE)),
            engine=engine,
            is_asynchronous=is_asynchronous,
            reason=reason,
        )


def _behind(kind: str, group: str, *, waits: bool) -> str:
    """What hides a collective in the estimate."""
    if (kind, group) == ("collective_permute", "context"):
        return _RING
    return _WAITED_FOR if waits and not _BEHIND[group].startswith("nothing") else _BEHIND[group]


def _times_s(step: Part, setting: TrainingSetting) -> Mapping[tuple[str, str, Phase], tuple[float, float]]:
    """By kind, group and phase: how long the links are busy, and what of it shows."""
    shown = 1.0 - setting.tensor_overlap
    found: defaultdict[tuple[str, str, Phase], tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
    for leaf, exposed_s in _exposed(step, 1.0):
        group = next((name.partition(".")[2] for name in leaf.work.amounts if name.startswith("link.")), "")
        if not group:
            continue
        busy_s = float(leaf.expected_s)
        if group == "tensor" and shown > 0:
            busy_s /= shown
        key = KINDS[leaf.name.rpartition("/")[2]], group, leaf.phase
        before = found[key]
        found[key] = before[0] + busy_s, before[1] + exposed_s
    return found


def _exposed(part: Part, share: float) -> Iterator[tuple[Part, float]]:
    """Every leaf with the time that it adds to the step."""
    match part.composition:
        case "leaf":
            yield part, share * float(part.expected_s)
        case "sequence":
            for child in part.children:
                yield from _exposed(child, share)
        case "overlap":
            yield from _exposed(part.children[0], share)
            for child, shown in shown_shares(part):
                yield from _exposed(child, share * shown)


def carried_by(job: Job, kind: str, axes: tuple[str, ...]) -> tuple[Engine, str]:
    """What carries a collective, and why.

    Args:
        job: The machine, and what its compiler is told.
        kind: Of the collective, as HLO calls it.
        axes: Mesh axes that it lies along.
    """
    chip, offload = job.hardware.chip, job.plan.compiler.sparse_core_offload
    if any(axis in DCN_AXES for axis in axes):
        return "megascale", "between slices the hosts send, over the data-center network"
    if chip.vendor != "google":
        return "gpu", "kernels of the GPU, on streams beside the matmuls'"
    if kind == "collective_permute":
        return "tensor_core", "neighbours copy to each other beside other work"
    return _on_tpu(chip, kind, offload)


def _runs_beside_compute(chip: Chip, kind: str) -> bool:
    return kind == "collective_permute" or (chip.name in FUSION_CHIPS and kind in FUSED_KINDS)


def _on_tpu(chip: Chip, kind: str, offload: tuple[str, ...]) -> tuple[Engine, str]:
    if kind in offload:
        return "sparse_core", "the job says so"
    if chip.name in SPARSE_CORE_CHIPS and kind in SPARSE_CORE_KINDS:
        if offload:
            return "tensor_core", f"the job offloads only {', '.join(offload)}"
        return "sparse_core", "offloaded by default on this chip"
    if chip.name in FUSION_CHIPS and kind in FUSED_KINDS:
        return "continuation_fusion", "continues inside the fusions beside it; by default on this chip"
    if chip.name in FUSION_BY_FLAG_CHIPS and kind in FUSED_KINDS:
        return (
            "continuation_fusion",
            "continues inside the fusions beside it if flags say so; the TensorCore waits by default",
        )
    return "tensor_core", "the TensorCore waits, unless a flag makes it asynchronous"


def _accumulations(setting: TrainingSetting, columns: PlanColumns) -> Iterator[AccumulationCost]:
    """The same mesh and policy in more and fewer micro-steps."""
    if float(columns.stages) > 1:
        return
    sequences = setting.global_batch / float(columns.degree(BATCH_AXES))
    for micro_steps in (count for count in MICRO_STEPS if sequences % count == 0):
        other = replace(columns, accumulation=float(micro_steps))
        step = training_step(setting, other)
        times = _times_s(step, setting)
        total_bytes = float(training_memory(setting, other).total_bytes)
        yield AccumulationCost(
            micro_steps=micro_steps,
            gathered_bytes=sum(
                each.total_bytes
                for each in step_collectives(setting, other)
                if each.group in _GATHERED and each.kind != _ROWS
            ),
            exposed_s=sum(
                shown_s for (kind, group, _), (_, shown_s) in times.items() if group in _GATHERED and kind != _ROWS
            ),
            expected_s=float(step.expected_s),
            needed_bytes=total_bytes,
            verdict=verdict(total_bytes, setting.usable_hbm_bytes),
        )


def _advice(
    setting: TrainingSetting, best: PlanEstimate, collectives: tuple[CollectiveUse, ...], *, layer_bytes: float
) -> Iterator[str]:
    """Pipelined and two-stage gathers, as far as this plan has any."""
    waits = [use for use in collectives if not use.is_asynchronous and use.exposed_s < use.busy_s * (1 - _RESIDUE)]
    if waits:
        waiting_s = sum(use.busy_s - use.exposed_s for use in waits)
        kinds = sorted({use.kind.replace("_", "-") for use in waits})
        yield (
            f"The estimate hides {format_seconds(waiting_s)} of {', '.join(kinds)} that this compiler does not hide "
            f"by default: with the flags it can."
        )
    sums = [use for use in collectives if use.carried_out_as != use.kind]
    if sums:
        yield (
            "This chip's compiler carries out the reduce-scatters of gradients as all-reduces, of which a device keeps "
            f"its shard: they cross the links twice, {format_seconds(sum(use.busy_s for use in sums))}."
        )
    gathers = [use for use in collectives if use.kind == "all_gather" and use.group in _GATHERED]
    if not gathers:
        yield "No weight is gathered: there is nothing to pipeline."
        return
    yield from _pipelined(gathers, layer_bytes=layer_bytes)
    yield _two_stage(setting, best, gathers)


def _pipelined(gathers: Sequence[CollectiveUse], *, layer_bytes: float) -> Iterator[str]:
    """What it hides to gather a layer ahead, and what that holds."""
    busy_s, exposed_s = (sum(use.busy_s for use in gathers), sum(use.exposed_s for use in gathers))
    if exposed_s >= busy_s * (1 - _RESIDUE):
        yield (
            f"Pipelined gathers fetch the next layer's weights while this one computes: here the TensorCore waits for "
            f"them, {format_seconds(busy_s)} of the step in the estimate too. Flags that hide them would hold a second "
            f"layer's weights, {format_bytes(layer_bytes)} a device."
        )
        return
    hidden = f"{format_seconds(busy_s - exposed_s)} ({1 - exposed_s / busy_s:.0%})" if busy_s else "all"
    yield (
        f"Pipelined gathers fetch the next layer's weights while this one computes: the estimate counts on it, and "
        f"hides {hidden} of {format_seconds(busy_s)}. A second layer's weights are held for it, "
        f"{format_bytes(layer_bytes)} a device."
    )


def _two_stage(setting: TrainingSetting, best: PlanEstimate, gathers: Sequence[CollectiveUse]) -> str:
    """Whether weights can be gathered over one FSDP axis and then the other, and what that saves."""
    split = [axis for axis in ("fsdp_transpose", "fsdp") if best.plan.mesh.get(axis, 1) > 1]
    if len(split) == len(("fsdp_transpose", "fsdp")):
        first, second = (best.plan.mesh[axis] for axis in split)
        gathered_bytes = sum(use.array_bytes for use in gathers)
        copied_s = 2 * gathered_bytes / setting.hbm_bytes_per_s
        return (
            f"Two-stage gathers apply: fsdp_transpose={first} first, of 1/{second} of the array, then fsdp={second}. "
            f"One gather along both leaves the array interleaved, and a transpose of it reads and writes "
            f"{format_decimal_bytes(2 * gathered_bytes)} of HBM a step, at least {format_seconds(copied_s)}; the "
            f"estimate has none."
        )
    torus = {piece[0] for use in gathers for words in use.physical for piece in words.split() if piece[0] in TORUS_AXES}
    over = f", which lies along {len(torus)} axes of the torus at once" if len(torus) > 1 else ""
    return f"Two-stage gathers do not apply: weights are split over one FSDP axis{over}."
