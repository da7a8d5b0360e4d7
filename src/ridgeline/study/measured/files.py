"""Measured cases in files and folders, and those that ship with the package: the one place that opens them."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from stat import S_ISDIR
from typing import TYPE_CHECKING, Final, cast

from ridgeline.errors import InputError, shown
from ridgeline.job.file_size import regular_size_bytes
from ridgeline.job.reading import JOB_SUFFIX, read_tables
from ridgeline.study.measured.case import MeasuredCase, MemoryCase, Skipped
from ridgeline.study.measured.case_file import case_of_tables
from ridgeline.study.measured.formats import NOT_USED, format_of
from ridgeline.study.measured.gpu_records import read_gpu_records
from ridgeline.study.measured.latency_records import read_latency_records
from ridgeline.study.measured.memory_records import read_memory_records
from ridgeline.study.measured.records import record_id, records_of, skipped
from ridgeline.study.measured.serving_case_file import is_of_serving, serving_cases_of_tables
from ridgeline.study.measured.throughput_records import read_throughput_records
from ridgeline.study.measured.tpu_records import read_records as read_tpu_records
from ridgeline.study.measured.tpu_serving import read_tpu_serving_records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ridgeline.study.measured.formats import Format
    from ridgeline.study.measured.records import Record
    from ridgeline.study.measured.serving_case import ServingCase

PUBLISHED: Final = Path(__file__).with_name("published")
"""The folder of the measurements that ship with the package."""

_OF_STEPS: Final = ("tpu_training.json", "gpu_training.json", "memory.json")
_OF_SERVERS: Final = ("tpu_serving.json", "gpu_serving.json", "serving_latency.json")
CASES: Final = "CASES"
"""Where validate is told what to read, for error messages."""

LARGEST_FILE_BYTES: Final = 50_000_000
MOST_FILES: Final = 10_000
_JSON: Final = ".json"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCases:
    """What files hold.

    Attributes:
        training: Measured training steps.
        serving: What was measured of servers.
        memory: Runs that fitted or did not.
        skipped: Records and files that are not used, with the reason.
    """

    training: tuple[MeasuredCase, ...] = ()
    serving: tuple[ServingCase, ...] = ()
    memory: tuple[MemoryCase, ...] = ()
    skipped: tuple[Skipped, ...] = ()

    def __add__(self, other: MeasuredCases) -> MeasuredCases:
        """Both together."""
        return MeasuredCases(
            training=self.training + other.training,
            serving=self.serving + other.serving,
            memory=self.memory + other.memory,
            skipped=self.skipped + other.skipped,
        )


def published_cases() -> MeasuredCases:
    """The measurements of whole steps and of memory that ship with the package."""
    return read_cases([str(PUBLISHED / name) for name in _OF_STEPS])


def published_serving_cases() -> MeasuredCases:
    """The measurements of servers that ship with the package."""
    return read_cases([str(PUBLISHED / name) for name in _OF_SERVERS])


def read_cases(paths: Sequence[str]) -> MeasuredCases:
    """The cases of files and folders.

    A folder stands for the files in it and below it. A record that cannot be used, or a file in a folder that holds
    none, is skipped with the reason; a record that repeats an earlier one too.

    Args:
        paths: Case files (.toml), files of records (.json), and folders.

    Raises:
        InputError: A path does not exist, or a file that is named cannot be read.
    """
    found = MeasuredCases()
    for path, is_named in dict(_files(paths)).items():
        try:
            found += _read(path)
        except InputError as error:
            if is_named:
                raise
            found += MeasuredCases(skipped=(Skipped(id=str(path), reason=error.what),))
    return _without_repetitions(found)


def _files(paths: Sequence[str]) -> Iterator[tuple[Path, bool]]:
    """Every file once, with whether it was named itself."""
    for name in paths:
        path = Path(name)
        if not name.strip():
            raise _refused(name, "a path without a name", "a file or a folder")
        try:
            mode = path.stat().st_mode
        except (OSError, ValueError) as error:
            raise _refused(name, f"cannot read it: {getattr(error, 'strerror', error)}", "a file or a folder") from None
        if not S_ISDIR(mode):
            yield path, True
            continue
        visible = (child for child in path.rglob("*") if _is_visible(child, path) and not child.is_dir())
        inside = list(islice(visible, MOST_FILES + 1))
        if not inside:
            raise _refused(name, "a folder without files", "case files (.toml) or records (.json)")
        if len(inside) > MOST_FILES:
            raise _refused(name, "a folder of too many files", f"at most {MOST_FILES:,} files")
        yield from ((child, False) for child in sorted(inside))


def _is_visible(child: Path, folder: Path) -> bool:
    return not any(part.startswith(".") for part in child.relative_to(folder).parts)


def _refused(path: str, what: str, expected: str) -> InputError:
    return InputError(what, where=CASES, value=path, expected=expected, fix="check the path")


def _read(path: Path) -> MeasuredCases:
    """The cases of one file."""
    match path.suffix.lower():
        case suffix if suffix == JOB_SUFFIX:
            try:
                tables = read_tables(str(path))
                if is_of_serving(tables):
                    return MeasuredCases(serving=serving_cases_of_tables(tables, file=str(path)))
                return MeasuredCases(training=(case_of_tables(tables, file=str(path)),))
            except InputError as error:
                # A case file is one record: what is wrong with it is said in full, like a record's.
                return MeasuredCases(skipped=(skipped(str(path), error),))
        case suffix if suffix == _JSON:
            return _of_document(_json(path), str(path))
        case _:
            raise _refused(str(path), "neither a case file (.toml) nor records (.json)", "a .toml or .json file")


def _json(path: Path) -> object:
    """What a JSON file holds."""

    def refuse(what: str) -> InputError:
        return _refused(str(path), what, "records in JSON")

    try:
        size_bytes = regular_size_bytes(path)
        if size_bytes is None:
            raise refuse("not a file")
        if size_bytes > LARGEST_FILE_BYTES:
            raise refuse(f"{size_bytes:,} bytes are more than {LARGEST_FILE_BYTES:,}")
        text = path.read_bytes().decode("utf-8-sig")
        if not text.strip():
            raise refuse("an empty file")
        return json.loads(text)
    except UnicodeDecodeError:
        raise refuse("not a text in UTF-8") from None
    except RecursionError:
        raise refuse("nested too deeply") from None
    except ValueError as error:  # not only JSONDecodeError: numbers have limits too
        raise refuse(f"not JSON: {shown(str(error))}") from None
    except OSError as error:
        raise refuse(f"cannot read it: {error.strerror}") from None


def _of_document(document: object, where: str) -> MeasuredCases:
    """The cases of a document, each record read by its format."""
    records = records_of(document)
    if not records:
        return MeasuredCases(skipped=(Skipped(id=where, reason="a list of no records"),))
    named = [_named(record, where, index) for index, record in enumerate(records)]
    formats: list[Format] = [format_of(record) for record in named]
    found = MeasuredCases()
    for kind in dict.fromkeys(formats):
        rows = [record for record, its in zip(named, formats, strict=True) if its == kind]
        match kind:
            case "tpu_training":
                cases, left_out = read_tpu_records(rows, where, elsewhere=_published_configurations())
                found += MeasuredCases(training=tuple(cases), skipped=tuple(left_out))
            case "memory":
                boundaries, left_out = read_memory_records(rows, where)
                found += MeasuredCases(memory=tuple(boundaries), skipped=tuple(left_out))
            case "gpu_training":
                cases, left_out = read_gpu_records(rows, where)
                found += MeasuredCases(training=tuple(cases), skipped=tuple(left_out))
            case "tpu_serving" | "throughput" | "latency":
                servers, left_out = _SERVING_READERS[kind](rows, where)
                found += MeasuredCases(serving=tuple(servers), skipped=tuple(left_out))
            case "operation" | "unknown":
                unused = (
                    Skipped(id=record_id(row, where, index), reason=NOT_USED[kind]) for index, row in enumerate(rows)
                )
                found += MeasuredCases(skipped=tuple(unused))
    return found


_SERVING_READERS: Final[Mapping[Format, Callable[[object, str], tuple[list[ServingCase], list[Skipped]]]]] = {
    "tpu_serving": read_tpu_serving_records,
    "throughput": read_throughput_records,
    "latency": read_latency_records,
}


def _named(record: object, where: str, index: int) -> object:
    """A record under its own name, or under that of its place, which is lost once records are parted by format."""
    if not isinstance(record, dict):
        return record
    return {**cast("Record", record), "id": record_id(cast("Record", record), where, index)}


def _published_configurations() -> Mapping[str, Record]:
    """Rows that ship with the package, by id: other files may say that they repeat the configuration of one."""
    rows = records_of(_json(PUBLISHED / "tpu_training.json"))
    return {str(cast("Record", row)["id"]): cast("Record", row) for row in rows}


def _without_repetitions(found: MeasuredCases) -> MeasuredCases:
    """Cases without those that say the same again; another case of the same name gets a number."""
    kept: dict[str, MeasuredCase] = {}
    repeated: list[Skipped] = []
    for case in found.training:
        name, count = case.id, 1
        while name in kept and kept[name] != replace(case, id=name):
            count += 1
            name = f"{case.id} ({count})"
        if name in kept:
            repeated.append(Skipped(id=case.id, reason="repeats a record that is used"))
        else:
            kept[name] = replace(case, id=name)
    once: dict[str, list[ServingCase]] = {}
    for case in found.serving:
        those = once.setdefault(case.id, [])
        if case in those:
            repeated.append(Skipped(id=case.id, reason="repeats a record that is used"))
        else:
            those.append(case)
    servers = tuple(case for those in once.values() for case in those)
    return replace(found, training=tuple(kept.values()), serving=servers, skipped=(*found.skipped, *repeated))
