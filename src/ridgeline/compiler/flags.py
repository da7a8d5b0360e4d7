"""A user's flags judged by the TPU compiler that is installed: unknown, a bad value, not for this chip, accepted.

A flag belongs to one of two worlds. What single compilations take is tried in one; the rest, such as those of the
data-centre network, libtpu takes from its environment when it starts, which shows names and values that it refuses but
not what they do.
"""

from __future__ import annotations

import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from ridgeline.compiler.child import installed_versions
from ridgeline.compiler.compilable import Command
from ridgeline.compiler.flag_child import TOGETHER
from ridgeline.compiler.flag_errand import Findings, FlagErrand, flag_errand_json, read_findings
from ridgeline.compiler.installed import check_installed
from ridgeline.compiler.process import Limits, failed, run_watched, tpu_environment
from ridgeline.compiler.topology import abstract_topology
from ridgeline.errors import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ridgeline.compiler.compilable import Ended
    from ridgeline.compiler.flag_errand import Finding
    from ridgeline.hardware.slice import Slice
    from ridgeline.job.flag_string import Flag

FlagVerdict: TypeAlias = Literal["accepted", "unknown", "bad_value", "not_for_chip", "not_checked"]
"""What is said of a flag; `not_checked`: libtpu knows it and takes its value, no compilation tells what it does."""

REFUSED: Final[tuple[FlagVerdict, ...]] = ("unknown", "bad_value", "not_for_chip")

_UNKNOWN = re.compile(r"Unknown command line flag '(\w+)'")
_ILLEGAL = re.compile(r"Illegal value '.*?' specified for flag '(\w+)'(?:; *(.*))?")
_OTHER_COMPILERS: Final[Mapping[str, str]] = {"xla_gpu_": "GPUs", "xla_cpu_": "CPUs"}
_JUDGES: Final = ("jaxlib", "libtpu")
_CRASHES = "the compiler crashes when it compiles with it"
_PHASE, _FINDINGS, _ERRAND = "phase", "findings.json", "errand.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedFlag:
    """A flag, and what the compiler says of it.

    Attributes:
        flag: As it was written.
        verdict: In a word.
        reason: Why, in the compiler's words or ours; "" where it is accepted.
        default: What libtpu uses by itself; None where it does not say.
        suggestion: The name that may have been meant, of an unknown one; "" for none.
    """

    flag: Flag
    verdict: FlagVerdict
    reason: str
    default: str | None
    suggestion: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagsAnswer:
    """What `ridgeline compile --lint-flags` answers.

    Attributes:
        hardware: The slice that was compiled for.
        versions: Of the libraries that judged.
        flags: In the order in which they were written.
    """

    hardware: Slice
    versions: Mapping[str, str]
    flags: tuple[JudgedFlag, ...]

    @property
    def num_refused(self) -> int:
        """Flags that the compiler does not take here."""
        return sum(judged.verdict in REFUSED for judged in self.flags)


def judge_flags(flags: Sequence[Flag], hardware: Slice, *, limits: Limits | None = None) -> FlagsAnswer:
    """What the compiler says of flags.

    Args:
        flags: Each name once.
        hardware: A TPU slice, small for a quick answer.
        limits: What a child process may use.

    Raises:
        InputError: The slice is of no TPU.
        MissingExtraError: The compiler is not installed.
        InfeasibleError: A child process was stopped, or failed.
    """
    check_installed("tpu")
    abstract_topology(hardware)
    allowed = limits or Limits()
    findings = _tried(flags, hardware, allowed)
    others = [flag for flag in flags if findings.found[flag.name][0] == "no_option"]
    of_start = _loaded(others, hardware, allowed) if others else {}
    judged = (_judged(flag, *findings.found[flag.name], of_start, findings.defaults) for flag in flags)
    versions = {name: number for name, number in installed_versions().items() if name in _JUDGES}
    return FlagsAnswer(hardware=hardware, versions=versions, flags=tuple(judged))


