"""The entry of the command line: whatever happens becomes an exit code, and nothing becomes a traceback.

Exit codes: 0 answered, 1 answered "not possible", 2 bad input or no place to write the answer, 130 interrupted.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

VERBS = (
    "chips",
    "model",
    "roofline",
    "matmul",
    "train",
    "scale",
    "serve",
    "compile",
    "export",
    "validate",
    "calibrate",
)
"""What can be asked, in the order of a first visit; each is the function of that name in the module of that name."""

ALL_VERBS = (
    "chips",
    "model",
    "roofline",
    "matmul",
    "train",
    "scale",
    "serve",
    "compile",
    "run",
    "profile",
    "tune",
    "numerics",
    "calibrate",
    "export",
    "sweep",
    "validate",
    "ui",
)
"""What will be asked once all is built; those that are not in `VERBS` yet are planned."""

_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code.

    Args:
        arguments: Without the program's name; None for those of the process.
    """
    try:
        from ridgeline.cli.commands import run  # loads slowly enough to be interrupted

        return run(list(sys.argv[1:] if arguments is None else arguments))
    except KeyboardInterrupt:
        return _INTERRUPTED
