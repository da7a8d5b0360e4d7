"""`--batch-levers`: how many sequences a device takes in one pass, and what each lever does to that.

The plan is stripped first: what the backward pass reads is kept, the logits are whole, the optimizer's moments are on
the device. Each lever is then turned by itself. The mesh is chosen anew every time, without a pipeline unless the job
has one: microbatches and micro-steps hold a batch down without holding what it needs at once. Micro-steps are the last
lever.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

from ridgeline.errors import InfeasibleError, InputError
from ridgeline.job.job import DCN_AXES, ICI_AXES, Remat
from ridgeline.job.mesh import FREE
from ridgeline.job.precision import parse_quantization
from ridgeline.search.answer import NoPlan, PlanEstimate
from ridgeline.search.batch import MOST_TOKENS, is_worth_it
from ridgeline.search.train import train

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ridgeline.job.job import Dtypes, Job, PlanRequest
    from ridgeline.search.train import Progress

STRIPPED: Final = Remat(policy="minimal_with_context")
"""Keeps the output of every matmul and of attention: the policy that computes next to nothing again."""

OFFLOADING: Final = Remat(policy="minimal_offloaded")
VOCAB_TILES: Final = 8
SIZES: Final = (1 / 8, 1 / 4, 3 / 8, 1 / 2, 3 / 4, 1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Sequences a device that are tried."""

