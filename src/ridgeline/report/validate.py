"""`ridgeline validate`: scores over all and by group, the worst cases, verdicts on memory, and what is not used."""

from __future__ import annotations

from collections import Counter
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from ridgeline.job.mesh import mesh_in_words
from ridgeline.report.blocks import Cell, Facts, Report, Table
from ridgeline.report.chart import Axis, Chart, Curve, Scatter
from ridgeline.report.jsonable import Json, jsonable
from ridgeline.report.not_used import not_used
from ridgeline.report.scores import OF_STEPS, group_table, score_json, signed, tone_of, width_of, worst_of_clusters
from ridgeline.report.validate_serving import serving_json, serving_pieces, serving_row_json
from ridgeline.study.score import CLOSE
from ridgeline.units import format_bytes, format_count, format_fraction, format_seconds, format_things

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ridgeline.report.blocks import Piece, Tone
    from ridgeline.study.measured.case import MeasuredCase
    from ridgeline.study.measured.measurement import Measurement
    from ridgeline.study.score import RankAgreement, Score
    from ridgeline.study.validate import ValidateAnswer, ValidatedMemory, ValidatedRow

_SHOWN_GROUPS: Final = {
    "accelerator": "by kind of accelerator",
    "chip": "by chip",
    "model_kind": "by kind of model",
    "precision": "by precision",
    "chips": "by number of chips",
    "slices": "by number of slices",
    "quality": "by quality of the source",
    "source_of_measured": "by origin of the measured value",
    "assumed": "by what the source states",
    "job_states": "by what a job can state",
}
_VERDICT_TONES: Final[dict[str, Tone]] = {"right": "good", "tight": "warn", "wrong": "bad"}
_TELLING_ASSUMPTIONS: Final = ("remat", "mesh", "configuration", "measured")
_WORST = 12
_TELLING = 3
_ROOM = 1.5
_SAME = 0.01


def validate_report(answer: ValidateAnswer) -> Report:
    """The screen."""
    return Report(headline=_headline(answer), pieces=tuple(_pieces(answer)))


def validate_json(answer: ValidateAnswer) -> dict[str, Json]:
    """The same in base units; a group's scores have the keys of the whole."""
    return {
        "cases": answer.considered,
        "used": answer.used,
        "skipped": [{"id": each.id, "reason": each.reason} for each in answer.skipped],
        **score_json(answer.score),
        "bias_of_step_time": answer.step_bias,
        "groups": {
            name: {value: score_json(score, counts=True) for value, score in scores.items()}
            for name, scores in answer.groups.items()
        },
        "rank_agreement": {
            **_rank_json(answer.ranked),
            "models": {name: _rank_json(each) for name, each in answer.ranks.items()},
        },
        "serving": serving_json(answer),
        "memory": {**_verdicts(answer.memory), "rows": [_memory_json(each) for each in answer.memory]},
        "rows": [*(_row_json(row) for row in answer.rows), *(serving_row_json(row) for row in answer.serving)],
    }


def validate_charts(answer: ValidateAnswer) -> tuple[Chart, ...]:
    """Estimated against measured step times, dots coloured by chip; the diagonal, and 15% on either side of it.

    A measured throughput is drawn as the step time that it gives.
    """
    return (steps_chart([(row.case, row.estimate.step.expected_s) for row in answer.rows]),)


def steps_chart(rows: Sequence[tuple[MeasuredCase, float]]) -> Chart:
    """The same of any estimates.

    Args:
        rows: Measured cases, each with the expected time of its step.
    """
    return against_chart(
        [(case, case.step_s, expected_s) for case, expected_s in rows],
        title="Time of a step: estimate against measurement",
        shown=format_seconds,
    )


