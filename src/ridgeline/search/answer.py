"""The answer to a training question: the best plan, its rivals, and why the others were refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.cost.explain import Derivation
    from ridgeline.cost.work import Part
    from ridgeline.job.job import (
        Dtypes,
        Job,
        Lora,
        Optimizer,
        OptimizerState,
        Placement,
        Quantization,
        Remat,
        TokenExchange,
    )
    from ridgeline.search.decision import Decision

Verdict: TypeAlias = Literal["fits", "tight", "does_not_fit"]

Bound: TypeAlias = Literal["compute", "hbm", "ici", "network", "host", "memory_capacity"]
"""What the step waits for. `ici` is NVLink on GPUs; `network` is DCN on TPUs; `memory_capacity` means that
a plan at least 10% faster exists but does not fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A complete plan: nothing is left to choose.

    Attributes:
        mesh: Degree of every axis that is larger than 1 (empty: one device).
        placement: Physical axes under each of those, e.g. `{"fsdp": "x4 y4 z4 core2"}`.
        gradient_accumulation: Micro-steps per optimizer step.
        microbatches: Per pipeline pass; 1 without a pipeline.
        repeats: Circular pipeline repeats; 1 without.
        gather_once: A pipeline's weights are gathered once a step, not for every microbatch.
        expert_exchange: How tokens reach the experts of other devices; None without expert parallelism.
        remat: What the forward pass keeps.
        dtypes: Storage and compute precisions.
        quantization: Low-precision recipe, or None.
        optimizer: Its state.
        lora: Adapters that are trained in place of the weights, or None.
        vocab_tiling: Chunks of the logits.
    """

    mesh: Mapping[str, int]
    placement: Mapping[str, str]
    gradient_accumulation: int
    microbatches: int
    repeats: int
    gather_once: bool
    expert_exchange: TokenExchange | None
    remat: Remat
    dtypes: Dtypes
    quantization: Quantization | None
    optimizer: Optimizer
    vocab_tiling: int
    lora: Lora | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEstimate:
    """Time of one optimizer step.

    Attributes:
        roofline_s: Lower bound: no run of this plan can be faster (published peaks, perfect overlap).
        expected_s: Estimate with calibrated efficiencies.
        low_s: Lower end of the estimate's interval.
        high_s: Upper end.
        widened_by: What few measured jobs had, or none, in words.
        parts: The tree `expected_s` is composed from.
    """

    roofline_s: float
    expected_s: float
    low_s: float
    high_s: float
    widened_by: tuple[str, ...]
    parts: Part


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEstimate:
    """Memory of one device at the peak of a step.

    Attributes:
        verdict: `fits`, `tight` (within 6% of the limit either way) or `does_not_fit`.
        total_bytes: Estimated peak.
        usable_bytes: What a program may allocate.
        parts: Bytes by part (parameters, optimizer, gradients, saved activations, …), all of them.
        largest: The largest single tensors behind the parts, largest first: (name, bytes).
        host_bytes: Offloaded bytes per host.
        host_usable_bytes: RAM of the host; None when not known.
    """

    verdict: Verdict
    total_bytes: float
    usable_bytes: float
    parts: Mapping[str, float]
    largest: tuple[tuple[str, float], ...] = ()
    host_bytes: float = 0.0
    host_usable_bytes: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEstimate:
    """A plan and what it costs.

    Attributes:
        plan: The plan.
        step: Its time.
        memory: Its memory.
        bound: What the step mainly waits for.
        bound_reason: That in words, with numbers.
        mfu: Model FLOPs over what the chips could do in bf16 in that time (convention: `mfu_convention`).
        tokens_per_s_per_chip: Throughput.
        slower_because: For an alternative, what makes it slower than the best; "" for the best.
        held: What the plan itself waits for, where its bound is the memory that a faster one would need; else None.
    """

    plan: Plan
    step: StepEstimate
    memory: MemoryEstimate
    bound: Bound
    bound_reason: str
    mfu: float
    tokens_per_s_per_chip: float
    slower_because: str = ""
    held: Bound | None = None

    @property
    def busiest(self) -> Bound:
        """The resource that is busy longest, whether or not memory holds a faster plan back."""
        return self.held or self.bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """A family of plans that was refused.

    Attributes:
        family: Its axes or setting, e.g. `dp only`, `tp=16`.
        reason: Why, with the numbers.
        plans: How many plans it covers; 0 when never enumerated.
    """

    family: str
    reason: str
    plans: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEstimate:
    """The whole run, when its length in tokens was given.

    Attributes:
        steps: Optimizer steps.
        duration_s: At the expected step time, without failures or restarts.
        chip_hours: Chips times hours.
        cost_usd: At list price; None when no price is public.
        price_source: Provider, region, term, date; "" when no price is public.
    """

    steps: float
    duration_s: float
    chip_hours: float
    cost_usd: float | None
    price_source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchStatistics:
    """What the search did.

    Attributes:
        plans: Plans costed.
        seconds: Time it took.
        fitting: Plans that fit.
    """

    plans: int
    seconds: float
    fitting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RematChoice:
    """One remat policy of the best plan.

    Attributes:
        remat: The policy.
        optimizer_state: Where the optimizer's moments live.
        expected_s: Step time under it.
        needed_bytes: Memory of a device, without what waits where there is room.
        host_bytes: Offloaded, per device.
        verdict: Whether it fits.
    """

    remat: Remat
    optimizer_state: OptimizerState
    expected_s: float
    needed_bytes: float
    host_bytes: float
    verdict: Verdict


MOMENTS = "moments"
"""The optimizer's, as a value that is kept somewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptValue:
    """What one named value of the best plan is worth, all others placed as they are.

    Attributes:
        name: Its checkpoint name; `MOMENTS` for the optimizer's, which every step reads again.
        placement: Where the plan puts it.
        device_bytes: Memory of a device that keeping it there takes.
        recompute_s: Time of a step that keeping it on the device saves over computing it again; NaN for the layer's
            input and for moments, which cannot be.
        offload_s: Time that keeping it on the host adds to keeping it on the device; NaN where no host can be used.
    """

    name: str
    placement: Placement
    device_bytes: float
    recompute_s: float
    offload_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RematAnswer:
    """Memory against step time of the best plan.

    Attributes:
        frontier: Custom policies that no other beats in both, least memory first; those that fit and those that do not.
        presets: MaxText's policies.
        values: What each named value is worth under the chosen policy; the optimizer's moments last.
    """

    frontier: tuple[RematChoice, ...]
    presets: tuple[RematChoice, ...]
    values: tuple[KeptValue, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainAnswer:
    """Everything `ridgeline train` answers.

    Attributes:
        job: The question.
        global_batch: Sequences per step: the job's, or the one the planner chose.
        best: The plan to run.
        alternatives: Up to five others, each the best of its kind, fastest first.
        rejected: Families that were refused, with reasons.
        run: Duration and cost, if the job has a length.
        search: What the search did.
        remat: Memory against step time under the policies of the best plan.
        decision: The best plan's sharding in words.
        mfu_convention: How FLOPs are counted for `mfu`.
        assumptions: What the estimate rests on, in words.
        derivations: Where the best plan's main numbers come from.
    """

    job: Job
    global_batch: int
    best: PlanEstimate
    alternatives: tuple[PlanEstimate, ...]
    rejected: tuple[Rejected, ...]
    run: RunEstimate | None
    search: SearchStatistics
    remat: RematAnswer
    decision: Decision
    mfu_convention: str
    assumptions: tuple[str, ...] = field(default_factory=tuple)
    derivations: tuple[Derivation, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NoPlan:
    """What `ridgeline train` found when no plan fits: the `answer` of its `InfeasibleError`.

    Attributes:
        job: The question.
        global_batch: Sequences per step: the job's, or the smallest one tried.
        closest: The plan that needs the least memory.
        rejected: Every family, with what it needs.
        search: What the search did.
    """

    job: Job
    global_batch: int
    closest: PlanEstimate
    rejected: tuple[Rejected, ...]
    search: SearchStatistics
