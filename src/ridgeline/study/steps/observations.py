"""Measured steps made ready for many trials: the plan's columns are built once, each trial only composes the step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import hypot, isfinite, log
from typing import TYPE_CHECKING, Final

import numpy as np

from ridgeline.cost.calibration import load_prior
from ridgeline.cost.training.step import training_step
from ridgeline.errors import InputError, RidgelineError
from ridgeline.search.interval import model_part_shares
from ridgeline.search.train import pinned_row
from ridgeline.study.measured.case import Skipped
from ridgeline.study.steps.parameters import with_factors

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from ridgeline.cost.columns import PlanColumns, TrainingSetting
    from ridgeline.cost.efficiency import Efficiency
    from ridgeline.cost.work import Part
    from ridgeline.hardware.chip import ChipKind
    from ridgeline.job.job import Job
    from ridgeline.study.measured.case import MeasuredCase

_DEVIATIONS: Final[Mapping[str, float]] = {"A": 0.06, "B": 0.06, "C": 0.12}
"""By quality of the source: what kernels, flags and releases that no job states make of a step's time, as the standard
deviation of its logarithm; of configurations that differ in nothing else, up to 1.27x is published."""

_UNGRADED: Final = 0.10
_DERIVED: Final = 0.20
_NOT_STATED: Final = 0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A measured step and what is needed to estimate it anew.

    Attributes:
        case: The measurement.
        setting: What its plans share.
        columns: Its plan.
        prior: The chip's efficiencies before any step was looked at.
        deviation: Of the logarithm of the measured time, beyond any model's reach.
    """

    case: MeasuredCase
    setting: TrainingSetting
    columns: PlanColumns
    prior: Efficiency
    deviation: float

    @property
    def kind(self) -> ChipKind:
        """Of its chip."""
        return self.case.kind

    @property
    def cell(self) -> str:
        """Its chip."""
        return self.case.chip

    @property
    def parts(self) -> tuple[str, ...]:
        """What its parameters are parts of: kind and chip."""
        return self.kind, self.case.chip

    @property
    def cluster(self) -> str:
        """Of its case."""
        return self.case.cluster

    def step(self, efficiency: Efficiency) -> Part:
        """The tree of the step under other efficiencies."""
        return training_step(replace(self.setting, efficiency=efficiency), self.columns)

    def shares(self, factors: Mapping[str, NDArray[np.float64]]) -> Mapping[str, float]:
        """Of the parts of the step under factors on the prior (`uncertainty.part_shares`)."""
        return model_part_shares(self.step(with_factors(self.prior, factors)), self.case.job.model)

    def expected_s(self, factors: Mapping[str, NDArray[np.float64]]) -> NDArray[np.float64]:
        """Time of the step under trial factors on the prior, a column of them each."""
        count = len(next(iter(factors.values())))
        times_s = self.step(with_factors(self.prior, factors)).expected_s
        return np.broadcast_to(np.asarray(times_s, dtype=np.float64), (count,))


def observations(
    cases: Sequence[MeasuredCase],
    *,
    prior_of: Callable[[str], Efficiency] = load_prior,
    progress: Callable[[str, float], None] | None = None,
) -> tuple[list[Observation], list[Skipped]]:
    """Cases made ready, and those that cannot be estimated, with the reason.

    Args:
        cases: Measured steps.
        prior_of: A chip's efficiencies before these steps were looked at.
        progress: Told how far it is.
    """
    ready: list[Observation] = []
    left_out: list[Skipped] = []
    for index, case in enumerate(cases):
        if progress is not None:
            progress("reading measured steps", index / len(cases))
        try:
            ready.append(_observation(case, prior_of(case.chip)))
        except RidgelineError as error:
            left_out.append(Skipped(id=case.id, reason=f"cannot be estimated: {str(error).splitlines()[0]}"))
    return ready, left_out


def _observation(case: MeasuredCase, prior: Efficiency) -> Observation:
    setting, columns = pinned_row(case.job)
    found = Observation(case=case, setting=setting, columns=columns, prior=prior, deviation=0.0)
    expected_s = float(found.step(prior.in_whole_steps).expected_s)
    if not (isfinite(expected_s) and expected_s > 0):
        raise InputError(
            "the estimate is not a number", where=case.id, value=expected_s, expected="a step time", fix="report it"
        )
    others = [*_other_readings(case.alternatives, prior), expected_s]
    between_readings = log(max(others) / min(others)) / 2
    return replace(found, deviation=hypot(_deviation(case), between_readings))


def _deviation(case: MeasuredCase) -> float:
    parts = (
        _DEVIATIONS.get(case.quality, _UNGRADED),
        _DERIVED if case.source_of_measured == "derived" else 0.0,
        _NOT_STATED if case.not_stated else 0.0,
    )
    return hypot(*parts)


def _other_readings(jobs: Sequence[Job], prior: Efficiency) -> list[float]:
    """Step times under the other readings of what a source leaves open."""
    times_s: list[float] = []
    for job in jobs:
        try:
            setting, columns = pinned_row(job)
        except RidgelineError:
            continue
        alone = replace(setting, efficiency=prior.in_whole_steps)
        times_s.append(float(training_step(alone, columns).expected_s))
    return [time_s for time_s in times_s if isfinite(time_s) and time_s > 0]
