"""`ridgeline roofline`: what bounds one operation, and the ridge of a chip, as screens and as JSON."""

from __future__ import annotations

import re
from math import inf, isinf, isnan
from typing import TYPE_CHECKING

from ridgeline.job.operation import SHAPES
from ridgeline.report.blocks import Cell, Facts, Paragraphs, Piece, Report, Table
from ridgeline.report.derivations import derivations_json
from ridgeline.report.jsonable import jsonable
from ridgeline.units import (
    format_count,
    format_decimal_bytes,
    format_flops,
    format_flops_per_s,
    format_fraction,
    format_rate_bytes_per_s,
    format_seconds,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ridgeline.cost.questions.ridge import CriticalBatch, Ridge
    from ridgeline.cost.questions.roofline_answer import Bound, OperationRoofline, Traffic
    from ridgeline.report.jsonable import Json

BOUNDS: Mapping[Bound, str] = {
    "compute": "compute",
    "hbm": "HBM",
    "vmem": "vector memory",
    "host": "the host's PCIe",
    "link": "links",
    "unknown": "something unknown",
}
"""What an operation waits for, as people say it."""

_MEANINGS = {
    "B": "rows",
    "T": "queries",
    "S": "keys",
    "D": "contracted width",
}
_ABSENT = Cell(text="–", tone="dim")
_NEVER = Cell(text="never", tone="warn")


def operation_report(answer: OperationRoofline) -> Report:
    """What bounds an operation, by how much, and from which size on something else does."""
    question = answer.question
    where = question.machine if answer.num_chips == 1 else f"each of {answer.num_chips} chips that share D"
    shape = f" {shown_shape(answer)}" if SHAPES[question.kind] else ""
    bound = "what binds it is unknown" if answer.bound == "unknown" else f"bound by {BOUNDS[answer.bound]}"
    return Report(
        headline=f"{question.kind}{shape} on {where}: {bound}",
        pieces=tuple(_operation_pieces(answer)),
    )


def operation_json(answer: OperationRoofline) -> dict[str, Json]:
    """The object that `--json` prints, in base units; what is infinite or unknown becomes null."""
    question = answer.question
    return {
        "operation": question.kind,
        "machine": question.machine,
        "sizes": jsonable(question.sizes),
        "element_bytes": jsonable(question.element_bytes),
        "num_chips": answer.num_chips,
        "flops": answer.flops,
        "traffic_bytes": answer.traffic_bytes,
        "read_bytes": jsonable(answer.read_bytes),
        "written_bytes": jsonable(answer.written_bytes),
        "intensity_flops_per_byte": jsonable(answer.intensity_flops_per_byte),
        "ridge_flops_per_byte": jsonable(answer.ridge_flops_per_byte),
        "peak_flops_per_s": jsonable(answer.peak_flops_per_s),
        "compute_s": jsonable(answer.compute_s),
        "transfer_s": answer.transfer_s,
        "lower_s": answer.lower_s,
        "upper_s": jsonable(answer.upper_s),
        "bound": answer.bound,
        "attained_flops_per_s": answer.attained_flops_per_s,
        "resources": [_traffic_json(each) for each in answer.traffic],
        "critical": [
            {
                "letter": each.letter,
                "exact_size": jsonable(each.exact_size),
                "rule_size": jsonable(each.rule_size),
                "never": isinf(each.exact_size),
                "resource": each.resource,
            }
            for each in answer.critical
        ],
        "sweep": jsonable(answer.sweep),
        "notes": list(answer.notes),
        "derivations": derivations_json(answer.derivations),
    }


def ridge_report(machine: str, ridges: Sequence[Ridge], notes: Sequence[str] = ()) -> Report:
    """The ridge of a chip, or all of them: what computes against where operands come from."""
    table = Table(
        columns=("computes", "peak", "operands from", "bandwidth", "FLOP/B"),
        rows=tuple(
            (
                Cell(text=ridge.computes or "as given", tone="strong"),
                Cell(text=format_flops_per_s(ridge.peak_flops_per_s)),
                Cell(text=BOUNDS[ridge.memory]),
                Cell(text=format_rate_bytes_per_s(ridge.bytes_per_s)),
                Cell(text=_intensity(ridge.ridge_flops_per_byte)),
            )
            for ridge in ridges
        ),
        right=frozenset({1, 3, 4}),
        note="An operation that does fewer FLOPs per byte waits for its operands.",
    )
    return Report(headline=f"Ridge of {machine}", pieces=(table, *_notes(notes)))


def ridge_json(machine: str, ridges: Sequence[Ridge]) -> dict[str, Json]:
    """The object that `--json` prints."""
    return {
        "machine": machine,
        "ridges": [
            {
                "computes": ridge.computes,
                "memory": ridge.memory,
                "peak_flops_per_s": jsonable(ridge.peak_flops_per_s),
                "bytes_per_s": ridge.bytes_per_s,
                "ridge_flops_per_byte": jsonable(ridge.ridge_flops_per_byte),
            }
            for ridge in ridges
        ],
        "derivations": derivations_json([step for ridge in ridges for step in ridge.derivations]),
    }


def critical_batch_report(machine: str, answer: CriticalBatch, notes: Sequence[str] = ()) -> Report:
    """The rows from which a matmul is compute-bound."""
    exact = "give --D and --F for it" if isnan(answer.exact_size) else _size(answer.exact_size).text
    rows = (
        ("rule for small batches", _size(answer.rule_size)),
        ("exactly, for these widths", Cell(text=exact)),
        ("ridge", Cell(text=f"{_intensity(answer.ridge.ridge_flops_per_byte)} FLOP/B")),
        ("peak", Cell(text=format_flops_per_s(answer.ridge.peak_flops_per_s))),
        (f"bandwidth of {BOUNDS[answer.ridge.memory]}", Cell(text=format_rate_bytes_per_s(answer.ridge.bytes_per_s))),
    )
    return Report(
        headline=f"Rows from which a matmul on {machine} is compute-bound", pieces=(Facts(rows=rows), *_notes(notes))
    )


def critical_batch_json(machine: str, answer: CriticalBatch) -> dict[str, Json]:
    """The object that `--json` prints."""
    return {
        "machine": machine,
        "rule_size": answer.rule_size,
        "exact_size": jsonable(answer.exact_size),
        "ridge_flops_per_byte": answer.ridge.ridge_flops_per_byte,
        "peak_flops_per_s": answer.ridge.peak_flops_per_s,
        "bytes_per_s": answer.ridge.bytes_per_s,
        "derivations": derivations_json(answer.derivations),
    }


def shown_shape(answer: OperationRoofline) -> str:
    """The arrays of an operation with numbers for letters: `[64, 4096] @ [4096, 16384]`."""
    sizes = answer.question.sizes
    known = {"S": sizes.get("T", inf), **sizes}
    return re.sub(r"\b[A-Za-z]\b", lambda letter: f"{known[letter[0]]:.0f}", SHAPES[answer.question.kind])


def _operation_pieces(answer: OperationRoofline) -> Iterator[Piece]:
    yield Facts(rows=tuple(_facts(answer)))
    yield _resources(answer)
    if any(not isnan(each.exact_size) for each in answer.critical):
        yield _critical(answer)
    if answer.sweep:
        yield _sweep(answer)
    yield from _notes(answer.notes)


def _facts(answer: OperationRoofline) -> Iterator[tuple[str, Cell]]:
    yield "least time", Cell(text=f"{format_seconds(answer.lower_s)}, everything overlapped", tone="strong")
    if not isnan(answer.upper_s):
        yield "most, at peak rates", Cell(text=f"{format_seconds(answer.upper_s)}, nothing overlapped")
    if answer.flops:
        of_peak = "" if isnan(answer.peak_flops_per_s) else f", {format_fraction(answer.peak_fraction)} of the peak"
        yield "rate at most", Cell(text=f"{format_flops_per_s(answer.attained_flops_per_s)}{of_peak}")
    intensity, ridge = answer.intensity_flops_per_byte, answer.ridge_flops_per_byte
    if not isnan(ridge):
        side = "above" if intensity > ridge else "below"
        yield "intensity", Cell(text=f"{_intensity(intensity)} FLOP/B, {side} the ridge at {_intensity(ridge)}")
    if SHAPES[answer.question.kind]:
        stored = answer.question.element_bytes
        text = f"weights {stored.weights:g}, activations {stored.activations:g}, outputs {stored.outputs:g}"
        yield "bytes an element", Cell(text=text)


def _resources(answer: OperationRoofline) -> Table:
    longest_s = max((answer.compute_s, answer.transfer_s), key=lambda time_s: -inf if isnan(time_s) else time_s)
    compute = (
        Cell(text="compute", tone="strong"),
        Cell(text=format_flops(answer.flops)),
        Cell(text=format_flops_per_s(answer.peak_flops_per_s)),
        Cell(text=format_seconds(answer.compute_s), tone="warn" if answer.compute_s == longest_s else "plain"),
        _ABSENT,
        _ABSENT,
    )
    return Table(
        title="Resources of a chip",
        columns=("resource", "asks for", "at", "takes", "FLOP/B", "ridge"),
        rows=(compute, *(_resource(each, longest_s) for each in answer.traffic)),
        right=frozenset(range(1, 6)),
    )


def _resource(traffic: Traffic, longest_s: float) -> tuple[Cell, ...]:
    return (
        Cell(text=BOUNDS[traffic.resource], tone="strong"),
        Cell(text=format_decimal_bytes(traffic.traffic_bytes)),
        Cell(text=format_rate_bytes_per_s(traffic.bytes_per_s)),
        Cell(text=format_seconds(traffic.transfer_s), tone="warn" if traffic.transfer_s == longest_s else "plain"),
        Cell(text=_intensity(traffic.intensity_flops_per_byte)),
        Cell(text=_intensity(traffic.ridge_flops_per_byte)),
    )


def _critical(answer: OperationRoofline) -> Table:
    return Table(
        title="Compute-bound from",
        columns=("size", "is", "exactly", "by the rule", "below it waits for"),
        rows=tuple(
            (
                Cell(text=each.letter, tone="strong"),
                Cell(text=_MEANINGS[each.letter]),
                _size(each.exact_size),
                _size(each.rule_size),
                Cell(text=BOUNDS[each.resource]),
            )
            for each in answer.critical
        ),
        right=frozenset({2, 3}),
        note="Exactly: all arrays counted, other sizes as asked. By the rule: only the weights are traffic"
        + (
            ", collectives are as the book approximates them. Both sizes are needed."
            if answer.link is not None
            else "."
        ),
    )


def _sweep(answer: OperationRoofline) -> Table:
    letter = "" if answer.question.sweep is None else answer.question.sweep.letter
    return Table(
        title=f"With {letter}",
        columns=(letter, "FLOP/B", "least time", "rate at most", "of the peak", "bound by"),
        rows=tuple(
            (
                Cell(text=format_count(point.size), tone="strong"),
                Cell(text=_intensity(point.intensity_flops_per_byte)),
                Cell(text=format_seconds(point.lower_s)),
                Cell(text=format_flops_per_s(point.attained_flops_per_s)),
                Cell(text=format_fraction(point.attained_flops_per_s / answer.peak_flops_per_s)),
                Cell(text=BOUNDS[point.bound]),
            )
            for point in answer.sweep
        ),
        right=frozenset(range(5)),
    )


def _notes(notes: Sequence[str]) -> Iterator[Piece]:
    if notes:
        yield Paragraphs(title="Notes", lines=tuple(Cell(text=note) for note in notes))


def _size(size: float) -> Cell:
    if isnan(size):
        return _ABSENT
    if isinf(size):
        return _NEVER
    return Cell(text="at once" if size == 0 else f"{size:,.0f}" if size >= 100 else f"{size:.3g}")


def _intensity(intensity_flops_per_byte: float) -> str:
    if isnan(intensity_flops_per_byte):
        return "unknown"
    return f"{intensity_flops_per_byte:,.0f}" if intensity_flops_per_byte >= 100 else f"{intensity_flops_per_byte:.3g}"


def _traffic_json(traffic: Traffic) -> Json:
    return {
        "resource": traffic.resource,
        "traffic_bytes": traffic.traffic_bytes,
        "bytes_per_s": traffic.bytes_per_s,
        "transfer_s": traffic.transfer_s,
        "intensity_flops_per_byte": jsonable(traffic.intensity_flops_per_byte),
        "ridge_flops_per_byte": jsonable(traffic.ridge_flops_per_byte),
        "critical": [
            {
                "letter": crossover.letter,
                "exact_size": jsonable(crossover.exact.value),
                "rule_size": None if crossover.rule is None else jsonable(crossover.rule.value),
            }
            for crossover in traffic.crossovers
        ],
    }
