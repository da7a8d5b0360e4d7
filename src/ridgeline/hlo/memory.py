"""Memory that a program's text tells of: what it is given, what it returns in the same place, its largest values.

How temporaries share memory the text does not say; the compiler's own account of that is not in it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ridgeline.hlo.shape import HBM, HOST, ArrayShape, TupleShape, arrays, parse_shape

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ridgeline.hlo.calls import CallGraph
    from ridgeline.hlo.module import HloModule, Instruction
    from ridgeline.hlo.shape import Shape

_ALIAS = re.compile(r"\{([\d,\s]*)\}:\s*\(\s*\d+")
_LAYOUT = re.compile(r"\{(\(.*\))->(.+)\}", re.DOTALL)
_NO_VALUE = {
    "bitcast",
    "get-tuple-element",
    "tuple",
    "while",
    "conditional",
    "call",
    "constant",
    "optimization-barrier",
}
"""Instructions whose result is another's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryMemory:
    """What a program is given and what it returns, on one device, padded to tiles.

    Attributes:
        arguments_bytes: Of arguments in device memory.
        outputs_bytes: Of results in device memory, those that take an argument's place included.
        aliased_bytes: Of results that take an argument's place.
        host_arguments_bytes: Of arguments in the host's memory.
        host_outputs_bytes: Of results in the host's memory.
    """

    arguments_bytes: float
    outputs_bytes: float
    aliased_bytes: float
    host_arguments_bytes: float
    host_outputs_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """Values of one shape, in device or host memory.

    Attributes:
        shape: As HLO writes it, without layout.
        size_bytes: Of one, padded to tiles.
        num_values: Values of that shape; how many are alive at once the text does not say.
        on_host: Whether in the host's memory.
        first: Name of the first.
        op_name: Its scope, as JAX recorded it.
    """

    shape: str
    size_bytes: float
    num_values: int
    on_host: bool
    first: str
    op_name: str


def entry_memory(module: HloModule) -> EntryMemory:
    """Bytes of a program's arguments and results."""
    arguments, output = _signature(module)
    given = [array for shape in arguments for array in arrays(shape)]
    returned = list(arrays(output))
    return EntryMemory(
        arguments_bytes=_allocated_bytes(given, on_host=False),
        outputs_bytes=_allocated_bytes(returned, on_host=False),
        aliased_bytes=_allocated_bytes(_aliased(module, output), on_host=False),
        host_arguments_bytes=_allocated_bytes(given, on_host=True),
        host_outputs_bytes=_allocated_bytes(returned, on_host=True),
    )


def largest_buffers(graph: CallGraph, *, most: int) -> tuple[Buffer, ...]:
    """The shapes of the largest values that operations write to memory, largest first."""
    found: defaultdict[tuple[str, bool, float], list[Instruction]] = defaultdict(list)
    for computation, _ in graph.reached():
        if graph.is_fused(computation.name):
            continue
        is_entry = computation.name == graph.module.entry
        for instruction in computation:
            for array in _written(instruction, is_entry=is_entry):
                found[str(array), array.memory_space == HOST, array.allocated_bytes].append(instruction)
    buffers = [
        Buffer(
            shape=shape,
            size_bytes=allocated_bytes,
            num_values=len(values),
            on_host=on_host,
            first=values[0].name,
            op_name=next((value.op_name for value in values if value.op_name), ""),
        )
        for (shape, on_host, allocated_bytes), values in found.items()
    ]
    return tuple(sorted(buffers, key=lambda buffer: (-buffer.size_bytes, buffer.shape)))[:most]


def _written(instruction: Instruction, *, is_entry: bool) -> Iterator[ArrayShape]:
    """The arrays in HBM or on the host that an instruction itself writes."""
    opcode = instruction.opcode
    if opcode in _NO_VALUE or opcode.endswith(("-done", "-update")) or (opcode == "parameter" and not is_entry):
        return
    shape = instruction.shape
    if opcode.endswith("-start") and isinstance(shape, TupleShape):
        shape = shape.elements[0 if opcode == "copy-start" or len(shape.elements) < 2 else 1]
    yield from (array for array in arrays(shape) if array.memory_space in {HBM, HOST})


def _signature(module: HloModule) -> tuple[tuple[Shape, ...], Shape]:
    """Shapes of the arguments and of the result."""
    layout = _LAYOUT.fullmatch(module.attributes.get("entry_computation_layout", ""))
    if layout is not None:
        try:
            arguments, output = parse_shape(layout[1]), parse_shape(layout[2])
        except ValueError:
            pass  # in a form not known here: the entry computation says the same
        else:
            return (arguments.elements if isinstance(arguments, TupleShape) else (arguments,)), output
    entry = module.entry_computation
    parameters = tuple(each.shape for each in entry if each.opcode == "parameter")
    return parameters, entry.instructions[entry.root].shape


def _aliased(module: HloModule, output: Shape) -> Iterator[ArrayShape]:
    """The arrays of the result that the module says take an argument's place."""
    for path in _ALIAS.findall(module.attributes.get("input_output_alias", "")):
        shape: Shape | None = output
        for index in (int(part) for part in path.split(",") if part.strip()):
            inside = shape.elements if isinstance(shape, TupleShape) else ()
            shape = inside[index] if index < len(inside) else None
        if shape is not None:
            yield from arrays(shape)


def _allocated_bytes(found: Iterable[ArrayShape], *, on_host: bool) -> float:
    return sum(array.allocated_bytes for array in found if (array.memory_space == HOST) == on_host)
