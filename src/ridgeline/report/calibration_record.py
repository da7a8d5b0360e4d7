"""`ridgeline calibrate` of steps or servers: what was settled, and how far estimates are from what no fit saw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from ridgeline.report.blocks import Cell, Facts, Report, Table
from ridgeline.report.calibrate import Files, files_json, written_files
from ridgeline.report.jsonable import Json, jsonable
from ridgeline.report.not_used import not_used
from ridgeline.report.scores import OF_SERVERS, OF_STEPS, group_order, score_json, score_row, worst_table
from ridgeline.report.validate import against_chart, steps_chart
from ridgeline.report.validate_serving import SERVER_GROUPS, server_in_words, server_value
from ridgeline.study.measured.measurement import Measurement
from ridgeline.study.steps.cross_validation import BY_CLUSTER, IN_SAMPLE
from ridgeline.units import format_count, format_fraction, format_seconds, format_things

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ridgeline.hardware.chip import ChipKind
    from ridgeline.report.blocks import Piece
    from ridgeline.report.chart import Chart
    from ridgeline.study.measured.case import MeasuredCase, Skipped
    from ridgeline.study.measured.measurement import ServingMetric
    from ridgeline.study.measured.serving_case import ServingCase
    from ridgeline.study.score import Score
    from ridgeline.study.steps.record import Record, RecordedRow

_Case = TypeVar("_Case", bound=Measurement[Any, Any])
_WORST: Final = 12
_COLUMNS: Final = ("rows", "error", "bias", "within 15%", "inside", "width")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Subject(Generic[_Case]):
    """How what was measured is spoken of.

    Attributes:
        one: A measurement.
        cluster: What several measurements may be of.
        cell: What parameters are settled of.
        series: Whose errors are of one sort.
        schemes: What is left out.
        groups: What held-out measurements have in common.
        note: What means are over.
        half_widths: How half-widths make up an interval.
        in_words: What a measurement is of.
        value: A value as it is measured.
        is_told: Whether a measurement may be among the worst.
    """

    one: str
    cluster: str
    cell: str
    series: Mapping[str, str]
    schemes: Mapping[str, str]
    groups: Mapping[str, str]
    note: str
    half_widths: str
    in_words: Callable[[_Case], str]
    value: Callable[[_Case, float], str]
    is_told: Callable[[_Case], bool]


def _step_in_words(case: MeasuredCase) -> str:
    left = f"; not stated: {case.not_stated}" if case.not_stated else ""
    return f"{case.model} on {case.job.hardware.name}, {case.publisher}{left}"


def _step_value(_: MeasuredCase, time_s: float) -> str:
    return format_seconds(time_s)


_STEPS: Final[_Subject[MeasuredCase]] = _Subject(
    one="measured step",
    cluster="job",
    cell="chip",
    series={"GPU": "GPU", "TPU": "TPU"},
    schemes={
        BY_CLUSTER: "clusters left out, a tenth at a time",
        "families": "one family of models left out",
        "scales": "one scale left out",
        "chips": "one chip left out",
        "parallelism": "one way to split left out",
        "model_kinds": "one kind of model left out",
        "precisions": "one precision left out",
        IN_SAMPLE: "nothing left out",
    },
    groups={
        "accelerator": "by kind of accelerator",
        "chip": "by chip",
        "model_kind": "by kind of model",
        "precision": "by precision",
        "chips": "by number of chips",
        "slices": "by number of slices",
        "graded": "by quality of the source",
        "assumed": "by what the source states",
    },
    note=f"of step times; {OF_STEPS}",
    half_widths="each times its share of the step, anything and experts of the whole; unseen over √(1 + n), where n "
    "measured jobs had it; added in quadrature",
    in_words=_step_in_words,
    value=_step_value,
    is_told=lambda _: True,
)
_SERVERS: Final[_Subject[ServingCase]] = _Subject(
    one="measurement",
    cluster="server",
    cell="chip, engine",
    series={
        "GPU_token": "GPU, tokens",
        "TPU_token": "TPU, tokens",
        "GPU_first": "GPU, first token",
        "TPU_first": "TPU, first token",
    },
    schemes={
        BY_CLUSTER: "clusters left out, a tenth at a time",
        "chips": "one chip left out",
        "engines": "one engine left out",
        "models": "one model left out",
        "precisions": "one precision left out",
        IN_SAMPLE: "nothing left out",
    },
    groups={**SERVER_GROUPS, "prompts": "by who reads prompts"},
    note=OF_SERVERS,
    half_widths="of times per token and tokens/s, and of the time to the first token; experts where tokens are routed; "
    "unseen over √(1 + n), where n measured servers had it; added in quadrature",
    in_words=server_in_words,
    value=server_value,
    is_told=lambda case: case.metric != "ttft_s",
)


_SERVER_CHARTS: Final[Mapping[ServingMetric, tuple[str, Callable[[float], str]]]] = {
    "output_tokens_per_s_per_chip": ("Tokens/s per chip: estimate against measurement", format_count),
    "tpot_s": ("Time per output token", format_seconds),
    "ttft_s": ("Time to the first token", format_seconds),
}
"""By what was measured: the title, and a value in words."""


def steps_report(record: Record[MeasuredCase], files: Files, *, skipped: Sequence[Skipped] = ()) -> Report:
    """The screen of a calibration to steps.

    Args:
        record: What they say.
        files: What was written of it.
        skipped: Cases that were not used.
    """
    return _report(record, files, skipped, _STEPS)


def servers_report(record: Record[ServingCase], files: Files, *, skipped: Sequence[Skipped] = ()) -> Report:
    """The screen of a calibration to servers, as `steps_report`."""
    return _report(record, files, skipped, _SERVERS)


def steps_charts(record: Record[MeasuredCase]) -> tuple[Chart, ...]:
    """Estimates of steps that the fit did not see against their measurements."""
    return (steps_chart([(row.case, row.scored.expected) for row in record.rows]),)


def servers_charts(record: Record[ServingCase]) -> tuple[Chart, ...]:
    """The same of servers, by what was measured."""
    found: list[Chart] = []
    for metric, (title, shown) in _SERVER_CHARTS.items():
        those = [(row.case, row.scored) for row in record.rows if row.case.metric == metric]
        if those:
            dots = [(case, scored.measured, scored.expected) for case, scored in those]
            found.append(against_chart(dots, title=title, shown=shown))
    return tuple(found)


def record_json(record: Record[_Case], files: Files, *, skipped: Sequence[Skipped] = ()) -> dict[str, Json]:
    """The same in base units; scores have the keys of `validate`."""
    return {
        "used": len(record.rows),
        "skipped": [{"id": each.id, "reason": each.reason} for each in skipped],
        "held_out": {scheme: _scores_json(scores) for scheme, scores in record.scores.items()},
        "groups": {name: _scores_json(scores) for name, scores in record.groups.items()},
        "settled": {
            cell: {key: {"prior": prior, "value": value} for key, (prior, value) in values.items()}
            for cell, values in record.settled.items()
        },
        "at_prior": jsonable(record.held),
        "uncertainties": jsonable(record.uncertainties),
        "rows": [_row_json(row) for row in record.rows],
        **files_json(files),
    }


def _scores_json(scores: Mapping[str, Score]) -> dict[str, Json]:
    return {value: score_json(score, counts=True) for value, score in scores.items()}


def _row_json(row: RecordedRow[_Case]) -> dict[str, Json]:
    said = row.estimates[BY_CLUSTER]
    return {
        "id": row.case.id,
        "cluster": row.case.cluster,
        "metric": row.case.metric,
        "measured_s": row.case.measured_s,
        "expected_s": {name: each.expected_s for name, each in row.estimates.items()},
        "low_s": said.expected_s / (1 + said.half_width),
        "high_s": said.expected_s * (1 + said.half_width),
        "error": row.scored.error,
    }


def _report(record: Record[_Case], files: Files, skipped: Sequence[Skipped], subject: _Subject[_Case]) -> Report:
    clusters = format_things(len({row.case.cluster for row in record.rows}), subject.cluster)
    rows = format_things(len(record.rows), subject.one)
    return Report(
        headline=f"fitted to {rows} of {clusters}; errors are of {subject.cluster}s that the fit did not see",
        pieces=(
            *_pieces(record, subject),
            *([not_used(skipped, len({row.case.id for row in record.rows}) + len(skipped))] if skipped else []),
            *written_files(files),
        ),
    )


def _pieces(record: Record[_Case], subject: _Subject[_Case]) -> Iterator[Piece]:
    scores, groups = record.scores, record.groups
    named = {
        name: {subject.series[series]: score for series, score in of_scheme.items()}
        for name, of_scheme in scores.items()
    }
    by_scheme = [(title, named[name]) for name, title in subject.schemes.items() if name in named]
    yield _score_table("By what the fit did not see", by_scheme, subject)
    by_group = [(title, groups[name]) for name, title in subject.groups.items() if groups[name]]
    yield _score_table(f"Held-out {subject.cluster}s", by_group, subject)
    yield worst_table(
        [row for row in record.rows if subject.is_told(row.case)],
        title="Worst cases",
        most=_WORST,
        value=subject.value,
        in_words=subject.in_words,
        note=f"the worst row of a {subject.cluster} stands for it",
    )
    yield _settled_table(record, subject.cell)
    if record.held:
        rows = tuple((f"stay at priors ({kind})", Cell(text=", ".join(keys))) for kind, keys in record.held.items())
        yield Facts(rows=rows)
    yield _uncertainty_table(record.uncertainties, subject)


def _score_table(title: str, groups: Sequence[tuple[str, Mapping[str, Score]]], subject: _Subject[_Case]) -> Table:
    """Scores below the name of what parts them."""
    rows: list[tuple[Cell, ...]] = []
    for name, scores in groups:
        rows.append((Cell(text=name, tone="dim"), *(Cell(text="") for _ in range(1 + len(_COLUMNS)))))
        rows.extend(
            score_row(value, each) for value, each in sorted(scores.items(), key=lambda item: group_order(item[0]))
        )
    return Table(
        title=title,
        columns=("", f"{subject.cluster}s", *_COLUMNS),
        right=frozenset(range(1, 8)),
        rows=tuple(rows),
        note=subject.note,
    )


def _settled_table(record: Record[_Case], cell: str) -> Table:
    """What was settled: the prior and what it became, by key."""
    rows: list[tuple[Cell, ...]] = []
    kinds: dict[str, ChipKind] = {row.case.chip: row.case.kind for row in record.rows}
    for name, values in record.settled.items():
        held = record.held.get(kinds[name.partition(" ")[0]], ())
        told = [f"{key} {prior:.3g} → {value:.3g}" for key, (prior, value) in values.items() if key not in held]
        rows.append((Cell(text=name), Cell(text=", ".join(told))))
    return Table(title="Settled", columns=(cell, "prior → fitted"), rows=tuple(rows))


def _uncertainty_table(uncertainties: Mapping[str, float], subject: _Subject[_Case]) -> Table:
    """Half-widths of the interval by part and series."""
    names = dict.fromkeys(key.partition(".")[2] for key in uncertainties)
    return Table(
        title="Half-widths of the interval",
        columns=("part", *subject.series.values()),
        right=frozenset(range(1, 1 + len(subject.series))),
        rows=tuple(
            (
                Cell(text=name.replace("_", " ")),
                *(Cell(text=format_fraction(uncertainties[f"{series}.{name}"])) for series in subject.series),
            )
            for name in names
        ),
        note=subject.half_widths,
    )
