"""What held-out measurements tell of the interval: every one, once for each scheme that leaves it out."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from ridgeline.cost.uncertainty import STEP_TERMS, measured_alike, unseen_share
from ridgeline.study.steps.cross_validation import fold, held_out_s

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from ridgeline.cost.uncertainty import MeasuredJobs, Terms, Trait
    from ridgeline.study.measured.measurement import Measurement
    from ridgeline.study.steps.cross_validation import Folds, Scheme
    from ridgeline.study.steps.fit import Fits, Measured


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalModel:
    """What an interval is made of, and what tells of it.

    Attributes:
        terms: The uncertainties.
        schemes: Ways to leave measurements out; one of tenths of the clusters, one of each trait.
        priors: Half-widths before errors are looked at, by series and name of a term.
    """

    terms: Terms
    schemes: tuple[Scheme, ...]
    priors: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Held-out measurements of one series.

    Attributes:
        schemes: What was left out; [entries].
        rows: Which measurement; [entries].
        tenths: Of the clusters, the one that the measurement belongs to; [entries].
        errors: Logarithms of expected over measured; [entries].
        squares: What squared uncertainties are multiplied by; [entries, terms].
        weights: Those of a cluster's measurements add up to 1 in every scheme; [entries].
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


def held_out_evidence(
    rows: Sequence[Measured], folded: Folds, fits: Fits, *, series: str, model: IntervalModel, seen_before: MeasuredJobs
) -> Evidence:
    """The evidence of a cross-validation.

    Args:
        rows: Measurements, of all series.
        folded: What each fit saw.
        fits: The fits.
        series: Whose interval is asked for.
        model: What it is made of.
        seen_before: Jobs on which the priors of the fits rest.
    """
    those = [index for index, row in enumerate(rows) if row.case.series == series]
    entries = [(name, row) for name, unseen_by in folded.unseen_by.items() for row in those if unseen_by[row]]
    traits = model.terms.traits
    seen: list[MeasuredJobs] = [
        joined(seen_before, count_jobs((rows[row].case for row in those if selection[row]), traits), traits)
        for selection in folded.selections
    ]
    shares = {row: _squared_shares(rows[row], fits, model.terms) for row in those}
    sizes = Counter(rows[row].case.cluster for row in those)
    cases, numbers = [rows[row].case for _, row in entries], [row for _, row in entries]
    expected_s = {name: held_out_s(fits, folded, name) for name in folded.unseen_by}
    return Evidence(
        schemes=np.array([name for name, _ in entries], dtype=np.str_),
        rows=np.array(numbers, dtype=np.int64),
        tenths=np.array([fold(case.cluster) for case in cases], dtype=np.str_),
        errors=np.array([np.log(expected_s[name][row] / rows[row].case.measured_s) for name, row in entries]),
        squares=np.array(
            [
                (*shares[row], *_squared_novelty(rows[row].case, seen[int(folded.unseen_by[name][row])], traits))
                for name, row in entries
            ]
        ).reshape(-1, len(model.terms.names)),
        weights=np.array([1.0 / sizes[case.cluster] for case in cases]),
    )


def count_jobs(cases: Iterable[Measurement[Any, Any]], traits: Sequence[Trait] = STEP_TERMS.traits) -> MeasuredJobs:
    """How many jobs (clusters) had each value of a trait."""
    found = {(trait, value, case.cluster) for case in cases for trait, value in case.traits.items()}
    counts = Counter((trait, value) for trait, value, _ in found)
    return {trait: {value: count for (its, value), count in sorted(counts.items()) if its == trait} for trait in traits}


def joined(some: MeasuredJobs, others: MeasuredJobs, traits: Sequence[Trait] = STEP_TERMS.traits) -> MeasuredJobs:
    """The jobs of both.

    >>> joined({"chip": {"v5e": 2}}, {"chip": {"v5e": 1, "v6e": 1}})["chip"]
    {'v5e': 3, 'v6e': 1}
    """
    return {trait: dict(Counter(some.get(trait, {})) + Counter(others.get(trait, {}))) for trait in traits}


def _squared_shares(row: Measured, fits: Fits, terms: Terms) -> tuple[float, ...]:
    """Of the parts of what was estimated, as fitted, in the order of the terms."""
    cell = fits.chips.index(row.cell)
    shares = row.shares({each.key: fits.factors[0, cell, index] for index, each in enumerate(fits.parameters)})
    return tuple(shares[part] ** 2 for part in terms.parts)


def _squared_novelty(case: Measurement[Any, Any], seen: MeasuredJobs, traits: Sequence[Trait]) -> tuple[float, ...]:
    """How new a case's traits are to a fit, in the order of the terms."""
    alike = measured_alike(case.traits, seen)
    return tuple(unseen_share(alike[trait]) ** 2 for trait in traits)
