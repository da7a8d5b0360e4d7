"""A program, compiled: from the cache, or by a child process.

`compile_program` is the one entry, for every kind of program.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from ridgeline.compiler.cache import load, prepare, store
from ridgeline.compiler.process import Limits, run_watched

if TYPE_CHECKING:
    from collections.abc import Callable

    from ridgeline.compiler.compilable import Compilable
    from ridgeline.compiler.outcome import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Compilation:
    """What the compiler says of a program.

    Attributes:
        outcome: Time, memory, versions, or why there is no place for it.
        hlo: Path of the compiled module's text, packed with gzip; None where nothing was compiled.
        is_cached: It had been compiled before.
    """

    outcome: Outcome
    hlo: Path | None
    is_cached: bool


def compile_program(
    program: Compilable, *, limits: Limits | None = None, progress: Callable[[str], None] = lambda _: None
) -> Compilation:
    """Compiles a program, unless the answer to the same question is kept already.

    Args:
        program: Of any kind.
        limits: What the child process may use.
        progress: Told what the child is doing.

    Raises:
        InputError: The answer cannot be kept.
        MissingExtraError: The compiler is not installed.
        InfeasibleError: The compiler was stopped, or failed.
    """
    key = sha256(f"{program.question}\n{sys.version}".encode()).hexdigest()
    if entry := load(key):
        return Compilation(outcome=entry.outcome, hlo=entry.hlo, is_cached=True)
    prepare()
    with tempfile.TemporaryDirectory(prefix="ridgeline-") as name:
        folder = Path(name)

        def doing() -> str:
            progress(phase := program.phase(folder))
            return phase

        ended = run_watched(program.command(folder), folder, limits or Limits(), doing)
        found = program.read(folder, ended)
        entry = store(key, found.outcome, found.hlo)
    return Compilation(outcome=entry.outcome, hlo=entry.hlo, is_cached=False)
