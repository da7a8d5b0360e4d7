"""The record of a calibration: held-out estimates of every step, what was settled, how wide the interval is.

A fit takes a minute or more; its record is kept beside the files that it wrote (`held_out.csv`), so that errors of
steps that the fit did not see can be shown at once.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from importlib import resources
from io import StringIO
from typing import TYPE_CHECKING, Final

from ridgeline.cost.calibration import load_efficiency, load_prior, load_uncertainty
from ridgeline.study.measured.files import published_cases
from ridgeline.study.score import ScoredRow, score
from ridgeline.study.steps.cross_validation import BY_CLUSTER, SCHEMES
from ridgeline.study.steps.parameters import KINDS, PARAMETERS
from ridgeline.study.validate import GROUPS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ridgeline.study.measured.case import MeasuredCase
    from ridgeline.study.score import Score

RECORD_FILE: Final = "held_out.csv"
"""The name of the file that holds the estimates."""

IN_SAMPLE: Final = "in_sample"
"""The estimates of the fit that saw every row, to compare."""

_COLUMNS: Final = (*(scheme.name for scheme in SCHEMES), IN_SAMPLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What a fit says of a step.

    Attributes:
        expected_s: Time.
        half_width: Of the interval, as a fraction, from uncertainties that were fitted without the step.
    """

    expected_s: float
    half_width: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRow:
    """A measured step and what fits that did not see it say.

    Attributes:
        case: The measurement.
        estimates: By scheme of cross-validation, and `in_sample`; a scheme that does not leave the row out is absent.
    """

    case: MeasuredCase
    estimates: Mapping[str, Estimate]

    def scored(self, scheme: str = BY_CLUSTER) -> ScoredRow:
        """Beside the estimate of a scheme, as `validate` scores it: in step times."""
        said = self.estimates[scheme]
        return ScoredRow(
            cluster=self.case.cluster,
            measured=self.case.step_s,
            expected=said.expected_s,
            low=said.expected_s / (1 + said.half_width),
            high=said.expected_s * (1 + said.half_width),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What is to be told of a calibration.

    Attributes:
        rows: Every step that was used.
        settled: Prior and fitted value, by chip and key.
        held: Keys that steps do not identify, by kind of chip: they stay at their priors.
        uncertainties: Half-widths of the interval, by the keys of `uncertainty.toml`.
    """

    rows: tuple[RecordedRow, ...]
    settled: Mapping[str, Mapping[str, tuple[float, float]]]
    held: Mapping[str, tuple[str, ...]]
    uncertainties: Mapping[str, float]

    @property
    def scores(self) -> Mapping[str, Mapping[str, Score]]:
        """Errors by scheme and kind of chip."""
        return {
            name: _scores(those, name, [row.case.kind for row in those])
            for name in _COLUMNS
            for those in [[row for row in self.rows if name in row.estimates]]
        }

    @property
    def groups(self) -> Mapping[str, Mapping[str, Score]]:
        """Errors of held-out clusters, by what `validate` groups by."""
        return {
            name: _scores(self.rows, BY_CLUSTER, [key(row.case) for row in self.rows]) for name, key in GROUPS.items()
        }


def shipped_record() -> Record:
    """The record of the calibration that ships."""
    folder = resources.files("ridgeline.cost") / "calibration" / "steps"
    rows = read_record((folder / RECORD_FILE).read_text(encoding="utf-8"), published_cases().training)
    kind_of_chip = {row.case.chip: row.case.kind for row in rows}
    keys = [parameter.key for parameter in PARAMETERS]
    settled = {
        chip: {key: (load_prior(chip).facts[key].value, load_efficiency(chip).facts[key].value) for key in keys}
        for chip in sorted(kind_of_chip)
    }
    held = {
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
    return Record(rows=rows, settled=settled, held=held, uncertainties=load_uncertainty().values)


def record_csv(rows: Sequence[RecordedRow]) -> str:
    """The text of a record: a line for each step and scheme."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("id", "left_out", "expected_s", "half_width"))
    for row in rows:
        for name, said in row.estimates.items():
            writer.writerow((row.case.id, name, f"{said.expected_s:.6g}", f"{said.half_width:.4g}"))
    return text.getvalue()


def read_record(text: str, cases: Sequence[MeasuredCase]) -> tuple[RecordedRow, ...]:
    """The rows of a record whose cases are still there."""
    by_id = {case.id: case for case in cases}
    found: dict[str, dict[str, Estimate]] = {}
    for line in csv.DictReader(StringIO(text)):
        said = Estimate(expected_s=float(line["expected_s"]), half_width=float(line["half_width"]))
        found.setdefault(line["id"], {})[line["left_out"]] = said
    return tuple(RecordedRow(case=by_id[name], estimates=said) for name, said in found.items() if name in by_id)


def _scores(rows: Sequence[RecordedRow], scheme: str, values: Sequence[str]) -> dict[str, Score]:
    found = {
        value: score([row.scored(scheme) for row, each in zip(rows, values, strict=True) if each == value])
        for value in sorted(set(values))
    }
    return {value: each for value, each in found.items() if each is not None}
