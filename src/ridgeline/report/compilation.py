"""What every answer of the compiler shows, whatever was compiled: who compiled, how long, what was refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ridgeline.compiler.installed import install_line, own_compiler
from ridgeline.report.blocks import Cell, Paragraphs
from ridgeline.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ridgeline.compiler.compilation import Compilation
    from ridgeline.compiler.installed import CompilerName
    from ridgeline.compiler.outcome import CompiledMemory, OutOfMemory
    from ridgeline.hardware.slice import Slice
    from ridgeline.report.jsonable import Json

COMPILERS: Final[Mapping[CompilerName, str]] = {
    "tpu": "XLA for TPUs",
    "gpu": "XLA for GPUs",
    "cpu": "XLA for this machine's CPU",
}
_OF_MEMORY = ("arguments_bytes", "outputs_bytes", "aliased_bytes", "temporaries_bytes", "code_bytes", "host_bytes")


def compiled_rows(compilation: Compilation) -> Iterator[tuple[str, Cell]]:
    """How long the compiler took, and which it was."""
    outcome = compilation.outcome
    when = "compiled before" if compilation.is_cached else "compiled now"
    used = format_bytes(outcome.process_bytes)
    yield "compiled in", Cell(text=f"{format_seconds(outcome.compile_s)} with {used} of memory ({when})")
    yield "versions", Cell(text=", ".join(f"{name} {number}" for name, number in outcome.versions.items()), tone="dim")


def stand_in(hardware: Slice) -> Paragraphs:
    """That another compiler was asked than the slice's own."""
    own = own_compiler(hardware)
    said = f"{COMPILERS[own]} is not installed: emulated devices of this machine stand in for its chips."
    return Paragraphs(title="Compiler", lines=(Cell(text=f"{said} To ask it: {install_line(own)}", tone="warn"),))


def refused(refusal: OutOfMemory) -> Paragraphs:
    """What the compiler had no place for."""
    place = "the chip's memory" if refusal.where == "hbm" else "the host memory that the compiler allows a device"
    needed, there = format_bytes(refusal.needed_bytes), format_bytes(refusal.available_bytes)
    said = Cell(text=f"The compiler refused: {needed} needed, {there} there, in {place}.", tone="bad")
    return Paragraphs(title="Memory of a device", lines=(said,))


def memory_notes(memory: CompiledMemory, compiler: CompilerName) -> str:
    """What stands below the bars of a device's memory."""
    together = ", not all at once" if compiler == "tpu" else ""
    temporaries, code = format_bytes(memory.temporaries_bytes), format_bytes(memory.code_bytes)
    notes = [f"temporaries{together}: {temporaries}; code: {code}"]
    if memory.host_bytes:
        notes.append(f"in the host's memory: {format_bytes(memory.host_bytes)}")
    if compiler == "cpu":
        notes.append("a CPU's memory assignment; that of the chips differs")
    return "; ".join(notes)


def compiled_memory_json(memory: CompiledMemory | None) -> dict[str, Json]:
    """The compiler's own account; null where nothing was compiled."""
    return {key: None if memory is None else float(getattr(memory, key)) for key in _OF_MEMORY}
