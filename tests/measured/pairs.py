"""Published runs of one job under two plans: which was faster, and which the estimate ranks first.

A job here is a model on a number of chips of one kind at one sequence length, as one publisher ran it. Runs that state
the same plan differ in kernels, flags and releases, of which a job says nothing: the fastest stands for the plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import combinations, groupby
from typing import TYPE_CHECKING

from ridgeline.cost.layer import named_activations
from ridgeline.job.job import MESH_AXES
from ridgeline.job.remat import LAYER_INPUT, keeps_unnamed, placements
from ridgeline.model.tree import model_tree
from ridgeline.search.train import cost_pinned
from tests.measured.cases import MeasuredCase, measured_cases

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ridgeline.job.job import Job

LEAST_DIFFERENCE = 0.05
"""By how much two plans must differ, measured, to count."""

TIE = 0.001
"""Estimates that differ by no more rank nothing first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A plan that was run.

    Attributes:
        case: Its fastest run.
        states: What the job states of the plan, in words, by lever.
        expected_tokens_per_s_per_chip: By the estimate.
    """

    case: MeasuredCase
    states: Mapping[str, str]
    expected_tokens_per_s_per_chip: float

    @property
    def job_in_words(self) -> str:
        """Model, chips and sequence length."""
        hardware, workload = self.case.job.hardware, self.case.job.workload
        return (
            f"{self.case.job.model_reference} on {hardware.num_chips:,} {hardware.chip.name}, "
            f"{workload.seq_len:,} tokens ({self.case.source.split()[0]})"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two plans of one job.

    Attributes:
        faster: By measurement.
        slower: By measurement.
    """

    faster: Ran
    slower: Ran

    @property
    def measured_gain(self) -> float:
        """Throughput of the faster over the slower, less 1."""
        return self.faster.case.tokens_per_s_per_chip / self.slower.case.tokens_per_s_per_chip - 1

    @property
    def expected_gain(self) -> float:
        """The same by the estimate; negative where it ranks the other first."""
        return self.faster.expected_tokens_per_s_per_chip / self.slower.expected_tokens_per_s_per_chip - 1

    @property
    def counts(self) -> bool:
        """Whether they differ by enough."""
        return self.measured_gain > LEAST_DIFFERENCE

    @property
    def is_right(self) -> bool:
        """Whether the estimate ranks the faster first; a tie does not."""
        return self.expected_gain > TIE

    @property
    def levers(self) -> tuple[str, ...]:
        """In what they differ."""
        return tuple(name for name, said in self.faster.states.items() if said != self.slower.states[name])


@cache
def pairs() -> tuple[Pair, ...]:
    """Every two plans of every job, however little they differ."""
    return tuple(
        Pair(
            faster=max(two, key=lambda ran: ran.case.tokens_per_s_per_chip),
            slower=min(two, key=lambda ran: ran.case.tokens_per_s_per_chip),
        )
        for _, plans in groupby(_plans(), key=lambda ran: ran.job_in_words)
        for two in combinations(plans, 2)
    )


def counted() -> tuple[Pair, ...]:
    """Those that differ by enough."""
    return tuple(pair for pair in pairs() if pair.counts)


def by_job(some: Sequence[Pair]) -> Mapping[str, tuple[Pair, ...]]:
    """Pairs under the job they belong to."""
    return {job: tuple(those) for job, those in groupby(some, key=lambda pair: pair.faster.job_in_words)}


def share_right(some: Sequence[Pair]) -> float:
    """Of all pairs."""
    return sum(pair.is_right for pair in some) / len(some)


def not_stated() -> Mapping[str, str]:
    """Runs that could belong to a pair, with what of them no job can say."""
    return {case.name: case.not_stated for case in measured_cases() if case.not_stated}


def _plans() -> tuple[Ran, ...]:
    """Every plan that was run, the plans of one job together."""
    fastest: dict[tuple[str, ...], Ran] = {}
    for case in measured_cases():
        if case.not_stated:
            continue
        estimate = cost_pinned(case.job)
        ran = Ran(
            case=case,
            states=_states(case.job),
            expected_tokens_per_s_per_chip=case.step_tokens / estimate.step.expected_s / case.job.hardware.num_chips,
        )
        key = (ran.job_in_words, *ran.states.values())
        if key not in fastest or case.tokens_per_s_per_chip > fastest[key].case.tokens_per_s_per_chip:
            fastest[key] = ran
    return tuple(sorted(fastest.values(), key=lambda ran: ran.job_in_words))


def _states(job: Job) -> Mapping[str, str]:
    """What a job states of its plan, lever by lever."""
    plan, hardware = job.plan, job.hardware
    recipe, context = plan.quantization, plan.context
    mesh = " ".join(f"{axis}={plan.mesh[axis]}" for axis in MESH_AXES if plan.mesh[axis] > 1)
    return {
        "mesh": f"{mesh} on {hardware.name}",
        "batch": f"batch {job.workload.global_batch:,}",
        "precision": "bf16" if recipe is None else f"{recipe.kind}, {recipe.scaling} scales",
        "remat": _remat_in_words(job),
        "state": f"weights {plan.dtypes.weights}, gradients {plan.dtypes.gradients}, mu {plan.optimizer.mu_dtype}",
        "logits": f"logits in {plan.vocab_tiling}" if plan.vocab_tiling > 1 else "logits at once",
        "context": f"keys by {context.strategy}",
        "order": f"balanced: {context.load_balance}",
        "accumulation": f"{plan.gradient_accumulation} micro-steps",
    }


def _remat_in_words(job: Job) -> str:
    """What is kept of the values that the model has; two policies that keep the same are the same."""
    assert job.plan.remat is not None
    names = {LAYER_INPUT} | {each.name for layer in model_tree(job.model).layers for each in named_activations(layer)}
    placed = {name: place for name, place in placements(job.plan.remat).items() if name in names}
    kept = [name for name, place in placed.items() if place == "device" and name != LAYER_INPUT]
    moved = [name for name, place in placed.items() if place == "offload"]
    if keeps_unnamed(job.plan.remat):
        return "nothing computed again"
    said = [f"keeps {' '.join(kept)}" if kept else "", f"offloads {' '.join(moved)}" if moved else ""]
    return "; ".join(each for each in said if each) or "all computed again"