def against_chart(
    rows: Sequence[tuple[Measurement[Any, Any], float, float]], *, title: str, shown: Callable[[float], str]
) -> Chart:
    """Estimates against measurements, dots coloured by chip; the diagonal, and 15% on either side of it.

    Args:
        rows: Measurements, each with its value and the estimate.
        title: Of the chart.
        shown: A value in words.
    """
    by_chip: dict[str, list[tuple[Measurement[Any, Any], float, float]]] = {}
    for row in rows:
        by_chip.setdefault(row[0].chip, []).append(row)
    scatters = tuple(
        Scatter(
            name=chip,
            points=tuple((measured, expected) for _, measured, expected in those),
            names=tuple(case.id for case, _, _ in those),
        )
        for chip, those in sorted(by_chip.items())
    )
    values = [value for scatter in scatters for point in scatter.points for value in point]
    low, high = min(values) / _ROOM, max(values) * _ROOM
    return Chart(
        title=title,
        x=Axis(title="measured", low=low, high=high, shown=shown),
        y=Axis(title="estimate", low=low, high=high, shown=shown),
        curves=(
            Curve(name="equal", points=((low, low), (high, high)), reference=True),
            *(_edge(name, factor, low, high) for name, factor in (("15% more", 1 + CLOSE), ("15% less", 1 - CLOSE))),
        ),
        scatters=scatters,
    )


def _headline(answer: ValidateAnswer) -> str:
    found = answer.score
    if found is not None and not answer.rows:
        return (
            f"{format_things(found.rows, 'measurement')} of {format_things(found.clusters, 'server')}: "
            f"mean absolute error {format_fraction(found.mape)}"
        )
    if found is None and answer.memory:
        verdicts = format_things(len(answer.memory), "verdict")
        return f"no step time among {format_things(answer.considered, 'record')}; {verdicts} on memory"
    if found is None:
        return f"none of {answer.considered:,} records is used"
    return (
        f"{format_things(found.rows, 'measurement')} of {format_things(found.clusters, 'job')}: "
        f"mean absolute error {format_fraction(found.mape)}, "
        f"bias of step times {signed(answer.step_bias or 0.0)}"
    )


def _pieces(answer: ValidateAnswer) -> Iterator[Piece]:
    if answer.rows and answer.score is not None:
        yield _facts(answer, answer.score)
        if (groups := group_table("By group", answer.groups, _SHOWN_GROUPS, note=OF_STEPS)).rows:
            yield groups
        yield _worst_table(answer.rows)
    if answer.serving:
        yield from serving_pieces(answer)
    if answer.memory:
        yield _memory_table(answer.memory)
    if answer.skipped:
        yield not_used(answer.skipped, answer.considered)


def _facts(answer: ValidateAnswer, found: Score) -> Facts:
    ranked = answer.ranked
    agreement = "no two configurations of one model differ by 5%"
    if ranked.fraction is not None:
        agreement = f"{format_fraction(ranked.fraction)} of {ranked.pairs:,} pairs of configurations of one model"
    rows = [
        ("within 15%", format_fraction(found.within_15_percent)),
        ("inside low to high", f"{format_fraction(found.interval_coverage)}, width {width_of(found)} of the estimate"),
        ("faster ranked first", agreement),
    ]
    graded = answer.groups.get("graded", {}).get("A and B")
    if graded is not None and graded.rows < found.rows:
        error = f"mean absolute error {format_fraction(graded.mape)}, bias {signed(graded.bias)}"
        rows.append(("quality A and B", f"{error}, within 15% {format_fraction(graded.within_15_percent)}"))
    rows.extend(_readings(answer.rows))
    return Facts(rows=tuple((label, Cell(text=text)) for label, text in rows))


def _readings(rows: Sequence[ValidatedRow]) -> Iterator[tuple[str, str]]:
    """How much estimates depend on what sources leave open (mostly the remat policy)."""
    widths = [(most - least) / row.scored.expected for row in rows if row.spread for least, most in [row.spread]]
    if widths:
        changed = f"the other readings lie {format_fraction(median(widths))} apart, at the median"
        yield "left open", f"in {format_things(len(widths), 'row')}: {changed}"


def _worst_table(rows: Sequence[ValidatedRow]) -> Table:
    """The worst row of each of the worst clusters."""
    return Table(
        title="Worst cases",
        columns=("case", "measured", "estimate", "error", "what it is, and where the estimated time goes"),
        right=frozenset({1, 2, 3}),
        rows=tuple(_worst_row(row) for row in worst_of_clusters(rows, most=_WORST)),
        note="the worst row of a job stands for it",
    )


