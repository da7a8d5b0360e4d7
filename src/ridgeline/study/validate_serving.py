"""`validate` for servers: what clients measured beside what the pinned server is estimated to give."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Final

from ridgeline.errors import InputError, RidgelineError
from ridgeline.search.serving.interval import serving_half_width
from ridgeline.search.serving.pinned import pinned_server
from ridgeline.study.measured.case import Skipped
from ridgeline.study.score import ScoredRow, score

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ridgeline.search.serving.pinned import PinnedServer
    from ridgeline.search.train import Progress
    from ridgeline.study.measured.serving_case import ServingCase
    from ridgeline.study.score import Score


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidatedServing:
    """A measurement of a server beside its estimate.

    Attributes:
        case: What was measured, of which server.
        scored: Measurement, estimate and interval, in the unit of what was measured.
        server: What was estimated.
    """

    case: ServingCase
    scored: ScoredRow
    server: PinnedServer


def validate_serving(
    cases: Sequence[ServingCase], *, progress: Progress | None = None
) -> tuple[tuple[ValidatedServing, ...], tuple[Skipped, ...]]:
    """Every case beside its estimate, and those that cannot be estimated.

    Args:
        cases: Measurements; those of one server stand behind each other.
        progress: Told how far it is.
    """
    rows: list[ValidatedServing] = []
    left_out: list[Skipped] = []
    last: tuple[ServingCase, PinnedServer] | None = None
    for index, case in enumerate(cases):
        if progress is not None:
            progress("estimating servers", index / len(cases))
        try:
            is_same = last is not None and last[0].job is case.job and last[0].engine == case.engine
            server = last[1] if is_same and last is not None else pinned_server(case.job, case.engine)
            rows.append(_row(case, server))
            last = case, server
        except RidgelineError as error:
            left_out.append(Skipped(id=case.id, reason=f"cannot be estimated: {str(error).splitlines()[0]}"))
    return tuple(rows), tuple(left_out)


def _row(case: ServingCase, server: PinnedServer) -> ValidatedServing:
    expected = case.expected(server.times())
    if not (isfinite(expected) and expected > 0):
        raise InputError(
            "the estimate is not a number", where=case.id, value=expected, expected=case.metric, fix="report it"
        )
    is_first = case.metric == "ttft_s"
    width = 1.0 + serving_half_width(case.job, case.job.plan.dtypes, case.engine.name, is_first=is_first)
    scored = ScoredRow(
        cluster=case.cluster, measured=case.measured, expected=expected, low=expected / width, high=expected * width
    )
    return ValidatedServing(case=case, scored=scored, server=server)


_SCALES: Final = (1, 4, 8)


def _scale(chips: int) -> str:
    """The group of a number of chips of a server.

    >>> _scale(1), _scale(8), _scale(16)
    ('1', 'up to 8', 'over 8')
    """
    return next((f"up to {most}" if most > 1 else "1" for most in _SCALES if chips <= most), f"over {_SCALES[-1]}")


SERVING_GROUPS: Final[Mapping[str, Callable[[ServingCase], str]]] = {
    "metric": lambda case: case.metric,
    "accelerator": lambda case: case.kind,
    "chip": lambda case: case.chip,
    "engine": lambda case: case.engine.name,
    "model_kind": lambda case: case.model_kind,
    "precision": lambda case: case.precision,
    "chips": lambda case: _scale(case.chips),
    "prompts": lambda case: {"beside": "read beside decoding", "apart": "read between passes"}.get(
        case.engine.reading, "read elsewhere"
    ),
    "job_states": lambda case: "not all of the run" if case.not_stated else "all of the run",
    "source_of_measured": lambda case: case.source_of_measured,
    "family": lambda case: case.model,
}
"""What groups rows: the name of the group, and its value for a case."""


def serving_groups(rows: Sequence[ValidatedServing]) -> dict[str, dict[str, Score]]:
    """Scores by what rows have in common, then by its value; beside the metric itself, of times per token alone."""
    of_tokens = [row for row in rows if row.case.metric != "ttft_s"]
    return {name: _scores(rows if name == "metric" else of_tokens, key) for name, key in SERVING_GROUPS.items()}


def _scores(rows: Sequence[ValidatedServing], key: Callable[[ServingCase], str]) -> dict[str, Score]:
    grouped: dict[str, list[ScoredRow]] = {}
    for row in rows:
        grouped.setdefault(key(row.case), []).append(row.scored)
    return {name: found for name, those in grouped.items() if (found := score(those)) is not None}