HALVED: Final = (1 / 8, 1 / 4, 1 / 2)
"""Those of them that halving one sequence a device comes to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTried:
    """A batch that fits under a lever.

    Attributes:
        sequences_per_device_ratio: Sequences of a step over devices.
        global_batch: Sequences of a step.
        best: The best plan at it.
    """

    sequences_per_device_ratio: float
    global_batch: int
    best: PlanEstimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """What the next larger batch lacks.

    Attributes:
        resource: `hbm` of a device, or `host_ram` of a host.
        global_batch: Sequences of that batch.
        needed_bytes: What its least plan needs of it.
        usable_bytes: What there is.
    """

    resource: Literal["hbm", "host_ram"]
    global_batch: int
    needed_bytes: float
    usable_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LeverAnswer:
    """What one lever does to the batch.

    Attributes:
        name: Of the lever.
        says: What of the plan it changes, as a job file says it.
        tried: The batches that fit, smallest first.
        largest: The largest batch that fits; None where none does.
        sensible: The one up to which each doubling is worth it; None where none fits.
        is_capped: Whether the largest is only the largest tried.
        shortage: What stops a larger batch; None where nothing larger was tried, or nothing fits.
        reason: Why the lever cannot be turned here; "" where it can.
    """

    name: str
    says: str
    tried: tuple[BatchTried, ...]
    largest: BatchTried | None
    sensible: BatchTried | None
    is_capped: bool
    shortage: Shortage | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lever:
    name: str
    says: str
    plan: PlanRequest | None
    reason: str = ""


def batch_levers(job: Job, *, progress: Progress | None = None) -> tuple[LeverAnswer, ...]:
    """Each lever by itself, after the plan without any.

    Args:
        job: The question; its batch is not looked at.
        progress: Told how far it is.
    """
    levers = list(_levers(job))
    found: list[LeverAnswer] = []
    for lever in levers:
        if progress is not None:
            progress(f"trying batches: {lever.name}", len(found) / len(levers))
        found.append(_answer(job, lever))
    return tuple(found)


def _levers(job: Job) -> Iterator[_Lever]:
    """The plan without any lever, then each."""
    plan, chip = job.plan, job.hardware.chip
    bare = replace(
        plan,
        mesh=plan.mesh or _unpiped(job),
        gradient_accumulation=1,
        quantization=None,
        dtypes=replace(plan.dtypes, activations=plan.dtypes.compute),
        vocab_tiling=1,
        remat=STRIPPED,
        optimizer=replace(plan.optimizer, mu_dtype="f32", nu_dtype="f32", state="device"),
    )
    optimizer = bare.optimizer
    host = "" if chip.pcie_bytes_per_s is not None else f"the PCIe rate of {chip.name} is not public"
    kind = next((kind for kind in ("fp8", "int8") if kind in chip.peak_flops_per_s), None)
    yield _Lever(name="none", says=f'remat = "{STRIPPED.policy}"', plan=bare)
    yield _Lever(name="remat", says='remat = "full"', plan=replace(bare, remat=Remat(policy="full")))
    yield _Lever(
        name="offload",
        says=f'remat = "{OFFLOADING.policy}"',
        plan=None if host else replace(bare, remat=OFFLOADING),
        reason=host,
    )
    if kind is None:
        yield _Lever(name="low precision", says="", plan=None, reason=f"{chip.name} has neither fp8 nor int8")
    else:
        recipe = parse_quantization({"kind": kind}, where="--batch-levers")
        narrow: Dtypes = replace(bare.dtypes, activations=kind)
        yield _Lever(name=f"{kind} matmuls", says=f'quantization = "{kind}"', plan=replace(bare, quantization=recipe))
        yield _Lever(
            name=f"{kind} activations",
            says=f'quantization = "{kind}", dtypes = {{ activations = "{kind}" }}',
            plan=replace(bare, quantization=recipe, dtypes=narrow),
        )
    yield _Lever(
        name="vocabulary tiles", says=f"vocab_tiling = {VOCAB_TILES}", plan=replace(bare, vocab_tiling=VOCAB_TILES)
    )
    yield _Lever(
        name="bf16 moments",
        says='optimizer = { mu_dtype = "bf16", nu_dtype = "bf16" }',
        plan=replace(bare, optimizer=replace(optimizer, mu_dtype="bf16", nu_dtype="bf16")),
    )
    yield _Lever(
        name="moments on the host",
        says='optimizer = { state = "host" }',
        plan=None if host else replace(bare, optimizer=replace(optimizer, state="host")),
        reason=host,
    )
    yield _Lever(
        name="micro-steps", says="gradient_accumulation is free", plan=replace(bare, gradient_accumulation=None)
    )


def _unpiped(job: Job) -> dict[str, int]:
    """All axes but pipelines free."""
    axes = (*ICI_AXES, *(DCN_AXES if job.hardware.num_slices > 1 else ()))
    return {axis: FREE for axis in axes if axis not in {"pp", "dcn_pp"}}


def _answer(job: Job, lever: _Lever) -> LeverAnswer:
    if lever.plan is None:
        return LeverAnswer(
            name=lever.name,
            says=lever.says,
            tried=(),
            largest=None,
            sensible=None,
            is_capped=False,
            reason=lever.reason,
        )
    devices, seq_len = job.hardware.num_devices, job.workload.seq_len
    most = min(SIZES[-1], MOST_TOKENS / (devices * seq_len))
    tried: list[BatchTried] = []
    shortage: Shortage | None = None
    for size in (size for size in SIZES if 1 / devices <= size <= most):
        try:
            planned = _planned(replace(job, plan=lever.plan), round(size * devices))
        except InputError:  # the batch does not divide over what is pinned
            continue
        if isinstance(planned, PlanEstimate):
            tried.append(BatchTried(sequences_per_device_ratio=size, global_batch=round(size * devices), best=planned))
        elif tried:
            shortage = planned
            break
    return LeverAnswer(
        name=lever.name,
        says=lever.says,
        tried=tuple(tried),
        largest=tried[-1] if tried else None,
        sensible=_sensible(tried),
        is_capped=shortage is None,
        shortage=shortage,
        reason="" if tried else "does not fit at any batch",
    )


def _planned(job: Job, global_batch: int) -> PlanEstimate | Shortage:
    """The best plan at a batch; where none fits, what is short."""
    try:
        return train(replace(job, workload=replace(job.workload, global_batch=global_batch))).best
    except InfeasibleError as error:
        if not isinstance(error.answer, NoPlan):
            raise
        memory = error.answer.closest.memory
    if memory.host_usable_bytes is None or memory.verdict == "does_not_fit":
        needed_bytes, usable_bytes = memory.total_bytes, memory.usable_bytes
        return Shortage(resource="hbm", global_batch=global_batch, needed_bytes=needed_bytes, usable_bytes=usable_bytes)
    return Shortage(
        resource="host_ram",
        global_batch=global_batch,
        needed_bytes=memory.host_bytes,
        usable_bytes=memory.host_usable_bytes,
    )


def _sensible(tried: Sequence[BatchTried]) -> BatchTried | None:
    """The batch up to which each doubling is worth it, from one sequence a device; else the first half that fits."""
    whole = [each for each in tried if each.sequences_per_device_ratio >= 1]
    halved = [each for each in tried if each.sequences_per_device_ratio in HALVED]
    chosen: BatchTried | None = None
    for each in whole or (halved or list(tried))[-1:]:
        if chosen is not None and each.global_batch < 2 * chosen.global_batch:
            continue
        reached = 0.0 if chosen is None else chosen.best.tokens_per_s_per_chip
        if not is_worth_it(each.best.tokens_per_s_per_chip, half_tokens_per_s=reached):
            break
        chosen = each
    return chosen