def _worst_row(row: ValidatedRow) -> tuple[Cell, ...]:
    scored = row.scored
    parts = ", ".join(f"{cause} {format_fraction(share)}" for cause, share in list(row.causes.items())[:_TELLING])
    telling = [each for each in row.case.assumed if each.startswith(_TELLING_ASSUMPTIONS)]
    assumed = f"; assumed {'; '.join(telling)}" if telling else ""
    if row.spread and row.spread[1] > row.spread[0] * (1 + _SAME):
        assumed += f" ({_value(row, row.spread[0])} to {_value(row, row.spread[1])} by other readings)"
    return (
        Cell(text=row.case.id),
        Cell(text=_value(row, scored.measured)),
        Cell(text=_value(row, scored.expected)),
        Cell(text=signed(scored.error), tone=tone_of(abs(scored.error))),
        Cell(text=f"{row.case.model} on {row.case.job.hardware.name}: {parts}{assumed}"),
    )


def _memory_table(runs: Sequence[ValidatedMemory]) -> Table:
    counts = ", ".join(f"{count} {verdict}" for verdict, count in _verdicts(runs).items())
    return Table(
        title=f"Memory: {counts}",
        columns=("run", "happened", "estimate", "needs", "usable", "verdict"),
        right=frozenset({3, 4}),
        rows=tuple(
            (
                Cell(text=run.case.id),
                Cell(text="fitted" if run.case.fits else "did not fit"),
                Cell(text=run.memory.verdict.replace("_", " ")),
                Cell(text=format_bytes(run.memory.total_bytes)),
                Cell(text=format_bytes(run.memory.usable_bytes)),
                Cell(text=run.verdict, tone=_VERDICT_TONES[run.verdict]),
            )
            for run in runs
        ),
    )


def _verdicts(runs: Sequence[ValidatedMemory]) -> dict[str, int]:
    counts = Counter(run.verdict for run in runs)
    return {verdict: counts[verdict] for verdict in ("right", "tight", "wrong")}


def _value(row: ValidatedRow, value: float) -> str:
    return format_seconds(value) if row.case.metric == "step_time_s" else f"{format_count(value)}/s"


def _rank_json(agreement: RankAgreement) -> dict[str, Json]:
    return {"pairs": agreement.pairs, "right": agreement.right, "fraction": agreement.fraction}


def _memory_json(run: ValidatedMemory) -> dict[str, Json]:
    return {
        "id": run.case.id,
        "fits": run.case.fits,
        "expected": run.memory.verdict,
        "verdict": run.verdict,
        "total_bytes": jsonable(run.memory.total_bytes),
        "usable_bytes": jsonable(run.memory.usable_bytes),
        "measured_bytes": run.case.needed_bytes,
        "source": run.case.source,
        "assumed": list(run.case.assumed),
    }


def _row_json(row: ValidatedRow) -> dict[str, Json]:
    case, scored = row.case, row.scored
    return {
        "id": case.id,
        "cluster": case.cluster,
        "metric": case.metric,
        "unit": case.unit,
        "measured": scored.measured,
        "expected": scored.expected,
        "low": scored.low,
        "high": scored.high,
        "error": scored.error,
        "source_of_measured": case.source_of_measured,
        "widened_by": list(row.estimate.step.widened_by),
        "spread": None if row.spread is None else list(row.spread),
        "assumed": list(case.assumed),
        "not_stated": case.not_stated or None,
        "quality": case.quality,
        "source": case.source,
        "chip": case.chip,
        "chips": case.chips,
        "slices": case.slices,
        "model": case.model,
        "model_kind": case.model_kind,
        "precision": case.precision,
        "seq_len": case.job.workload.seq_len,
        "global_batch": case.job.workload.global_batch,
        "mesh": mesh_in_words(row.estimate.plan.mesh),
        "bound": row.estimate.bound,
        "causes": jsonable(row.causes),
    }


def _edge(name: str, factor: float, low: float, high: float) -> Curve:
    """Where estimates are a fixed multiple of measurements."""
    first, last = max(low, low / factor), min(high, high / factor)
    return Curve(name=name, points=((first, first * factor), (last, last * factor)), dashed=True, reference=True)
