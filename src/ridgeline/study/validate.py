"""`validate`: measured cases beside their estimates, and how far they are apart, over all and by group."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isfinite
from typing import TYPE_CHECKING, Final

from ridgeline.cost.causes import time_by_cause
from ridgeline.cost.uncertainty import scale
from ridgeline.errors import InputError, RidgelineError
from ridgeline.job.own_calibration import read_own_calibration
from ridgeline.search.train import cost_pinned
from ridgeline.study.measured.case import Skipped
from ridgeline.study.measured.files import published_cases, published_serving_cases, read_cases
from ridgeline.study.score import RankAgreement, Score, ScoredRow, rank_agreement, score
from ridgeline.study.validate_serving import serving_groups, validate_serving

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ridgeline.search.answer import MemoryEstimate, PlanEstimate
    from ridgeline.search.train import Progress
    from ridgeline.study.measured.case import MeasuredCase, MemoryCase
    from ridgeline.study.measured.files import MeasuredCases
    from ridgeline.study.validate_serving import ValidatedServing

_GRADED: Final = ("A", "B")


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidatedRow:
    """A measured case beside its estimate.

    Attributes:
        case: What was measured, of which job.
        scored: Measurement, estimate and interval in the unit of what was measured.
        estimate: The plan's estimate in full.
        spread: Least and most of the estimates under all readings of what the source left open; None where it is sure.
    """

    case: MeasuredCase
    scored: ScoredRow
    estimate: PlanEstimate
    spread: tuple[float, float] | None

    @property
    def as_step_time(self) -> ScoredRow:
        """The same with a throughput turned into the step time that it gives."""
        step = self.estimate.step
        return ScoredRow(
            cluster=self.scored.cluster,
            measured=self.case.step_s,
            expected=step.expected_s,
            low=step.low_s,
            high=step.high_s,
        )

    @property
    def causes(self) -> Mapping[str, float]:
        """Parts of the expected step by cause, largest first; they add up to 1."""
        step = self.estimate.step
        shares = {cause: time_s / step.expected_s for cause, time_s in time_by_cause(step.parts).items()}
        return dict(sorted(shares.items(), key=lambda each: -each[1]))


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidatedMemory:
    """A run that fitted or did not, beside what the estimate says of it."""

    case: MemoryCase
    memory: MemoryEstimate

    @property
    def verdict(self) -> str:
        """`right`, `wrong`, or `tight` where the estimate is too near the limit to tell."""
        said = self.memory.verdict
        if said == "tight":
            return said
        return "right" if (said == "fits") == self.case.fits else "wrong"


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidateAnswer:
    """What `ridgeline validate` answers.

    Attributes:
        rows: Every training step that is used.
        serving: Every measurement of a server that is used.
        memory: Every run of which it is known whether it fitted.
        skipped: What is not used, with the reason.
        score: Over training steps; where there are none, over measurements of servers.
        groups: Scores by what training steps have in common, then by its value.
        serving_score: Over measurements of servers.
        serving_groups: Scores of these, in the same way.
        ranks: Rank agreement among the configurations of one model on one kind of chip, by both.
    """

    rows: tuple[ValidatedRow, ...]
    serving: tuple[ValidatedServing, ...]
    memory: tuple[ValidatedMemory, ...]
    skipped: tuple[Skipped, ...]
    score: Score | None
    groups: Mapping[str, Mapping[str, Score]]
    serving_score: Score | None
    serving_groups: Mapping[str, Mapping[str, Score]]
    ranks: Mapping[str, RankAgreement]

    @property
    def considered(self) -> int:
        """Records that were looked at."""
        return self.used + len(self.memory) + len(self.skipped)

    @property
    def used(self) -> int:
        """Records of steps and servers beside an estimate; one that states several times is one."""
        return len(self.rows) + len({row.case.id for row in self.serving})

    @property
    def step_bias(self) -> float | None:
        """Bias of step times, whatever was measured: a throughput that is too high is a time that is too short."""
        found = score([row.as_step_time for row in self.rows])
        return None if found is None else found.bias

    @property
    def ranked(self) -> RankAgreement:
        """Rank agreement over all pairs."""
        return RankAgreement(
            pairs=sum(each.pairs for each in self.ranks.values()), right=sum(each.right for each in self.ranks.values())
        )


def validate(*paths: str, calibration: str | None = None, progress: Progress | None = None) -> ValidateAnswer:
    """How far the estimates are from measurements.

    Args:
        paths: Case files (.toml), files of records (.json), and folders; those that ship with the package if none.
        calibration: A folder of efficiencies that take the place of those that ship.
        progress: Told how far it is.

    Raises:
        InputError: A path does not exist or cannot be read, or nothing in it is a record.
    """
    cases = read_cases(paths) if paths else published_cases() + published_serving_cases()
    if calibration is not None:
        own = read_own_calibration(calibration, where="calibration")
        cases = replace(
            cases,
            training=tuple(replace(case, job=replace(case.job, calibration=own)) for case in cases.training),
            serving=tuple(
                replace(case, job=replace(case.job, calibration=own)) if own.text(f"{case.kind}.toml") else case
                for case in cases.serving
            ),
        )
    return validate_cases(cases, progress=progress)


def validate_cases(cases: MeasuredCases, *, progress: Progress | None = None) -> ValidateAnswer:
    """The same of cases that are read already."""
    rows: list[ValidatedRow] = []
    memory: list[ValidatedMemory] = []
    skipped = list(cases.skipped)
    for index, case in enumerate(cases.training):
        if progress is not None:
            progress("estimating", index / len(cases.training))
        try:
            rows.append(_row(case))
        except RidgelineError as error:
            skipped.append(Skipped(id=case.id, reason=_no_estimate(error)))
    for run in cases.memory:
        try:
            memory.append(ValidatedMemory(case=run, memory=cost_pinned(run.job).memory))
        except RidgelineError as error:
            skipped.append(Skipped(id=run.id, reason=_no_estimate(error)))
    serving, not_estimated = validate_serving(cases.serving, progress=progress)
    of_steps, of_servers = score([row.scored for row in rows]), score([row.scored for row in serving])
    return ValidateAnswer(
        rows=tuple(rows),
        serving=serving,
        memory=tuple(memory),
        skipped=(*skipped, *not_estimated),
        score=of_steps or of_servers,
        groups={name: _scores(rows, key) for name, key in GROUPS.items()},
        serving_score=of_servers,
        serving_groups=serving_groups(serving),
        ranks=_ranks(rows),
    )


def _no_estimate(error: RidgelineError) -> str:
    first = str(error).splitlines()[0]
    return f"cannot be estimated: {first}"


def _row(case: MeasuredCase) -> ValidatedRow:
    """A case with its estimate.

    Raises:
        RidgelineError: Its plan cannot be costed.
    """
    estimate = cost_pinned(case.job)
    step = estimate.step
    values = [_in_metric(case, time_s) for time_s in (step.low_s, step.expected_s, step.high_s)]
    if not all(isfinite(value) and value > 0 for value in values):
        raise InputError(
            "the estimate is not a number", where=case.id, value=values, expected="a step time", fix="report it"
        )
    low, expected, high = sorted(values)
    return ValidatedRow(
        case=case,
        scored=ScoredRow(cluster=case.cluster, measured=case.measured, expected=expected, low=low, high=high),
        estimate=estimate,
        spread=_spread(case, expected),
    )


def _in_metric(case: MeasuredCase, step_s: float) -> float:
    """A step time as what was measured."""
    return step_s if case.metric == "step_time_s" else case.step_tokens / step_s / case.chips


def _spread(case: MeasuredCase, expected: float) -> tuple[float, float] | None:
    """Least and most of the estimates under every reading of the source that can be costed."""
    if not case.alternatives:
        return None
    values = [expected]
    for job in case.alternatives:
        try:
            values.append(_in_metric(case, cost_pinned(job).step.expected_s))
        except RidgelineError:
            continue
    return min(values), max(values)


def _grade(case: MeasuredCase) -> str:
    return "A and B" if case.quality in _GRADED else "others"


GROUPS: Final[Mapping[str, Callable[[MeasuredCase], str]]] = {
    "accelerator": lambda case: case.kind,
    "chip": lambda case: case.chip,
    "model_kind": lambda case: case.model_kind,
    "precision": lambda case: case.precision,
    "chips": lambda case: scale(case.chips),
    "slices": lambda case: f"{case.slices}",
    "quality": lambda case: case.quality,
    "graded": _grade,
    "source_of_measured": lambda case: case.source_of_measured,
    "metric": lambda case: case.metric,
    "assumed": lambda case: "settings left open" if case.alternatives else "settings stated",
    "job_states": lambda case: "not all of the run" if case.not_stated else "all of the run",
    "family": lambda case: case.model,
}
"""What groups rows: the name of the group, and its value for a case."""


def _scores(rows: Sequence[ValidatedRow], key: Callable[[MeasuredCase], str]) -> dict[str, Score]:
    grouped: dict[str, list[ScoredRow]] = {}
    for row in rows:
        grouped.setdefault(key(row.case), []).append(row.scored)
    scores = {name: score(those) for name, those in grouped.items()}
    return {name: found for name, found in scores.items() if found is not None}


def _ranks(rows: Sequence[ValidatedRow]) -> dict[str, RankAgreement]:
    """Of the configurations of one model on one kind of chip; one with several runs counts by its fastest."""
    fastest: dict[str, dict[str, tuple[float, float]]] = {}
    for row in rows:
        case = row.case
        expected = case.step_tokens / row.estimate.step.expected_s / case.chips
        plan = f"{case.job.hardware.name} {case.job.workload} {case.job.plan}"
        rates = fastest.setdefault(f"{case.model} on {case.chip}", {})
        rates[plan] = max(rates.get(plan, (0.0, 0.0)), (case.tokens_per_s_per_chip, expected))
    ranks = {name: rank_agreement(list(rates.values())) for name, rates in fastest.items()}
    return {name: agreement for name, agreement in ranks.items() if agreement.pairs}
