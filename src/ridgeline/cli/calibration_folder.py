"""Writes the files of a calibration to a folder; replaces none unless told to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ridgeline.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping


def check_folder(folder: str, *, force: bool) -> None:
    """Says before a long fit whether its files could be written.

    Raises:
        InputError: The folder has calibration files already, or is none.
    """
    path = Path(folder)
    try:
        if not folder.strip() or (path.exists() and not path.is_dir()):
            raise _refused(folder, "not a folder", "a folder, or a name for a new one", "choose another name")
        if not force and path.is_dir() and next(path.glob("*.toml"), None) is not None:
            fix = "choose another folder, or add --force to replace them"
            raise _refused(folder, "the folder has calibration files", "a folder without .toml files", fix)
    except (OSError, ValueError) as error:
        raise _unwritable(folder, error) from None


def write_folder(files: Mapping[str, str], folder: str) -> None:
    """Writes files by name.

    Raises:
        InputError: The place cannot be written to.
    """
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (path / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise _unwritable(folder, error) from None


def _unwritable(folder: str, error: Exception) -> InputError:
    what = f"cannot write the calibration: {getattr(error, 'strerror', None) or error}"
    return _refused(folder, what, "a place that can be written to", "check the path")


def _refused(folder: str, what: str, expected: str, fix: str) -> InputError:
    return InputError(what, where="--output", value=folder, expected=expected, fix=fix)
