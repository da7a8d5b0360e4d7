"""TPU training records: a list of rows, each a published run with its configuration as the source states it.

The schema is that of `published/tpu_training.json`. A row of it that we have not seen may lack any key, and spell
values in other ways; what cannot be understood makes that row unusable, with the reason, and no other.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from ridgeline.errors import InputError
from ridgeline.study.measured.case import MeasuredCase, Skipped
from ridgeline.study.measured.measurement import Metric, SourceOfMeasured
from ridgeline.study.measured.records import (
    as_record,
    number,
    record_id,
    records_of,
    skipped,
    source_of,
    table,
    text,
    unusable,
)
from ridgeline.study.measured.tpu_hardware import ulysses_degree
from ridgeline.study.measured.tpu_job import record_job
from ridgeline.study.measured.tpu_plan import not_stated

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.study.measured.records import Record

_Measured: TypeAlias = tuple[Metric, float, SourceOfMeasured]

_OF_THE_RUN: Final = frozenset({"id", "source", "date", "quality", "measured", "derived", "normalized", "notes"})
"""Keys that a row never takes over from the row whose configuration it repeats."""

_RESTATED = 0.03
"""By how much step time and tokens/s of one row may differ before the row contradicts itself."""


def read_records(
    document: object, where: str, *, elsewhere: Mapping[str, Record] | None = None
) -> tuple[list[MeasuredCase], list[Skipped]]:
    """The cases of a document, and its records that are not used.

    Args:
        document: A list of rows, or an object that holds it as `records`.
        where: The file.
        elsewhere: Rows of other files by id, whose configuration a row may repeat (`same_config_as`).
    """
    rows = records_of(document)
    known = dict(elsewhere or {}) | {
        str(cast("Record", row).get("id")): cast("Record", row) for row in rows if isinstance(row, dict)
    }
    cases: list[MeasuredCase] = []
    left_out: list[Skipped] = []
    for index, row in enumerate(rows):
        name = record_id(row, where, index)
        try:
            cases.append(_case(name, row, known))
        except InputError as error:
            left_out.append(skipped(name, error))
    return cases, left_out


def _case(name: str, row: object, known: Mapping[str, Record]) -> MeasuredCase:
    record, said = _with_configuration(as_record(row), known)
    metric, measured, origin = _measured(record)
    pinned = record_job(name, record)
    ulysses = ulysses_degree(record)
    mixed = "a job gives usp one degree; this run gave ring and Ulysses one each" if ulysses > 1 else ""
    case = MeasuredCase(
        id=name,
        job=pinned.job,
        metric=metric,
        measured=measured,
        source_of_measured=origin,
        source=source_of(record),
        quality=text(record, "quality") or "unstated",
        assumed=(*said, *pinned.assumed),
        alternatives=pinned.alternatives,
        not_stated="; ".join(filter(None, (mixed, not_stated(record)))),
    )
    return replace(case, assumed=(*case.assumed, *_disagreement(case, record)))


def _disagreement(case: MeasuredCase, record: Record) -> tuple[str, ...]:
    """What to say where the throughput that a row states beside its step time is another one."""
    stated = number(table(record, "measured"), "tokens_per_s_per_chip")
    if case.metric != "step_time_s" or case.source_of_measured != "direct" or stated is None:
        return ()
    ratio = stated / case.tokens_per_s_per_chip
    if abs(ratio - 1) <= _RESTATED:
        return ()
    return (f"measured: the step time, though the tokens/s stated are {ratio:.2f} times what it gives",)


def _with_configuration(record: Record, known: Mapping[str, Record]) -> tuple[Record, tuple[str, ...]]:
    """A record with what it leaves out taken from the one whose configuration it says it repeats."""
    name = text(record, "same_config_as")
    if not name:
        return record, ()
    other = known.get(name)
    if other is None or other is record:
        return record, (f"configuration: that of {name} is not at hand",)
    taken = {key: value for key, value in other.items() if key not in _OF_THE_RUN}
    stated = {key: value for key, value in record.items() if value not in (None, "", {}, [])}
    return taken | stated, (f"configuration: as {name}",)


def _measured(record: Record) -> _Measured:
    """What was measured: a step time, else a throughput; of the source itself, else derived from what it states."""
    measured, derived = table(record, "measured"), table(record, "derived")
    normalized = table(record, "normalized")
    chips = number(record, "num_chips")
    total = number(measured, "tokens_per_s_total")
    candidates: tuple[tuple[Metric, float | None, SourceOfMeasured], ...] = (
        ("step_time_s", number(measured, "step_time_s"), "direct"),
        ("tokens_per_s_per_chip", number(measured, "tokens_per_s_per_chip"), "direct"),
        ("tokens_per_s_per_chip", total / chips if total and chips else None, "direct"),
        ("step_time_s", number(derived, "step_time_s"), "derived"),
        ("tokens_per_s_per_chip", number(derived, "tokens_per_s_per_chip"), "derived"),
        ("tokens_per_s_per_chip", number(normalized, "tokens_per_s_per_chip"), "derived"),
    )
    for metric, value, origin in candidates:
        if value is not None:
            return metric, value, origin
    reported = ", ".join(measured) or "nothing"
    raise unusable("neither a step time nor tokens/s", reported, key="measured")
