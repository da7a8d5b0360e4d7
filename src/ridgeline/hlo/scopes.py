"""Where an operation belongs whose own text does not say: told from what it is fed, and from what uses it.

XLA rewrites collectives (into parts of a hierarchy over slices, into chains of fusions) and may lose the scope that
JAX recorded. What a collective is fed was made by the part that it serves: a converted weight, a gradient.
"""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING, TypeAlias

from ridgeline.hlo.parts import place_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ridgeline.hlo.calls import CallGraph
    from ridgeline.hlo.module import Computation, Instruction

    _Place: TypeAlias = tuple[Computation, Instruction]

_RENDEZVOUS = re.compile(r'_xla_host_transfer_rendezvous="[^"]+"')
_MEETING_POINTS = {"tuple", "while", "conditional"}
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


def _names_part(op_name: str) -> bool:
    return bool(place_of(op_name, trains=True).part)


def _makers(graph: CallGraph, computation: Computation, instruction: Instruction) -> Iterable[_Place]:
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


def _users(graph: CallGraph, computation: Computation, instruction: Instruction) -> Iterable[_Place]:
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


def _known(computation: Computation, names: Iterable[str]) -> list[_Place]:
    return [(computation, computation.instructions[name]) for name in names if name in computation.instructions]


def _outwards(start: _Place, beside: Callable[[_Place], Iterable[_Place]]) -> Iterator[_Place]:
    """Operations around one, breadth first; not through tuples and loops, where everything meets."""
    seen, waiting = {start[1].name}, deque(beside(start))
    while waiting and len(seen) <= _NEAR:
        place = waiting.popleft()
        name, opcode = place[1].name, place[1].opcode
        if name not in seen and opcode not in _MEETING_POINTS:
            seen.add(name)
            yield place
            waiting.extend(beside(place))
