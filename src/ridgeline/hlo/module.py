"""A program as HLO states it: a module of computations, each a list of instructions in which the last is the answer.

Where the text is scheduled, the order of a computation's instructions is the order in which they are issued.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ridgeline.hlo.shape import Shape

MAIN_THREAD = "main"
SPARSE_CORE_THREAD = "sparsecore"

_OP_NAME = re.compile(r'op_name="((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")
_REFERENCE = re.compile(r"[^\s,{}%]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """One operation.

    Attributes:
        name: Unique in its computation, without the `%`.
        shape: Of its result.
        opcode: `fusion`, `dot`, `all-gather-start`.
        operands: Names of the instructions it reads.
        literal: What stands in the parentheses of one that reads none: a constant's value, a parameter's number.
        attributes: What follows, by name, as text.
        line: Where it stands in the text.
    """

    name: str
    shape: Shape
    opcode: str
    operands: tuple[str, ...] = ()
    literal: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict[str, str])
    line: int = 0

    @property
    def op_name(self) -> str:
        """The path of scopes and transformations that JAX recorded; "" where it recorded none."""
        match = _OP_NAME.search(self.attributes.get("metadata", ""))
        return _ESCAPED.sub(r"\1", match[1]) if match else ""

    @property
    def backend_config(self) -> str:
        """What the backend added, as text."""
        return self.attributes.get("backend_config", "")

    def operand_name(self, index: int) -> str:
        """The name of what it reads in that place; "" where it reads less."""
        return self.operands[index] if index < len(self.operands) else ""

    def called(self, *attributes: str) -> tuple[str, ...]:
        """Names of the computations that these attributes name."""
        return tuple(
            name for attribute in attributes for name in _REFERENCE.findall(self.attributes.get(attribute, ""))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Computation:
    """A list of instructions that others call.

    Attributes:
        name: Unique in the module, without the `%`.
        instructions: By name, in the order of the text.
        root: The name of the instruction whose value is the answer.
        thread: What runs it: `main`, or `sparsecore`.
        line: Where it begins in the text.
    """

    name: str
    instructions: Mapping[str, Instruction]
    root: str
    thread: str = MAIN_THREAD
    line: int = 0

    def operand(self, instruction: Instruction, index: int) -> Instruction | None:
        """What an instruction reads; None where the text does not define it."""
        return self.instructions.get(instruction.operand_name(index))

    def __iter__(self) -> Iterator[Instruction]:
        return iter(self.instructions.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class HloModule:
    """A whole program.

    Attributes:
        name: As the compiler called it.
        attributes: Of the first line, by name, as text.
        computations: By name, in the order of the text.
        entry: The name of the computation where it begins.
        where: The file it was read from.
    """

    name: str
    attributes: Mapping[str, str]
    computations: Mapping[str, Computation]
    entry: str
    where: str = ""

    @property
    def is_scheduled(self) -> bool:
        """Whether the order of instructions is the order of issue."""
        return self.attributes.get("is_scheduled") == "true"

    @property
    def num_devices(self) -> int:
        """Devices that run it together."""
        counts = (self.attributes.get(key, "") for key in ("num_partitions", "replica_count"))
        partitions, replicas = (int(count) if count.isdecimal() else 1 for count in counts)
        return partitions * replicas

    @property
    def num_instructions(self) -> int:
        """Instructions of all computations."""
        return sum(len(computation.instructions) for computation in self.computations.values())

    @property
    def entry_computation(self) -> Computation:
        """Where it begins."""
        return self.computations[self.entry]
