"""`ridgeline compile JOB`: the compiler's account of a job beside the equation's, as a screen and as JSON."""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING

from ridgeline.job.mesh import mesh_in_words
from ridgeline.job.writing import job_tables
from ridgeline.report.beside_equation import beside_json, host_json, host_pieces
from ridgeline.report.blocks import Bar, Bars, Cell, Facts, Report
from ridgeline.report.compilation import (
    COMPILERS,
    compiled_memory_json,
    compiled_rows,
    memory_notes,
    refused,
    stand_in,
)
from ridgeline.report.compile import compile_json, compile_pieces
from ridgeline.report.derivations import derivations_json
from ridgeline.report.jsonable import jsonable
from ridgeline.report.peak import peak_json, peak_table
from ridgeline.report.train import VERDICTS, remat_in_words
from ridgeline.units import format_bytes, format_count, format_flops, format_things

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ridgeline.compiler.outcome import CompiledMemory
    from ridgeline.report.blocks import Piece
    from ridgeline.report.jsonable import Json
    from ridgeline.study.compile_job import CompileAnswer


def compiled_job_report(answer: CompileAnswer) -> Report:
    """The screen: the job, memory, then what the compiled text says."""
    job = answer.job
    return Report(
        headline=f"{job.model.name} on {job.hardware.name}: {format_things(job.hardware.num_devices, 'device')}, "
        f"by {COMPILERS[answer.compiler]}",
        pieces=(
            Facts(title="Program", rows=tuple(_rows(answer))),
            *_memory(answer),
            *host_pieces(answer.beside.host),
            *_of_text(answer),
        ),
    )


def _of_text(answer: CompileAnswer) -> Iterator[Piece]:
    """What the compiled text says, or at least what the compiler had no place for."""
    largest = answer.compilation.outcome.largest
    peak = peak_table(largest, peak_bytes=answer.peak_bytes) if largest else None
    if answer.summary is not None:
        yield from compile_pieces(answer.summary, answer.beside, peak)
    elif peak is not None:
        yield peak


def compiled_job_json(answer: CompileAnswer) -> dict[str, Json]:
    """The same in base units."""
    outcome, usable_bytes = answer.compilation.outcome, answer.estimate.memory.usable_bytes
    found = {} if answer.summary is None else compile_json(answer.summary)
    of_text = found.get("memory")
    memory: dict[str, Json] = dict(of_text) if isinstance(of_text, dict) else {"largest": []}
    memory |= {
        "peak_bytes": jsonable(answer.peak_bytes),
        "usable_bytes": jsonable(usable_bytes),
        "verdict": answer.verdict,
        "predicted_bytes": jsonable(answer.estimate.memory.total_bytes),
        "predicted_verdict": answer.estimate.memory.verdict,
        "host": host_json(answer.beside.host),
        **({"largest": peak_json(outcome.largest)} if outcome.largest else {}),
        "logits_gradient_bytes": jsonable(answer.logits_gradient_bytes),
        "predicted_parts": {f"{name}_bytes": jsonable(part) for name, part in answer.estimate.memory.parts.items()},
        **compiled_memory_json(outcome.memory),
    }
    return {
        "flops": None,
        "collectives": [],
        "heaviest": [],
        **found,
        **beside_json(answer.beside),
        "derivations": derivations_json(answer.beside.derivations),
        "job": jsonable(job_tables(answer.job)),
        "hardware": answer.job.hardware.name,
        "program": answer.program,
        "why_ours": answer.why_ours or None,
        "compiler": answer.compiler,
        "is_stand_in": answer.is_stand_in,
        "versions": jsonable(outcome.versions),
        "compile_s": outcome.compile_s,
        "lower_s": outcome.lower_s,
        "compiler_memory_bytes": outcome.process_bytes,
        "cached": answer.compilation.is_cached,
        "memory": memory,
        "refusal": jsonable(outcome.refusal),
    }