def _tried(flags: Sequence[Flag], hardware: Slice, limits: Limits) -> Findings:
    """Of every flag what a compilation makes of it; a flag that crashes the compiler is left out of the next try."""
    crashing: dict[str, tuple[Finding, str]] = {}
    while True:
        with tempfile.TemporaryDirectory(prefix="ridgeline-") as name:
            folder = Path(name)
            errand = FlagErrand(
                flags={flag.name: flag.value for flag in flags if flag.name not in crashing},
                hardware=hardware.name,
                dump=str(folder / "dump"),
                findings=str(folder / _FINDINGS),
                phase=str(folder / _PHASE),
            )
            (folder / _ERRAND).write_text(flag_errand_json(errand), encoding="utf-8")
            ended = _run(folder, limits, str(folder / _ERRAND))
            if not ended.code:
                found = read_findings((folder / _FINDINGS).read_text(encoding="utf-8"))
                return Findings(found={**found.found, **crashing}, defaults=found.defaults)
            tried = _phase(folder)
        if tried not in errand.flags or tried == TOGETHER:
            raise failed(ended)
        crashing[tried] = ("bad_value", _CRASHES)


def _loaded(flags: Sequence[Flag], hardware: Slice, limits: Limits) -> Mapping[str, tuple[FlagVerdict, str]]:
    """What libtpu refuses of flags in its environment."""
    written = " ".join(f"--{flag.name}={flag.value}" for flag in flags)
    with tempfile.TemporaryDirectory(prefix="ridgeline-") as name:
        ended = _run(Path(name), limits, "load", hardware.name, environment={"LIBTPU_INIT_ARGS": written})
    refused: dict[str, tuple[FlagVerdict, str]] = dict.fromkeys(_UNKNOWN.findall(ended.said), ("unknown", ""))
    refused |= {each: ("bad_value", reason) for each, reason in _ILLEGAL.findall(ended.said)}
    if ended.code and not refused:
        raise failed(ended)
    return refused


def _run(folder: Path, limits: Limits, *words: str, environment: Mapping[str, str] | None = None) -> Ended:
    program = (sys.executable, "-m", "ridgeline.compiler.flag_child", *words)
    command = Command(arguments=program, environment={**tpu_environment(), **(environment or {})})
    return run_watched(command, folder, limits, lambda: f"trying {_phase(folder)}")


def _phase(folder: Path) -> str:
    file = folder / _PHASE
    return file.read_text(encoding="utf-8") if file.exists() else "to start"


def _judged(
    flag: Flag,
    finding: Finding,
    reason: str,
    of_start: Mapping[str, tuple[FlagVerdict, str]],
    defaults: Mapping[str, str],
) -> JudgedFlag:
    default = defaults.get(flag.name)
    if finding == "no_option":
        verdict, reason = of_start.get(
            flag.name, ("not_checked", "libtpu takes it when it starts; no compilation shows what it does")
        )
        close = nearest(flag.name, defaults, count=1) if verdict == "unknown" else ""
        return JudgedFlag(flag=flag, verdict=verdict, reason=reason, default=default, suggestion=close)
    if finding != "accepted":
        return JudgedFlag(flag=flag, verdict=finding, reason=reason, default=default)
    for prefix, chips in _OTHER_COMPILERS.items():
        if flag.name.startswith(prefix):
            said = f"it is of the compiler for {chips}, and does nothing here"
            return JudgedFlag(flag=flag, verdict="not_for_chip", reason=said, default=default)
    own = "XLA_FLAGS" if default is None else "LIBTPU_INIT_ARGS"
    if flag.variable not in {"", own}:
        said = f"{flag.variable} does not take it: it belongs in {own}"
        return JudgedFlag(flag=flag, verdict="unknown", reason=said, default=default)
    return JudgedFlag(flag=flag, verdict="accepted", reason="", default=default)
