"""The record of a calibration: held-out estimates of all measurements, what was settled, how wide the interval is.

A fit takes a minute or more; its record is kept beside the files that it wrote (`held_out.csv`), so that errors of
what the fit did not see can be shown at once.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from importlib import resources
from io import StringIO
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from ridgeline.cost.calibration import load_efficiency, load_prior, load_uncertainty
from ridgeline.study.measured.files import published_cases
from ridgeline.study.score import ScoredRow, score
from ridgeline.study.steps.cross_validation import BY_CLUSTER, IN_SAMPLE, held_out_s
from ridgeline.study.steps.parameters import KINDS, PARAMETERS
from ridgeline.study.validate import GROUPS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from ridgeline.hardware.chip import ChipKind
    from ridgeline.study.measured.case import MeasuredCase, Skipped
    from ridgeline.study.measured.measurement import Measurement
    from ridgeline.study.score import Score
    from ridgeline.study.steps.cross_validation import Folds
    from ridgeline.study.steps.fit import Fits, Measured

RECORD_FILE: Final = "held_out.csv"
"""The name of the file that holds the estimates."""

_Case = TypeVar("_Case", bound="Measurement[Any, Any]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What a fit says of a measurement.

    Attributes:
        expected_s: Time, as `Measurement.measured_s`.
        half_width: Of the interval, as a fraction, from uncertainties that were fitted without it.
    """

    expected_s: float
    half_width: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRow(Generic[_Case]):
    """A measurement and what fits that did not see it say.

    Attributes:
        case: The measurement.
        estimates: By scheme of cross-validation, and `in_sample`; a scheme that does not leave the row out is absent.
    """

    case: _Case
    estimates: Mapping[str, Estimate]

    @property
    def scored(self) -> ScoredRow:
        """Beside the estimate of the fit that did not see its tenth of the clusters."""
        return self.scored_by(BY_CLUSTER)

    def scored_by(self, scheme: str) -> ScoredRow:
        """Beside the estimate of a scheme, as `validate` scores it."""
        said = self.estimates[scheme]
        expected, width = self.case.scored_as(said.expected_s), 1.0 + said.half_width
        return ScoredRow(
            cluster=self.case.cluster,
            measured=self.case.scored_as(self.case.measured_s),
            expected=expected,
            low=expected / width,
            high=expected * width,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Record(Generic[_Case]):
    """What is to be told of a calibration.

    Attributes:
        rows: Every measurement that was used.
        groups: Errors of held-out clusters, by what `validate` groups by.
        settled: Prior and fitted value, by chip (of servers, chip and engine) and key.
        held: Keys that measurements do not identify, by kind of chip: they stay at their priors.
        uncertainties: Half-widths of the interval, by the keys of `cost.uncertainty.Terms`.
    """

    rows: tuple[RecordedRow[_Case], ...]
    groups: Mapping[str, Mapping[str, Score]]
    settled: Mapping[str, Mapping[str, tuple[float, float]]]
    held: Mapping[ChipKind, tuple[str, ...]]
    uncertainties: Mapping[str, float]

    @property
    def scores(self) -> Mapping[str, Mapping[str, Score]]:
        """Errors by scheme and series."""
        schemes = dict.fromkeys(name for row in self.rows for name in row.estimates)
        return {
            scheme: scores_by([row for row in self.rows if scheme in row.estimates], _series_of, scheme)
            for scheme in schemes
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration(Generic[_Case]):
    """What measurements say.

    Attributes:
        record: Held-out estimates, what was settled, the interval.
        fits: All of them; the first one saw every row.
        skipped: Cases that were not used, with the reason.
        files: What to write, by name.
    """

    record: Record[_Case]
    fits: Fits
    skipped: tuple[Skipped, ...]
    files: Mapping[str, str]


def _series_of(case: Measurement[Any, Any]) -> str:
    return case.series


def scores_by(
    rows: Sequence[RecordedRow[_Case]], key: Callable[[_Case], str], scheme: str = BY_CLUSTER
) -> dict[str, Score]:
    """Errors of rows by what their cases have in common.

    Args:
        rows: A record's, each left out by the scheme.
        key: What they have in common.
        scheme: Of cross-validation.
    """
    grouped: dict[str, list[ScoredRow]] = {}
    for row in rows:
        grouped.setdefault(key(row.case), []).append(row.scored_by(scheme))
    return {value: found for value, those in sorted(grouped.items()) if (found := score(those)) is not None}


def record_groups(
    rows: Sequence[RecordedRow[_Case]], grouping: Mapping[str, Callable[[_Case], str]]
) -> dict[str, dict[str, Score]]:
    """Errors of held-out clusters by group and its value."""
    return {name: scores_by(rows, key) for name, key in grouping.items()}


def recorded_rows(
    cases: Sequence[_Case], folded: Folds, fits: Fits, widths: Mapping[str, NDArray[np.float64]]
) -> tuple[RecordedRow[_Case], ...]:
    """Every row with the estimates of the fits that did not see it.

    Args:
        cases: Measurements.
        folded: What each fit saw.
        fits: The fits.
        widths: Half-widths by scheme; [rows].
    """
    expected_s = {name: held_out_s(fits, folded, name) for name in folded.unseen_by}
    expected_s[IN_SAMPLE] = fits.expected_s[0]
    return tuple(
        RecordedRow(
            case=case,
            estimates={
                name: Estimate(expected_s=float(times_s[index]), half_width=float(widths[name][index]))
                for name, times_s in expected_s.items()
                if name == IN_SAMPLE or folded.unseen_by[name][index] > 0
            },
        )
        for index, case in enumerate(cases)
    )


def settled_values(rows: Sequence[Measured], fits: Fits) -> dict[str, dict[str, tuple[float, float]]]:
    """Prior and fitted value, by cell and key."""
    priors = {row.cell: row.prior for row in rows}
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for number, cell in enumerate(fits.chips):
        before = {each.key: float(getattr(priors[cell], each.key)) for each in fits.parameters}
        found[cell] = {
            each.key: (before[each.key], min(before[each.key] * float(fits.factors[0, number, index]), each.largest))
            for index, each in enumerate(fits.parameters)
        }
    return found


def shipped_record() -> Record[MeasuredCase]:
    """The record of the calibration that ships."""
    folder = resources.files("ridgeline.cost") / "calibration" / "steps"
    rows = read_record((folder / RECORD_FILE).read_text(encoding="utf-8"), published_cases().training)
    kind_of_chip = {row.case.chip: row.case.kind for row in rows}
    keys = [parameter.key for parameter in PARAMETERS]
    settled = {
        chip: {key: (load_prior(chip).facts[key].value, load_efficiency(chip).facts[key].value) for key in keys}
        for chip in sorted(kind_of_chip)
    }
    held: dict[ChipKind, tuple[str, ...]] = {
        kind: tuple(
            key
            for key in keys
            if all(
                load_efficiency(chip).facts[key] is load_prior(chip).facts[key]
                for chip, of_kind in kind_of_chip.items()
                if of_kind == kind
            )
        )
        for kind in KINDS
    }
    return Record(
        rows=rows,
        groups=record_groups(rows, GROUPS),
        settled=settled,
        held=held,
        uncertainties=load_uncertainty().values,
    )


def record_csv(rows: Sequence[RecordedRow[_Case]]) -> str:
    """The text of a record: a line for each measurement and scheme."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("id", "left_out", "expected_s", "half_width"))
    for row in rows:
        for name, said in row.estimates.items():
            writer.writerow((row.case.record_id, name, f"{said.expected_s:.6g}", f"{said.half_width:.4g}"))
    return text.getvalue()


def read_record(text: str, cases: Sequence[_Case]) -> tuple[RecordedRow[_Case], ...]:
    """The rows of a record whose cases are still there."""
    by_id = {case.record_id: case for case in cases}
    found: dict[str, dict[str, Estimate]] = {}
    for line in csv.DictReader(StringIO(text)):
        said = Estimate(expected_s=float(line["expected_s"]), half_width=float(line["half_width"]))
        found.setdefault(line["id"], {})[line["left_out"]] = said
    return tuple(RecordedRow(case=by_id[name], estimates=said) for name, said in found.items() if name in by_id)
