"""`ridgeline compile` of a serving job: a section for each of its two programs, as a screen and as JSON."""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING

from ridgeline.job.writing import job_tables
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
from ridgeline.units import format_bytes, format_flops, format_things

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ridgeline.compiler.installed import CompilerName
    from ridgeline.report.blocks import Piece
    from ridgeline.report.jsonable import Json
    from ridgeline.study.compile_serving import CompileServingAnswer, PhaseAnswer


def compiled_serving_report(answer: CompileServingAnswer) -> Report:
    """The screen: of prefill and then of decode, the program, its memory, and what the compiled text says."""
    job = answer.job
    devices = format_things(job.hardware.num_devices, "device")
    return Report(
        headline=f"{job.model.name} served on {job.hardware.name}: {devices}, by {COMPILERS[answer.compiler]}",
        pieces=(
            *((stand_in(job.hardware),) if answer.is_stand_in else ()),
            *_phase_pieces(answer, answer.prefill),
            *_phase_pieces(answer, answer.decode),
        ),
    )


def compiled_serving_json(answer: CompileServingAnswer) -> dict[str, Json]:
    """The same in base units: each phase under its name, with the keys of a training job's answer."""
    phases = (answer.prefill, answer.decode)
    return {
        "job": jsonable(job_tables(answer.job)),
        "hardware": answer.job.hardware.name,
        "program": "ours",
        "compiler": answer.compiler,
        "is_stand_in": answer.is_stand_in,
        "versions": jsonable(answer.decode.compilation.outcome.versions),
        "compile_s": sum(each.compilation.outcome.compile_s for each in phases),
        "cached": all(each.compilation.is_cached for each in phases),
        "verdict": answer.verdict,
        **{each.phase: _phase_json(each) for each in phases},
    }


def _phase_json(answer: PhaseAnswer) -> dict[str, Json]:
    outcome, predicted = answer.compilation.outcome, answer.estimate
    found = {} if answer.summary is None else compile_json(answer.summary)
    of_text = found.get("memory")
    memory: dict[str, Json] = dict(of_text) if isinstance(of_text, dict) else {"largest": []}
    memory |= {
        "peak_bytes": jsonable(answer.peak_bytes),
        "usable_bytes": jsonable(predicted.usable_bytes),
        "verdict": answer.verdict,
        "predicted_bytes": jsonable(predicted.total_bytes),
        "predicted_verdict": predicted.verdict,
        "predicted_parts": {f"{name}_bytes": jsonable(part) for name, part in predicted.parts.items()},
        **compiled_memory_json(outcome.memory),
    }
    return {
        "flops": None,
        "collectives": [],
        "heaviest": [],
        **found,
        "mesh": dict(answer.mesh),
        "batch": answer.program.global_batch,
        "tokens_per_sequence": answer.program.seq_len,
        "context_len": answer.program.context_len,
        "kv_cache_dtype": answer.program.kv_cache,
        "compile_s": outcome.compile_s,
        "lower_s": outcome.lower_s,
        "compiler_memory_bytes": outcome.process_bytes,
        "cached": answer.compilation.is_cached,
        "memory": memory,
        "refusal": jsonable(outcome.refusal),
        "predicted_flops": jsonable(answer.predicted_flops),
    }


def _phase_pieces(answer: CompileServingAnswer, phase: PhaseAnswer) -> Iterator[Piece]:
    yield Facts(title=phase.phase.capitalize(), rows=tuple(_rows(phase)))
    refusal = phase.compilation.outcome.refusal
    if refusal is not None:
        yield refused(refusal)
    yield from _memory_bars(phase, answer.compiler)
    if phase.summary is not None:
        yield from compile_report(phase.summary).pieces


def _rows(answer: PhaseAnswer) -> Iterator[tuple[str, Cell]]:
    program, predicted = answer.program, answer.estimate
    mesh = " ".join(f"{axis}={degree}" for axis, degree in answer.mesh.items() if degree > 1) or "one device"
    copies = program.layout.num_kv_copies
    held = f", {copies} copies of each key-value head" if copies > 1 else ""
    held += ", sequences of the cache spread over all" if program.layout.spreads_cache else ""
    yield "mesh", Cell(text=f"{mesh}{held}", tone="strong")
    sequences = format_things(program.global_batch, "prompt" if answer.phase == "prefill" else "sequence")
    tokens = f"of {program.prompt_len:,} tokens" if answer.phase == "prefill" else "a token each"
    yield "batch", Cell(text=f"{sequences} {tokens}; a cache for {program.context_len:,} tokens in {program.kv_cache}")
    word, tone = VERDICTS[answer.verdict]
    peak = "more than the host has" if isnan(answer.peak_bytes) else format_bytes(answer.peak_bytes)
    usable = format_bytes(predicted.usable_bytes)
    yield "memory", Cell(text=f"{word}: {peak} of {usable} usable per device", tone=tone)
    beside = "" if isnan(answer.peak_bytes) else f", {predicted.total_bytes / answer.peak_bytes:.2f} of that"
    parts = ", ".join(f"{name.replace('_', ' ')} {format_bytes(part)}" for name, part in predicted.parts.items())
    yield "by the equation", Cell(text=f"{format_bytes(predicted.total_bytes)}{beside}: {parts}")
    yield "FLOPs by the equation", Cell(text=f"{format_flops(answer.predicted_flops)} of a device")
    yield from compiled_rows(answer.compilation)


def _memory_bars(answer: PhaseAnswer, compiler: CompilerName) -> Iterator[Bars]:
    """What the compiler assigned, and the equation's sum under it."""
    memory, predicted = answer.compilation.outcome.memory, answer.estimate
    if memory is None:
        return
    word, tone = VERDICTS[answer.verdict]
    usable = format_bytes(predicted.usable_bytes)
    parts = {"arguments": memory.arguments_bytes, "beside them": memory.peak_bytes - memory.arguments_bytes}
    yield Bars(
        title=f"Memory of a device at its peak, by the compiler: {word} ({usable} usable)",
        bars=(
            *(Bar(label=name, value=part, text=format_bytes(part)) for name, part in parts.items()),
            Bar(label="peak", value=memory.peak_bytes, text=format_bytes(memory.peak_bytes), tone=tone),
            Bar(
                label="the equation", value=predicted.total_bytes, text=format_bytes(predicted.total_bytes), tone="dim"
            ),
        ),
        full=predicted.usable_bytes,
        note=memory_notes(memory, compiler),
    )
