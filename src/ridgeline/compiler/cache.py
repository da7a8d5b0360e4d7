"""Compilations kept on disk under what they follow from; an entry that is not whole does not count.

One folder an entry: the outcome, and the module's text, each checked by its digest when it is read. Entries are
written beside their place and moved there whole, so that an interrupted compilation leaves nothing behind.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgeline.compiler.outcome import outcome_json, read_outcome
from ridgeline.errors import InputError

if TYPE_CHECKING:
    from ridgeline.compiler.outcome import Outcome

_INDEX = "entry.json"
_MODULE = "module.hlo.gz"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One compilation.

    Attributes:
        outcome: What came of it.
        hlo: Path of the compiled module's text, packed with gzip; None where nothing was compiled.
    """

    outcome: Outcome
    hlo: Path | None


def cache_folder() -> Path:
    """Where compilations are kept: `RIDGELINE_CACHE`, or the user's cache folder."""
    if own := os.environ.get("RIDGELINE_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ridgeline"


def prepare() -> None:
    """Makes the folder, before any work is done that could not be kept.

    Raises:
        InputError: It cannot be written to.
    """
    folder = cache_folder() / "compile"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise _unwritable(error) from error


def load(key: str) -> Entry | None:
    """The entry under a key; None when there is none, or it is not whole."""
    folder = _folder(key)
    try:
        index: dict[str, Any] = json.loads((folder / _INDEX).read_text(encoding="utf-8"))
        text, module_digest = index["outcome"], index["module"]
        if index["key"] != key or index["digest"] != _digest(text.encode()):
            return None
        module = folder / _MODULE
        if module_digest is not None and _digest(module.read_bytes()) != module_digest:
            return None
        return Entry(outcome=read_outcome(text), hlo=None if module_digest is None else module)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def store(key: str, outcome: Outcome, hlo: Path | None) -> Entry:
    """Keeps a compilation.

    Args:
        key: What it follows from, as a digest.
        outcome: What came of it.
        hlo: The module's text; None where nothing was compiled.

    Raises:
        InputError: It cannot be kept.
    """
    folder = _folder(key)
    folder.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=".new-", dir=folder.parent))
    try:
        packed = gzip.compress(hlo.read_bytes(), compresslevel=3) if hlo is not None else None
        if packed is not None:
            (beside / _MODULE).write_bytes(packed)
        text = outcome_json(outcome)
        index = {
            "key": key,
            "outcome": text,
            "digest": _digest(text.encode()),
            "module": None if packed is None else _digest(packed),
        }
        (beside / _INDEX).write_text(json.dumps(index), encoding="utf-8")
        _move(beside, folder, key)
    except OSError as error:
        shutil.rmtree(beside, ignore_errors=True)
        raise _unwritable(error) from error
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    return Entry(outcome=outcome, hlo=None if packed is None else folder / _MODULE)


def source_digest() -> str:
    """A digest of the code that decides what a job becomes when it is lowered, and what is kept of its peak."""
    package = Path(__file__).parents[1]
    files = [path for folder in ("program", "compiler", "model") for path in sorted((package / folder).rglob("*.py"))]
    files += [package / "cost" / "columns.py", package / "job" / "remat.py"]
    files += [package / "hlo" / name for name in ("parts.py", "peak.py", "scopes.py")]
    return _digest(b"".join(path.read_bytes() for path in files))


def _move(beside: Path, folder: Path, key: str) -> None:
    """Puts an entry in its place; one that is whole stays there, for another process may be reading it."""
    if load(key) is None:
        shutil.rmtree(folder, ignore_errors=True)
        if folder.is_file():
            folder.unlink(missing_ok=True)
    try:
        beside.rename(folder)
    except OSError:
        if load(key) is None:
            raise
        shutil.rmtree(beside, ignore_errors=True)


def _unwritable(error: OSError) -> InputError:
    return InputError(
        f"cannot keep compiled programs: {error.strerror}",
        where="RIDGELINE_CACHE",
        value=str(cache_folder() / "compile"),
        expected="a folder that can be written to",
        fix="set RIDGELINE_CACHE to such a folder",
    )


def _folder(key: str) -> Path:
    return cache_folder() / "compile" / key


def _digest(content: bytes) -> str:
    return sha256(content).hexdigest()
