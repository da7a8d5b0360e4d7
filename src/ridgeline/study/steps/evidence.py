"""What held-out steps tell of the interval: every step, once for each scheme that leaves it out."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

import numpy as np

from ridgeline.cost.uncertainty import PARTS, TRAITS, WHOLE, measured_alike, unseen_share
from ridgeline.search.interval import model_part_shares
from ridgeline.study.steps.cross_validation import fold, held_out_s
from ridgeline.study.steps.parameters import with_factors

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from ridgeline.cost.uncertainty import MeasuredJobs
    from ridgeline.study.measured.case import MeasuredCase
    from ridgeline.study.steps.cross_validation import Folds
    from ridgeline.study.steps.fit import Fits
    from ridgeline.study.steps.observations import Observation

STEP_TERMS: Final = (*PARTS, *WHOLE)
TRAIT_TERMS: Final = tuple(f"unseen_{trait}" for trait in TRAITS)
TERMS: Final = (*STEP_TERMS, *TRAIT_TERMS)
"""The uncertainties of one kind of chip, in the order of the axis below."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Held-out steps of one kind of chip.

    Attributes:
        schemes: What was left out; [entries].
        rows: Which step; [entries].
        tenths: Of the clusters, the one that the step belongs to; [entries].
        errors: Logarithms of expected over measured; [entries].
        squares: What squared uncertainties are multiplied by; [entries, terms].
        weights: Those of a cluster's steps add up to 1 in every scheme; [entries].
    """

    schemes: NDArray[np.str_]
    rows: NDArray[np.int64]
    tenths: NDArray[np.str_]
    errors: NDArray[np.float64]
    squares: NDArray[np.float64]
    weights: NDArray[np.float64]

    def where(self, keep: NDArray[np.bool_]) -> Evidence:
        """A part of the entries."""
        return Evidence(**{each.name: getattr(self, each.name)[keep] for each in fields(self)})

    def of_scheme(self, name: str) -> Evidence:
        """The entries of one scheme."""
        return self.where(self.schemes == name)

    def half_widths(self, uncertainties: NDArray[np.float64]) -> NDArray[np.float64]:
        """`uncertainty.half_width_fraction` of every entry.

        Args:
            uncertainties: [terms].
        """
        return np.sqrt(self.squares @ uncertainties**2)


def evidence(
    rows: Sequence[Observation], folded: Folds, fits: Fits, *, kind: str, seen_before: MeasuredJobs
) -> Evidence:
    """The evidence of a cross-validation.

    Args:
        rows: Measured steps, of all kinds of chips.
        folded: What each fit saw.
        fits: The fits.
        kind: Of chip.
        seen_before: Jobs on which the priors of the fits rest.
    """
    those = [index for index, row in enumerate(rows) if row.kind == kind]
    entries = [(name, row) for name, unseen_by in folded.unseen_by.items() for row in those if unseen_by[row]]
    seen: list[MeasuredJobs] = [
        joined(seen_before, count_jobs(rows[row].case for row in those if selection[row]))
        for selection in folded.selections
    ]
    shares = {row: _squared_shares(rows[row], fits) for row in those}
    sizes = Counter(row.case.cluster for row in rows)
    cases, numbers = [rows[row].case for _, row in entries], [row for _, row in entries]
    expected_s = {name: held_out_s(fits, folded, name) for name in folded.unseen_by}
    return Evidence(
        schemes=np.array([name for name, _ in entries], dtype=np.str_),
        rows=np.array(numbers, dtype=np.int64),
        tenths=np.array([fold(case.cluster) for case in cases], dtype=np.str_),
        errors=np.array([np.log(expected_s[name][row] / rows[row].case.step_s) for name, row in entries]),
        squares=np.array(
            [
                (*shares[row], *_squared_novelty(rows[row].case, seen[int(folded.unseen_by[name][row])]))
                for name, row in entries
            ]
        ).reshape(-1, len(TERMS)),
        weights=np.array([1.0 / sizes[case.cluster] for case in cases]),
    )


def count_jobs(cases: Iterable[MeasuredCase]) -> MeasuredJobs:
    """How many jobs (clusters) had each value of a trait."""
    found = {(trait, value, case.cluster) for case in cases for trait, value in case.traits.items()}
    counts = Counter((trait, value) for trait, value, _ in found)
    return {trait: {value: count for (its, value), count in sorted(counts.items()) if its == trait} for trait in TRAITS}


def joined(some: MeasuredJobs, others: MeasuredJobs) -> MeasuredJobs:
    """The jobs of both.

    >>> joined({"chip": {"v5e": 2}}, {"chip": {"v5e": 1, "v6e": 1}})["chip"]
    {'v5e': 3, 'v6e': 1}
    """
    return {trait: dict(Counter(some.get(trait, {})) + Counter(others.get(trait, {}))) for trait in TRAITS}


def _squared_shares(row: Observation, fits: Fits) -> tuple[float, ...]:
    """Of the parts of a step as fitted, in the order of `STEP_TERMS`."""
    chip = fits.chips.index(row.case.chip)
    factors = {each.key: fits.factors[0, chip, index] for index, each in enumerate(fits.parameters)}
    shares = model_part_shares(row.step(with_factors(row.prior, factors)), row.case.job.model)
    return tuple(shares[term] ** 2 for term in STEP_TERMS)


def _squared_novelty(case: MeasuredCase, seen: MeasuredJobs) -> tuple[float, ...]:
    """How new a case's traits are to a fit, in the order of `TRAIT_TERMS`."""
    alike = measured_alike(case.traits, seen)
    return tuple(unseen_share(alike[trait]) ** 2 for trait in TRAITS)
