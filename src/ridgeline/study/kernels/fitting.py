"""A robust fit of few positive parameters to times: the least sum of absolute log-errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

_ITERATIONS = 60
_LEAST_ERROR = 0.02
"""Log-errors below it weigh as if squared, so that the fit has one minimum; half of the rounding of a short time."""
_STEP = 1e-4
_DAMPING_FACTOR = 4.0


def fit_positive(
    predicted: Callable[[Mapping[str, float]], NDArray[np.float64]],
    measured: NDArray[np.float64],
    *,
    start: Mapping[str, float],
    largest: Mapping[str, float],
) -> dict[str, float]:
    """The parameters that bring predictions closest to measurements, by the mean absolute log-ratio.

    Iteratively reweighted least squares with Levenberg's damping, in the logarithms of the parameters. The absolute
    error, not the square: a shape for which no good kernel was tried says nothing of the chip and must not pull.

    >>> times = np.array([2.0, 4.0, 6.0, 80.0])  # the last one an outlier
    >>> line = lambda p: p["slope"] * np.array([1.0, 2.0, 3.0, 4.0])
    >>> round(fit_positive(line, times, start={"slope": 1.0}, largest={})["slope"], 1)
    2.0

    Args:
        predicted: Times under parameters.
        measured: Times.
        start: Every parameter's first value, above 0; two runs from one start end alike.
        largest: Bounds of parameters that have one.
    """
    names = tuple(start)
    bound = np.array([np.log(largest.get(name, np.inf)) for name in names])
    point = np.minimum(np.log([start[name] for name in names]), bound)

    def errors(at: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.log(predicted(dict(zip(names, np.exp(at).tolist(), strict=True))) / measured)

    error, damping = errors(point), 1e-2
    for _ in range(_ITERATIONS):
        slopes = np.stack([(errors(point + _STEP * axis) - error) / _STEP for axis in np.eye(len(names))], axis=1)
        weights = 1.0 / np.maximum(np.abs(error), _LEAST_ERROR)
        normal, pull = slopes.T @ (slopes * weights[:, None]), slopes.T @ (weights * error)
        move = np.linalg.lstsq(normal + damping * np.diag(np.diag(normal)), -pull, rcond=None)[0]
        there = np.minimum(point + np.clip(move, -1.0, 1.0), bound)
        error_there = errors(there)
        if _loss(error_there) < _loss(error):
            point, error, damping = there, error_there, damping / _DAMPING_FACTOR
        else:
            damping *= _DAMPING_FACTOR
    return dict(zip(names, np.exp(point).tolist(), strict=True))


def _loss(error: NDArray[np.float64]) -> float:
    """Absolute errors, rounded at zero as the weights have it."""
    size = np.abs(error)
    return float(np.sum(np.where(size > _LEAST_ERROR, size, (size**2 / _LEAST_ERROR + _LEAST_ERROR) / 2)))
