"""How wide the interval must be: uncertainties of steps' parts and jobs' traits, fitted to errors of held-out steps.

An error is taken to be as likely as Student's t says, with eight of ten within the half-width of
`cost/uncertainty.py`. The most likely uncertainties near their priors are then scaled: those of parts until eight of
ten clusters lie inside when clusters are left out, that of a trait until eight of ten do when all that have it in
common are. Few jobs do not move them far.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ridgeline.cost.uncertainty import STEP_TERMS, TRAITS
from ridgeline.study.steps.cross_validation import BY_CLUSTER, IN_SAMPLE, SCHEMES
from ridgeline.study.steps.evidence import IntervalModel, count_jobs, held_out_evidence, joined

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ridgeline.cost.uncertainty import MeasuredJobs, Terms, Uncertainty
    from ridgeline.study.steps.cross_validation import Folds, Scheme
    from ridgeline.study.steps.evidence import Evidence
    from ridgeline.study.steps.fit import Fits, Measured

COVERED: Final = 0.8
"""Part of clusters that the interval is to hold."""

PRIORS: Final[Mapping[str, float]] = {
    "arithmetic": 0.05,
    "memory": 0.15,
    "waiting": 0.3,
    "communication": 0.3,
    "exchange": 0.4,
    "anything": 0.08,
    "experts": 0.08,
    "narrow": 0.08,
    **{f"unseen_{trait}": 0.1 for trait in TRAITS},
}
"""Half-widths before errors are looked at: kernels are timed by themselves, the routing of tokens is not."""

STEP_INTERVAL: Final = IntervalModel(terms=STEP_TERMS, schemes=SCHEMES, priors=dict.fromkeys(STEP_TERMS.series, PRIORS))
"""That of training steps."""

PRIOR_JOBS: Final = 10.0
"""Jobs that a prior is worth when a scale is settled."""

LEAST_UNSEEN: Final = 0.05
"""A trait that was never measured widens the interval at least so much."""

_FREEDOM: Final = 4.0
_QUANTILE: Final = 1.533
"""Of Student's t with four degrees of freedom: eight of ten lie within so many scales."""

_DEVIATION: Final = 0.5
"""How far off a prior may be: the standard deviation of the logarithm of its factor."""

_FIRST_MOVE, _LAST_MOVE = 0.5, 0.01
_WIDEST: Final = 4.0
_LARGEST_FACTOR: Final = 4.0
"""By which the most likely uncertainties are scaled, up or down."""

_ROUNDS: Final = 4
"""In which uncertainties are scaled one after the other, each beside what the others are by then."""


def fit_uncertainties(
    evidence: Evidence, priors: NDArray[np.float64], *, model: IntervalModel = STEP_INTERVAL
) -> NDArray[np.float64]:
    """Uncertainties under which eight of ten clusters lie inside, whatever was left out; [terms].

    Args:
        evidence: Held-out measurements of one series.
        priors: [terms].
        model: What the terms are.
    """
    if not len(evidence.errors):
        return priors
    terms = model.terms
    likely = _most_likely(evidence, priors, len(model.schemes))
    floor = np.where([name in terms.parts for name in terms.names], 0.0, LEAST_UNSEEN)
    least = np.maximum(likely / _LARGEST_FACTOR, floor)
    most = np.minimum(likely * _LARGEST_FACTOR, _WIDEST)
    found = likely
    for _ in range(_ROUNDS):
        for scheme in model.schemes:
            held_out, moving = evidence.of_scheme(scheme.name), _scaled_by(scheme, terms)
            if len(held_out.errors):
                factor = _wanted_factor(held_out, found, moving)
                found = np.clip(np.where(moving, found * factor, found), least, most)
    jobs = float(evidence.of_scheme(BY_CLUSTER).weights.sum())
    return likely * (found / likely) ** (jobs / (jobs + PRIOR_JOBS))


def _most_likely(evidence: Evidence, priors: NDArray[np.float64], num_schemes: int) -> NDArray[np.float64]:
    """By a search along one uncertainty at a time."""

    def unlikelihood(logarithms: NDArray[np.float64]) -> float:
        scales = evidence.half_widths(np.exp(logarithms)) / _QUANTILE
        rows = np.log(scales) + (_FREEDOM + 1) / 2 * np.log1p((evidence.errors / scales) ** 2 / _FREEDOM)
        pull = ((logarithms - np.log(priors)) / _DEVIATION) ** 2 / 2
        # A job counts once, in however many schemes it is held out.
        return float((evidence.weights * rows).sum() / num_schemes + pull.sum())

    point, move = np.log(priors), _FIRST_MOVE
    best = unlikelihood(point)
    while move > _LAST_MOVE:
        before = best
        for axis in np.eye(len(priors)):
            for trial in (point + move * axis, point - move * axis):
                found = unlikelihood(trial)
                if found < best:
                    point, best = trial, found
        if best == before:
            move /= 2
    return np.exp(point)


