"""Writes what measured steps settled: one file a chip, and one of uncertainties."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ridgeline.cost.calibration import UNCERTAINTY_FILE
from ridgeline.cost.uncertainty import STEP_TERMS
from ridgeline.hardware.chip import Fact
from ridgeline.study.kernels.writing import calibration_toml
from ridgeline.units import format_things

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import date

    from ridgeline.cost.uncertainty import MeasuredJobs, Terms
    from ridgeline.study.measured.measurement import Measurement
    from ridgeline.study.steps.fit import Fits
    from ridgeline.study.steps.observations import Observation


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOfUncertainties:
    """Where uncertainties are written.

    Attributes:
        name: Of the file.
        terms: What it states.
        of: What was measured, one of it.
        page: Of the documentation that tells how.
    """

    name: str
    terms: Terms
    of: str
    page: str


OF_STEPS: Final = FileOfUncertainties(name=UNCERTAINTY_FILE, terms=STEP_TERMS, of="step", page="docs/accuracy.md")
_MOST_NAMED: Final = 4


def steps_toml(
    rows: Sequence[Observation], fits: Fits, *, held: frozenset[tuple[str, str]], fitted_on: date
) -> dict[str, str]:
    """The file of every chip that was measured, by name.

    Args:
        rows: Measured steps.
        fits: The first one saw all rows.
        held: Parameters that are left out: they stay at their priors.
        fitted_on: The day.
    """
    files: dict[str, str] = {}
    for index, chip in enumerate(fits.chips):
        those = [number for number, row in enumerate(rows) if row.case.chip == chip]
        kind, prior = rows[those[0]].kind, rows[those[0]].prior
        fitted = _fitted_to([rows[number].case for number in those], fitted_on) + _residual(rows, fits, those)
        facts: dict[str, Fact] = {}
        for column, parameter in enumerate(fits.parameters):
            if (kind, parameter.key) in held:
                continue
            before = float(getattr(prior, parameter.key))
            value = min(before * float(fits.factors[0, index, column]), parameter.largest)
            left = float(fits.deviations[0, index, column])
            note = f"Prior {before:.3g} ({parameter.why}). {fitted} Known to {np.expm1(left):.0%}."
            facts[parameter.key] = Fact(
                value=float(f"{value:.3g}"),
                kind="measured",
                source=_sources([rows[number] for number in those]),
                note=note,
            )
        files[f"{chip}.toml"] = calibration_toml(chip, facts, heading=("Settled by whole training steps.",)) + "\n"
    return files


def uncertainty_toml(
    cases: Sequence[Measurement[Any, Any]],
    uncertainties: Mapping[str, float],
    measured_jobs: Mapping[str, MeasuredJobs],
    *,
    fitted_on: date,
    file: FileOfUncertainties = OF_STEPS,
) -> dict[str, str]:
    """The file of uncertainties, by name.

    Args:
        cases: What was measured.
        uncertainties: By key.
        measured_jobs: By series, of all measurements that the efficiencies rest on.
        fitted_on: The day.
        file: Which one.
    """
    lines = [f"# Half-widths of the interval that holds eight of ten {file.of}s. Method: {file.page}."]
    for key in file.terms.keys:
        those = [case for case in cases if case.series == key.partition(".")[0]]
        lines += (
            "",
            f"[{key}]",
            f"value = {uncertainties[key]:.3g}",
            f'kind = "{"measured" if those else "derived"}"',
            f'source = "Ridgeline {file.page}"',
            f'note = "{_fitted_to(those, fitted_on, file.of)}"',
        )
    lines += ("", "# What was measured, by what it had.")
    for series, of_trait in measured_jobs.items():
        for trait, counts in of_trait.items():
            lines += ("", f"[measured_jobs.{series}.{trait}]")
            lines += (f'"{value}" = {count}' for value, count in sorted(counts.items()))
    return {file.name: "\n".join(lines) + "\n"}


def _fitted_to(cases: Sequence[Measurement[Any, Any]], fitted_on: date, of: str = OF_STEPS.of) -> str:
    if not cases:
        return "As before: nothing that was measured tells."
    clusters = format_things(len({case.cluster for case in cases}), "job")
    return f"Fitted on {fitted_on.isoformat()} to {format_things(len(cases), of)} of {clusters}."


def _residual(rows: Sequence[Observation], fits: Fits, those: Sequence[int]) -> str:
    """What the fit leaves of the errors of a chip's rows."""
    errors = np.array([fits.expected_s[0, number] / rows[number].case.step_s - 1 for number in those])
    return f" Median error left {np.median(np.abs(errors)):.1%}, signed {np.median(errors):+.1%}."


def _sources(rows: Sequence[Observation]) -> str:
    """By whom they were published, most rows first."""
    counts = Counter(row.case.publisher for row in rows)
    named = [name for name, _ in counts.most_common(_MOST_NAMED)]
    more = len(counts) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")
