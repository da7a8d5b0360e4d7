"""How wide the interval must be: uncertainties of a step's parts, fitted to the errors of held-out steps.

An error is taken to be as likely as Student's t says, with eight of ten within the half-width of
`cost/uncertainty.py`. The most likely uncertainties near their priors are then scaled together until eight of ten
clusters lie inside. What was never measured gets the term that brings a cross-validation that leaves such things out
to eight of ten as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

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
}
"""Half-widths before errors are looked at: kernels are timed by themselves, the routing of tokens is not."""

UNSEEN_PRIORS: Final[Mapping[str, float]] = {
    "chip": 0.15,
    "parallelism": 0.15,
    "model": 0.05,
    "model_kind": 0.1,
    "precision": 0.07,
    "scale": 0.07,
}
"""Of what was never measured. Kinds of models and precisions stay there: too few were measured to leave one out."""

LEAST_UNSEEN: Final = 0.02
"""What was never measured widens the interval at least so much."""

_FREEDOM: Final = 4.0
_QUANTILE: Final = 1.533
"""Of Student's t with four degrees of freedom: eight of ten lie within so many scales."""

_DEVIATION: Final = 0.5
"""How far off a prior may be: the standard deviation of the logarithm of its factor."""

_FIRST_MOVE, _LAST_MOVE = 0.5, 0.01
_WIDEST: Final = 1.0


def half_widths(shares: NDArray[np.float64], uncertainties: NDArray[np.float64]) -> NDArray[np.float64]:
    """Half-widths of rows; `uncertainty.half_width_fraction` of each one.

    Args:
        shares: [rows, parts].
        uncertainties: [parts].
    """
    return np.sqrt(((shares * uncertainties) ** 2).sum(axis=1))


def fit_uncertainties(
    errors: NDArray[np.float64],
    shares: NDArray[np.float64],
    weights: NDArray[np.float64],
    *,
    priors: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Uncertainties of parts under which eight of ten clusters lie inside.

    Args:
        errors: Logarithms of expected over measured, of held-out rows; [rows].
        shares: Of parts in each step; [rows, parts].
        weights: Of rows; those of a cluster add up to 1.
        priors: [parts].
    """

    def unlikelihood(logarithms: NDArray[np.float64]) -> float:
        scales = half_widths(shares, np.exp(logarithms)) / _QUANTILE
        rows = np.log(scales) + (_FREEDOM + 1) / 2 * np.log1p((errors / scales) ** 2 / _FREEDOM)
        pull = ((logarithms - np.log(priors)) / _DEVIATION) ** 2 / 2
        return float((weights * rows).sum() + pull.sum())

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
    uncertainties = np.exp(point)
    return np.minimum(uncertainties * _scale(errors, half_widths(shares, uncertainties), weights), _WIDEST)


def unseen_uncertainty(errors: NDArray[np.float64], widths: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    """The further term under which eight of ten clusters lie inside, when what they have in common was left out.

    Args:
        errors: Logarithms of expected over measured, of rows held out with all that are like them.
        widths: Half-widths of their intervals, of things that were seen.
        weights: Of rows.
    """
    wanted = np.sqrt(np.maximum(np.expm1(np.abs(errors)) ** 2 - widths**2, 0.0))
    return float(np.clip(weighted_quantile(wanted, weights, COVERED), LEAST_UNSEEN, _WIDEST))


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


def _scale(errors: NDArray[np.float64], widths: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    """By how much all half-widths must grow for eight of ten."""
    return weighted_quantile(np.expm1(np.abs(errors)) / widths, weights, COVERED)


def cross_validated_widths(
    errors: NDArray[np.float64],
    shares: NDArray[np.float64],
    weights: NDArray[np.float64],
    *,
    priors: NDArray[np.float64],
    parts: Sequence[str],
) -> NDArray[np.float64]:
    """Half-widths of rows from uncertainties that were fitted without the part that they belong to.

    Args:
        errors: As for `fit_uncertainties`.
        shares: As for `fit_uncertainties`.
        weights: As for `fit_uncertainties`.
        priors: As for `fit_uncertainties`.
        parts: Of every row, which part.
    """
    widths = np.empty(len(errors))
    for part in sorted(set(parts)):
        out = np.array([each == part for each in parts])
        found = fit_uncertainties(errors[~out], shares[~out], weights[~out], priors=priors) if not out.all() else priors
        widths[out] = half_widths(shares[out], found)
    return widths
