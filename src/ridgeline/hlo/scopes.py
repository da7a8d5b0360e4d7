"""Where an operation belongs whose own text does not say: told from what it is fed, and from what uses it.

XLA rewrites collectives (into parts of a hierarchy over slices, into chains of fusions) and may lose the scope that
JAX recorded. What a collective is fed was made by the part that it serves: a converted weight, a gradient.
Matmuls of one input it fuses with the gathers of their weights, and loses their scopes too: such a matmul belongs to
the part that owns its weight, in the latest phase of what it multiplies.
"""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING, TypeAlias

from ridgeline.hlo.flops import is_matmul
from ridgeline.hlo.parts import Place, place_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ridgeline.hlo.calls import CallGraph
    from ridgeline.hlo.module import Computation, Instruction
    from ridgeline.hlo.parts import Phase

    _Spot: TypeAlias = tuple[Computation, Instruction]

_RENDEZVOUS = re.compile(r'_xla_host_transfer_rendezvous="[^"]+"')
_MEETING_POINTS = {"tuple", "while", "conditional"}
_PHASES: tuple[Phase, ...] = ("", "optimizer", "forward", "recompute", "backward")
"""In the order of the data: what is computed later may be fed what was computed before."""

_NEAR = 32
"""Operations looked at on each side; beyond them another part of the model begins."""


def nearest_scope(graph: CallGraph, computation: Computation, instruction: Instruction) -> str:
    """The scope of an operation: its own, else the nearest that names a part, else that of the call or loop around."""
    if _names_part(instruction.op_name):
        return instruction.op_name
    around = [
        *_outwards((computation, instruction), lambda place: _makers(graph, *place)),
        *_outwards((computation, instruction), lambda place: _users(graph, *place)),
    ]
    names = [each.op_name for _, each in around]
    named = next(filter(_names_part, names), "")
    return named or instruction.op_name or next(filter(None, names), "") or graph.scope(computation, instruction)


def place_of_operation(graph: CallGraph, computation: Computation, instruction: Instruction, *, trains: bool) -> Place:
    """Part and phase of an operation; without a scope, a matmul's by what it multiplies, a fusion's by its matmul."""
    place = place_of(graph.scope(computation, instruction), trains=trains)
    if place.part:
        return place
    if is_matmul(instruction):
        return _place_of_matmul(graph, computation, instruction, trains=trains)
    fused = (graph.module.computations[name] for name in instruction.called("calls") if instruction.opcode == "fusion")
    inside = {
        place_of_operation(graph, each, matmul, trains=trains) for each in fused for matmul in each if is_matmul(matmul)
    }
    return inside.pop() if len(inside) == 1 else place


def _place_of_matmul(graph: CallGraph, computation: Computation, matmul: Instruction, *, trains: bool) -> Place:
    """Of a matmul that names no part: no part either where it multiplies the weights of two, or of none."""
    made = (_made_in(graph, operand, trains=trains) for operand in _known(computation, matmul.operands))
    operands = {places[0]: places for places in made if places}
    owners = _owners_of_matrices(graph)
    # What a part made of its input, or an input quantised once under one of its users, comes from what no weight does.
    weights = [each for each, found in operands.items() if {one.part for one in found} <= owners]
    parts = {each.part for each in weights}
    around = place_of(graph.scope(computation, matmul), trains=trains).phase
    fed: list[Phase] = ["", *(each.phase for each in operands)]
    phase = around if matmul.op_name else max(fed, key=_PHASES.index) or around
    return Place(part=parts.pop() if len(parts) == 1 else "", phase=phase)


def _made_in(graph: CallGraph, spot: _Spot, *, trains: bool) -> list[Place]:
    """Of a value and what it is made from, nearest first: the places that name a part."""
    made_from = (spot, *_outwards(spot, lambda place: _makers(graph, *place)))
    return [place_of(each.op_name, trains=trains) for _, each in made_from if _names_part(each.op_name)]


def _owners_of_matrices(graph: CallGraph) -> set[str]:
    """The parts whose weights the program is given, without the norms: those multiply no matrices."""
    given = (each for each in graph.module.entry_computation if each.opcode == "parameter")
    return {part for each in given if not (part := place_of(each.op_name, trains=True).part).endswith("norm")} - {""}


def _names_part(op_name: str) -> bool:
    return bool(place_of(op_name, trains=True).part)


def _makers(graph: CallGraph, computation: Computation, instruction: Instruction) -> Iterable[_Spot]:
    """What an operation is fed; a parameter of a fusion, or of what runs beside, is what its caller hands in."""
    if instruction.opcode == "recv":
        return [(computation, each) for each in computation if each.opcode == "send" and _meet(each, instruction)]
    if instruction.opcode != "parameter":
        return _known(computation, instruction.operands)
    calls = graph.calls.get(computation.name, ())
    if not calls or calls[0].kind not in {"fusion", "call", "start"}:
        return ()
    caller, call = calls[0].caller, calls[0].instruction
    updates = [each for each in caller if each.opcode.endswith("-update") and call.name in each.operands]
    handed = call.operand_name(int(instruction.literal))
    return _known(caller, [handed, *(name for each in updates for name in each.operands if name != call.name)])


def _meet(send: Instruction, recv: Instruction) -> bool:
    """Whether two transfers by the runtime are the two ends of one."""
    sent, received = (_RENDEZVOUS.search(each.attributes.get("frontend_attributes", "")) for each in (send, recv))
    return sent is not None and received is not None and sent[0] == received[0]


def _users(graph: CallGraph, computation: Computation, instruction: Instruction) -> Iterable[_Spot]:
    """What uses an operation; not in a fusion, which may hold the work of another part."""
    if graph.is_fused(computation.name):
        return ()
    users = [(computation, each) for each in computation if instruction.name in each.operands]
    if instruction.name != computation.root:
        return users
    return [
        *users,
        *((call.caller, call.instruction) for call in graph.calls.get(computation.name, ()) if call.kind == "start"),
    ]


def _known(computation: Computation, names: Iterable[str]) -> list[_Spot]:
    return [(computation, computation.instructions[name]) for name in names if name in computation.instructions]


def _outwards(start: _Spot, beside: Callable[[_Spot], Iterable[_Spot]]) -> Iterator[_Spot]:
    """Operations around one, breadth first; not through tuples and loops, where everything meets."""
    seen, waiting = {start[1].name}, deque(beside(start))
    while waiting and len(seen) <= _NEAR:
        place = waiting.popleft()
        name, opcode = place[1].name, place[1].opcode
        if name not in seen and opcode not in _MEETING_POINTS:
            seen.add(name)
            yield place
            waiting.extend(beside(place))
