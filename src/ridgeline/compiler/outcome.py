"""What came of a compilation, and how it is told from process to process and kept on disk: as JSON."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from ridgeline.errors import InputError
from ridgeline.hlo.peak import LiveValue
from ridgeline.units import parse_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.job.serving import Phase

_OUT_OF_HBM = re.compile(
    r"required for \w+ temporaries \((?P<needed>[\d.]+[KMGTP]?)\) "
    r"exceeds available HBM \((?P<available>[\d.]+[KMGTP]?)\)"
    r"|memory space hbm\. Used (?P<used>[\d.]+[KMGTP]?) of (?P<limit>[\d.]+[KMGTP]?) hbm"
)
_OUT_OF_HOST = re.compile(r"Allocation \(size=(?P<needed>\d+)\) would exceed memory \(size=(?P<available>\d+)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledMemory:
    """Memory of one device, as the compiler has assigned it.

    Attributes:
        peak_bytes: The most that is in use at once: what must fit.
        arguments_bytes: What the program is given.
        outputs_bytes: What it returns, those in an argument's place included.
        aliased_bytes: Of those, what takes an argument's place.
        temporaries_bytes: Everything in between. For TPUs not all of it is in use at once: of a program that the
            compiler accepts, arguments and temporaries together may be more than the chip has.
        code_bytes: The program itself.
        host_bytes: In the host's memory.
    """

    peak_bytes: float
    arguments_bytes: float
    outputs_bytes: float
    aliased_bytes: float
    temporaries_bytes: float
    code_bytes: float
    host_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfMemory:
    """The compiler found no place for the program.

    Attributes:
        needed_bytes: What it needs.
        available_bytes: What there is.
        where: `hbm` or `host`.
    """

    needed_bytes: float
    available_bytes: float
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a child process found.

    Attributes:
        compile_s: Time in the compiler.
        lower_s: Time before it: tracing and lowering.
        process_bytes: Most memory of the child process.
        versions: Of the libraries that took part.
        memory: Of the compiled program; None where there was no place for it.
        refusal: Why there was none.
        largest: The largest values at the peak, where the compiler tells them.
    """

    compile_s: float
    lower_s: float
    process_bytes: float
    versions: Mapping[str, str] = field(default_factory=dict[str, str])
    memory: CompiledMemory | None = None
    refusal: OutOfMemory | None = None
    largest: tuple[LiveValue, ...] = ()


def outcome_json(outcome: Outcome) -> str:
    """An outcome as text."""
    return json.dumps(asdict(outcome))


def read_outcome(text: str) -> Outcome:
    """The outcome that a text tells of.

    Raises:
        ValueError: It is not one.
    """
    try:
        found: dict[str, Any] = json.loads(text)
        memory, refusal, largest = found.pop("memory"), found.pop("refusal"), found.pop("largest", ())
        return Outcome(
            **found,
            memory=None if memory is None else CompiledMemory(**memory),
            refusal=None if refusal is None else OutOfMemory(**refusal),
            largest=tuple(LiveValue(**each) for each in largest),
        )
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(str(error)) from error


def complaint_json(error: InputError) -> str:
    """An error as text, to be raised where the question was asked."""
    return json.dumps([error.what, error.where, str(error.value), error.expected, error.fix])


def read_complaint(text: str) -> InputError:
    """The error that a text tells of."""
    what, where, value, expected, fix = json.loads(text)
    return InputError(what, where=where, value=value, expected=expected, fix=fix)


def out_of_memory(message: str) -> OutOfMemory | None:
    """What the compiler's refusal says; None when memory is not what it is about.

    >>> text = "the total memory required for HLO temporaries (2.70T) exceeds available HBM (94.74G)."
    >>> refusal = out_of_memory(text)
    >>> f"{refusal.needed_bytes / 2**40:.2f} {refusal.available_bytes / 2**30:.2f} {refusal.where}"
    '2.70 94.74 hbm'
    """
    if match := _OUT_OF_HBM.search(message):
        return OutOfMemory(
            needed_bytes=_binary_bytes(match["needed"] or match["used"]),
            available_bytes=_binary_bytes(match["available"] or match["limit"]),
            where="hbm",
        )
    if match := _OUT_OF_HOST.search(message):
        return OutOfMemory(needed_bytes=float(match["needed"]), available_bytes=float(match["available"]), where="host")
    return None


def _binary_bytes(text: str) -> float:
    """XLA's `2.70T`: a number and a power of 1024."""
    return parse_bytes(f"{text}iB" if text[-1].isalpha() else text, where="the compiler's message")


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """What a child process is sent to do.

    Attributes:
        job: Path of the job file.
        compiler: `tpu`, or `cpu` for emulated devices.
        options: Of the compiler.
        outcome: Path to write the outcome to.
        hlo: Path to write the compiled module's text to.
        phase: Path to write to what it is doing.
        complaint: Path to write to what is wrong with the job.
        serving: `prefill` or `decode` of a serving job; None of a training job.
    """

    job: str
    compiler: str
    options: Mapping[str, str]
    outcome: str
    hlo: str
    phase: str
    complaint: str
    serving: Phase | None = None


def errand_json(errand: Errand) -> str:
    """An errand as text."""
    return json.dumps(asdict(errand))


def read_errand(text: str) -> Errand:
    """The errand that a text tells of."""
    try:
        return Errand(**json.loads(text))
    except (TypeError, ValueError) as error:
        raise InputError(
            "not an errand", where="the first argument", value=text, expected="JSON", fix="let the parent write it"
        ) from error
