"""Scores as tables and as JSON: errors by group, over jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from ridgeline.report.blocks import Cell, Table
from ridgeline.units import format_fraction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ridgeline.report.blocks import Tone
    from ridgeline.report.jsonable import Json
    from ridgeline.study.measured.measurement import Measurement
    from ridgeline.study.score import Score, ScoredRow

_GOOD, _POOR = 0.08, 0.15


class _Validated(Protocol):
    """A measurement that was estimated, of whatever kind."""

    @property
    def scored(self) -> ScoredRow: ...


_Row = TypeVar("_Row", bound=_Validated)
_Case = TypeVar("_Case", bound="Measurement[Any, Any]")
_Case_co = TypeVar("_Case_co", bound="Measurement[Any, Any]", covariant=True)


class _Told(_Validated, Protocol[_Case_co]):
    """The same with what was measured."""

    @property
    def case(self) -> _Case_co: ...


OF_STEPS: Final = "means over jobs: rows of one chip, model, number of chips, sequence and precision are one job"
"""What a table of steps says of its means."""

OF_SERVERS: Final = (
    "beside the metric itself, of times per token and tokens/s alone; means over servers: rows of one chip, model, "
    "number of chips, lengths and precision are one server"
)
"""What a table of servers says of its means."""


def group_table(title: str, groups: Mapping[str, Mapping[str, Score]], shown: Mapping[str, str], *, note: str) -> Table:
    """Scores by group.

    Args:
        title: Of the table.
        groups: Name of a group to its values' scores.
        shown: Names of the groups that are shown, each with a title.
        note: What the means are over.
    """
    rows: list[tuple[Cell, ...]] = []
    for name, heading in shown.items():
        scores = groups.get(name, {})
        if len(scores) < 2:  # one value parts nothing
            continue
        rows.append((Cell(text=heading, tone="dim"), *(Cell(text="") for _ in range(7))))
        rows.extend(
            score_row(value, score) for value, score in sorted(scores.items(), key=lambda each: group_order(each[0]))
        )
    return Table(
        title=title,
        columns=("", "jobs", "rows", "error", "bias", "within 15%", "inside", "width"),
        right=frozenset(range(1, 8)),
        rows=tuple(rows),
        note=note,
    )


def group_order(value: str) -> tuple[int, str]:
    """Groups in the order of their first number, else by name.

    >>> sorted(["over 8", "up to 4", "1", "9 to 64"], key=group_order)
    ['1', 'up to 4', '9 to 64', 'over 8']
    """
    digits = value.removeprefix("up to ").removeprefix("over ").split(" ")[0].replace(",", "")
    if not digits.isdigit():
        return 0, value
    return int(digits) * (2 if value.startswith("over") else 1), value


def score_row(value: str, found: Score) -> tuple[Cell, ...]:
    """A line of a table of scores."""
    return (
        Cell(text=f"  {value}"),
        Cell(text=f"{found.clusters:,}"),
        Cell(text=f"{found.rows:,}"),
        Cell(text=format_fraction(found.mape), tone=tone_of(found.mape)),
        Cell(text=signed(found.bias)),
        Cell(text=format_fraction(found.within_15_percent)),
        Cell(text=format_fraction(found.interval_coverage)),
        Cell(text=width_of(found)),
    )


def signed(fraction: float) -> str:
    """A fraction with its sign."""
    return f"{fraction:+.1%}".replace("-", "−")


def width_of(found: Score) -> str:
    """Width of the interval."""
    return format_fraction(found.interval_width)


def tone_of(error: float) -> Tone:
    """How good an error is."""
    if error <= _GOOD:
        return "good"
    return "warn" if error <= _POOR else "bad"


def score_json(found: Score | None, *, counts: bool = False) -> dict[str, Json]:
    """A score by its keys."""
    keys = ("mape", "bias", "within_15_percent", "interval_coverage", "interval_width")
    scores: dict[str, Json] = {key: None if found is None else getattr(found, key) for key in keys}
    clusters: dict[str, Json] = {"clusters": 0 if found is None else found.clusters}
    rows: dict[str, Json] = {"used": found.rows} if counts and found is not None else {}
    return rows | clusters | scores


def worst_of_clusters(rows: Iterable[_Row], *, most: int) -> list[_Row]:
    """The worst row of each of the worst clusters, the worst first.

    Args:
        rows: Measurements, each with its estimate.
        most: So many clusters at the most.
    """
    worst: dict[str, _Row] = {}
    for row in sorted(rows, key=lambda each: -abs(each.scored.error)):
        worst.setdefault(row.scored.cluster, row)
    return list(worst.values())[:most]


def worst_table(
    rows: Iterable[_Told[_Case]],
    *,
    title: str,
    most: int,
    value: Callable[[_Case, float], str],
    in_words: Callable[[_Case], str],
    note: str,
) -> Table:
    """The worst row of each of the worst clusters.

    Args:
        rows: Measurements, each with its estimate.
        title: Of the table.
        most: So many clusters at the most.
        value: A value as it is measured.
        in_words: What a measurement is of.
        note: What a row stands for.
    """
    return Table(
        title=title,
        columns=("case", "measured", "estimate", "error", "what it is"),
        right=frozenset({1, 2, 3}),
        rows=tuple(
            (
                Cell(text=row.case.id),
                Cell(text=value(row.case, row.scored.measured)),
                Cell(text=value(row.case, row.scored.expected)),
                Cell(text=signed(row.scored.error), tone=tone_of(abs(row.scored.error))),
                Cell(text=in_words(row.case)),
            )
            for row in worst_of_clusters(rows, most=most)
        ),
        note=note,
    )
