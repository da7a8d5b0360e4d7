"""How often a loop runs: told from the constants in its text.

A `while` of JAX's scan counts from a constant to a constant by a constant; its trip count is read from those three,
or from what the compiler noted. Constants are followed through copies, fusions and the unchanging state of loops.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import ceil, isnan, nan
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ridgeline.hlo.calls import Call
    from ridgeline.hlo.module import Computation, HloModule, Instruction

_KNOWN_TRIP_COUNT = re.compile(r'"known_trip_count":\s*\{\s*"n":\s*"?(\d+)')
_NUMBER = re.compile(r"[+-]?\d+")
_SAME_VALUE = {"copy", "bitcast", "convert", "reshape", "copy-start", "copy-done", "optimization-barrier"}
_DEEPEST = 64
_MIRRORED = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE"}


def trip_count(module: HloModule, calls: Mapping[str, Sequence[Call]], call: Call) -> float:
    """Rounds of the `while` that makes a call, each time it is reached; NaN where the text does not tell.

    Args:
        module: The program.
        calls: Of each computation: who calls it.
        call: Of the body or the condition.
    """
    loop, values = call.instruction, _Values(module=module, calls=calls)
    noted = _KNOWN_TRIP_COUNT.search(loop.backend_config)
    if noted is not None:
        return float(noted[1])
    conditions, bodies = loop.called("condition"), loop.called("body")
    if len(conditions) != 1 or len(bodies) != 1:
        return nan
    condition, body = module.computations[conditions[0]], module.computations[bodies[0]]
    try:
        test = values.comparison(condition)
        if test is None:
            return nan
        index, direction, limit = test
        first = values.element(call.caller, loop.operand_name(0), index)
        return _times_round(first, values.step(body, index), limit, direction)
    except RecursionError:  # no compiler nests fusions so deep
        return nan


def _times_round(first: float, step: float, limit: float, direction: str) -> float:
    """Rounds of a counter from `first` by `step` while it compares true with `limit`."""
    if isnan(first + step + limit) or not step:
        return nan
    if direction in {"LE", "GE"}:
        limit += 1 if direction == "LE" else -1
    rising = direction in {"LT", "LE"}
    if direction not in _MIRRORED or rising != (step > 0):
        return nan
    return float(max(0, ceil((limit - first) / step)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Values:
    """Whole numbers that can be told without running the program; NaN for others."""

    module: HloModule
    calls: Mapping[str, Sequence[Call]]

    def comparison(self, condition: Computation) -> tuple[int, str, float] | None:
        """Which element of the loop's state a condition compares, how, and with what."""
        test, scope, names = self._comparison_of(condition, condition.root)
        if test is None or len(names) != 2:
            return None
        direction = test.attributes.get("direction", "")
        for counter, bound, sense in ((0, 1, direction), (1, 0, _MIRRORED.get(direction, ""))):
            index = self._state_index(scope[counter], names[counter])
            limit = self.number(scope[bound], names[bound])
            if index is not None and not isnan(limit):
                return index, sense, limit
        return None

    def _comparison_of(
        self, computation: Computation, name: str
    ) -> tuple[Instruction | None, list[Computation], list[str]]:
        """The compare under a root, and its operands where they stand: outside, if a fusion hands them in."""
        root = computation.instructions[name]
        if root.opcode == "compare":
            return root, [computation] * len(root.operands), [*root.operands]
        if root.opcode not in {"fusion", "call"}:
            return None, [], []
        inner = self._inside(root)
        if inner is None:
            return None, [], []
        test, scopes, names = self._comparison_of(inner, inner.root)
        for position, operand in enumerate(names):
            parameter = inner.instructions.get(operand)
            if scopes[position] is inner and parameter is not None and parameter.opcode == "parameter":
                scopes[position], names[position] = computation, root.operand_name(int(parameter.literal))
        return test, scopes, names

    def _inside(self, caller: Instruction) -> Computation | None:
        """The computation that a fusion or call executes."""
        return next((self.module.computations[name] for name in caller.called("calls", "to_apply")), None)

    def step(self, body: Computation, index: int) -> float:
        """What a round adds to an element of the loop's state."""
        root = body.instructions[body.root]
        added = body.operand(root, index) if root.opcode == "tuple" else None
        added = self._origin(body, added)
        scope = body
        if added is not None and added.opcode == "fusion":
            scope = self._inside(added) or body
            added = scope.instructions[scope.root]
        if added is None or added.opcode not in {"add", "subtract"} or len(added.operands) != 2:
            return nan
        sign = 1 if added.opcode == "add" else -1
        left, right = added.operands
        if self._state_index(scope, left) == index:
            return sign * self.number(scope, right)
        if sign > 0 and self._state_index(scope, right) == index:
            return self.number(scope, left)
        return nan

    def _origin(self, computation: Computation, instruction: Instruction | None) -> Instruction | None:
        """What an instruction's value was before it was copied, converted or reshaped."""
        for _ in range(_DEEPEST):
            if instruction is None or instruction.opcode not in _SAME_VALUE:
                return instruction
            instruction = computation.operand(instruction, 0)
        return None

    def _state_index(self, computation: Computation, name: str) -> int | None:
        """Which element of the computation's first parameter a value is, looking out of fusions; None for none."""
        found = self._origin(computation, computation.instructions.get(name))
        if found is not None and found.opcode == "parameter":
            outer = self._handed_in(computation, found)
            return None if outer is None else self._state_index(*outer)
        if found is None or found.opcode != "get-tuple-element":
            return None
        source = computation.operand(found, 0)
        return int(found.attributes["index"]) if source is not None and source.opcode == "parameter" else None

    def _handed_in(self, computation: Computation, parameter: Instruction) -> tuple[Computation, str] | None:
        """Where the only fusion or call of a computation takes a parameter from."""
        calls = self.calls.get(computation.name, ())
        if len(calls) != 1 or calls[0].kind not in {"fusion", "call"}:
            return None
        return calls[0].caller, calls[0].instruction.operand_name(int(parameter.literal))

    def number(self, computation: Computation, name: str, depth: int = 0) -> float:
        """The value of a scalar constant, however it is handed on."""
        found = self._origin(computation, computation.instructions.get(name))
        if found is None or depth > _DEEPEST:
            return nan
        if found.opcode == "constant":
            return float(found.literal) if _NUMBER.fullmatch(found.literal) else nan
        if found.opcode == "get-tuple-element":
            return self.element(computation, found.operand_name(0), int(found.attributes["index"]), depth + 1)
        if found.opcode == "parameter":
            outer = self._handed_in(computation, found)
            return nan if outer is None else self.number(*outer, depth + 1)
        return nan

    def element(self, computation: Computation, name: str, index: int, depth: int = 0) -> float:
        """The value of an element of a tuple: of a loop's state, if no round changes it."""
        found = self._origin(computation, computation.instructions.get(name))
        if found is None or depth > _DEEPEST:
            return nan
        if found.opcode == "tuple" and index < len(found.operands):
            return self.number(computation, found.operands[index], depth + 1)
        if found.opcode == "while" and self._is_invariant(found, index):
            return self.element(computation, found.operand_name(0), index, depth + 1)
        if found.opcode == "parameter":
            calls = self.calls.get(computation.name, ())
            if len(calls) == 1 and calls[0].kind in {"body", "condition"}:
                loop = calls[0].instruction
                if self._is_invariant(loop, index):
                    return self.element(calls[0].caller, loop.operand_name(0), index, depth + 1)
        return nan

    def _is_invariant(self, loop: Instruction, index: int) -> bool:
        """Whether a loop's body hands an element of its state on unchanged."""
        bodies = loop.called("body")
        body = self.module.computations[bodies[0]] if bodies else None
        root = body.instructions[body.root] if body is not None else None
        if body is None or root is None or root.opcode != "tuple" or index >= len(root.operands):
            return False
        return self._state_index(body, root.operands[index]) == index
