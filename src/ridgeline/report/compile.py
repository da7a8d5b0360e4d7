"""`ridgeline compile`: what the compiler says of a program, as a screen and as JSON; what it does not say first."""

from __future__ import annotations

from math import inf, isnan
from typing import TYPE_CHECKING

from ridgeline.report.beside_equation import collective_pieces, parts_table
from ridgeline.report.blocks import Cell, Facts, Paragraphs, Report, Table
from ridgeline.report.jsonable import jsonable
from ridgeline.units import (
    format_bytes,
    format_count,
    format_decimal_bytes,
    format_flops,
    format_fraction,
    format_things,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ridgeline.hlo.collectives import HostTransfer
    from ridgeline.hlo.memory import Buffer
    from ridgeline.hlo.parts import Place
    from ridgeline.hlo.summary import HloSummary, Operation, PartTotal, PlacedCollective
    from ridgeline.report.blocks import Piece, Tone
    from ridgeline.report.jsonable import Json
    from ridgeline.study.beside_equation import BesideEquation

_ABSENT = Cell(text="–", tone="dim")
_MOST_ROWS = 12
_ENGINES = {"tensor_core": "TensorCore", "sparse_core": "SparseCore", "megascale": "hosts", "": "–"}
_CYCLES_NOTE = (
    "Cycles are the compiler's own estimate, known to be high by a factor of 1 to 3. Collectives, copies and Pallas "
    "kernels have none."
)


def compile_report(summary: HloSummary) -> Report:
    """The screen: what is unknown, totals, collectives, parts, the heaviest operations, the largest values."""
    return Report(
        headline=f"{summary.name} · {format_things(summary.num_devices, 'device')}"
        f" · {format_things(summary.num_instructions, 'instruction')}",
        pieces=tuple(compile_pieces(summary)),
    )


def compile_json(summary: HloSummary) -> dict[str, Json]:
    """The same in base units, of one device and one run; what is unknown is null, and listed."""
    return {
        "program": summary.name,
        "hlo": summary.where,
        "num_devices": summary.num_devices,
        "num_instructions": summary.num_instructions,
        "is_scheduled": summary.is_scheduled,
        "unknown_trip_counts": [
            {"name": loop.name, "computation": loop.computation, "line": loop.line, "op_name": loop.op_name}
            for loop in summary.unknown_trip_counts
        ],
        "uncounted": [
            _place_json(each.place)
            | {"name": each.name, "target": each.target, "count": jsonable(each.count), "reason": each.reason}
            for each in summary.uncounted
        ],
        "flops": jsonable(summary.flops),
        "counted_flops": jsonable(summary.counted_flops),
        "flops_by_dtype": jsonable(summary.flops_by_dtype),
        "memory": _memory_json(summary),
        "collectives": [_collective_json(each) for each in summary.collectives],
        "host_transfers": [_host_transfer_json(each) for each in summary.host_transfers],
        "parts": [_part_json(part) for part in summary.parts],
        "heaviest": [_operation_json(each) for each in summary.heaviest],
        "estimated_cycles": jsonable(summary.estimated_cycles),
        "num_without_cycles": summary.num_without_cycles,
        "loops": [
            {"name": loop.name, "trip_count": jsonable(loop.trip_count), "line": loop.line} for loop in summary.loops
        ],
        "notes": list(_unknowns(summary)),
        "derivations": [],
    }


def _memory_json(summary: HloSummary) -> dict[str, Json]:
    memory = summary.memory
    return {
        "arguments_bytes": memory.arguments_bytes,
        "outputs_bytes": memory.outputs_bytes,
        "aliased_bytes": memory.aliased_bytes,
        "host_arguments_bytes": memory.host_arguments_bytes,
        "host_outputs_bytes": memory.host_outputs_bytes,
        "largest": [
            {
                "shape": buffer.shape,
                "size_bytes": jsonable(buffer.size_bytes),
                "num_values": buffer.num_values,
                "on_host": buffer.on_host,
                "first": buffer.first,
                "op_name": buffer.op_name,
            }
            for buffer in summary.largest
        ],
    }


def _collective_json(placed: PlacedCollective) -> dict[str, Json]:
    found = placed.collective
    return _place_json(placed.place) | {
        "kind": found.kind,
        "axis": found.axis or None,
        "num_devices": jsonable(found.num_devices),
        "count": jsonable(found.count),
        "array_bytes": jsonable(found.array_bytes),
        "bytes": jsonable(found.total_bytes),
        "async": found.is_async,
        "engine": found.engine or None,
        "name": found.name,
    }


def _host_transfer_json(found: HostTransfer) -> dict[str, Json]:
    return {
        "direction": found.direction,
        "count": jsonable(found.count),
        "array_bytes": jsonable(found.array_bytes),
        "bytes": jsonable(found.total_bytes),
        "async": found.is_async,
        "name": found.name,
        "op_name": found.op_name,
    }


def _part_json(part: PartTotal) -> dict[str, Json]:
    return _place_json(part.place) | {
        "flops": jsonable(part.flops),
        "hbm_bytes": jsonable(part.hbm_bytes),
        "estimated_cycles": jsonable(part.estimated_cycles),
    }


def _operation_json(operation: Operation) -> dict[str, Json]:
    return _place_json(operation.place) | {
        "name": operation.name,
        "opcode": operation.opcode,
        "count": jsonable(operation.count),
        "estimated_cycles": jsonable(operation.estimated_cycles),
    }


def _place_json(place: Place) -> dict[str, Json]:
    return {"part": place.part or None, "phase": place.phase or None}


def compile_pieces(
    summary: HloSummary, beside: BesideEquation | None = None, peak: Table | None = None
) -> Iterator[Piece]:
    """The pieces of the screen.

    Args:
        summary: What the text says.
        beside: The equation's account of the same step, if there is one.
        peak: The largest values at the memory's peak, if the compiler tells.
    """
    if unknowns := tuple(Cell(text=line, tone="warn") for line in _unknowns(summary)):
        yield Paragraphs(lines=unknowns, title="not known")
    yield _totals(summary)
    if beside is not None:
        yield from collective_pieces(beside.collectives)
    elif summary.collectives:
        yield _collectives(summary.collectives)
    if summary.host_transfers:
        yield _host_transfers(summary.host_transfers)
    if beside is not None:
        yield parts_table(beside)
    elif summary.parts:
        yield _parts(summary.parts)
    if summary.heaviest:
        yield _heaviest(summary.heaviest)
    yield _largest(summary.largest) if peak is None else peak


def _unknowns(summary: HloSummary) -> Iterator[str]:
    """What the text does not tell, a line each."""
    for loop in summary.unknown_trip_counts:
        yield (
            f"{loop.name} (line {loop.line}): how often it runs cannot be read, so what it holds, and totals over it, "
            "are unknown."
        )
    for each in summary.uncounted:
        yield (
            f"{each.target} ({each.name}, {_times(each.count)}, {_where(each.place)}): no rule for its FLOPs; "
            "they are not in any total."
        )
    if summary.num_without_cycles:
        operations = format_things(summary.num_without_cycles, "operation")
        yield f"{operations}: the compiler has no estimate of cycles; not in any total."
    if not summary.heaviest:
        yield "The text has no estimates of cycles."
    if not summary.is_scheduled:
        yield "The text is not scheduled: the order of operations, and what is asynchronous, may still change."


def _totals(summary: HloSummary) -> Facts:
    memory = summary.memory
    by_dtype = ", ".join(f"{dtype or '?'} {format_flops(flops)}" for dtype, flops in summary.flops_by_dtype.items())
    counted = "matmuls" if not summary.uncounted else "matmuls, without what is not known"
    moved_bytes = sum(each.collective.total_bytes for each in summary.collectives)
    rows = [
        (
            "FLOPs",
            _cell(summary.counted_flops, f"{format_flops(summary.counted_flops)} ({counted}: {by_dtype or 'none'})"),
        ),
        ("collectives", _cell(moved_bytes, f"{format_decimal_bytes(moved_bytes)} of arrays")),
        ("arguments", Cell(text=format_bytes(memory.arguments_bytes))),
        ("outputs", Cell(text=f"{format_bytes(memory.outputs_bytes)}, {format_bytes(memory.aliased_bytes)} in place")),
        ("on the host", Cell(text=format_bytes(memory.host_arguments_bytes + memory.host_outputs_bytes))),
        ("cycles", _cell(summary.estimated_cycles, format_count(summary.estimated_cycles))),
    ]
    if not memory.host_arguments_bytes + memory.host_outputs_bytes:
        rows.pop(4)
    if isnan(summary.estimated_cycles) and not summary.heaviest:
        rows.pop()
    return Facts(title="one device, one run of the program", rows=tuple(rows))


def _collectives(found: Sequence[PlacedCollective]) -> Table:
    rows = tuple(
        (
            Cell(text=each.collective.kind.replace("_", "-"), tone="strong"),
            Cell(text=each.collective.axis) if each.collective.axis else _ABSENT,
            _number(each.collective.num_devices),
            _number(each.collective.count),
            Cell(text=format_decimal_bytes(each.collective.array_bytes)),
            _cell(each.collective.total_bytes, format_decimal_bytes(each.collective.total_bytes)),
            Cell(
                text="async" if each.collective.is_async else "waits",
                tone="good" if each.collective.is_async else "plain",
            ),
            Cell(text=_ENGINES[each.collective.engine]),
            Cell(text=_where(each.place)),
        )
        for each in found[:_MOST_ROWS]
    )
    return Table(
        title="collectives",
        columns=("kind", "axis", "devices", "count", "array", "in all", "", "engine", "where"),
        rows=rows,
        right=frozenset({2, 3, 4, 5}),
        note=_rest(len(found)),
    )


def _host_transfers(found: Sequence[HostTransfer]) -> Table:
    rows = tuple(
        (
            Cell(text=each.direction.replace("_", " "), tone="strong"),
            _number(each.count),
            Cell(text=format_decimal_bytes(each.array_bytes)),
            _cell(each.total_bytes, format_decimal_bytes(each.total_bytes)),
            Cell(text="async" if each.is_async else "waits"),
            Cell(text=each.name),
        )
        for each in found[:_MOST_ROWS]
    )
    columns = ("direction", "count", "array", "in all", "", "operation")
    return Table(
        title="transfers to and from the host",
        columns=columns,
        rows=rows,
        right=frozenset({1, 2, 3}),
        note=_rest(len(found)),
    )


def _parts(parts: Sequence[PartTotal]) -> Table:
    flops = sum(part.flops for part in parts if not isnan(part.flops))
    cycles = sum(part.estimated_cycles for part in parts if not isnan(part.estimated_cycles))
    rows = tuple(
        (
            Cell(text=part.place.part or "(no scope)"),
            Cell(text=part.place.phase or "–"),
            _cell(part.flops, format_flops(part.flops)),
            _share(part.flops, flops),
            _cell(part.hbm_bytes, format_decimal_bytes(part.hbm_bytes)),
            _ABSENT if isnan(part.estimated_cycles) else _number(part.estimated_cycles),
            _share(part.estimated_cycles, cycles),
        )
        for part in sorted(parts, key=_weight, reverse=True)[:_MOST_ROWS]
    )
    return Table(
        title="parts",
        columns=("part", "phase", "FLOPs", "", "HBM", "cycles", ""),
        rows=rows,
        right=frozenset({2, 3, 4, 5, 6}),
        note=_rest(len(parts)),
    )


def _weight(part: PartTotal) -> tuple[float, float]:
    """Most cycles first, then most FLOPs; FLOPs that are unknown may be any number."""
    cycles, flops = part.estimated_cycles, part.flops
    return 0.0 if isnan(cycles) else cycles, inf if isnan(flops) else flops


def _heaviest(operations: Sequence[Operation]) -> Table:
    rows = tuple(
        (
            Cell(text=operation.name),
            Cell(text=_where(operation.place)),
            _number(operation.count),
            _cell(operation.estimated_cycles, format_count(operation.estimated_cycles)),
        )
        for operation in operations[:_MOST_ROWS]
    )
    return Table(
        title="heaviest operations",
        columns=("operation", "where", "count", "cycles"),
        rows=rows,
        right=frozenset({2, 3}),
        note=_CYCLES_NOTE,
    )


def _largest(buffers: Sequence[Buffer]) -> Table:
    rows = tuple(
        (
            Cell(text=buffer.shape),
            Cell(text=format_bytes(buffer.size_bytes)),
            _number(buffer.num_values),
            Cell(text=f"{buffer.first}{' (host)' if buffer.on_host else ''}"),
        )
        for buffer in buffers[:_MOST_ROWS]
    )
    return Table(
        title="largest values",
        columns=("shape", "each", "values", "first"),
        rows=rows,
        right=frozenset({1, 2}),
        note="Values may share memory; how, the text does not say.",
    )


def _where(place: Place) -> str:
    return ", ".join(word for word in (place.part, place.phase) if word) or "no scope"


def _times(count: float) -> str:
    return "an unknown number of times" if isnan(count) else f"×{format_count(count)}"


def _number(count: float) -> Cell:
    return _cell(count, format_count(count))


def _cell(value: float, text: str) -> Cell:
    """A value's text, or that it is unknown."""
    tone: Tone = "warn" if isnan(value) else "plain"
    return Cell(text="unknown" if isnan(value) else text, tone=tone)


def _share(value: float, total: float) -> Cell:
    return Cell(text=format_fraction(value / total), tone="dim") if total and not isnan(value) else _ABSENT


def _rest(count: int) -> str:
    return f"{count - _MOST_ROWS} more in --json" if count > _MOST_ROWS else ""
