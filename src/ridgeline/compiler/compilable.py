"""The one interface of all programs that can be compiled: ours, MaxText's, a user's function.

Each says what its result follows from, what a child process is to run, and how to read what that process left.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ridgeline.compiler.outcome import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What a child process runs.

    Attributes:
        arguments: The program and its arguments.
        environment: Variables beside the user's own.
    """

    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A child process that has ended by itself.

    Attributes:
        code: Its exit code; negative: the signal that ended it.
        said: All that it printed.
        elapsed_s: From start to end.
        resident_bytes: The most memory that it was seen to use.
    """

    code: int
    said: str
    elapsed_s: float
    resident_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a child process left.

    Attributes:
        outcome: Time, memory, versions, or why there is no place for the program.
        hlo: Path of the compiled module's text; None where nothing was compiled.
    """

    outcome: Outcome
    hlo: Path | None


class Compilable(Protocol):
    """A program that a child process can compile."""

    @property
    def question(self) -> str:
        """All that the result follows from: program, machine, options, code and versions.

        Raises:
            InputError: The question cannot be asked.
            MissingExtraError: Something that it needs is not installed.
        """
        ...

    def command(self, folder: Path) -> Command:
        """Writes what the child needs into a folder of its own, and says what to run."""
        ...

    def phase(self, folder: Path) -> str:
        """What the child is doing now, in a few words."""
        ...

    def read(self, folder: Path, ended: Ended) -> Found:
        """What the child left in its folder.

        Raises:
            InfeasibleError: It failed.
        """
        ...
