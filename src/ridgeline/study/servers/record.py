"""The record of a calibration to servers: held-out estimates, what was settled, how wide intervals are."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from importlib import resources
from io import StringIO
from typing import TYPE_CHECKING, Final

from ridgeline.cost.serving.calibration import FOLDER, INTERVAL_KEYS, KEYS, load_serving_calibration
from ridgeline.cost.serving.efficiency import PRIORS
from ridgeline.study.measured.files import published_serving_cases
from ridgeline.study.score import ScoredRow, score
from ridgeline.study.steps.cross_validation import fold
from ridgeline.study.validate_serving import SERVING_GROUPS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ridgeline.hardware.chip import ChipKind
    from ridgeline.study.measured.serving_case import ServingCase
    from ridgeline.study.score import Score

RECORD_FILE: Final = "held_out.csv"
IN_SAMPLE: Final = "in_sample"
BY_CLUSTER: Final = "clusters"

SCHEMES: Final[Mapping[str, Callable[[ServingCase], str]]] = {
    BY_CLUSTER: lambda case: fold(case.cluster),
    "chips": lambda case: case.chip,
    "engines": lambda case: case.engine.name,
    "models": lambda case: case.model,
}
"""What is left out: tenths of the clusters; one chip; one engine; one model."""

_COLUMNS: Final = (*SCHEMES, IN_SAMPLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingRecordedRow:
    """A measurement, and what fits that did not see it say.

    Attributes:
        case: The measurement.
        expected: Estimate of what was measured, by scheme of cross-validation and `in_sample`.
    """

    case: ServingCase
    expected: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingRecord:
    """What is to be told of a calibration.

    Attributes:
        rows: Every measurement that was used.
        settled: Prior and fitted value, by chip and engine, and key.
        interval: Half-widths, by kind of chip and key.
    """

    rows: tuple[ServingRecordedRow, ...]
    settled: Mapping[str, Mapping[str, tuple[float, float]]]
    interval: Mapping[ChipKind, Mapping[str, float]]

    def scored(self, row: ServingRecordedRow, scheme: str = BY_CLUSTER) -> ScoredRow:
        """A row beside the estimate of a scheme."""
        expected = row.expected[scheme]
        width = 1.0 + half_width_fraction(row.case, self.interval[row.case.kind])
        return ScoredRow(
            cluster=row.case.cluster,
            measured=row.case.measured,
            expected=expected,
            low=expected / width,
            high=expected * width,
        )

    def scores(self, scheme: str, metrics: Sequence[str]) -> Mapping[str, Score]:
        """Errors of some metrics, by kind of chip."""
        return self._scores(scheme, [row for row in self.rows if row.case.metric in metrics], lambda case: case.kind)

    @property
    def groups(self) -> Mapping[str, Mapping[str, Score]]:
        """Errors of held-out clusters, by what `validate` groups by."""
        of_tokens = [row for row in self.rows if row.case.metric != "ttft_s"]
        return {
            name: self._scores(BY_CLUSTER, list(self.rows) if name == "metric" else of_tokens, key)
            for name, key in SERVING_GROUPS.items()
        }

    def _scores(
        self, scheme: str, rows: Sequence[ServingRecordedRow], key: Callable[[ServingCase], str]
    ) -> dict[str, Score]:
        grouped: dict[str, list[ScoredRow]] = {}
        for row in rows:
            grouped.setdefault(key(row.case), []).append(self.scored(row, scheme))
        return {name: found for name, those in sorted(grouped.items()) if (found := score(those)) is not None}


def half_width_fraction(case: ServingCase, interval: Mapping[str, float]) -> float:
    """Half of the width of the interval of a measured server, as a fraction of its estimate."""
    if case.metric == "ttft_s":
        return interval["first"]
    experts = interval["experts"] if "moe" in case.model_kind else 0.0
    return float((interval["token"] ** 2 + experts**2) ** 0.5)


def record_csv(record: ServingRecord) -> dict[str, str]:
    """The text of a record, by the name of its file."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("id", "metric", *_COLUMNS))
    for row in record.rows:
        writer.writerow((row.case.id, row.case.metric, *(f"{row.expected[name]:.5g}" for name in _COLUMNS)))
    return {RECORD_FILE: text.getvalue()}


def shipped_serving_record() -> ServingRecord:
    """The record of the calibration that ships."""
    file = resources.files("ridgeline.cost") / "calibration" / FOLDER / RECORD_FILE
    by_name = {(case.id, case.metric): case for case in published_serving_cases().serving}
    rows = tuple(
        ServingRecordedRow(case=case, expected={name: float(line[name]) for name in _COLUMNS})
        for line in csv.DictReader(StringIO(file.read_text(encoding="utf-8")))
        for case in [by_name.get((line["id"], line["metric"]))]
        if case is not None
    )
    cells = {f"{row.case.chip} {row.case.engine.name}": row.case for row in rows}
    return ServingRecord(
        rows=rows,
        settled={
            cell: {
                key: (float(getattr(PRIORS[case.kind], key)), float(getattr(fitted, key)))
                for key in KEYS
                for fitted in [load_serving_calibration(case.kind).efficiency(case.chip, case.engine.name)]
            }
            for cell, case in sorted(cells.items())
        },
        interval={
            kind: {key: load_serving_calibration(kind).interval_fraction(key) for key in INTERVAL_KEYS}
            for kind in PRIORS
        },
    )
