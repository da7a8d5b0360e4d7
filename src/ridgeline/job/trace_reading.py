"""Reads a trace of requests: a CSV file with a header, or one JSON object a line (JSONL).

| what | names of its column, or key |
|---|---|
| arrival | `arrival_s`, `arrival_ms`, or `timestamp`: a date and time of ISO 8601, UTC where no zone is said |
| tokens of the prompt | `prompt_tokens`, `input_tokens`, `input_length`, `context_tokens`, `request_tokens` |
| tokens of the reply | `output_tokens`, `output_length`, `generated_tokens`, `response_tokens` |

Capitals, spaces and underscores in names do not matter, so that public traces (Azure, BurstGPT) need no new header;
other columns are ignored. Rows may stand in any order; the first arrival is second 0. At most 512 MB and 2,000,000
requests are read.
"""

from __future__ import annotations

import csv
import json
import re
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import numpy as np

from ridgeline.errors import InputError
from ridgeline.job.file_size import regular_size_bytes
from ridgeline.job.traffic import Requests

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import TextIO

MOST_BYTES: Final = 512_000_000
MOST_REQUESTS: Final = 2_000_000
_MOST_TOKENS: Final = 100_000_000
_MOST_SECONDS: Final = 1e10

_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "arrival": ("arrival_s", "arrival_ms", "timestamp"),
    "prompt": ("prompt_tokens", "input_tokens", "input_length", "context_tokens", "request_tokens"),
    "output": ("output_tokens", "output_length", "generated_tokens", "response_tokens"),
}
_PER_S: Final[Mapping[str, int]] = {"arrival_s": 1, "arrival_ms": 1000}
_WORDS: Final[Mapping[str, str]] = {
    "arrival": "when a request came",
    "prompt": "tokens of the prompt",
    "output": "tokens of the reply",
}

_SEPARATORS: Final[Mapping[str, str]] = {";": "semicolons", "\t": "tabs", "|": "bars"}

Row: TypeAlias = "tuple[int, Mapping[str, object]]"
"""A line's number, and its values by plain name."""


def read_trace(path: str) -> Requests:
    """The requests of a trace, in order of arrival.

    Raises:
        InputError: The file cannot be read, or a line is malformed; the message has its number.
    """
    file = Path(path)
    readers: Mapping[str, Callable[[TextIO, str], Iterator[Row]]] = {
        ".csv": _csv_rows,
        ".jsonl": _json_rows,
        ".ndjson": _json_rows,
    }
    rows = readers.get(file.suffix.lower())
    if rows is None:
        raise _refused("unknown kind of trace", path, path, "a .csv or .jsonl file", "convert it, or mend its name")
    try:
        size_bytes = regular_size_bytes(file)
        if size_bytes is None:
            raise _refused("the trace is not a file", path, path, "a file", "give the path of a .csv or .jsonl file")
        if size_bytes > MOST_BYTES:
            expected = f"{MOST_BYTES:,} bytes at most"
            raise _refused("the trace is too large", path, f"{size_bytes:,} bytes", expected, "cut it")
        with file.open(encoding="utf-8-sig", newline="") as text:
            return _requests(rows(text, path), path)
    except UnicodeDecodeError as error:
        what = f"the trace is not UTF-8 text: byte {error.start}"
        raise _refused(what, path, path, "UTF-8", "write it again as UTF-8") from None
    except OSError as error:
        raise _refused(
            f"cannot read the trace: {error.strerror}", path, path, "a readable file", "check the path"
        ) from None


def _csv_rows(text: TextIO, path: str) -> Iterator[Row]:
    lines = csv.reader(text)
    header = list[str]()
    try:
        for cells in lines:
            where = f"{path}: line {lines.line_num}"
            if not "".join(cells).strip():
                continue
            if not header:
                check_names(cells, where)
                header = [_plain(name) for name in cells]
            elif len(cells) != len(header):
                expected = f"{len(header)} cells, as in the header"
                raise _refused("wrong number of cells", where, f"{len(cells)} cells", expected, "mend the line")
            else:
                yield lines.line_num, dict(zip(header, cells, strict=True))
    except csv.Error as error:
        where = f"{path}: line {lines.line_num}"
        raise _refused(f"the line is not CSV: {error}", where, "(the line)", "CSV", "mend the line") from None


def _json_rows(text: TextIO, path: str) -> Iterator[Row]:
    is_checked = False
    for number, line in enumerate(text, start=1):
        if not line.strip():
            continue
        where = f"{path}: line {number}"
        try:
            found: object = json.loads(line, object_pairs_hook=_Pairs)
        except (ValueError, RecursionError):
            raise _refused("the line is not JSON", where, line, "one JSON object", "mend the line") from None
        if not isinstance(found, _Pairs):
            raise _refused("the line is no object", where, line, "one JSON object", "mend the line")
        pairs: Sequence[tuple[str, object]] = found
        if not is_checked:
            check_names([name for name, _ in pairs], where)
        is_checked = True
        row = {_plain(name): value for name, value in pairs}
        if len(row) < len(pairs):
            said = ", ".join(name for name, _ in pairs)
            raise _refused("a key is said twice", where, said, "each key once", "mend the line")
        yield number, row