def _rows(answer: CompileAnswer) -> Iterator[tuple[str, Cell]]:
    job = answer.job
    plan = answer.estimate.plan
    why = f" ({answer.why_ours})" if answer.why_ours else ""
    yield "program", Cell(text="MaxText" if answer.program == "maxtext" else f"ours{why}")
    yield "mesh", Cell(text=mesh_in_words(plan.mesh), tone="strong")
    batch = f"{format_things(job.workload.global_batch or 0, 'sequence')} of {job.workload.seq_len:,} tokens"
    yield "batch", Cell(text=f"{batch}, {format_things(plan.gradient_accumulation, 'micro-step')}")
    if plan.microbatches > 1:
        passes = f", {format_things(plan.repeats, 'circular repeat')}" if plan.repeats > 1 else ""
        yield "pipeline", Cell(text=f"{format_count(plan.microbatches)} microbatches{passes}")
    yield "remat", Cell(text=remat_in_words(plan))
    word, tone = VERDICTS[answer.verdict]
    usable = format_bytes(answer.estimate.memory.usable_bytes)
    peak = "more than the host has" if isnan(answer.peak_bytes) else f"{format_bytes(answer.peak_bytes)} of {usable}"
    yield "memory", Cell(text=f"{word}: {peak} usable per device", tone=tone)
    predicted_bytes = answer.estimate.memory.total_bytes
    beside = "" if isnan(answer.peak_bytes) else f", {predicted_bytes / answer.peak_bytes:.2f} of that"
    yield "by the equation", Cell(text=f"{format_bytes(predicted_bytes)}{beside}")
    if answer.logits_gradient_bytes:
        yield "because", Cell(text=_of_the_logits(answer.logits_gradient_bytes), tone="dim")
    yield (
        "FLOPs by the equation",
        Cell(text=f"{format_flops(answer.predicted_flops)} of a device{_of_compiled(answer)}"),
    )
    yield from compiled_rows(answer.compilation)


def _of_the_logits(gradient_bytes: float) -> str:
    """Why the equation needs more than our program."""
    size = format_bytes(gradient_bytes)
    return f"it is MaxText's, with the logits' gradient ({size}) beside the logits; ours writes it over them"


def _of_compiled(answer: CompileAnswer) -> str:
    """The equation's FLOPs over those of the compiled text."""
    compiled_flops = 0.0 if answer.summary is None else answer.summary.flops
    if not compiled_flops or isnan(compiled_flops):
        return ", recomputed ones too"
    return f", recomputed ones too; {answer.predicted_flops / compiled_flops:.2f} of the compiler's"


def _memory(answer: CompileAnswer) -> Iterator[Piece]:
    memory, refusal = answer.compilation.outcome.memory, answer.compilation.outcome.refusal
    if answer.is_stand_in:
        yield stand_in(answer.job.hardware)
    if refusal is not None:
        yield refused(refusal)
    if memory is not None:
        yield _memory_bars(answer, memory)


def _memory_bars(answer: CompileAnswer, memory: CompiledMemory) -> Bars:
    """What the compiler assigned, and the equation's parts under it."""
    word, tone = VERDICTS[answer.verdict]
    usable_bytes = answer.estimate.memory.usable_bytes
    predicted = answer.estimate.memory.total_bytes
    parts = {"arguments": memory.arguments_bytes, "beside them": memory.peak_bytes - memory.arguments_bytes}
    return Bars(
        title=f"Memory of a device at its peak, by the compiler: {word} ({format_bytes(usable_bytes)} usable)",
        bars=(
            *(Bar(label=name, value=part, text=format_bytes(part)) for name, part in parts.items()),
            Bar(label="peak", value=memory.peak_bytes, text=format_bytes(memory.peak_bytes), tone=tone),
            Bar(label="the equation", value=predicted, text=format_bytes(predicted), tone="dim"),
        ),
        full=usable_bytes,
        note=memory_notes(memory, answer.compiler),
    )
