"""Who calls whom, how often a loop runs, and so how often each computation is executed.

A count that depends on a loop whose trip count cannot be read is NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Literal, TypeAlias

from ridgeline.errors import InputError
from ridgeline.hlo.branches import branch_share
from ridgeline.hlo.trip_count import trip_count

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ridgeline.hlo.module import Computation, HloModule, Instruction

CallKind: TypeAlias = Literal["fusion", "call", "start", "body", "condition", "branch"]
"""How a computation is called; `start` begins one that runs beside its caller."""


_EXECUTED: Mapping[str, tuple[tuple[str, CallKind], ...]] = {
    "while": (("body", "body"), ("condition", "condition")),
    "conditional": (
        ("branch_computations", "branch"),
        ("true_computation", "branch"),
        ("false_computation", "branch"),
    ),
    "fusion": (("calls", "fusion"),),
    "call": (("to_apply", "call"), ("calls", "call")),
    "async-start": (("calls", "start"),),
    "call-start": (("to_apply", "start"), ("calls", "start")),
    "custom-call-start": (("called_computations", "start"),),
    "fusion-start": (("calls", "fusion"),),
}
"""Attributes that name what an instruction executes. A done or an update may name it again, and does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One computation called by an instruction of another."""

    caller: Computation
    instruction: Instruction
    callee: str
    kind: CallKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A `while`, or a conditional.

    Attributes:
        name: Of the instruction.
        computation: In which it stands.
        trip_count: How often its body runs each time it is reached, of a conditional each of its branches, as if they
            took turns; NaN for unknown.
        line: In the text.
        op_name: The scope that JAX recorded.
    """

    name: str
    computation: str
    trip_count: float
    line: int
    op_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallGraph:
    """A module, and how often each of its computations runs.

    Attributes:
        module: The module.
        calls: Of each computation that is reached: who calls it.
        loops: Every `while` and conditional that is reached.
        counts: Executions of each computation that is reached, in one run of the program; NaN for unknown.
    """

    module: HloModule
    calls: Mapping[str, Sequence[Call]]
    loops: tuple[Loop, ...]
    counts: Mapping[str, float]

    def is_fused(self, computation: str) -> bool:
        """Whether its values exist only inside the operation that calls it."""
        return any(call.kind == "fusion" for call in self.calls.get(computation, ()))

    def is_started(self, computation: str) -> bool:
        """Whether it runs beside its caller, between a start and a done."""
        return any(call.instruction.opcode.endswith("-start") for call in self.calls.get(computation, ()))

    def scope(self, computation: Computation, instruction: Instruction) -> str:
        """The scope that JAX recorded for an instruction; where it recorded none, for the loop or call around it."""
        while not instruction.op_name:
            calls = self.calls.get(computation.name, ())
            if not calls:
                return ""
            computation, instruction = calls[0].caller, calls[0].instruction
        return instruction.op_name

    def reached(self) -> Iterator[tuple[Computation, float]]:
        """The computations that run, each with how often."""
        return ((self.module.computations[name], count) for name, count in self.counts.items())


def call_graph(module: HloModule) -> CallGraph:
    """How often every computation of a module runs."""
    calls = _calls(module)
    try:
        order = tuple(
            TopologicalSorter(
                {name: {call.caller.name for call in callers} for name, callers in calls.items()}
            ).static_order()
        )
    except CycleError as error:
        raise InputError(
            "computations call each other in a circle",
            where=module.where,
            value=" → ".join(error.args[1]),
            expected="HLO, in which no computation calls itself",
            fix="write or copy the text again",
        ) from error
    loops: dict[tuple[str, str], Loop] = {}
    counts: dict[str, float] = {module.entry: 1.0}
    for name in order:
        if name == module.entry:
            continue
        count = 0.0
        for call in calls[name]:
            count += counts[call.caller.name] * _times(module, calls, call, loops)
        counts[name] = count
    return CallGraph(module=module, calls=calls, loops=tuple(loops.values()), counts=counts)


def _calls(module: HloModule) -> dict[str, list[Call]]:
    """The callers of every computation that is reached from the entry."""
    calls: dict[str, list[Call]] = {module.entry: []}
    waiting = [module.entry]
    while waiting:
        caller = module.computations[waiting.pop()]
        for instruction in caller:
            for callee, kind in _callees(instruction):
                if callee not in calls:
                    calls[callee] = []
                    waiting.append(callee)
                calls[callee].append(Call(caller=caller, instruction=instruction, callee=callee, kind=kind))
    return calls


def _callees(instruction: Instruction) -> Iterator[tuple[str, CallKind]]:
    """What an instruction executes; a scalar function that a reduction or collective applies is part of it."""
    for attribute, kind in _EXECUTED.get(instruction.opcode, ()):
        for name in instruction.called(attribute):
            yield name, kind


def _times(
    module: HloModule, calls: Mapping[str, Sequence[Call]], call: Call, loops: dict[tuple[str, str], Loop]
) -> float:
    """How often a call runs its callee, each time it is reached."""
    if call.kind not in {"body", "condition", "branch"}:
        return 1.0
    key = (call.caller.name, call.instruction.name)
    if key not in loops:
        trips = branch_share(module, call) if call.kind == "branch" else trip_count(module, calls, call)
        loops[key] = Loop(
            name=call.instruction.name,
            computation=call.caller.name,
            trip_count=trips,
            line=call.instruction.line,
            op_name=call.instruction.op_name,
        )
    return loops[key].trip_count + (call.kind == "condition")
