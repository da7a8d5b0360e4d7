"""From measured steps to calibration files: what `ridgeline calibrate --from CASES` answers.

priors of kernels  →  factors fitted to steps, every fold in lockstep  →  errors of held-out steps  →  interval
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import numpy as np

from ridgeline.cost.calibration import load_efficiency, load_prior, load_uncertainty
from ridgeline.errors import InputError
from ridgeline.study.measured.files import PUBLISHED, published_cases, read_cases
from ridgeline.study.steps.cross_validation import BY_CLUSTER, SCHEMES, folds, held_out_s
from ridgeline.study.steps.evidence import TERMS, count_jobs, evidence, joined
from ridgeline.study.steps.fit import fit
from ridgeline.study.steps.interval import PRIORS, cross_validated_widths, fit_uncertainties
from ridgeline.study.steps.observations import observations
from ridgeline.study.steps.parameters import KINDS
from ridgeline.study.steps.record import IN_SAMPLE, RECORD_FILE, Estimate, Record, RecordedRow, record_csv
from ridgeline.study.steps.writing import steps_toml, uncertainty_toml

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import date

    from numpy.typing import NDArray

    from ridgeline.cost.efficiency import Efficiency
    from ridgeline.cost.uncertainty import MeasuredJobs, Uncertainty
    from ridgeline.hardware.chip import ChipKind
    from ridgeline.study.measured.case import Skipped
    from ridgeline.study.measured.files import MeasuredCases
    from ridgeline.study.steps.cross_validation import Folds
    from ridgeline.study.steps.fit import Fits
    from ridgeline.study.steps.observations import Observation

SHIPPED: Final = "published"
"""The word for the measurements that ship with the package, among paths of one's own."""

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

    def priors(self, kind: str) -> NDArray[np.float64]:
        """Uncertainties of a kind of chip; [terms]."""
        known = self.uncertainty
        return np.array([PRIORS[term] if known is None else known.values[f"{kind}.{term}"] for term in TERMS])

    def measured_jobs(self, kind: ChipKind) -> MeasuredJobs:
        """Jobs that the efficiencies rest on."""
        return {} if self.uncertainty is None else self.uncertainty.measured_jobs[kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCalibration:
    """What measured steps say.

    Attributes:
        record: Held-out estimates, what was settled, the interval.
        fits: All of them; the first one saw every row.
        skipped: Cases that were not used, with the reason.
        files: What to write, by name.
    """

    record: Record
    fits: Fits
    skipped: tuple[Skipped, ...]
    files: Mapping[str, str]


def calibrate(
    *paths: str, fitted_on: date | None = None, progress: Callable[[str, float], None] | None = None
) -> StepCalibration:
    """Fits what whole steps can settle (the verb `calibrate --from`).

    Args:
        paths: Case files, records and folders, and `published` for the ones that ship; these alone if none is given.
        fitted_on: The day, for the files; today if none is said.
        progress: Told how far it is.

    Raises:
        InputError: A path cannot be read, or no case in it can be used.
    """
    fitted_on = fitted_on or datetime.now(tz=UTC).date()
    cases = _cases(paths)
    before = _before(cases)
    rows, left_out = observations(cases.training, prior_of=before.efficiency, progress=progress)
    if not rows:
        raise InputError(
            "no measured step that can be used",
            where="--from",
            value=", ".join(paths),
            expected="cases with a step time or a throughput",
            fix=f"see ridgeline validate {' '.join(paths)}, which says why each one is not used",
        )
    folded = folds(rows)
    held = _not_identified(fit(rows, folded.selections[:1], progress=progress), rows)
    fits = fit(rows, folded.selections, held=held, progress=progress)
    uncertainties, widths = _interval(rows, folded, fits, before)
    jobs = {kind: joined(before.measured_jobs(kind), _jobs_of_kind(rows, kind)) for kind in KINDS}
    record = Record(
        rows=_recorded(rows, folded, fits, widths),
        settled=_settled(rows, fits),
        held={kind: tuple(sorted(key for each, key in held if each == kind)) for kind in KINDS},
        uncertainties=uncertainties,
    )
    return StepCalibration(
        record=record,
        fits=fits,
        skipped=(*cases.skipped, *left_out),
        files={
            **steps_toml(rows, fits, held=held, fitted_on=fitted_on),
            **uncertainty_toml(rows, uncertainties, jobs, fitted_on=fitted_on),
            RECORD_FILE: record_csv(record.rows),
        },
    )


def _cases(paths: Sequence[str]) -> MeasuredCases:
    own = [path for path in paths if path != SHIPPED]
    if not own:
        return published_cases()
    return read_cases([*own, *([str(PUBLISHED)] if SHIPPED in paths else [])])


def _before(cases: MeasuredCases) -> _Before:
    """What ships, or kernels alone if it has seen any of these cases."""
    shipped = {(case.id, case.measured) for case in published_cases().training}
    if any((case.id, case.measured) in shipped for case in cases.training):
        return _Before(efficiency=load_prior, uncertainty=None)
    return _Before(efficiency=load_efficiency, uncertainty=load_uncertainty())


def _jobs_of_kind(rows: Sequence[Observation], kind: str) -> MeasuredJobs:
    return count_jobs(row.case for row in rows if row.kind == kind)


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


def _interval(
    rows: Sequence[Observation], folded: Folds, fits: Fits, before: _Before
) -> tuple[dict[str, float], dict[str, NDArray[np.float64]]]:
    """Uncertainties by key; by scheme, half-widths of rows by uncertainties that were fitted without them."""
    values: dict[str, float] = {}
    widths = {name: np.full(len(rows), np.nan) for name in (*folded.unseen_by, IN_SAMPLE)}
    for kind in KINDS:
        told = evidence(rows, folded, fits, kind=kind, seen_before=before.measured_jobs(kind))
        found = fit_uncertainties(told, before.priors(kind))
        values |= {f"{kind}.{term}": float(value) for term, value in zip(TERMS, found, strict=True)}
        held_out = cross_validated_widths(told, before.priors(kind))
        for name in folded.unseen_by:
            of_scheme = told.schemes == name
            widths[name][told.rows[of_scheme]] = held_out[of_scheme]
        all_rows = told.of_scheme(BY_CLUSTER)
        widths[IN_SAMPLE][all_rows.rows] = all_rows.half_widths(found)
    return values, widths


def _recorded(
    rows: Sequence[Observation], folded: Folds, fits: Fits, widths: Mapping[str, NDArray[np.float64]]
) -> tuple[RecordedRow, ...]:
    """Every row with the estimates of the fits that did not see it."""
    expected_s = {scheme.name: held_out_s(fits, folded, scheme.name) for scheme in SCHEMES}
    expected_s[IN_SAMPLE] = fits.expected_s[0]
    return tuple(
        RecordedRow(
            case=row.case,
            estimates={
                name: Estimate(expected_s=float(times_s[index]), half_width=float(widths[name][index]))
                for name, times_s in expected_s.items()
                if name == IN_SAMPLE or folded.unseen_by[name][index] > 0
            },
        )
        for index, row in enumerate(rows)
    )


def _settled(rows: Sequence[Observation], fits: Fits) -> dict[str, dict[str, tuple[float, float]]]:
    """Prior and fitted value, by chip and key."""
    priors = {row.case.chip: row.prior for row in rows}
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for number, chip in enumerate(fits.chips):
        before = {each.key: float(getattr(priors[chip], each.key)) for each in fits.parameters}
        found[chip] = {
            each.key: (before[each.key], min(before[each.key] * float(fits.factors[0, number, index]), each.largest))
            for index, each in enumerate(fits.parameters)
        }
    return found
