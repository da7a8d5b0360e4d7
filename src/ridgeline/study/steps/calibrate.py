"""From measured steps to calibration files: what `ridgeline calibrate --from CASES` answers.

priors of kernels  →  factors fitted to steps, every fold in lockstep  →  errors of held-out steps  →  interval
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import numpy as np

from ridgeline.cost.calibration import load_efficiency, load_prior
from ridgeline.cost.uncertainty import PARTS, WHOLE, part_shares
from ridgeline.errors import InputError
from ridgeline.study.measured.files import PUBLISHED, published_cases, read_cases
from ridgeline.study.steps.cross_validation import BY_CLUSTER, SCHEMES, fold, folds, held_out_s
from ridgeline.study.steps.fit import fit
from ridgeline.study.steps.interval import (
    PRIORS,
    UNSEEN_PRIORS,
    cross_validated_widths,
    fit_uncertainties,
    half_widths,
    unseen_uncertainty,
)
from ridgeline.study.steps.observations import observations
from ridgeline.study.steps.parameters import KINDS, PARAMETERS, with_factors
from ridgeline.study.steps.record import IN_SAMPLE, RECORD_FILE, Record, RecordedRow, record_csv
from ridgeline.study.steps.writing import steps_toml, uncertainty_toml

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import date

    from numpy.typing import NDArray

    from ridgeline.cost.efficiency import Efficiency
    from ridgeline.study.measured.case import Skipped
    from ridgeline.study.measured.files import MeasuredCases
    from ridgeline.study.steps.cross_validation import Folds
    from ridgeline.study.steps.fit import Fits
    from ridgeline.study.steps.observations import Observation

SHIPPED: Final = "published"
"""The word for the measurements that ship with the package, among paths of one's own."""

IDENTIFIED: Final = 0.8
"""A parameter is settled where rows leave at most so much of its prior's standard deviation, on one chip at least."""

_SCHEME_OF_UNSEEN: Final = {"chip": "chips", "model": "families", "scale": "scales", "parallelism": "parallelism"}
_INTERVAL_PARTS: Final = (*PARTS, *WHOLE)


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
    rows, left_out = observations(cases.training, prior_of=_prior_of(cases), progress=progress)
    if not rows:
        raise InputError(
            "no measured step that can be used",
            where="--from",
            value=", ".join(paths),
            expected="cases with a step time or a throughput",
            fix="see ridgeline validate, which says why each one is not used",
        )
    folded = folds(rows)
    held = _not_identified(fit(rows, folded.selections[:1], progress=progress), rows)
    fits = fit(rows, folded.selections, held=held, progress=progress)
    shares = _shares(rows, fits)
    uncertainties, widths = _interval(rows, folded, fits, shares)
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
            **uncertainty_toml(rows, uncertainties, fitted_on=fitted_on),
            RECORD_FILE: record_csv(record.rows),
        },
    )


def _cases(paths: Sequence[str]) -> MeasuredCases:
    own = [path for path in paths if path != SHIPPED]
    if not own:
        return published_cases()
    return read_cases([*own, *([str(PUBLISHED)] if SHIPPED in paths else [])])


def _prior_of(cases: MeasuredCases) -> Callable[[str], Efficiency]:
    """What is known without these cases: kernels alone, if the shipped calibration has seen any of them."""
    shipped = {(case.id, case.measured) for case in published_cases().training}
    has_seen = any((case.id, case.measured) in shipped for case in cases.training)
    return load_prior if has_seen else load_efficiency


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


def _shares(rows: Sequence[Observation], fits: Fits) -> NDArray[np.float64]:
    """Shares of the parts in every step as fitted; [rows, parts]."""
    found: list[list[float]] = []
    for row in rows:
        chip = fits.chips.index(row.case.chip)
        factors = {each.key: fits.factors[0, chip, index] for index, each in enumerate(PARAMETERS)}
        shares = part_shares(row.step(with_factors(row.prior, factors)), has_experts="moe" in row.case.model_kind)
        found.append([shares[part] for part in _INTERVAL_PARTS])
    return np.array(found)


def _interval(
    rows: Sequence[Observation], folded: Folds, fits: Fits, shares: NDArray[np.float64]
) -> tuple[dict[str, float], NDArray[np.float64]]:
    """Uncertainties by key, and half-widths of rows by uncertainties that were fitted without them."""
    measured = np.log([row.case.step_s for row in rows])
    errors = {scheme.name: np.log(held_out_s(fits, folded, scheme.name)) - measured for scheme in SCHEMES}
    weights, priors = cluster_weights(rows), np.array([PRIORS[part] for part in _INTERVAL_PARTS])
    parts = np.array([fold(row.case.cluster) for row in rows])
    found: dict[str, float] = {}
    widths = np.empty(len(rows))
    for kind in KINDS:
        found |= {f"{kind}.{part}": PRIORS[part] for part in _INTERVAL_PARTS}
        found |= {f"{kind}.unseen_{what}": value for what, value in UNSEEN_PRIORS.items()}
        those = np.array([row.kind == kind for row in rows])
        if not those.any():
            continue
        data = (errors[BY_CLUSTER][those], shares[those], weights[those])
        values = fit_uncertainties(*data, priors=priors)
        found |= {f"{kind}.{part}": float(value) for part, value in zip(_INTERVAL_PARTS, values, strict=True)}
        widths[those] = cross_validated_widths(*data, priors=priors, parts=list(parts[those]))
        known = half_widths(shares, values)
        for what, scheme in _SCHEME_OF_UNSEEN.items():
            left_out = those & (folded.unseen_by[scheme] > 0)
            if left_out.any():
                term = unseen_uncertainty(errors[scheme][left_out], known[left_out], weights[left_out])
                found[f"{kind}.unseen_{what}"] = term
    return found, widths


def cluster_weights(rows: Sequence[Observation]) -> NDArray[np.float64]:
    """Of rows, so that those of one cluster add up to 1."""
    sizes = Counter(row.case.cluster for row in rows)
    return np.array([1.0 / sizes[row.case.cluster] for row in rows])


def _recorded(
    rows: Sequence[Observation], folded: Folds, fits: Fits, widths: NDArray[np.float64]
) -> tuple[RecordedRow, ...]:
    """Every row with the estimates of the fits that did not see it."""
    estimates = {scheme.name: held_out_s(fits, folded, scheme.name) for scheme in SCHEMES}
    return tuple(
        RecordedRow(
            case=row.case,
            expected_s={
                IN_SAMPLE: float(fits.expected_s[0, index]),
                **{
                    name: float(expected_s[index])
                    for name, expected_s in estimates.items()
                    if folded.unseen_by[name][index] > 0
                },
            },
            half_width=float(widths[index]),
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
