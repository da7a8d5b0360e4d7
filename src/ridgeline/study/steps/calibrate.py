"""From measured steps to calibration files: what `ridgeline calibrate --from CASES` answers.

priors of kernels  →  factors fitted to steps, every fold in lockstep  →  errors of held-out steps  →  interval
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import numpy as np

from ridgeline.cost.calibration import load_efficiency, load_prior, load_uncertainty
from ridgeline.cost.uncertainty import STEP_TERMS
from ridgeline.study.measured.files import published_cases
from ridgeline.study.steps.cross_validation import folds
from ridgeline.study.steps.fit import fit
from ridgeline.study.steps.given import given_cases, nothing_to_fit
from ridgeline.study.steps.interval import STEP_INTERVAL, fit_intervals, measured_jobs
from ridgeline.study.steps.observations import observations
from ridgeline.study.steps.parameters import KINDS
from ridgeline.study.steps.record import (
    RECORD_FILE,
    Calibration,
    Record,
    record_csv,
    record_groups,
    recorded_rows,
    settled_values,
)
from ridgeline.study.steps.writing import steps_toml, uncertainty_toml
from ridgeline.study.validate import GROUPS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import date

    from ridgeline.cost.efficiency import Efficiency
    from ridgeline.cost.uncertainty import Uncertainty
    from ridgeline.study.measured.case import MeasuredCase
    from ridgeline.study.measured.files import MeasuredCases
    from ridgeline.study.steps.fit import Fits
    from ridgeline.study.steps.observations import Observation

IDENTIFIED: Final = 0.8
"""A parameter is settled where rows leave at most so much of its prior's standard deviation, on one chip at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Before:
    """What is known before these cases are looked at.

    Attributes:
        efficiency: Of a chip.
        uncertainty: Of estimates with it; None where no whole step has been looked at.
    """

    efficiency: Callable[[str], Efficiency]
    uncertainty: Uncertainty | None


def calibrate_steps(
    *paths: str, fitted_on: date | None = None, progress: Callable[[str, float], None] | None = None
) -> Calibration[MeasuredCase]:
    """Fits what whole steps can settle.

    Args:
        paths: Case files, records and folders, and `published` for the ones that ship; these alone if none is given.
        fitted_on: The day, for the files; today if none is said.
        progress: Told how far it is.

    Raises:
        InputError: A path cannot be read, or no case in it can be used.
    """
    fitted_on = fitted_on or datetime.now(tz=UTC).date()
    cases = given_cases(paths, published_cases)
    before = _before(cases)
    rows, left_out = observations(cases.training, prior_of=before.efficiency, progress=progress)
    if not rows:
        raise nothing_to_fit("measured step", paths, "cases with a step time or a throughput", others=cases.serving)
    folded = folds(rows)
    held = _not_identified(fit(rows, folded.selections[:1], progress=progress), rows)
    fits = fit(rows, folded.selections, held=held, progress=progress)
    uncertainties, widths = fit_intervals(rows, folded, fits, model=STEP_INTERVAL, before=before.uncertainty)
    recorded = recorded_rows([row.case for row in rows], folded, fits, widths)
    record = Record(
        rows=recorded,
        groups=record_groups(recorded, GROUPS),
        settled=settled_values(rows, fits),
        held={kind: tuple(sorted(key for each, key in held if each == kind)) for kind in KINDS},
        uncertainties=uncertainties,
    )
    jobs = measured_jobs(rows, terms=STEP_TERMS, before=before.uncertainty)
    return Calibration(
        record=record,
        fits=fits,
        skipped=(*cases.skipped, *left_out),
        files={
            **steps_toml(rows, fits, held=held, fitted_on=fitted_on),
            **uncertainty_toml([row.case for row in rows], uncertainties, jobs, fitted_on=fitted_on),
            RECORD_FILE: record_csv(recorded),
        },
    )


def _before(cases: MeasuredCases) -> _Before:
    """What ships, or kernels alone if it has seen any of these cases."""
    shipped = {(case.id, case.measured) for case in published_cases().training}
    if any((case.id, case.measured) in shipped for case in cases.training):
        return _Before(efficiency=load_prior, uncertainty=None)
    return _Before(efficiency=load_efficiency, uncertainty=load_uncertainty())


def _not_identified(fits: Fits, rows: Sequence[Observation]) -> frozenset[tuple[str, str]]:
    """What no chip of a kind has rows enough to tell; errors are not looked at, only how much rows depend on it."""
    kinds = {row.case.chip: row.kind for row in rows}
    before = [[each.deviation_on(kinds[chip]) for each in fits.parameters] for chip in fits.chips]
    left = fits.deviations[0] / np.array(before)
    return frozenset(
        (kind, parameter.key)
        for kind in KINDS
        for index, parameter in enumerate(fits.parameters)
        if min((left[chip, index] for chip, name in enumerate(fits.chips) if kinds[name] == kind), default=1.0)
        > IDENTIFIED
    )
