"""From measured servers to calibration files: what `ridgeline calibrate --serving --from CASES` answers.

priors of a kind of chip  →  factors of kind, chip and engine  →  errors of held-out servers  →  interval
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ridgeline.cost.serving.calibration import (
    SERVING_TERMS,
    load_serving_calibration,
    load_serving_uncertainty,
    prior_serving_calibration,
)
from ridgeline.study.measured.files import published_serving_cases
from ridgeline.study.servers.interval import SERVER_INTERVAL, SERVER_SCHEMES
from ridgeline.study.servers.observations import serving_observations
from ridgeline.study.servers.parameters import SERVING_PARAMETERS
from ridgeline.study.servers.record import SERVING_RECORD_FILE, serving_record_groups
from ridgeline.study.servers.writing import OF_SERVERS, serving_toml
from ridgeline.study.steps.cross_validation import folds
from ridgeline.study.steps.fit import fit
from ridgeline.study.steps.given import SERVER, given_cases, nothing_to_fit
from ridgeline.study.steps.interval import fit_intervals, measured_jobs
from ridgeline.study.steps.record import Calibration, Record, record_csv, recorded_rows, settled_values
from ridgeline.study.steps.writing import uncertainty_toml

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import date

    from ridgeline.cost.serving.calibration import ServingCalibration
    from ridgeline.cost.uncertainty import Uncertainty
    from ridgeline.hardware.chip import ChipKind
    from ridgeline.study.measured.files import MeasuredCases
    from ridgeline.study.measured.serving_case import ServingCase


@dataclass(frozen=True, slots=True, kw_only=True)
class _Before:
    """What is known before these cases are looked at.

    Attributes:
        calibration: Of a kind of chip.
        uncertainty: Of estimates with it; None where no server has been looked at.
    """

    calibration: Callable[[ChipKind], ServingCalibration]
    uncertainty: Uncertainty | None


def calibrate_servers(
    *paths: str, fitted_on: date | None = None, progress: Callable[[str, float], None] | None = None
) -> Calibration[ServingCase]:
    """Fits what measured servers can settle.

    Args:
        paths: Case files, records and folders, and `published` for the ones that ship; these alone if none is given.
        fitted_on: The day, for the files; today if none is said.
        progress: Told how far it is.

    Raises:
        InputError: A path cannot be read, or no case in it is of a server that can be estimated.
    """
    fitted_on = fitted_on or datetime.now(tz=UTC).date()
    cases = given_cases(paths, published_serving_cases)
    before = _before(cases)
    rows, left_out = serving_observations(cases.serving, prior_of=before.calibration, progress=progress)
    if not rows:
        raise nothing_to_fit(SERVER, paths, "cases with a time per token or a throughput", others=cases.training)
    folded = folds(rows, SERVER_SCHEMES)
    fits = fit(rows, folded.selections, parameters=SERVING_PARAMETERS, progress=progress)
    uncertainties, widths = fit_intervals(rows, folded, fits, model=SERVER_INTERVAL, before=before.uncertainty)
    used = [row.case for row in rows]
    recorded = recorded_rows(used, folded, fits, widths)
    jobs = measured_jobs(rows, terms=SERVING_TERMS, before=before.uncertainty)
    return Calibration(
        record=Record(
            rows=recorded,
            groups=serving_record_groups(recorded),
            settled=settled_values(rows, fits),
            held={},
            uncertainties=uncertainties,
        ),
        fits=fits,
        skipped=(*cases.skipped, *left_out),
        files={
            **serving_toml(rows, fits, before=before.calibration, fitted_on=fitted_on),
            **uncertainty_toml(used, uncertainties, jobs, fitted_on=fitted_on, file=OF_SERVERS),
            SERVING_RECORD_FILE: record_csv(recorded),
        },
    )


def _before(cases: MeasuredCases) -> _Before:
    """What ships, or priors alone if it has seen any of these cases."""
    shipped = {(case.record_id, case.measured) for case in published_serving_cases().serving}
    if any((case.record_id, case.measured) in shipped for case in cases.serving):
        return _Before(calibration=prior_serving_calibration, uncertainty=None)
    return _Before(calibration=load_serving_calibration, uncertainty=load_serving_uncertainty())
