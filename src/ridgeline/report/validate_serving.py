"""`ridgeline validate` for servers: scores by group, and the worst cases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ridgeline.job.mesh import mesh_in_words
from ridgeline.report.blocks import Cell, Table
from ridgeline.report.scores import group_table, score_json, signed, tone_of, worst_of_clusters
from ridgeline.units import format_count, format_seconds, format_things

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ridgeline.report.blocks import Piece
    from ridgeline.report.jsonable import Json
    from ridgeline.study.validate import ValidateAnswer
    from ridgeline.study.validate_serving import ValidatedServing

_SHOWN_GROUPS: Final = {
    "metric": "by what was measured",
    "accelerator": "by kind of accelerator",
    "chip": "by chip",
    "engine": "by engine",
    "model_kind": "by kind of model",
    "precision": "by precision",
    "chips": "by chips of a server",
    "job_states": "by what a job can state",
}
OF_SERVERS: Final = (
    "beside the metric itself, of times per token and tokens/s alone; means over servers: rows of one chip, model, "
    "number of chips, lengths and precision are one server"
)
_WORST: Final = 8


def serving_pieces(answer: ValidateAnswer) -> Iterator[Piece]:
    """What the screen says of servers."""
    yield group_table(
        f"Servers: {format_things(len(answer.serving), 'measurement')}",
        answer.serving_groups,
        _SHOWN_GROUPS,
        note=OF_SERVERS,
    )
    yield _worst_table([row for row in answer.serving if row.case.metric != "ttft_s"])


def serving_json(answer: ValidateAnswer) -> dict[str, Json]:
    """Scores of servers; a group's have the keys of the whole."""
    return {
        **score_json(answer.serving_score, counts=True),
        "groups": {
            name: {value: score_json(score, counts=True) for value, score in scores.items()}
            for name, scores in answer.serving_groups.items()
        },
    }


def serving_row_json(row: ValidatedServing) -> dict[str, Json]:
    """A measurement beside its estimate."""
    case, scored, workload = row.case, row.scored, row.case.job.workload
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
        "assumed": list(case.assumed),
        "not_stated": case.not_stated or None,
        "quality": case.quality,
        "source": case.source,
        "chip": case.chip,
        "chips": case.chips,
        "model": case.model,
        "model_kind": case.model_kind,
        "precision": case.precision,
        "engine": case.engine.name,
        "prompt_len": workload.prompt_len,
        "generate_len": workload.generate_len,
        "concurrency": workload.batch,
        "batch": float(row.server.decoding.num_decoding),
        "mesh": mesh_in_words(case.job.plan.decode),
    }


def _worst_table(rows: Sequence[ValidatedServing]) -> Table:
    """The worst row of each of the worst clusters."""
    return Table(
        title="Worst servers",
        columns=("case", "measured", "estimate", "error", "what it is"),
        right=frozenset({1, 2, 3}),
        rows=tuple(_worst_row(row) for row in worst_of_clusters(rows, most=_WORST)),
        note="the worst row of a server stands for it",
    )


def _worst_row(row: ValidatedServing) -> tuple[Cell, ...]:
    case, scored = row.case, row.scored
    requests = "all requests queued" if case.job.workload.batch is None else f"{case.job.workload.batch:,} requests"
    setup = f"{mesh_in_words(case.job.plan.decode)}, {requests}, {case.engine.name}"
    return (
        Cell(text=case.id),
        Cell(text=_value(row, scored.measured)),
        Cell(text=_value(row, scored.expected)),
        Cell(text=signed(scored.error), tone=tone_of(abs(scored.error))),
        Cell(text=f"{case.model} in {case.precision} on {case.job.hardware.name}: {setup}"),
    )


def _value(row: ValidatedServing, value: float) -> str:
    return format_seconds(value) if row.case.unit == "s" else f"{format_count(value)}/s"
