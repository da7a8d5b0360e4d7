"""The record of a calibration to servers: what ships of the last one, and how held-out servers are grouped."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING, Final

from ridgeline.cost.serving.calibration import FOLDER, KEYS, load_serving_calibration, load_serving_uncertainty
from ridgeline.cost.serving.efficiency import PRIORS
from ridgeline.study.measured.files import published_serving_cases
from ridgeline.study.steps.record import Record, read_record, record_groups
from ridgeline.study.validate_serving import SERVING_GROUPS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ridgeline.study.measured.serving_case import ServingCase
    from ridgeline.study.score import Score
    from ridgeline.study.steps.record import RecordedRow

SERVING_RECORD_FILE: Final = "serving_held_out.csv"
"""The name of the file that holds the estimates."""


def serving_record_groups(rows: Sequence[RecordedRow[ServingCase]]) -> Mapping[str, Mapping[str, Score]]:
    """Errors of held-out clusters by group and its value; beside the metric itself, of times per token alone."""
    of_tokens = [row for row in rows if row.case.metric != "ttft_s"]
    return record_groups(of_tokens, SERVING_GROUPS) | record_groups(rows, {"metric": SERVING_GROUPS["metric"]})


def shipped_serving_record() -> Record[ServingCase]:
    """The record of the calibration that ships."""
    file = resources.files("ridgeline.cost") / "calibration" / FOLDER / SERVING_RECORD_FILE
    rows = read_record(file.read_text(encoding="utf-8"), published_serving_cases().serving)
    cells = {f"{row.case.chip} {row.case.engine.name}": row.case for row in rows}
    return Record(
        rows=rows,
        groups=serving_record_groups(rows),
        settled={
            cell: {
                key: (float(getattr(PRIORS[case.kind], key)), float(getattr(fitted, key)))
                for key in KEYS
                for fitted in [load_serving_calibration(case.kind).efficiency(case.chip, case.engine.name)]
            }
            for cell, case in sorted(cells.items())
        },
        held={},
        uncertainties=load_serving_uncertainty().values,
    )
