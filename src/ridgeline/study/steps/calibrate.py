"""From measured steps to calibration files: what `ridgeline calibrate --from CASES` answers.

priors of kernels  →  factors fitted to steps, every fold in lockstep  →  errors of held-out steps  →  interval
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from ridgeline.cost.calibration import load_efficiency, load_prior
from ridgeline.cost.uncertainty import PARTS, WHOLE, part_shares
from ridgeline.errors import InputError
from ridgeline.study.measured.files import PUBLISHED, published_cases, read_cases
from ridgeline.study.score import score
from ridgeline.study.steps.cross_validation import BY_CLUSTER, SCHEMES, fold, folds, held_out_s, scored
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
from ridgeline.study.steps.writing import steps_toml, uncertainty_toml
from ridgeline.study.validate import GROUPS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import date

    from numpy.typing import NDArray

    from ridgeline.cost.efficiency import Efficiency
    from ridgeline.study.measured.case import Skipped
    from ridgeline.study.measured.files import MeasuredCases
    from ridgeline.study.score import Score, ScoredRow
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
        rows: The steps that were used.
        skipped: What was not, with the reason.
        folded: Which fit saw which row.
        fits: All of them; the first one saw every row.
        held: Parameters that rows do not identify, by kind of chip and key: they stay at their priors.
        half_widths: Of the interval of every row, from uncertainties that were fitted without it.
        scores: Held-out errors, by scheme of cross-validation and kind of chip; `in_sample` too, to compare.
        groups: Errors of clusters that the fit did not see, by what `validate` groups by.
        uncertainties: Of the interval, by the keys of `uncertainty.toml`.
        files: What to write, by name.
    """

    rows: tuple[Observation, ...]
    skipped: tuple[Skipped, ...]
    folded: Folds
    fits: Fits
    held: frozenset[tuple[str, str]]
    half_widths: NDArray[np.float64]
    scores: Mapping[str, Mapping[str, Score]]
    groups: Mapping[str, Mapping[str, Score]]
    uncertainties: Mapping[str, float]
    files: Mapping[str, str]

    @property
    def held_out(self) -> tuple[ScoredRow, ...]:
        """Every row beside the estimate of the fit that did not see its cluster."""
        return scored(self.rows, held_out_s(self.fits, self.folded, BY_CLUSTER), self.half_widths)


def calibrate_steps(
    *paths: str, fitted_on: date, progress: Callable[[str, float], None] | None = None
) -> StepCalibration:
    """Fits what whole steps can settle.

    Args:
        paths: Case files, records and folders, and `published` for the ones that ship; these alone if none is given.
        fitted_on: The day, for the files.
        progress: Told how far it is.

    Raises:
        InputError: A path cannot be read, or no case in it can be used.
    """
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
    return StepCalibration(
        rows=tuple(rows),
        skipped=(*cases.skipped, *left_out),
        folded=folded,
        fits=fits,
        held=held,
        half_widths=widths,
        scores=_scores(rows, folded, fits, widths),
        groups=_groups(rows, scored(rows, held_out_s(fits, folded, BY_CLUSTER), widths)),
        uncertainties=uncertainties,
        files={
            **steps_toml(rows, fits, held=held, fitted_on=fitted_on),
            **uncertainty_toml(rows, uncertainties, fitted_on=fitted_on),
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
    left = fits.deviations[0] / np.array([parameter.deviation for parameter in fits.parameters])
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


def _scores(
    rows: Sequence[Observation], folded: Folds, fits: Fits, widths: NDArray[np.float64]
) -> dict[str, dict[str, Score]]:
    estimates = {scheme.name: held_out_s(fits, folded, scheme.name) for scheme in SCHEMES}
    found: dict[str, dict[str, Score]] = {}
    for name, expected_s in {**estimates, "in_sample": fits.expected_s[0]}.items():
        left_out = folded.unseen_by[name] > 0 if name in folded.unseen_by else np.ones(len(rows), dtype=np.bool_)
        pairs = [
            (row, each)
            for row, each, is_shown in zip(rows, scored(rows, expected_s, widths), left_out, strict=True)
            if is_shown
        ]
        scores = {kind: score([each for row, each in pairs if row.kind == kind]) for kind in KINDS}
        found[name] = {kind: each for kind, each in scores.items() if each is not None}
    return found


def _groups(rows: Sequence[Observation], held_out: Sequence[ScoredRow]) -> dict[str, dict[str, Score]]:
    found: dict[str, dict[str, Score]] = {}
    for name, key in GROUPS.items():
        values = sorted({key(row.case) for row in rows})
        scores = {
            value: score([each for row, each in zip(rows, held_out, strict=True) if key(row.case) == value])
            for value in values
        }
        found[name] = {value: each for value, each in scores.items() if each is not None}
    return found
