"""A child process that is watched: it may take so long and use so much memory, and says what it is doing."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import current_thread, main_thread
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

from ridgeline.compiler.compilable import Ended
from ridgeline.compiler.outcome import read_complaint
from ridgeline.errors import InfeasibleError
from ridgeline.units import format_bytes, format_seconds, parse_bytes, parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from ridgeline.compiler.compilable import Command

_TICK_S = 0.1
_SHOWN_LINES = 6
_FRAMES = ("@ ", "*** ", "PC: @ ", "- /", "- [... truncated")
"""How lines of a stack trace begin: in C++, and of the Python that XLA names behind an error of its own."""
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


def tpu_environment() -> Mapping[str, str]:
    """What the TPU compiler must find in its environment on a machine without a TPU, to be quiet and quick."""
    return _TPU_ENVIRONMENT


def run_watched(command: Command, folder: Path, limits: Limits, doing: Callable[[], str]) -> Ended:
    """Runs a child process and waits for it.

    Args:
        command: What to run.
        folder: Its own, for what it prints.
        limits: When to stop it.
        doing: What it is doing; called several times a second.

    Raises:
        InfeasibleError: It was stopped, or cannot be started.
    """
    environment = {name: value for name, value in os.environ.items() if name not in _TOLD_BY_THE_USER}
    printed, began_s = folder / "printed", monotonic()
    with printed.open("w", encoding="utf-8") as stream, _interrupted_by_termination():
        child = subprocess.Popen(  # noqa: S603 - a program of the user's own choosing, never through a shell
            command.arguments,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            env={**environment, **command.environment},
        )
        try:
            most_bytes = _watch(child, limits, doing)
        finally:
            child.kill()
            child.wait()
    return Ended(
        code=child.returncode,
        said=printed.read_text(encoding="utf-8", errors="replace"),
        elapsed_s=monotonic() - began_s,
        resident_bytes=most_bytes,
    )


@contextmanager
def _interrupted_by_termination() -> Generator[None]:
    """SIGTERM interrupts as Ctrl-C does, or the child would outlive us; a handler that is set already stays."""
    if current_thread() is not main_thread() or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _watch(child: subprocess.Popen[bytes], limits: Limits, doing: Callable[[], str]) -> float:
    """Returns the most memory it used when the child has ended; stops it at a limit."""
    began_s, most_bytes = monotonic(), 0.0
    while child.poll() is None:
        most_bytes, phase = max(most_bytes, resident_bytes(child.pid)), doing()
        if monotonic() - began_s > limits.time_s:
            raise _stopped(f"{format_seconds(limits.time_s)} are over", phase, "allow more time: --time-limit")
        if most_bytes > limits.memory_bytes:
            used = f"it uses more than {format_bytes(limits.memory_bytes)} of memory"
            raise _stopped(used, phase, "allow more memory: --memory-limit")
        sleep(_TICK_S)
    return most_bytes


def resident_bytes(pid: int) -> float:
    """Resident memory of a process; 0 where the system does not tell."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    except (OSError, IndexError):
        return 0.0
    return float(pages) * _PAGE_BYTES


def check_ended(ended: Ended, complaint: Path) -> None:
    """Raises what a child complained of, or that it failed.

    Args:
        ended: The child.
        complaint: Where it was to write what is wrong with what it was given.

    Raises:
        InputError: It wrote so.
        InfeasibleError: It failed.
    """
    if complaint.exists():
        raise read_complaint(complaint.read_text(encoding="utf-8"))
    if ended.code:
        raise failed(ended)


def failed(ended: Ended) -> InfeasibleError:
    """The error of a child that failed: the end of what it said, without the frames behind a compiler's last words."""
    lines = (line.strip() for line in ended.said.splitlines())
    said = [line for line in lines if line and not line.startswith(_FRAMES)][-_SHOWN_LINES:]
    how = f"ended by signal {-ended.code}" if ended.code < 0 else f"exit code {ended.code}"
    return InfeasibleError(
        f"the compilation failed ({how})",
        reasons=said or ["it said nothing"],
        fix="if the system ran out of memory, compile with fewer programs beside it; else report this",
    )


def _stopped(why: str, phase: str, fix: str) -> InfeasibleError:
    return InfeasibleError("the compilation was stopped", reasons=[why, f"it was {phase}"], fix=fix)
