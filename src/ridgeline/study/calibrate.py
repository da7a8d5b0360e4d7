"""`calibrate` as a function: what measured training steps, or measured servers, settle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, overload

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import date

    from ridgeline.study.measured.case import MeasuredCase
    from ridgeline.study.measured.serving_case import ServingCase
    from ridgeline.study.steps.record import Calibration

    Progress = Callable[[str, float], None]


@overload
def calibrate(
    *paths: str, serving: Literal[False] = False, fitted_on: date | None = None, progress: Progress | None = None
) -> Calibration[MeasuredCase]: ...
@overload
def calibrate(
    *paths: str, serving: Literal[True], fitted_on: date | None = None, progress: Progress | None = None
) -> Calibration[ServingCase]: ...
def calibrate(
    *paths: str, serving: bool = False, fitted_on: date | None = None, progress: Progress | None = None
) -> Calibration[MeasuredCase] | Calibration[ServingCase]:
    """Fits what whole training steps, or servers, can settle (the verb `calibrate --from`).

    Args:
        paths: Case files, records and folders, and `published` for the ones that ship; these alone if none is given.
        serving: Whether servers are looked at; else training steps.
        fitted_on: The day, for the files; today if none is said.
        progress: Told how far it is.

    Raises:
        InputError: A path cannot be read, or no case in it can be used.
    """
    if serving:
        from ridgeline.study.servers.calibrate import calibrate_servers

        return calibrate_servers(*paths, fitted_on=fitted_on, progress=progress)
    from ridgeline.study.steps.calibrate import calibrate_steps

    return calibrate_steps(*paths, fitted_on=fitted_on, progress=progress)
