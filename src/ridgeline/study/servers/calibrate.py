"""From measured servers to calibration files: what `ridgeline calibrate --serving --from CASES` answers.

priors of a kind of chip  →  factors of kind, chip and engine  →  errors of held-out servers  →  interval
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import numpy as np

from ridgeline.cost.serving.efficiency import PRIORS
from ridgeline.errors import InputError
from ridgeline.study.measured.files import published_serving_cases, read_cases
from ridgeline.study.servers.observations import serving_observations
from ridgeline.study.servers.parameters import SERVING_PARAMETERS
from ridgeline.study.servers.record import SCHEMES, ServingRecord, ServingRecordedRow, record_csv
from ridgeline.study.servers.writing import serving_toml
from ridgeline.study.steps.calibrate import SHIPPED
from ridgeline.study.steps.fit import fit
from ridgeline.study.steps.interval import weighted_quantile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import date

    from numpy.typing import NDArray

    from ridgeline.hardware.chip import ChipKind
    from ridgeline.study.measured.case import Skipped
    from ridgeline.study.servers.observations import ServingObservation
    from ridgeline.study.steps.fit import Fits

COVERED: Final = 0.8
"""Part of clusters that an interval is to hold."""

_WIDEST: Final = 2.0
_FEWEST: Final = 3
"""Clusters from which a quantile says something; with fewer, that of the other kind of chip stands in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServersCalibration:
    """What measured servers say.

    Attributes:
        record: Held-out estimates, what was settled, the interval.
        skipped: Cases that were not used, with the reason.
        files: What to write, by name.
    """

    record: ServingRecord
    skipped: tuple[Skipped, ...]
    files: Mapping[str, str]


def calibrate_servers(
    *paths: str, fitted_on: date | None = None, progress: Callable[[str, float], None] | None = None
) -> ServersCalibration:
    """Fits what measured servers can settle.

    Args:
        paths: Case files, records and folders; `published`, or none, for those that ship.
        fitted_on: The day, for the files; today if none is said.
        progress: Told how far it is.

    Raises:
        InputError: A path cannot be read, or no case in it is of a server that can be estimated.
    """
    fitted_on = fitted_on or datetime.now(tz=UTC).date()
    own = [path for path in paths if path != SHIPPED]
    cases = read_cases(own) if own else published_serving_cases()
    if own and SHIPPED in paths:
        cases += published_serving_cases()
    rows, left_out = serving_observations(cases.serving, progress=progress)
    if not rows:
        raise InputError(
            "no measured server that can be used",
            where="--from",
            value=", ".join(paths),
            expected="cases with a time per token or a throughput",
            fix="see ridgeline validate, which says why each one is not used",
        )
    selections, unseen_by = _folds(rows)
    fits = fit(rows, selections, parameters=SERVING_PARAMETERS, progress=progress)
    interval: dict[ChipKind, dict[str, float]] = {kind: _interval(rows, fits, unseen_by, kind) for kind in PRIORS}
    record = ServingRecord(
        rows=_recorded(rows, fits, unseen_by),
        settled=_settled(rows, fits),
        interval=interval,
    )
    return ServersCalibration(
        record=record,
        skipped=(*cases.skipped, *left_out),
        files={**serving_toml(rows, fits, interval, fitted_on=fitted_on), **record_csv(record)},
    )


def _folds(rows: Sequence[ServingObservation]) -> tuple[NDArray[np.bool_], dict[str, NDArray[np.int64]]]:
    """Selections behind the one that holds every row, and by scheme the number of the fit that did not see a row."""
    selections = [np.ones(len(rows), dtype=np.bool_)]
    unseen_by: dict[str, NDArray[np.int64]] = {}
    for name, part in SCHEMES.items():
        parts = [part(row.case) for row in rows]
        unseen = np.zeros(len(rows), dtype=np.int64)
        for value in sorted(set(parts)):
            out = np.array([each == value for each in parts])
            if not out.all():
                unseen[out] = len(selections)
                selections.append(~out)
        unseen_by[name] = unseen
    return np.stack(selections), unseen_by


def _errors(rows: Sequence[ServingObservation], fits: Fits, unseen: NDArray[np.int64]) -> NDArray[np.float64]:
    """Logarithms of expected over measured, by the fit that did not see each row."""
    expected_s = fits.expected_s[unseen, np.arange(len(rows))]
    return np.log(expected_s) - np.log([row.measured_s for row in rows])


def _interval(
    rows: Sequence[ServingObservation], fits: Fits, unseen_by: Mapping[str, NDArray[np.int64]], kind: ChipKind
) -> dict[str, float]:
    """Half-widths that hold eight of ten held-out clusters; where a kind has too few, those of all."""
    sizes = Counter(row.cluster for row in rows)
    weights = np.array([1.0 / sizes[row.cluster] for row in rows])
    far = {name: np.expm1(np.abs(_errors(rows, fits, unseen))) for name, unseen in unseen_by.items()}
    of_kind = np.array([row.kind == kind for row in rows])
    is_first = np.array([row.is_first for row in rows])
    has_experts = np.array(["moe" in row.case.model_kind for row in rows])

    def half_width(scheme: str, those: NDArray[np.bool_]) -> float:
        here = those & of_kind
        if len({row.cluster for row, is_here in zip(rows, here, strict=True) if is_here}) < _FEWEST:
            here = those
        found = weighted_quantile(far[scheme][here], weights[here], COVERED) if here.any() else _WIDEST
        return float(min(found, _WIDEST))

    token = half_width("clusters", ~is_first & ~has_experts)
    experts = half_width("clusters", ~is_first & has_experts)
    known = half_width("clusters", ~is_first)
    further = {what: half_width(f"{what}s", ~is_first) for what in ("chip", "engine")}
    return {
        "token": token,
        "experts": float(np.sqrt(max(experts**2 - token**2, 0.0))) or token / 10,
        "first": half_width("clusters", is_first),
        **{f"unseen_{what}": float(np.sqrt(max(wide**2 - known**2, 0.0))) or 0.05 for what, wide in further.items()},
    }


def _recorded(
    rows: Sequence[ServingObservation], fits: Fits, unseen_by: Mapping[str, NDArray[np.int64]]
) -> tuple[ServingRecordedRow, ...]:
    """Every row with the estimates of the fits that did not see it, in the unit of what was measured."""
    errors = {name: _errors(rows, fits, unseen) for name, unseen in unseen_by.items()}
    errors["in_sample"] = _errors(rows, fits, np.zeros(len(rows), dtype=np.int64))
    return tuple(
        ServingRecordedRow(
            case=row.case,
            expected={name: row.case.from_time_ratio(float(np.exp(of[index]))) for name, of in errors.items()},
        )
        for index, row in enumerate(rows)
    )


def _settled(rows: Sequence[ServingObservation], fits: Fits) -> dict[str, dict[str, tuple[float, float]]]:
    """Prior and fitted value, by chip and engine, and key."""
    kinds: dict[str, ChipKind] = {row.cell: row.kind for row in rows}
    return {
        cell: {
            each.key: (before, min(before * float(fits.factors[0, number, index]), each.largest))
            for index, each in enumerate(fits.parameters)
            for before in [float(getattr(PRIORS[kinds[cell]], each.key))]
        }
        for number, cell in enumerate(fits.chips)
    }
