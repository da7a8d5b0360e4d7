"""`ridgeline compile module:function`: the compiler's account of a user's own function, as a screen and as JSON."""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING

from ridgeline.report.blocks import Bar, Bars, Cell, Facts, Report
from ridgeline.report.compilation import (
    COMPILERS,
    compiled_memory_json,
    compiled_rows,
    memory_notes,
    refused,
    stand_in,
)
from ridgeline.report.compile import compile_json, compile_report
from ridgeline.report.jsonable import jsonable
from ridgeline.report.train import VERDICTS
from ridgeline.units import format_bytes, format_things

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ridgeline.compiler.outcome import CompiledMemory
    from ridgeline.report.blocks import Piece
    from ridgeline.report.jsonable import Json
    from ridgeline.study.compile_function import FunctionAnswer


def compiled_function_report(answer: FunctionAnswer) -> Report:
    """The screen: the function, memory, then what the compiled text says."""
    devices = format_things(answer.hardware.num_devices, "device")
    return Report(
        headline=f"{answer.name} on {answer.hardware.name}: {devices}, by {COMPILERS[answer.compiler]}",
        pieces=(
            Facts(title="Function", rows=tuple(_rows(answer))),
            *_memory(answer),
            *(() if answer.summary is None else compile_report(answer.summary).pieces),
        ),
    )


def compiled_function_json(answer: FunctionAnswer) -> dict[str, Json]:
    """The same in base units, under the keys of `compile JOB`; nothing is predicted of a function."""
    outcome = answer.compilation.outcome
    found = {} if answer.summary is None else compile_json(answer.summary)
    of_text = found.get("memory")
    memory: dict[str, Json] = dict(of_text) if isinstance(of_text, dict) else {"largest": []}
    memory |= {
        "peak_bytes": jsonable(answer.peak_bytes),
        "usable_bytes": answer.usable_bytes,
        "verdict": answer.verdict,
        "predicted_bytes": None,
        **compiled_memory_json(outcome.memory),
    }
    return {
        "flops": None,
        "collectives": [],
        "heaviest": [],
        **found,
        "job": None,
        "hardware": answer.hardware.name,
        "program": answer.name,
        "function": answer.reference,
        "arguments": str(answer.arguments),
        "mesh": dict(answer.mesh),
        "compiler": answer.compiler,
        "is_stand_in": answer.is_stand_in,
        "versions": jsonable(outcome.versions),
        "compile_s": outcome.compile_s,
        "lower_s": outcome.lower_s,
        "compiler_memory_bytes": outcome.process_bytes,
        "cached": answer.compilation.is_cached,
        "memory": memory,
        "refusal": jsonable(outcome.refusal),
        "predicted_flops": None,
    }


def _rows(answer: FunctionAnswer) -> Iterator[tuple[str, Cell]]:
    yield "function", Cell(text=answer.reference)
    yield "arguments", Cell(text=str(answer.arguments) or "none")
    yield "mesh", Cell(text=" ".join(f"{axis}={degree}" for axis, degree in answer.mesh.items()), tone="strong")
    word, tone = VERDICTS[answer.verdict]
    peak = "more than the host has" if isnan(answer.peak_bytes) else format_bytes(answer.peak_bytes)
    usable = format_bytes(answer.usable_bytes)
    yield "memory", Cell(text=f"{word}: {peak} of {usable} usable per device", tone=tone)
    yield from compiled_rows(answer.compilation)


def _memory(answer: FunctionAnswer) -> Iterator[Piece]:
    outcome = answer.compilation.outcome
    if answer.is_stand_in:
        yield stand_in(answer.hardware)
    if outcome.refusal is not None:
        yield refused(outcome.refusal)
    if outcome.memory is not None:
        yield _memory_bars(answer, outcome.memory)


def _memory_bars(answer: FunctionAnswer, memory: CompiledMemory) -> Bars:
    word, tone = VERDICTS[answer.verdict]
    parts = {"arguments": memory.arguments_bytes, "beside them": memory.peak_bytes - memory.arguments_bytes}
    usable = format_bytes(answer.usable_bytes)
    return Bars(
        title=f"Memory of a device at its peak, by the compiler: {word} ({usable} usable)",
        bars=(
            *(Bar(label=name, value=part, text=format_bytes(part)) for name, part in parts.items()),
            Bar(label="peak", value=memory.peak_bytes, text=format_bytes(memory.peak_bytes), tone=tone),
        ),
        full=answer.usable_bytes,
        note=memory_notes(memory, answer.compiler),
    )
