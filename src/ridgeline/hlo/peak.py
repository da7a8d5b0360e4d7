"""What lies in a device's memory at the peak: the compiler's list of live values, joined to the parts of the model.

The list is in the file `*-live-range.txt` that XLA for TPUs writes with `xla_dump_to`, also when it then refuses:

    Live ranges at 447 (peak):
      fusion.239{}: 34359738368 bytes (cumulative: 34359738368 bytes)
      while.47{2}: 134217728 bytes (cumulative: 34493956096 bytes)

A value is an operation's result; in braces the place in it, where it is a tuple. Before that list the file has the
steps of the schedule from which to which each value lives:

      fusion.364{1}:494-1130

Where loops are nested, the moment that XLA calls the peak may be another: of what it lists there and what lives at the
moment when the ranges and the program's shapes add up to most, the larger counts.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, TypeAlias

from ridgeline.hlo.calls import call_graph
from ridgeline.hlo.parts import place_of
from ridgeline.hlo.scopes import nearest_scope
from ridgeline.hlo.shape import HBM, ArrayShape, TupleShape

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ridgeline.hlo.calls import CallGraph
    from ridgeline.hlo.module import Computation, HloModule, Instruction
    from ridgeline.hlo.shape import Shape

    _Where: TypeAlias = Mapping[str, tuple[Computation, Instruction]]
    _Sized: TypeAlias = tuple[str, tuple[int, ...], float]
    """Name, place in a tuple, and bytes of a value."""

_PEAK = re.compile(r"\s*Live ranges at \d+ \(peak\):")
_VALUE = re.compile(r"\s+(?P<name>[^\s{]+)\{(?P<place>[\d,]*)\}: (?P<bytes>\d+) bytes")
_RANGE = re.compile(r"\s+(?P<name>[^\s{]+)\{(?P<place>[\d,]*)\}:\s*(?P<first>\d+)-(?P<last>\d+)\s*")
_ROLE = re.compile(r"\b(mu|nu)\b")
_COPIES = {"copy", "copy-start", "copy-done", "bitcast", "convert", "optimization-barrier"}
_DEEPEST = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveValue:
    """A value that lives at the peak.

    Attributes:
        name: Of the instruction.
        size_bytes: As allocated.
        shape: As HLO writes it; "" where the text does not define it.
        part: Of the model; "" where nothing tells.
        phase: In which it was made; "" for what the program is given.
        role: `argument`, `mu`, `nu`, `kept` (for the backward pass, stacked over layers), or `temporary`.
    """

    name: str
    size_bytes: float
    shape: str
    part: str
    phase: str
    role: str

    @property
    def what(self) -> str:
        """The value in the words of the model: `mu of layer/mlp/up`, `layer/mlp/up, kept for the backward pass`."""
        match self.role:
            case "mu" | "nu":
                return f"{self.role} of {self.part or 'a weight'}"
            case "argument":
                return self.part or "the batch"
            case "kept":
                return f"{self.part or 'the layer input'}, kept for the backward pass"
            case _:
                return ", ".join(filter(None, (self.part, self.phase))) or self.name


def live_at_peak(lines: Iterable[str], module: HloModule, *, most: int) -> tuple[LiveValue, ...]:
    """The largest values that live at the peak, largest first.

    Args:
        lines: Of the compiler's file of live ranges.
        module: The program that it tells of, as scheduled.
        most: How many.
    """
    graph = call_graph(module)
    where = {each.name: (computation, each) for computation, _ in graph.reached() for each in computation}
    text = tuple(lines)
    listed = [item for item in _listed(text) if _in_hbm(where.get(item[0]), item[1])]
    live = max(listed, _largest_moment(text, where), key=_total_bytes)
    largest = sorted(live, key=lambda item: -item[2])[:most]
    return tuple(_named(graph, where, *item) for item in largest)


def _total_bytes(values: Iterable[_Sized]) -> float:
    return sum(size_bytes for _, _, size_bytes in values)


def _largest_moment(lines: Iterable[str], where: _Where) -> Sequence[_Sized]:
    """What lives at the moment when most does: of the values whose size in HBM the program's text tells.

    A value's last step is not counted: there its place may be taken by the result.
    """
    ranges: list[tuple[int, int, _Sized]] = []
    for line in lines:
        found = _RANGE.fullmatch(line)
        if found is not None and found["name"] in where:
            place = _place(found["place"])
            shape = _at(where[found["name"]][1].shape, place)
            if isinstance(shape, ArrayShape) and shape.memory_space == HBM:
                sized = (found["name"], place, shape.allocated_bytes)
                ranges.append((int(found["first"]), int(found["last"]), sized))
    changes: defaultdict[int, float] = defaultdict(float)
    for first, last, (_, _, size_bytes) in ranges:
        changes[first] += size_bytes
        changes[last] -= size_bytes
    moments = sorted(changes)
    totals = accumulate(changes[moment] for moment in moments)
    peak, _ = max(zip(moments, totals, strict=True), key=lambda each: each[1], default=(0, 0))
    return [sized for first, last, sized in ranges if first <= peak < last]


def _place(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(",") if number)


def _listed(lines: Iterable[str]) -> Iterator[_Sized]:
    """The values of the list."""
    is_listed = False
    for line in lines:
        if _PEAK.match(line):
            is_listed = True
        elif is_listed and (value := _VALUE.match(line)):
            yield value["name"], _place(value["place"]), float(value["bytes"])
        elif is_listed:
            return


def _in_hbm(found: tuple[Computation, Instruction] | None, place: tuple[int, ...]) -> bool:
    """Whether a value lies in the chip's memory, as far as is known: the list has those in VMEM too."""
    shape = None if found is None else _at(found[1].shape, place)
    return not isinstance(shape, ArrayShape) or shape.memory_space == HBM


