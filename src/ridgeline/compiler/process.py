"""A child process that is watched: it may take so long and use so much memory, and says what it is doing."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

from ridgeline.compiler.outcome import errand_json, read_outcome
from ridgeline.errors import InfeasibleError
from ridgeline.units import format_bytes, format_seconds, parse_bytes, parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ridgeline.compiler.outcome import Errand, Outcome

_TICK_S = 0.1
_SHOWN_LINES = 6
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0

_TPU_ENVIRONMENT: Final[Mapping[str, str]] = {
    "JAX_PLATFORMS": "cpu",  # no TPU is looked for; the compiler is asked for by name
    "TPU_SKIP_MDS_QUERY": "1",  # no metadata server is asked what machine this is
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # several compilations may run side by side
}
_TOLD_BY_THE_USER: Final = ("XLA_FLAGS", "LIBTPU_INIT_ARGS")
"""What would change a compilation without standing in its question."""


MOST_TIME_S: Final = parse_duration("1h", where="default")
MOST_MEMORY_BYTES: Final = parse_bytes("16GiB", where="default")
"""What a compilation may use when nothing else is said; the largest recipes we know take 11 minutes and 4 GB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a compilation may use.

    Attributes:
        time_s: Time from start to end.
        memory_bytes: Resident memory of the process, where the system tells it.
    """

    time_s: float = MOST_TIME_S
    memory_bytes: float = MOST_MEMORY_BYTES


def send(errand: Errand, path: Path, *, num_devices: int, limits: Limits, progress: Callable[[str], None]) -> Outcome:
    """Sends a child process on an errand and waits for it.

    Args:
        errand: What to do.
        path: Where to write the errand.
        num_devices: Devices to emulate, for the CPU.
        limits: When to stop it.
        progress: Told what the child is doing, several times a second.

    Raises:
        InfeasibleError: It was stopped, or failed.
    """
    path.write_text(errand_json(errand), encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name not in _TOLD_BY_THE_USER}
    environment |= _TPU_ENVIRONMENT
    if errand.compiler == "cpu":
        environment["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={num_devices}"
    complaints = path.with_suffix(".err")
    with complaints.open("w", encoding="utf-8") as stream:
        child = subprocess.Popen(  # noqa: S603 - our own module, with a path of our own making
            [sys.executable, "-m", "ridgeline.compiler.child", str(path)],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            env=environment,
        )
        try:
            _watch(child, Path(errand.phase), limits, progress)
        finally:
            child.kill()
            child.wait()
    if child.returncode:
        raise _failed(child.returncode, complaints.read_text(encoding="utf-8", errors="replace"))
    return read_outcome(Path(errand.outcome).read_text(encoding="utf-8"))


def _watch(child: subprocess.Popen[bytes], phase: Path, limits: Limits, progress: Callable[[str], None]) -> None:
    """Returns when the child has ended; stops it at a limit."""
    began_s = monotonic()
    while child.poll() is None:
        elapsed_s = monotonic() - began_s
        doing = phase.read_text(encoding="utf-8") if phase.exists() else "starting the compiler"
        if elapsed_s > limits.time_s:
            raise _stopped(f"{format_seconds(limits.time_s)} are over", doing, "allow more time: --time-limit")
        if resident_bytes(child.pid) > limits.memory_bytes:
            used = f"it uses more than {format_bytes(limits.memory_bytes)} of memory"
            raise _stopped(used, doing, "allow more memory: --memory-limit")
        progress(doing)
        sleep(_TICK_S)


def resident_bytes(pid: int) -> float:
    """Resident memory of a process; 0 where the system does not tell."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    except (OSError, IndexError):
        return 0.0
    return float(pages) * _PAGE_BYTES


def _stopped(why: str, doing: str, fix: str) -> InfeasibleError:
    return InfeasibleError("the compilation was stopped", reasons=[why, f"it was {doing}"], fix=fix)


def _failed(code: int, complaints: str) -> InfeasibleError:
    """The end of what the child said; a negative code is the signal that ended it."""
    said = [line.strip() for line in complaints.splitlines() if line.strip()][-_SHOWN_LINES:]
    ended = f"ended by signal {-code}" if code < 0 else f"exit code {code}"
    return InfeasibleError(
        f"the compilation failed ({ended})",
        reasons=said or ["it said nothing"],
        fix="if the system ran out of memory, compile with fewer programs beside it; else report this",
    )
