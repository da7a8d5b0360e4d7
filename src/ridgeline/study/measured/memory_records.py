"""Memory records: a list of runs that fitted in memory or did not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ridgeline.errors import InputError
from ridgeline.study.measured.case import MemoryCase, Skipped
from ridgeline.study.measured.records import as_record, number, record_id, records_of, skipped, source_of, unusable
from ridgeline.study.measured.tpu_job import record_job
from ridgeline.units import parse_bytes

if TYPE_CHECKING:
    from ridgeline.study.measured.records import Record

_GIB: Final = ("used_gib", "compiled_total_gb")
"""Keys of what a run needed; sources that print GB mean GiB (MaxText divides by 1024³)."""


def read_memory_records(document: object, where: str) -> tuple[list[MemoryCase], list[Skipped]]:
    """The cases of a document, and its records that are not used.

    Args:
        document: A list of rows, or an object that holds it as `records`.
        where: The file.
    """
    cases: list[MemoryCase] = []
    left_out: list[Skipped] = []
    for index, row in enumerate(records_of(document)):
        name = record_id(row, where, index)
        try:
            cases.append(_case(name, row))
        except InputError as error:
            left_out.append(skipped(name, error))
    return cases, left_out


def _case(name: str, row: object) -> MemoryCase:
    record = as_record(row)
    if not isinstance(record.get("fits"), bool):
        raise unusable("no verdict", record.get("fits"), key="fits")
    on_host = record.get("optimizer_memory_host_offload") is True
    optimizer: Record = {"optimizer": {"memory_host_offload": True}} if on_host else {}
    pinned = record_job(name, {**record, **optimizer})
    needed = next((size for key in _GIB if (size := number(record, key)) is not None), None)
    return MemoryCase(
        id=name,
        job=pinned.job,
        fits=record["fits"] is True,
        needed_bytes=None if needed is None else parse_bytes(f"{needed}GiB", where=name),
        source=source_of(record),
        assumed=pinned.assumed,
    )
