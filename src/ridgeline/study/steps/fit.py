"""The fit: factors on priors that bring expected steps closest to measured ones, for many selections of rows at once.

    least  Σ_clusters mean_rows 2ρ(log(expected/measured)/σ_row)  +  Σ (d/σ_prior)²        d = logarithm of a factor

Every cluster weighs one, however many rows it has. ρ grows as a logarithm where a row is far off (Student's t), so that
what no model explains does not bend the rest. The prior's pull is what keeps a parameter that no row depends on at a
factor of 1. A row's d is the sum of parts: one that its kind's chips (TPUs, GPUs) share, one of its chip, and of a
server one of its engine.

Selections (the folds of a cross-validation) are fitted in lockstep: one evaluation of a row costs the trial points of
all of them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import numpy as np

from ridgeline.study.steps.parameters import PARAMETERS, SHARED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from ridgeline.study.measured.measurement import Measurement
    from ridgeline.study.steps.parameters import Parameter

_Array: TypeAlias = "NDArray[np.float64]"

_FREEDOM: Final = 4.0
"""Degrees of freedom of Student's t: its tails are those of a field where one row in thirty is not what it says."""

_ITERATIONS: Final = 12
_HELD: Final = 1e-9
"""Of its prior variance, what a parameter keeps that may not move."""

_STEP: Final = 0.01
_FIRST_DAMPING: Final = 1e-2
_DAMPING_FACTOR: Final = 4.0
_LARGEST_MOVE: Final = 0.3
_STILL: Final = 1e-3
"""A move of no logarithm by more than it ends the fit."""


