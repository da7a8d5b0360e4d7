"""Published runs of one job under two plans: which was faster, and which the estimate ranks first.

A job here is a model on a number of chips of one kind at one sequence length, as one publisher ran it. Runs that state
the same plan differ in kernels, flags and releases, of which a job says nothing: the fastest stands for the plan.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from itertools import combinations, groupby
from pathlib import Path
from typing import TYPE_CHECKING

from ridgeline.search.train import cost_pinned
from tests.measured.cases import MeasuredCase, measured_cases
from tests.measured.wording import kept_in_words, mesh_in_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A comparison that somebody told of.

    Attributes:
        source: Where.
        job: Of what.
        says: The figures.
        gain: Throughput of the faster over the slower, less 1.
        why: Why it is in no pair, or which pair it is.
    """

    source: str
    job: str
    says: str
    gain: float
    why: str


@cache
def pairs() -> tuple[Pair, ...]:
    """Every two plans of every job, however little they differ."""
    fastest: dict[tuple[str, ...], Ran] = {}
    for ran in sorted(_runs(), key=lambda ran: ran.case.tokens_per_s_per_chip):
        fastest[(ran.job_in_words, *ran.states.values())] = ran
    return _paired(fastest.values())


def pairs_of_runs() -> tuple[Pair, ...]:
    """Every two runs of different plans that differ by enough, the slow ones of a plan included."""
    return tuple(pair for pair in _paired(_runs()) if pair.levers and pair.counts)


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
    return {case.id: case.not_stated for case in measured_cases() if case.not_stated}


def told_rows() -> tuple[Told, ...]:
    """Comparisons without a row for each side."""
    rows = json.loads((Path(__file__).parent / "told.json").read_text(encoding="utf-8"))["rows"]
    return tuple(
        Told(
            source=row["source"],
            job=row["job"],
            says=row["told"],
            gain=row["gain"],
            why=f"Counted above: {row['as']}" if "as" in row else f"In no pair: {row['not_stated']}",
        )
        for row in rows
    )


@cache
def _runs() -> tuple[Ran, ...]:
    """Every run of which a job states all that matters."""
    return tuple(
        Ran(
            case=case,
            states=_states(case.job),
            expected_tokens_per_s_per_chip=cost_pinned(case.job).tokens_per_s_per_chip,
        )
        for case in measured_cases()
        if not case.not_stated
    )


def _paired(runs: Iterable[Ran]) -> tuple[Pair, ...]:
    """Every two runs of one job, job by job."""
    by_name = sorted(runs, key=lambda ran: ran.job_in_words)
    return tuple(
        Pair(faster=max(two, key=_measured), slower=min(two, key=_measured))
        for _, those in groupby(by_name, key=lambda ran: ran.job_in_words)
        for two in combinations(those, 2)
    )


def _measured(ran: Ran) -> float:
    return ran.case.tokens_per_s_per_chip


def _states(job: Job) -> Mapping[str, str]:
    """What a job states of its plan, lever by lever."""
    plan, hardware = job.plan, job.hardware
    recipe, context = plan.quantization, plan.context
    assert plan.remat is not None
    return {
        "mesh": f"{mesh_in_words(plan.mesh)} on {hardware.name}",
        "batch": f"batch {job.workload.global_batch:,}",
        "precision": "bf16" if recipe is None else f"{recipe.kind}, {recipe.scaling} scales",
        "remat": kept_in_words(job.model, plan.remat),
        "state": f"weights {plan.dtypes.weights}, gradients {plan.dtypes.gradients}, mu {plan.optimizer.mu_dtype}",
        "logits": f"logits in {plan.vocab_tiling}" if plan.vocab_tiling > 1 else "logits at once",
        "context": f"keys by {context.strategy}",
        "order": f"balanced: {context.load_balance}",
        "accumulation": f"{plan.gradient_accumulation} micro-steps",
    }
