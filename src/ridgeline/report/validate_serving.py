"""`ridgeline validate` for servers: scores by group, and the worst cases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ridgeline.job.mesh import mesh_in_words
from ridgeline.report.scores import OF_SERVERS, group_table, score_json, worst_table
from ridgeline.search.serving.interval import serving_widened_by
from ridgeline.units import format_count, format_seconds, format_things

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ridgeline.report.blocks import Piece
    from ridgeline.report.jsonable import Json
    from ridgeline.study.measured.serving_case import ServingCase
    from ridgeline.study.validate import ValidateAnswer
    from ridgeline.study.validate_serving import ValidatedServing

SERVER_GROUPS: Final = {
    "metric": "by what was measured",
    "accelerator": "by kind of accelerator",
    "chip": "by chip",
    "engine": "by engine",
    "model_kind": "by kind of model",
    "precision": "by precision",
    "chips": "by chips of a server",
    "job_states": "by what a job can state",
}
"""Groups of servers that are shown, each with a title."""

_WORST: Final = 8


def serving_pieces(answer: ValidateAnswer) -> Iterator[Piece]:
    """What the screen says of servers."""
    yield group_table(
        f"Servers: {format_things(len(answer.serving), 'measurement')}",
        answer.serving_groups,
        SERVER_GROUPS,
        note=OF_SERVERS,
    )
    yield worst_table(
        [row for row in answer.serving if row.case.metric != "ttft_s"],
        title="Worst servers",
        most=_WORST,
        value=server_value,
        in_words=server_in_words,
        note="the worst row of a server stands for it",
    )


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
        "widened_by": list(serving_widened_by(case.job, case.job.plan.dtypes, case.engine.name)),
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


def server_in_words(case: ServingCase) -> str:
    """Model, slice, mesh, load and engine."""
    requests = "all requests queued" if case.job.workload.batch is None else f"{case.job.workload.batch:,} requests"
    setup = f"{mesh_in_words(case.job.plan.decode)}, {requests}, {case.engine.name}"
    return f"{case.model} in {case.precision} on {case.job.hardware.name}: {setup}"


def server_value(case: ServingCase, value: float) -> str:
    """A time, or tokens/s."""
    return format_seconds(value) if case.unit == "s" else f"{format_count(value)}/s"