def _scaled_by(scheme: Scheme, terms: Terms) -> NDArray[np.bool_]:
    """The terms that a scheme scales: that of the trait it leaves out, or those of parts; [terms]."""
    scaled = terms.parts if scheme.trait is None else (f"unseen_{scheme.trait}",)
    return np.array([name in scaled for name in terms.names])


def _wanted_factor(held_out: Evidence, uncertainties: NDArray[np.float64], moving: NDArray[np.bool_]) -> float:
    """By what some uncertainties must be multiplied, beside the others, for eight of ten clusters to lie inside."""
    theirs = held_out.squares[:, moving] @ uncertainties[moving] ** 2
    others = held_out.squares[:, ~moving] @ uncertainties[~moving] ** 2
    wanted = np.maximum(np.expm1(np.abs(held_out.errors)) ** 2 - others, 0.0) / theirs
    jobs = float(held_out.weights.sum())
    # Of n jobs, the share that holds the next one too, in the mean over all orders.
    share = min(COVERED * (jobs + 1) / jobs, 1.0)
    return float(np.sqrt(weighted_quantile(wanted, held_out.weights, share)))


def cross_validated_widths(
    evidence: Evidence, priors: NDArray[np.float64], *, model: IntervalModel = STEP_INTERVAL
) -> NDArray[np.float64]:
    """Half-widths from uncertainties that were fitted without the tenth of the clusters that they are of; [entries].

    Args:
        evidence: Held-out measurements of one series.
        priors: [terms].
        model: What the terms are.
    """
    widths = np.empty(len(evidence.errors))
    for tenth in np.unique(evidence.tenths):
        out = evidence.tenths == tenth
        fitted = fit_uncertainties(evidence.where(~out), priors, model=model)
        widths[out] = evidence.where(out).half_widths(fitted)
    return widths


def fit_intervals(
    rows: Sequence[Measured], folded: Folds, fits: Fits, *, model: IntervalModel, before: Uncertainty | None
) -> tuple[dict[str, float], dict[str, NDArray[np.float64]]]:
    """Uncertainties by key; by scheme, half-widths of rows by uncertainties that were fitted without them.

    Args:
        rows: Measurements.
        folded: What each fit saw.
        fits: The fits.
        model: What intervals are made of.
        before: Of the estimates that the fits begin with; None where no measurement has been looked at.
    """
    values: dict[str, float] = {}
    widths = {name: np.full(len(rows), np.nan) for name in (*folded.unseen_by, IN_SAMPLE)}
    for series in model.terms.series:
        seen = jobs_before(before, series)
        told = held_out_evidence(rows, folded, fits, series=series, model=model, seen_before=seen)
        known = model.priors[series] if before is None else _of_series(before, series, model.terms)
        priors = np.array([known[name] for name in model.terms.names])
        found = fit_uncertainties(told, priors, model=model)
        values |= {f"{series}.{name}": float(value) for name, value in zip(model.terms.names, found, strict=True)}
        held_out = cross_validated_widths(told, priors, model=model)
        for name in folded.unseen_by:
            of_scheme = told.schemes == name
            widths[name][told.rows[of_scheme]] = held_out[of_scheme]
        all_rows = told.of_scheme(BY_CLUSTER)
        widths[IN_SAMPLE][all_rows.rows] = all_rows.half_widths(found)
    return values, widths


def measured_jobs(rows: Sequence[Measured], *, terms: Terms, before: Uncertainty | None) -> dict[str, MeasuredJobs]:
    """How many jobs had each value of a trait, by series: those of the rows, and those that were known before."""
    return {
        series: joined(
            jobs_before(before, series),
            count_jobs((row.case for row in rows if row.case.series == series), terms.traits),
            terms.traits,
        )
        for series in terms.series
    }


def jobs_before(before: Uncertainty | None, series: str) -> MeasuredJobs:
    """Jobs of a series that efficiencies rest on."""
    return {} if before is None else before.measured_jobs[series]


def _of_series(known: Uncertainty, series: str, terms: Terms) -> dict[str, float]:
    return {name: known.values[f"{series}.{name}"] for name in terms.names}


def coverage(errors: NDArray[np.float64], widths: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    """Part of clusters inside."""
    return float((weights * (np.abs(errors) <= np.log1p(widths))).sum() / weights.sum())


def weighted_quantile(values: NDArray[np.float64], weights: NDArray[np.float64], share: float) -> float:
    """The least value that so much of the weight does not exceed.

    >>> weighted_quantile(np.array([3.0, 1.0, 2.0]), np.array([1.0, 1.0, 2.0]), 0.7)
    2.0
    """
    order = np.argsort(values)
    reached = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][min(int(np.searchsorted(reached, share)), len(values) - 1)])
