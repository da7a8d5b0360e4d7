"""Records of any origin: what they hold under a name, read without trust in their types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import TypeAlias, cast

from ridgeline.errors import InputError, shown
from ridgeline.study.measured.case import Skipped

Record: TypeAlias = Mapping[str, object]

_LEAST = 1e-9
_MOST = 1e18
"""Beyond them no number of a record can be meant: seconds, tokens and bytes lie between."""
_LISTS = ("records", "rows", "cases")


def records_of(document: object) -> list[object]:
    """The records of a document: a list of them, an object that holds such lists, or one record.

    Lists are held under `records`, `rows` or `cases`, or so in a table inside.
    """
    if isinstance(document, list):
        return cast("list[object]", document)
    if not isinstance(document, Mapping):
        return [document]
    inside = cast("Record", document)
    found = _listed(inside)
    for key in inside:
        found += _listed(table(inside, key))
    return found or [inside]


def _listed(holder: Record) -> list[object]:
    """The records that a table holds in lists."""
    return [record for key in _LISTS if isinstance(holder.get(key), list) for record in sequence(holder, key)]


def record_id(record: object, where: str, index: int) -> str:
    """What a record is called: its own id, or where it stands.

    >>> record_id({"id": "run-1"}, "a.json", 0), record_id([], "a.json", 3)
    ('run-1', 'a.json: record 4')
    """
    match record:
        case {"id": str() as name} if name.strip():
            return " ".join(name.split())
        case _:
            return f"{where}: record {index + 1}"


def as_record(row: object) -> Record:
    """A record as a table.

    Raises:
        InputError: It is none.
    """
    if not isinstance(row, Mapping):
        raise unusable("a record that is no table", row, key="record")
    return cast("Record", row)


def table(record: Record, key: str) -> Record:
    """The table under a key; empty where there is none."""
    value = record.get(key)
    return cast("Record", value) if isinstance(value, Mapping) else {}


def text(record: Record, key: str) -> str:
    """The text under a key on one line; "" where there is none."""
    value = record.get(key)
    return " ".join(value.split()) if isinstance(value, str) else ""


def sequence(record: Record, key: str) -> tuple[object, ...]:
    """The list under a key; empty where there is none."""
    value = record.get(key)
    return tuple(cast("Sequence[object]", value)) if isinstance(value, Sequence) and not isinstance(value, str) else ()


def number(record: Record, key: str) -> float | None:
    """The number under a key, None where there is none.

    Raises:
        InputError: There is something that is not a number above zero.
    """
    value = record.get(key)
    if value is None or value == "":
        return None
    try:
        found = float(cast("float", value)) if not isinstance(value, bool) else float("nan")
    except (TypeError, ValueError, OverflowError):
        found = float("nan")
    if not isfinite(found) or not _LEAST < found < _MOST:
        raise unusable(f"{key} is not a number above zero", value, key=key)
    return found


def whole(record: Record, key: str) -> int | None:
    """The whole number under a key, None where there is none.

    Raises:
        InputError: There is something that is not a whole number from 1.
    """
    found = number(record, key)
    if found is not None and found != int(found):
        raise unusable(f"{key} is not a whole number", record[key], key=key)
    return None if found is None else int(found)


def unusable(what: str, value: object, *, key: str) -> InputError:
    """Why a record cannot be used.

    Args:
        what: The reason, in words.
        value: What the record has.
        key: Where.
    """
    return InputError(what, where=key, value=value, expected="a measured job", fix="state it in the record")


def skipped(name: str, error: InputError) -> Skipped:
    """A record left out for an error."""
    return Skipped(id=name, reason=f"{error.what} ({error.where}: {shown(error.value)})")


def source_of(record: Record) -> str:
    """Where a record was published: by whom, at which commit, in which file."""
    source = table(record, "source")
    place = text(source, "repo") or text(source, "url") or text(record, "source")
    parts = (place, text(source, "commit"), text(source, "path") or text(source, "note"))
    return " ".join(part for part in parts if part) or "unstated"