def _named(
    graph: CallGraph,
    where: _Where,
    name: str,
    place: tuple[int, ...],
    size_bytes: float,
) -> LiveValue:
    """A value with what it is in the model."""
    if name not in where:
        return LiveValue(name=name, size_bytes=size_bytes, shape="", part="", phase="", role="temporary")
    computation, instruction = where[name]
    shape = str(_at(instruction.shape, place))
    role, scope = _origin(graph, computation, instruction, place, 0)
    at = place_of(scope, trains=True)
    return LiveValue(name=name, size_bytes=size_bytes, shape=shape, part=at.part, phase=at.phase, role=role)


def _origin(
    graph: CallGraph, computation: Computation, instruction: Instruction, place: tuple[int, ...], depth: int
) -> tuple[str, str]:
    """The role of a value, and the scope of what made it; followed through copies and the state of loops."""
    opcode, index = instruction.opcode, place[0] if place else 0
    source = computation.operand(instruction, 0)
    if depth > _DEEPEST:
        return "temporary", instruction.op_name
    if opcode == "parameter" and computation.name == graph.module.entry:
        role = _ROLE.search(instruction.op_name)
        return role[1] if role else "argument", instruction.op_name
    if opcode == "parameter":
        return _handed_in(graph, computation, place, depth)
    if opcode in _COPIES and source is not None and not instruction.op_name:
        inner = place if isinstance(source.shape, TupleShape) else ()
        return _origin(graph, computation, source, inner, depth + 1)
    if opcode == "get-tuple-element" and source is not None:
        return _origin(graph, computation, source, (int(instruction.attributes["index"]),), depth + 1)
    if opcode == "tuple" and index < len(instruction.operands):
        element = computation.instructions.get(instruction.operands[index])
        return ("temporary", "") if element is None else _origin(graph, computation, element, (), depth + 1)
    if opcode == "while":
        return _made_by_loop(graph, computation, instruction, index, depth)
    if opcode == "custom-call" and (filled := _filled_by(computation, instruction)) is not None:
        return _made_by_loop(graph, computation, *filled, depth)
    return "temporary", nearest_scope(graph, computation, instruction)


def _handed_in(graph: CallGraph, computation: Computation, place: tuple[int, ...], depth: int) -> tuple[str, str]:
    """Of the state of a loop's body: what the loop was given, or makes."""
    calls = graph.calls.get(computation.name, ())
    if not calls or calls[0].kind not in {"body", "condition"}:
        return "temporary", ""
    return _origin(graph, calls[0].caller, calls[0].instruction, place, depth + 1)


def _made_by_loop(
    graph: CallGraph, computation: Computation, loop: Instruction, index: int, depth: int
) -> tuple[str, str]:
    """An element of a loop's state: made in its rounds, a slice in each; or handed through unchanged."""
    body = next((graph.module.computations[name] for name in loop.called("body")), None)
    root = None if body is None else body.instructions[body.root]
    if body is None or root is None or root.opcode != "tuple" or index >= len(root.operands):
        return "temporary", loop.op_name
    made = body.instructions.get(root.operands[index])
    if made is None or _is_state(body, made, index):
        given = computation.operand(loop, 0)
        return ("temporary", "") if given is None else _origin(graph, computation, given, (index,), depth + 1)
    role = "kept" if "dynamic-update-slice" in made.name or made.opcode == "dynamic-update-slice" else "temporary"
    return role, nearest_scope(graph, body, made)


def _filled_by(computation: Computation, buffer: Instruction) -> tuple[Instruction, int] | None:
    """The loop that fills an empty buffer, and the buffer's place in its state."""
    for state in computation:
        if state.opcode == "tuple" and buffer.name in state.operands:
            for loop in computation:
                if loop.opcode == "while" and loop.operand_name(0) == state.name:
                    return loop, state.operands.index(buffer.name)
    return None


def _is_state(body: Computation, made: Instruction, index: int) -> bool:
    """Whether a round hands an element of the state on as it was."""
    source = body.operand(made, 0)
    is_element = made.opcode == "get-tuple-element" and source is not None and source.opcode == "parameter"
    return is_element and made.attributes["index"] == str(index)


def _at(shape: Shape, place: tuple[int, ...]) -> Shape:
    for index in place:
        if isinstance(shape, TupleShape) and index < len(shape.elements):
            shape = shape.elements[index]
    return shape
