"""Bytes that operations read from HBM and write to it: their operands and results there, each time they run.

What a fusion keeps inside itself never reaches memory, and what lies in VMEM (`S(1)`) costs none of its bandwidth.
A fusion that slices an operand, or updates a slice of it in place, moves the slice alone. Padding of tiles counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ridgeline.hlo.shape import HBM, TupleShape, arrays

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ridgeline.hlo.calls import CallGraph
    from ridgeline.hlo.module import Computation, Instruction
    from ridgeline.hlo.shape import Shape

_MOVE_NOTHING = {
    "parameter",
    "constant",
    "tuple",
    "get-tuple-element",
    "bitcast",
    "while",
    "conditional",
    "call",
    "after-all",
    "partition-id",
    "replica-id",
    "optimization-barrier",
    "send",
    "recv",
}
"""Operations that hand values on, or whose work is that of what they call."""

_SLICES = {"dynamic-slice", "slice", "gather"}
_VIEWS = {"bitcast", "copy", "convert", "reshape", "transpose", "reduce-precision", "fusion"}
"""Inside a fusion these are carried out for what is needed of their result."""


def hbm_bytes(graph: CallGraph, computation: Computation, instruction: Instruction) -> float:
    """Bytes of HBM that one run of an operation reads and writes.

    Args:
        graph: The program.
        computation: In which the operation stands; not one that is fused.
        instruction: The operation.
    """
    opcode = instruction.opcode
    if (
        opcode in _MOVE_NOTHING
        or opcode.endswith(("-done", "-update"))
        or opcode in {"call-start", "custom-call-start"}
    ):
        return 0.0
    fused = _fused(graph, instruction)
    if fused is not None:
        return _written(graph, fused, fused.root, _result(instruction)) + sum(_read(graph, computation, instruction))
    written_bytes = _in_hbm(_result(instruction))
    if opcode in _SLICES:
        return 2 * written_bytes
    if opcode == "dynamic-update-slice":
        update = computation.operand(instruction, 1)
        return 2 * _in_hbm(update.shape) if update is not None else written_bytes
    return written_bytes + sum(_read(graph, computation, instruction))


def _read(graph: CallGraph, computation: Computation, instruction: Instruction) -> Iterator[float]:
    """Bytes of each operand in HBM, or of the slices that a fusion takes of it."""
    fused = _fused(graph, instruction)
    for index, name in enumerate(instruction.operands):
        operand = computation.instructions.get(name)
        whole_bytes = _in_hbm(operand.shape) if operand is not None else 0.0
        parameter = _parameter(fused, index) if fused is not None else None
        if whole_bytes and fused is not None and parameter is not None:
            yield min(whole_bytes, _used(graph, fused, parameter, whole_bytes))
        else:
            yield whole_bytes


def _used(graph: CallGraph, fused: Computation, value: Instruction, whole_bytes: float) -> float:
    """Bytes of a value that a fusion needs: slices of it, none of what it updates in place, or all."""
    used_bytes = 0.0
    for user in (each for each in fused if value.name in each.operands):
        is_first = user.operand_name(0) == value.name
        if user.opcode in _SLICES and is_first:
            used_bytes += _size(user.shape)
        elif (sliced_bytes := _used_inside(graph, user, value, whole_bytes)) < whole_bytes:
            used_bytes += sliced_bytes
        elif user.opcode in _VIEWS and user.name != fused.root:
            used_bytes += _used(graph, fused, user, whole_bytes)
        elif user.opcode != "dynamic-update-slice" or not is_first:
            return whole_bytes
    return used_bytes


def _used_inside(graph: CallGraph, user: Instruction, value: Instruction, whole_bytes: float) -> float:
    """Bytes of a value that a fusion inside a fusion needs; all of them for any other operation."""
    inner = _fused(graph, user)
    parameter = None if inner is None else _parameter(inner, user.operands.index(value.name))
    if inner is None or parameter is None:
        return whole_bytes
    return _used(graph, inner, parameter, whole_bytes)


def _written(graph: CallGraph, fused: Computation, name: str, shape: Shape) -> float:
    """Bytes that a fusion writes for one result: the update alone where it updates a slice in place."""
    made = fused.instructions[name]
    inner = _fused(graph, made)
    if made.opcode == "tuple" and isinstance(shape, TupleShape):
        return sum(_written(graph, fused, *pair) for pair in zip(made.operands, shape.elements, strict=False))
    if made.opcode == "bitcast" and made.operand_name(0) in fused.instructions:
        return _written(graph, fused, made.operand_name(0), shape)
    if inner is not None:
        return _written(graph, inner, inner.root, shape)
    update = fused.operand(made, 1) if made.opcode == "dynamic-update-slice" else None
    whole_bytes = _in_hbm(shape)
    return whole_bytes if update is None else min(whole_bytes, _size(update.shape))


def _fused(graph: CallGraph, instruction: Instruction) -> Computation | None:
    if instruction.opcode not in {"fusion", "fusion-start"}:
        return None
    return next((graph.module.computations[name] for name in instruction.called("calls")), None)


def _parameter(computation: Computation, index: int) -> Instruction | None:
    wanted = str(index)
    return next((each for each in computation if each.opcode == "parameter" and each.literal == wanted), None)


def _result(instruction: Instruction) -> Shape:
    """What an operation writes; the shape of a start is (operands, result, …), of a copy's (result, operand, …)."""
    shape = instruction.shape
    if instruction.opcode.endswith("-start") and isinstance(shape, TupleShape) and len(shape.elements) > 1:
        return shape.elements[0 if instruction.opcode == "copy-start" else 1]
    return shape


def _in_hbm(shape: Shape) -> float:
    return sum(array.allocated_bytes for array in arrays(shape) if array.memory_space == HBM)


def _size(shape: Shape) -> float:
    return sum(array.size_bytes for array in arrays(shape))