class Measured(Protocol):
    """A row of a fit: what was measured, and how to estimate it anew."""

    @property
    def case(self) -> Measurement[Any, Any]:
        """What was measured."""
        ...

    @property
    def kind(self) -> str:
        """Of its chip, of `KINDS`."""
        ...

    @property
    def prior(self) -> object:
        """Efficiencies before it was looked at: an attribute of each parameter's key."""
        ...

    @property
    def cell(self) -> str:
        """Rows of one cell have equal parameters."""
        ...

    @property
    def parts(self) -> tuple[str, ...]:
        """What its parameters are parts of: its kind first."""
        ...

    @property
    def cluster(self) -> str:
        """What joins it with others that measured the same."""
        ...

    @property
    def deviation(self) -> float:
        """Of the logarithm of that, beyond any model's reach."""
        ...

    def expected_s(self, factors: Mapping[str, NDArray[np.float64]]) -> NDArray[np.float64]:
        """The time under trial factors on the prior."""
        ...

    def shares(self, factors: Mapping[str, NDArray[np.float64]]) -> Mapping[str, float]:
        """What uncertainties of parts are multiplied by, under factors on the prior."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Fits:
    """What each selection of rows says.

    Attributes:
        parameters: What was fitted, the second axis of all below.
        chips: Every cell of the rows (of steps, chips), the first axis of a selection's table.
        parts: Every part of them.
        part_factors: [selections, parts, parameters].
        factors: On the prior; [selections, chips, parameters].
        deviations: Of their logarithms, as the rows leave them; [selections, chips, parameters].
        expected_s: Of every row, whether the selection holds it or not; [selections, rows].
    """

    parameters: tuple[Parameter, ...]
    chips: tuple[str, ...]
    parts: tuple[str, ...]
    part_factors: NDArray[np.float64]
    factors: NDArray[np.float64]
    deviations: NDArray[np.float64]
    expected_s: NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Problem:
    """Rows, and where the parts of their cells' parameters stand in the vector of unknowns.

    Attributes:
        rows: What was measured.
        parameters: Of every part.
        chips: Names of cells.
        parts: Names of parts, kinds first.
        parts_of: Of every cell, the numbers of its parts.
        kinds: Of every part, its kind.
        shares: Of every part, what it has of a prior's variance.
        held: Parameters that stay at their prior, by kind and key.
        weights: Of rows; [selections, rows].
        measured: Logarithms of the times; [rows].
        scales: How far off a row may be; [rows].
    """

    rows: tuple[Measured, ...]
    parameters: tuple[Parameter, ...]
    chips: tuple[str, ...]
    parts: tuple[str, ...]
    parts_of: tuple[tuple[int, ...], ...]
    kinds: tuple[str, ...]
    shares: tuple[float, ...]
    held: frozenset[tuple[str, str]]
    weights: _Array
    measured: _Array
    scales: _Array

    @property
    def precision(self) -> _Array:
        """Of the prior, by unknown; a cell's variance is that of its parts together."""
        variances = np.array([[each.deviation_on(kind) ** 2 for each in self.parameters] for kind in self.kinds])
        moving = np.array([[(kind, each.key) not in self.held for each in self.parameters] for kind in self.kinds])
        allowed = np.where(moving, variances, variances * _HELD)
        return 1.0 / (allowed * np.array(self.shares)[:, None]).ravel()

    def unknowns(self, chip: int) -> NDArray[np.int64]:
        """Of a cell: those of each of its parts."""
        one = np.arange(len(self.parameters))
        return np.concatenate([one + part * len(one) for part in self.parts_of[chip]])

    def of_chip(self, point: _Array, chip: int) -> _Array:
        """Logarithms of a cell's factors; [selections, parameters]."""
        return point[:, self.unknowns(chip)].reshape(len(point), -1, len(self.parameters)).sum(axis=1)

    def indices(self, chip: int) -> list[int]:
        """The rows of a cell."""
        return [index for index, row in enumerate(self.rows) if row.cell == self.chips[chip]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Point:
    """A trial, evaluated.

    Attributes:
        at: Unknowns; [selections, unknowns].
        errors: Logarithms of expected over measured; [selections, rows].
        slopes: Of the errors, by the parameter of the row's chip; [selections, rows, parameters].
        loss: [selections].
    """

    at: _Array
    errors: _Array
    slopes: _Array
    loss: _Array

    def where(self, better: NDArray[np.bool_], other: _Point) -> _Point:
        """This one for the selections where it is better, the other for the rest."""
        return _Point(
            at=np.where(better[:, None], self.at, other.at),
            errors=np.where(better[:, None], self.errors, other.errors),
            slopes=np.where(better[:, None, None], self.slopes, other.slopes),
            loss=np.where(better, self.loss, other.loss),
        )


def fit(
    rows: Sequence[Measured],
    selections: NDArray[np.bool_],
    *,
    parameters: Sequence[Parameter] = PARAMETERS,
    held: frozenset[tuple[str, str]] = frozenset(),
    progress: Callable[[str, float], None] | None = None,
) -> Fits:
    """Fits every selection of the rows, by damped and reweighted least squares (Levenberg, Marquardt).

    Args:
        rows: What was measured.
        selections: True where a selection holds a row; [selections, rows].
        parameters: What may move.
        held: What may not after all, by kind of chip and key.
        progress: Told how far it is.
    """
    problem = _problem(rows, selections, parameters, held)
    best = _evaluated(problem, np.zeros((len(selections), len(problem.precision))))
    damping = np.full(len(selections), _FIRST_DAMPING)
    for iteration in range(_ITERATIONS):
        if progress is not None:
            progress("fitting", iteration / _ITERATIONS)
        normal, pull = _equations(problem, best)
        raised = normal + damping[:, None, None] * normal * np.eye(normal.shape[1])
        move = -np.linalg.solve(raised, pull[..., None])[..., 0]
        trial = _evaluated(problem, best.at + move.clip(-_LARGEST_MOVE, _LARGEST_MOVE))
        is_better = trial.loss < best.loss
        damping = np.where(is_better, damping / _DAMPING_FACTOR, damping * _DAMPING_FACTOR)
        best = trial.where(is_better, best)
        if float(np.abs(move).max()) < _STILL:
            break
    return _fits(problem, best)


def _problem(
    rows: Sequence[Measured],
    selections: NDArray[np.bool_],
    parameters: Sequence[Parameter],
    held: frozenset[tuple[str, str]],
) -> _Problem:
    cells = {row.cell: row.parts for row in sorted(rows, key=lambda each: each.cell)}
    kinds = {part: row.kind for row in rows for part in row.parts}
    first = {parts[0] for parts in cells.values()}
    names = sorted(kinds, key=lambda part: (part not in first, part))
    own = {part: (1 - SHARED) / (len(parts) - 1) for parts in cells.values() for part in parts[1:]}
    sizes = Counter(row.cluster for row in rows)
    return _Problem(
        rows=tuple(rows),
        parameters=tuple(parameters),
        chips=tuple(cells),
        parts=tuple(names),
        parts_of=tuple(tuple(names.index(part) for part in parts) for parts in cells.values()),
        kinds=tuple(kinds[part] for part in names),
        shares=tuple(own.get(part, SHARED) for part in names),
        held=held,
        weights=selections / np.array([sizes[row.cluster] for row in rows], dtype=np.float64),
        measured=np.log([row.case.measured_s for row in rows]),
        scales=np.array([row.deviation for row in rows]),
    )


def _evaluated(problem: _Problem, at: _Array) -> _Point:
    """Errors and their slopes: one evaluation of a row for all selections, as they are and each parameter less."""
    count, names = len(problem.parameters), [parameter.key for parameter in problem.parameters]
    errors = np.empty((len(at), len(problem.rows)))
    slopes = np.empty((*errors.shape, count))
    moves = np.concatenate([np.zeros((1, count)), -_STEP * np.eye(count)])
    for chip in range(len(problem.chips)):
        trials = np.exp(problem.of_chip(at, chip)[:, None, :] + moves).reshape(-1, count)
        factors = {name: trials[:, index] for index, name in enumerate(names)}
        for index in problem.indices(chip):
            times = np.log(problem.rows[index].expected_s(factors)).reshape(len(at), count + 1)
            errors[:, index] = times[:, 0] - problem.measured[index]
            slopes[:, index] = (times[:, :1] - times[:, 1:]) / _STEP
    far = (errors / problem.scales) ** 2
    loss = (problem.weights * (_FREEDOM + 1) / 2 * np.log1p(far / _FREEDOM)).sum(axis=1)
    return _Point(at=at, errors=errors, slopes=slopes, loss=loss + (at**2 * problem.precision).sum(axis=1) / 2)


def _equations(problem: _Problem, point: _Point) -> tuple[_Array, _Array]:
    """Normal matrix and gradient of the least squares that touch the loss at a point."""
    weights = problem.weights * (_FREEDOM + 1) / (_FREEDOM * problem.scales**2 + point.errors**2)
    normal = np.tile(np.diag(problem.precision), (len(point.at), 1, 1))
    pull = point.at * problem.precision
    for chip in range(len(problem.chips)):
        rows, unknowns = problem.indices(chip), problem.unknowns(chip)
        slopes = point.slopes[:, rows]
        weighted = slopes * weights[:, rows, None]
        times = len(problem.parts_of[chip])
        normal[:, unknowns[:, None], unknowns] += np.tile(np.swapaxes(weighted, 1, 2) @ slopes, (1, times, times))
        pull[:, unknowns] += np.tile((weighted * point.errors[:, rows, None]).sum(axis=1), (1, times))
    return normal, pull


def _fits(problem: _Problem, point: _Point) -> Fits:
    covariance = np.linalg.inv(_equations(problem, point)[0])
    count, chips = len(problem.parameters), range(len(problem.chips))
    variances = np.empty((len(point.at), len(problem.chips), count))
    for chip in chips:
        unknowns = problem.unknowns(chip).reshape(-1, count)
        variances[:, chip] = sum(covariance[:, one, other] for one in unknowns for other in unknowns)
    return Fits(
        parameters=problem.parameters,
        chips=problem.chips,
        parts=problem.parts,
        part_factors=np.exp(point.at.reshape(len(point.at), -1, count)),
        factors=np.exp(np.stack([problem.of_chip(point.at, chip) for chip in chips], axis=1)),
        deviations=np.sqrt(variances),
        expected_s=np.exp(point.errors + problem.measured),
    )
