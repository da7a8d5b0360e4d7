"""What a child process is told of flags, and what it tells of them: as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

Finding: TypeAlias = Literal["accepted", "no_option", "bad_value", "not_for_chip"]
"""What the compiler made of a flag; `no_option`: none that a single compilation takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagErrand:
    """What a child process is sent to do with flags.

    Attributes:
        flags: Values by name.
        hardware: Name of the slice.
        dump: A folder of its own.
        findings: Path to write to what has been found so far.
        phase: Path to write to which flag is being tried.
    """

    flags: Mapping[str, str]
    hardware: str
    dump: str
    findings: str
    phase: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What a child process found.

    Attributes:
        found: By flag: what the compiler made of it, and its words where it refused.
        defaults: What libtpu uses by itself, by flag.
    """

    found: Mapping[str, tuple[Finding, str]]
    defaults: Mapping[str, str]


def flag_errand_json(errand: FlagErrand) -> str:
    """An errand as text."""
    return json.dumps(asdict(errand))


def read_flag_errand(text: str) -> FlagErrand:
    """The errand that a text tells of."""
    return FlagErrand(**json.loads(text))


def findings_json(findings: Findings) -> str:
    """Findings as text."""
    return json.dumps(asdict(findings))


def read_findings(text: str) -> Findings:
    """The findings that a text tells of."""
    told = json.loads(text)
    found = {name: (finding, reason) for name, (finding, reason) in told["found"].items()}
    return Findings(found=found, defaults=told["defaults"])
