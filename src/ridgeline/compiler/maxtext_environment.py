"""Where MaxText is installed: an interpreter of its own, for it needs a Python and versions of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ridgeline.compiler.maxtext_child import LIBRARIES
from ridgeline.errors import InputError, MissingExtraError
from ridgeline.export.maxtext_version import maxtext_version

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

VARIABLE: Final = "RIDGELINE_MAXTEXT_PYTHON"
"""Names the interpreter; set to nothing, MaxText is not looked for."""

MADE_BY_MAKE: Final = Path(".venv-maxtext") / "bin" / "python"
"""Where `make maxtext` puts it, under the project's folder."""

_LONGEST_S = 60.0
_TELL_VERSIONS = """
import sys
from importlib.metadata import PackageNotFoundError, version
for name in sys.argv[1:]:
    try:
        print(name, version(name))
    except PackageNotFoundError:
        continue
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxTextEnvironment:
    """An interpreter that has MaxText.

    Attributes:
        python: Its path.
        versions: Of what decides a compilation, by library.
    """

    python: str
    versions: Mapping[str, str]


def find_maxtext(python: str | None = None) -> MaxTextEnvironment | None:
    """The environment that has the version of MaxText that we write configurations for; None where none is found.

    Looked for in this order: the interpreter that is named, that of `RIDGELINE_MAXTEXT_PYTHON`, what `make maxtext`
    made, the interpreter that runs us.

    Raises:
        InputError: The interpreter that is named cannot be run, or has not that MaxText.
    """
    named = ((python, "--maxtext-python"), (os.environ.get(VARIABLE), VARIABLE))
    for path, where in named:
        if path is not None:
            return _named(path, where) if path else None
    return next((found for path in _usual_places() if (found := _environment(path)) is not None and _fits(found)), None)


def need_maxtext(python: str | None = None) -> MaxTextEnvironment:
    """As `find_maxtext`, where there must be one.

    Raises:
        InputError: The interpreter that is named cannot be run, or has not that MaxText.
        MissingExtraError: There is none.
    """
    found = find_maxtext(python)
    if found is None:
        raise MissingExtraError("maxtext", needed_for="--program maxtext", fix=install_line())
    return found


def install_line() -> str:
    """How to install MaxText, in the project's folder or anywhere."""
    folder = Path.home() / ".venv-maxtext"
    return (
        f"make maxtext in the project's folder; or python3.12 -m venv {folder} && "
        f"{folder}/bin/pip install 'maxtext[tpu]=={maxtext_version().version}' and set "
        f"{VARIABLE}={folder}/bin/python"
    )


def _usual_places() -> Iterator[str]:
    for folder in (Path(__file__).parents[3], Path.cwd()):
        if (folder / MADE_BY_MAKE).exists():
            yield str(folder / MADE_BY_MAKE)
    if find_spec("maxtext") is not None:
        yield sys.executable


def _named(path: str, where: str) -> MaxTextEnvironment:
    found, wanted = _environment(str(Path(path).expanduser())), maxtext_version().version
    if found is not None and _fits(found):
        return found
    has = "" if found is None else found.versions.get("maxtext", "")
    what = "no interpreter" if found is None else f"it has MaxText {has}" if has else "it has no MaxText"
    raise InputError(
        f"cannot run MaxText: {what}",
        where=where,
        value=path,
        expected=f"the path of a Python that has MaxText {wanted}",
        fix=install_line(),
    )


def _fits(environment: MaxTextEnvironment) -> bool:
    return environment.versions.get("maxtext") == maxtext_version().version


@cache
def _environment(python: str) -> MaxTextEnvironment | None:
    """What an interpreter has; None where it cannot be run."""
    try:
        told = subprocess.run(  # noqa: S603 - an interpreter of the user's own choosing
            (python, "-I", "-c", _TELL_VERSIONS, *LIBRARIES),
            capture_output=True,
            text=True,
            timeout=_LONGEST_S,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return MaxTextEnvironment(python=python, versions=dict(line.split() for line in told.splitlines()))