class _Pairs(tuple[tuple[str, object], ...]):
    """The keys and values of a JSON object, as they stand: a key that is said twice stays twice."""

    __slots__ = ()


def _requests(rows: Iterable[Row], path: str) -> Requests:
    """Checks every value and sorts by arrival."""
    arrivals, prompts, outputs = list[float](), list[int](), list[int]()
    names, zones = dict[str, str](), set[bool]()
    for number, row in rows:
        where = f"{path}: line {number}"
        names = names or {what: _name(row, what) for what in _COLUMNS}
        arrival = _value(row, names["arrival"], where)
        arrivals.append(_arrival_s(arrival, names["arrival"], where))
        zones.add(names["arrival"] == "timestamp" and datetime.fromisoformat(str(arrival).strip()).tzinfo is not None)
        if len(zones) > 1:
            what = "some timestamps have a time zone, and some have none"
            raise _refused(what, where, arrival, "a zone everywhere, or nowhere", "write the same on every line")
        prompts.append(_tokens(_value(row, names["prompt"], where), names["prompt"], where))
        outputs.append(_tokens(_value(row, names["output"], where), names["output"], where))
        if len(arrivals) > MOST_REQUESTS:
            expected = f"{MOST_REQUESTS:,} at most"
            raise _refused("too many requests", where, "one more", expected, "cut the trace")
    if not arrivals:
        raise _refused("the trace has no requests", path, path, "a line for each request", "check the file")
    arrival_s = np.asarray(arrivals)
    order = np.argsort(arrival_s, kind="stable")
    return Requests(
        arrival_s=arrival_s[order] - arrival_s[order[0]],
        prompt_tokens=np.asarray(prompts, dtype=np.int64)[order],
        output_tokens=np.asarray(outputs, dtype=np.int64)[order],
    )


def _plain(name: str) -> str:
    """A name without what does not matter in it.

    >>> _plain(" Request tokens"), _plain("ContextTokens"), _plain("arrival_s")
    ('requesttokens', 'contexttokens', 'arrivals')
    """
    return re.sub(r"[\s_]", "", name).lower()


def check_names(names: Sequence[str], where: str) -> None:
    """Refuses columns, or keys, of which none or several say what is needed.

    Args:
        names: As written.
        where: The line they stand in.

    Raises:
        InputError: Nothing says one of the three, or more than one does.
    """
    shown = ", ".join(name.strip() for name in names) or "(none)"
    for what, known in _COLUMNS.items():
        plain = {_plain(name) for name in known}
        found = [name.strip() for name in names if _plain(name) in plain]
        if len(found) > 1:
            fix = f"leave all but one out: {', '.join(found)}"
            raise _refused(f"several columns say {_WORDS[what]}", where, shown, f"one of {', '.join(known)}", fix)
        if not found:
            parted = next((mark for mark in _SEPARATORS if len(names) == 1 and mark in names[0]), None)
            fix = "rename the column" if parted is None else f"part cells by commas, not by {_SEPARATORS[parted]}"
            raise _refused(f"no column says {_WORDS[what]}", where, shown, f"one of {', '.join(known)}", fix)


def _name(row: Mapping[str, object], what: str) -> str:
    """Which of its names a column has here; the header, or the first object, was checked to have one."""
    return next(name for name in _COLUMNS[what] if _plain(name) in row)


def _value(row: Mapping[str, object], name: str, where: str) -> object:
    plain = _plain(name)
    if plain not in row:
        raise _refused(f"missing {name}", where, "(absent)", f"{name}, as in the first request", "mend the line")
    return row[plain]


def _arrival_s(value: object, name: str, where: str) -> float:
    """Seconds of an arrival; of a date and time, since 1970."""
    if name == "timestamp":
        try:
            moment = datetime.fromisoformat(value.strip() if isinstance(value, str) else "")
        except ValueError:
            fix = "name the column arrival_s or arrival_ms where it holds numbers"
            raise _refused("timestamp is no date and time", where, value, "2026-11-30T12:00:00.25", fix) from None
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    seconds = _number(value, name, where) / _PER_S[name]
    if abs(seconds) > _MOST_SECONDS:
        raise _refused(f"{name} is absurd", where, value, "seconds or milliseconds, as the name says", "check the unit")
    return seconds


def _tokens(value: object, name: str, where: str) -> int:
    tokens = _number(value, name, where)
    if tokens != int(tokens) or not 1 <= tokens <= _MOST_TOKENS:
        fix = "leave requests out that failed" if tokens == 0 else "give whole tokens"
        raise _refused(f"{name} is no number of tokens", where, value, f"a whole number, 1 to {_MOST_TOKENS:,}", fix)
    return int(tokens)


def _number(value: object, name: str, where: str) -> float:
    """A plain number: no unit, no percent, no infinity."""
    try:
        number = float(cast("str | float", value)) if not isinstance(value, bool) else float("nan")
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if not isfinite(number):
        fix = "leave the unit out: the name of the column says it" if re.search(r"\d", str(value)) else "mend the line"
        raise _refused(f"{name} is no number", where, value, "a plain number, as 12.5", fix)
    return number


def _refused(what: str, where: str, value: object, expected: str, fix: str) -> InputError:
    shown = value if isinstance(value, str) else json.dumps(value)
    return InputError(what, where=where, value=shown, expected=expected, fix=fix)
