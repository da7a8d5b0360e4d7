"""What the laws of training say of a job, as a screen and as JSON: the gates in order, the split, the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ridgeline.job.writing import job_tables
from ridgeline.report.blocks import Cell, Facts, Paragraphs, Report, Table
from ridgeline.report.derivations import derivations_json
from ridgeline.report.jsonable import jsonable
from ridgeline.units import format_bytes, format_count, format_flops, format_fraction, format_seconds, format_usd

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ridgeline.cost.laws.of_job import JobLaws
    from ridgeline.cost.laws.system import Gate, TrainingLaws
    from ridgeline.report.jsonable import Json

_GATES: Mapping[str, tuple[str, str, str]] = {
    "memory": ("fits in memory", "{} a chip", "{} a chip"),
    "sequences": ("a sequence for every chip", "{} sequences", "{} chips"),
    "fsdp": ("FSDP alone is bound by arithmetic", "{} tokens a chip", "more than {}"),
    "mixed": ("FSDP with tensor parallelism is", "{} tokens a chip", "more than {}"),
    "dcn": ("gradients hide behind arithmetic over DCN", "{} tokens a slice", "more than {}"),
}
"""What each gate asks, how to say what there is, and what is needed."""


def laws_report(answer: JobLaws) -> Report:
    """The screen."""
    job, laws = answer.job, answer.laws
    return Report(
        headline=f"{job.model.name} on {job.hardware.name}, by the laws of How To Scale Your Model",
        pieces=(
            Facts(rows=tuple((label, Cell(text=text)) for label, text in _question(laws))),
            _gates(laws),
            Facts(title="Split", rows=tuple((label, Cell(text=text)) for label, text in _split(laws))),
            Facts(title="Memory", rows=tuple((label, Cell(text=text)) for label, text in _memory(laws))),
            _zero(answer),
            *([Facts(title="Run", rows=tuple(_run(laws)))] if "run_flops" in laws else []),
            Paragraphs(
                title="What this rests on", lines=tuple(Cell(text=each, tone="dim") for each in answer.assumptions)
            ),
        ),
    )


def laws_json(answer: JobLaws) -> dict[str, Json]:
    """The object that `--json` prints."""
    laws = answer.laws
    return {
        "job": jsonable(job_tables(answer.job)),
        "gates": [jsonable(gate) for gate in laws.gates],
        "layout": laws.layout,
        "compute_bound_schemes": [*laws.compute_bound_schemes],
        "reason": laws.reason,
        "quantities": jsonable(dict(laws.values)),
        "zero_bytes": [stage.value for stage in answer.zero],
        "assumptions": [*answer.assumptions],
        "derivations": derivations_json(answer.derivations),
    }


def _question(laws: TrainingLaws) -> Iterator[tuple[str, str]]:
    active = laws.values.get("P_active", laws["P"])
    experts = f", {format_count(active)} of them active" if active < laws["P"] * _NEARLY_ALL else ""
    yield "parameters", f"{format_count(laws['P'])}{experts}"
    if "batch_tokens" in laws:
        batch = f"{format_count(laws['batch_tokens'])} tokens, {format_count(laws['num_sequences'])} sequences"
        yield "batch", f"{batch}, {format_count(laws['tokens_per_chip'])} tokens a chip"


_NEARLY_ALL = 0.99


def _gates(laws: TrainingLaws) -> Table:
    return Table(
        title="Gates",
        columns=("gate", "passes", "there is", "it asks for"),
        rows=tuple(_gate(gate, laws) for gate in laws.gates),
        note=laws.reason or "" if laws.gates else "Give the batch (--batch-tokens) to see which gates it passes.",
    )


def _gate(gate: Gate, laws: TrainingLaws) -> tuple[Cell, ...]:
    words, have, need = _GATES[gate.name]
    size = format_bytes if gate.name == "memory" else format_count
    return (
        Cell(text=words),
        Cell(text="yes", tone="good") if gate.passed else Cell(text="no", tone="warn"),
        Cell(text=have.format(size(laws[gate.have]))),
        Cell(text=need.format(size(laws[gate.need]))),
    )


def _split(laws: TrainingLaws) -> Iterator[tuple[str, str]]:
    yield "recommended", laws.layout
    if "mixed_compute_ratio" in laws:
        best = f"{format_count(laws['optimal_data_degree'])} × {format_count(laws['optimal_tensor_degree'])}"
        yield "best FSDP × tensor ways", best
        ways = ("capped_data_degree", "context_degree", "rounded_tensor_degree")
        data, context, tensor = (format_count(laws[name]) for name in ways)
        idle = laws["N"] - laws["num_layout_chips"]
        left = f", {format_count(idle)} chips of a slice left out" if idle else ""
        yield "in powers of two", f"{data} data × {context} context × {tensor} tensor{left}"
        if idle:
            whole = f"{format_count(laws['whole_data_degree'])} × {format_count(laws['whole_tensor_degree'])}"
            yield "on every chip", f"{whole} FSDP × tensor"
    if "tensor_largest_degree" in laws:
        limit = format_count(laws["tensor_largest_degree"])
        yield "tensor ways an axis bears", f"{limit}, whatever the batch and the dtype"
    if "num_mixed_chips" in laws:
        fsdp, mixed = (format_count(laws[name]) for name in ("num_fsdp_chips", "num_mixed_chips"))
        yield "chips this batch keeps busy", f"{fsdp} under FSDP, {mixed} with tensor parallelism, in a slice"


def _memory(laws: TrainingLaws) -> Iterator[tuple[str, str]]:
    names = ("weight_bytes", "optimizer_bytes", "saved_bytes", "held_bytes")
    for label, name in zip(("weights", "optimizer", "saved activations", "together"), names, strict=True):
        if name in laws:
            yield label, format_bytes(laws[name])
    if "stage" in laws:
        yield f"a chip, ZeRO-{laws['stage']:.0f}", f"{format_bytes(laws['zero_bytes'])} of state"
        if "chip_held_bytes" in laws:
            yield "with activations", f"{format_bytes(laws['chip_held_bytes'])} a chip"
    elif "num_whole_memory_chips" in laws:
        yield "chips that hold it", f"{format_count(laws['num_whole_memory_chips'])} at least"


_ZERO = ("nothing", "optimizer", "optimizer, gradients", "optimizer, gradients, weights (FSDP)")


def _zero(answer: JobLaws) -> Table:
    ways = format_count(dict(answer.zero[0].values)["X"])
    return Table(
        title="ZeRO",
        columns=("stage", f"split over {ways} ways", "state a chip"),
        rows=tuple(
            (Cell(text=str(stage)), Cell(text=split), Cell(text=format_bytes(held.value)))
            for stage, (split, held) in enumerate(zip(_ZERO, answer.zero, strict=True))
        ),
        note="Weights, gradients and moments; activations come on top. stage=… among what is given chooses one.",
    )


def _run(laws: TrainingLaws) -> Iterator[tuple[str, Cell]]:
    yield "FLOPs", Cell(text=f"{format_flops(laws['run_flops'])}, 6 a parameter and token")
    if "mfu" in laws.known.derivations:
        yield "MFU", Cell(text=f"{format_fraction(laws['mfu'])}, of the time given", tone="strong")
        yield "time", Cell(text=f"{format_seconds(laws['run_s'])}, {format_count(laws['chip_s'] / 3600)} chip-hours")
    else:
        yield f"at {format_fraction(laws['mfu'])} MFU", Cell(text=format_seconds(laws["run_s"]), tone="strong")
    yield "at the peak", Cell(text=f"{format_seconds(laws['peak_run_s'])}; no run can be faster")
    if "communicating_run_s" in laws and laws["communicating_run_s"] > laws["peak_run_s"]:
        yield "at the links' pace", Cell(text=format_seconds(laws["communicating_run_s"]), tone="warn")
    if "run_usd" in laws:
        yield "price", Cell(text=format_usd(laws["run_usd"]))
