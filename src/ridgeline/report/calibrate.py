"""`ridgeline calibrate`: what measured steps, or kernels, settled, and how far estimates are from what no fit saw."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ridgeline.report.blocks import Cell, Facts, Paragraphs, Report, Table
from ridgeline.report.jsonable import Json, jsonable
from ridgeline.report.scores import group_order, score_json, score_row, signed
from ridgeline.report.validate import steps_chart
from ridgeline.study.steps.cross_validation import BY_CLUSTER, SCHEMES
from ridgeline.study.steps.parameters import KINDS
from ridgeline.study.steps.record import IN_SAMPLE
from ridgeline.units import format_fraction, format_seconds, format_things

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ridgeline.report.blocks import Piece
    from ridgeline.report.chart import Chart
    from ridgeline.study.kernels.calibrate import KernelCalibration
    from ridgeline.study.kernels.fit import Residual
    from ridgeline.study.measured.case import MeasuredCase, Skipped
    from ridgeline.study.score import Score
    from ridgeline.study.steps.record import Record, RecordedRow

_SCHEME_TITLES: Final = {
    BY_CLUSTER: "clusters left out, a tenth at a time",
    "families": "one family of models left out",
    "scales": "one scale left out",
    "chips": "one chip left out",
    "parallelism": "one way to split left out",
    "model_kinds": "one kind of model left out",
    "precisions": "one precision left out",
    IN_SAMPLE: "nothing left out",
}
_GROUPS: Final = {
    "accelerator": "by kind of accelerator",
    "chip": "by chip",
    "model_kind": "by kind of model",
    "precision": "by precision",
    "chips": "by number of chips",
    "slices": "by number of slices",
    "graded": "by quality of the source",
    "assumed": "by what the source states",
}
_COLUMNS: Final = ("", "jobs", "rows", "error", "bias", "within 15%", "inside", "width")
_WORST: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """What a calibration writes.

    Attributes:
        texts: By name; nothing where what ships is shown.
        folder: Where to; None where nothing was written.
    """

    texts: Mapping[str, str] = field(default_factory=dict[str, str])
    folder: str | None = None


def steps_report(record: Record, files: Files) -> Report:
    """The screen.

    Args:
        record: What steps say.
        files: What was written of it.
    """
    clusters = len({row.case.cluster for row in record.rows})
    rows = format_things(len(record.rows), "measured step")
    return Report(
        headline=f"fitted to {rows} of {format_things(clusters, 'job')}; errors are of jobs that the fit did not see",
        pieces=(*_steps_pieces(record), *_written(files)),
    )


def steps_json(record: Record, files: Files, *, skipped: Sequence[Skipped] = ()) -> dict[str, Json]:
    """The same in base units; scores have the keys of `validate`."""
    return {
        "used": len(record.rows),
        "skipped": [{"id": each.id, "reason": each.reason} for each in skipped],
        "held_out": {scheme: _scores_json(scores) for scheme, scores in record.scores.items()},
        "groups": {name: _scores_json(scores) for name, scores in record.groups.items()},
        "settled": {
            chip: {key: {"prior": prior, "value": value} for key, (prior, value) in values.items()}
            for chip, values in record.settled.items()
        },
        "at_prior": jsonable(record.held),
        "uncertainties": jsonable(record.uncertainties),
        "rows": [_row_json(row) for row in record.rows],
        **_files_json(files),
    }


def record_chart(record: Record) -> Chart:
    """Estimates of steps that the fit did not see against their measurements."""
    return steps_chart([(row.case, row.scored().expected) for row in record.rows])


def _scores_json(scores: Mapping[str, Score]) -> dict[str, Json]:
    return {value: score_json(score, counts=True) for value, score in scores.items()}


def _row_json(row: RecordedRow) -> dict[str, Json]:
    scored = row.scored()
    return {
        "id": row.case.id,
        "cluster": row.case.cluster,
        "measured_s": row.case.step_s,
        "expected_s": {name: said.expected_s for name, said in row.estimates.items()},
        "low_s": scored.low,
        "high_s": scored.high,
        "error": scored.error,
    }


def _files_json(files: Files) -> dict[str, Json]:
    return {"files": dict(files.texts), "written": files.folder}


def kernels_report(answer: KernelCalibration, files: Files) -> Report:
    """The screen of a calibration by kernel times."""
    rows = [(fit.chip, residual) for fit in answer.fits for residual in fit.residuals if residual.num_held_out]
    table = Table(
        title="Held-out kernel times",
        columns=("chip", "kernel", "fitted to", "held out", "median error", "90% below", "median, signed"),
        right=frozenset(range(2, 7)),
        rows=tuple(
            (
                Cell(text=chip),
                Cell(text=f"{residual.kernel.replace('_', ' ')}, {residual.variant.replace('_', ' ')}"),
                Cell(text=f"{residual.num_fitted:,}"),
                Cell(text=f"{residual.num_held_out:,}"),
                Cell(text=format_fraction(residual.median_error)),
                Cell(text=format_fraction(residual.p90_error)),
                Cell(text=signed(residual.bias)),
            )
            for chip, residual in rows
        ),
    )
    chips = format_things(len(answer.fits), "chip")
    return Report(
        headline=f"kernel times of {chips}; a third of the questions is held out",
        pieces=(table, *_written(files)),
    )


def kernels_json(answer: KernelCalibration, files: Files) -> dict[str, Json]:
    """The same in base units."""
    return {
        "fits": {
            fit.chip: {
                "parameters": {fact.key: fact.value for fact in fit.facts},
                "residuals": [_residual_json(residual) for residual in fit.residuals],
            }
            for fit in answer.fits
        },
        **_files_json(files),
    }


def _residual_json(residual: Residual) -> Json:
    return {
        "kernel": residual.kernel,
        "variant": residual.variant,
        "fitted": residual.num_fitted,
        "held_out": residual.num_held_out,
        "median_error": jsonable(residual.median_error),
        "p90_error": jsonable(residual.p90_error),
        "bias": jsonable(residual.bias),
    }


def _steps_pieces(record: Record) -> Iterator[Piece]:
    scores, groups = record.scores, record.groups
    schemes = (*(scheme.name for scheme in SCHEMES), IN_SAMPLE)
    yield _score_table("By what the fit did not see", [(_SCHEME_TITLES[name], scores[name]) for name in schemes])
    yield _score_table("Held-out jobs", [(title, groups[name]) for name, title in _GROUPS.items()])
    yield _worst_table(record)
    yield _settled_table(record)
    yield Facts(rows=tuple((f"stay at priors ({kind})", Cell(text=", ".join(record.held[kind]))) for kind in KINDS))
    yield _uncertainty_table(record)


def _score_table(title: str, groups: Sequence[tuple[str, Mapping[str, Score]]]) -> Table:
    """Scores below the name of what parts them."""
    rows: list[tuple[Cell, ...]] = []
    for name, scores in groups:
        rows.append((Cell(text=name, tone="dim"), *(Cell(text="") for _ in _COLUMNS[1:])))
        rows.extend(
            score_row(value, each) for value, each in sorted(scores.items(), key=lambda item: group_order(item[0]))
        )
    return Table(
        title=title,
        columns=_COLUMNS,
        right=frozenset(range(1, 8)),
        rows=tuple(rows),
        note="of step times; means over jobs: rows of one chip, model, number of chips, sequence and precision",
    )


def _settled_table(record: Record) -> Table:
    """What was settled: the prior and what it became, by key and chip."""
    rows: list[tuple[Cell, ...]] = []
    kinds = {row.case.chip: row.case.kind for row in record.rows}
    for chip, values in record.settled.items():
        told = [
            f"{key} {prior:.3g} → {value:.3g}"
            for key, (prior, value) in values.items()
            if key not in record.held[kinds[chip]]
        ]
        rows.append((Cell(text=chip), Cell(text=", ".join(told))))
    return Table(title="Settled", columns=("chip", "prior → fitted"), rows=tuple(rows))


def _uncertainty_table(record: Record) -> Table:
    """Half-widths of the interval by part, by kind of chip."""
    names = [key.partition(".")[2] for key in record.uncertainties if key.startswith(f"{KINDS[0]}.")]
    return Table(
        title="Half-widths of the interval",
        columns=("part", *KINDS),
        right=frozenset({1, 2}),
        rows=tuple(
            (
                Cell(text=name.replace("_", " ")),
                *(Cell(text=format_fraction(record.uncertainties[f"{kind}.{name}"])) for kind in KINDS),
            )
            for name in names
        ),
        note="each times its share of the step, anything and experts of the whole; unseen over √(1 + n), where n "
        "measured jobs had it; added in quadrature",
    )


def _worst_table(record: Record) -> Table:
    """The worst row of each of the worst clusters."""
    worst: dict[str, RecordedRow] = {}
    for row in sorted(record.rows, key=lambda each: -abs(each.scored().error)):
        worst.setdefault(row.case.cluster, row)
    return Table(
        title="Worst cases",
        columns=("case", "measured", "estimate", "error", "what it is"),
        right=frozenset({1, 2, 3}),
        rows=tuple(
            (
                Cell(text=row.case.id),
                Cell(text=format_seconds(row.case.step_s)),
                Cell(text=format_seconds(row.scored().expected)),
                Cell(text=signed(row.scored().error)),
                Cell(text=_in_words(row.case)),
            )
            for row in list(worst.values())[:_WORST]
        ),
        note="the worst row of a job stands for it",
    )


def _in_words(case: MeasuredCase) -> str:
    left = f"; not stated: {case.not_stated}" if case.not_stated else ""
    return f"{case.model} on {case.job.hardware.name}, {case.publisher}{left}"


def _written(files: Files) -> Iterator[Piece]:
    count = format_things(len(files.texts), "file")
    if files.folder is not None:
        line = f"{count} written to {files.folder}; --calibration {files.folder} uses them"
        yield Paragraphs(title="Files", lines=(Cell(text=line),))
    elif files.texts:
        line = f"nothing is written: --output FOLDER writes {count}"
        yield Paragraphs(title="Files", lines=(Cell(text=line),))
