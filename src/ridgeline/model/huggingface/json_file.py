"""Reads a config.json from disk as plain values: the one place here that meets raw bytes.

The content is data: nothing in it is ever executed, imported or fetched.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NoReturn, TypeAlias, cast

from ridgeline.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Json: TypeAlias = "Mapping[str, Json] | list[Json] | str | int | float | bool | None"
"""Any value of a JSON file."""

LARGEST_FILE_BYTES = 10_000_000
"""Real files have a few kB, the longest (one entry per layer) some hundred; a checkpoint's index is longer."""

_FIX = "give the config.json that stands beside the model's weights"


def load_object(path: Path) -> Mapping[str, Json]:
    """The JSON object in a file.

    `Infinity` and `NaN`, which are not JSON but occur in real files, are read as floats.

    Raises:
        InputError: There is no such file, or it is a directory, too large, unreadable, not text, not
            JSON, nested too deeply, or not an object.
    """
    text = _text(path)
    try:
        value = cast("Json", json.loads(text))
    except RecursionError:
        _refuse("config.json is nested too deeply", path, text[:80], "a JSON object nested a few levels deep")
    except ValueError as error:  # JSONDecodeError, or a number of more digits than Python converts
        _refuse("config.json is not valid JSON", path, str(error), "one complete JSON object")
    if not isinstance(value, dict):
        _refuse("config.json is not an object", path, type(value).__name__, "a JSON object, {…}")
    return value


def _text(path: Path) -> str:
    """The file's content, checked before it is read."""
    try:
        if not path.exists():
            _refuse("no such file", path, str(path), "an existing config.json")
        if path.is_dir():
            _refuse("this is a directory", path, str(path), "a file")
        if not path.is_file():
            _refuse("this is not a regular file", path, str(path), "a file on disk")
        size_bytes = path.stat().st_size
        if size_bytes > LARGEST_FILE_BYTES:
            _refuse("the file is too large", path, f"{size_bytes} bytes", f"at most {LARGEST_FILE_BYTES} bytes")
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        _refuse("the file is not text", path, str(error), "UTF-8 text")
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        _refuse("the file cannot be read", path, str(error), "a readable file")


def _refuse(what: str, path: Path, value: object, expected: str) -> NoReturn:
    raise InputError(what, where=str(path), value=value, expected=expected, fix=_FIX) from None
