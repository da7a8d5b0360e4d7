"""What a program sends: collectives between devices, transfers between slices, and to and from the host.

all-gather, all-reduce, …             while the TensorCore waits
all-gather-start … all-gather-done    beside other work
custom-call-start, calling one        beside other work, on the SparseCores where its thread says so
send, recv to xla_megascale_runtime   between slices over the data-centre network, by the hosts
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import nan, prod
from typing import TYPE_CHECKING, Literal, TypeAlias

from ridgeline.hlo.groups import axes_in_mesh, named_mesh, parse_groups
from ridgeline.hlo.module import SPARSE_CORE_THREAD
from ridgeline.hlo.scopes import nearest_scope
from ridgeline.hlo.shape import HOST, ArrayShape, TupleShape, arrays, size_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ridgeline.hlo.calls import CallGraph
    from ridgeline.hlo.module import Computation, HloModule, Instruction
    from ridgeline.hlo.shape import Shape

Engine: TypeAlias = Literal["tensor_core", "sparse_core", "megascale", ""]
"""What carries a transfer out; "" where the text is not of a TPU."""

Direction: TypeAlias = Literal["to_host", "from_host"]

DCN_AXIS = "dcn"
"""What a transfer between slices is along, where the text names no mesh axis."""

_KINDS = {
    f"{kind}{start}": kind.replace("-", "_")
    for kind in (
        "all-gather",
        "all-reduce",
        "reduce-scatter",
        "all-to-all",
        "ragged-all-to-all",
        "collective-permute",
        "collective-broadcast",
    )
    for start in ("", "-start")
}
_RAGGED = "ragged_all_to_all"
_RESULT_IS_WHOLE = {"all-reduce-start"}
"""Starts whose shape is that of the result; that of others is (operands, result, …)."""

_SPARSE_CORE = '"device_type":"DEVICE_TYPE_SPARSECORE"'
_COMPILERS_AXIS = re.compile(r"axis_\d+")
_NO_MESH: Mapping[str, int] = {}
_CHAIN = "chain_id="
_BEGINS_CHAIN = "AsyncCollectiveStart"
_SUMS_AND_KEEPS_A_SHARD = "all-reduce-scatter"
"""Name of a fused computation that XLA:TPU carries out as one reduce-scatter."""

_TRANSFER_TYPE = re.compile(r'_xla_megascale_transfer_type="(\w+)"')
_TARGET = re.compile(r'_xla_megascale_target="?\{+([\d,]+)\}')
_DEVICES_OF_A_SLICE = 100_000
"""Between the numbers of two slices, where the target names devices: 200003 is device 3 of the second slice."""

_PAIR = re.compile(r"\{\s*(\d+)\s*,\s*(\d+)\s*\}")
_COPIES = {"copy", "copy-start", "dynamic-slice", "dynamic-slice-start"}
_UPDATES = {"dynamic-update-slice", "dynamic-update-slice-start"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """One collective of a program, wherever in it.

    Attributes:
        name: Of the instruction.
        kind: `all_gather`, `reduce_scatter`, `send`; between slices, what the runtime is asked for.
        axis: Mesh axes it lies along, joined by `+`; "" where the text names none and no mesh was given.
        num_devices: That take part in one: of each slice one, between slices; NaN for unknown.
        array_bytes: Of the larger of what a device puts in and gets out: the gathered, scattered or summed array; of a
            ragged exchange the smaller, for the larger has room for more.
        count: How often it runs; NaN for unknown.
        is_async: Whether other work can be done between its start and its end.
        engine: What carries it out.
        op_name: The scope that JAX recorded.
        line: In the text.
    """

    name: str
    kind: str
    axis: str
    num_devices: float
    array_bytes: float
    count: float
    is_async: bool
    engine: Engine
    op_name: str
    line: int

    @property
    def total_bytes(self) -> float:
        """Of all its runs."""
        return self.array_bytes * self.count


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTransfer:
    """A copy between the device's memory and its host's.

    Attributes:
        name: Of the instruction.
        direction: Where to.
        array_bytes: Moved each time.
        count: How often it runs; NaN for unknown.
        is_async: Whether other work can be done meanwhile.
        op_name: The scope that JAX recorded.
    """

    name: str
    direction: Direction
    array_bytes: float
    count: float
    is_async: bool
    op_name: str

    @property
    def total_bytes(self) -> float:
        """Of all its runs."""
        return self.array_bytes * self.count


def collectives(graph: CallGraph, *, mesh: Mapping[str, int] | None = None) -> tuple[Collective, ...]:
    """Every collective that runs, in the order of the text.

    Args:
        graph: The program.
        mesh: Degrees by axis, outermost first, to name axes; without it, the mesh that the text names.
    """
    mesh = mesh or _mesh_in_text(graph.module)
    return tuple(
        found
        for computation, count in graph.reached()
        for instruction in computation
        if (found := _collective(graph, computation, instruction, count, mesh)) is not None
    )


def host_transfers(graph: CallGraph) -> tuple[HostTransfer, ...]:
    """Every copy to or from the host that runs, in the order of the text."""
    return tuple(
        HostTransfer(
            name=instruction.name,
            direction=direction,
            array_bytes=moved_bytes,
            count=count,
            is_async=instruction.opcode.endswith("-start") or graph.is_started(computation.name),
            op_name=graph.scope(computation, instruction),
        )
        for computation, count in graph.reached()
        for instruction in computation
        for direction, moved_bytes in _crossings(computation, instruction)
    )


def _collective(
    graph: CallGraph, computation: Computation, instruction: Instruction, count: float, mesh: Mapping[str, int]
) -> Collective | None:
    """The collective that an instruction is; None for any other, and for a receive: its send counts."""
    if instruction.opcode == "send":
        return _send(graph, computation, instruction, count)
    kind = _KINDS.get(instruction.opcode)
    if kind is None:
        return None
    begins_chain = any(_BEGINS_CHAIN in each.attributes.get("custom_call_target", "") for each in computation)
    if _CHAIN in instruction.attributes.get("frontend_attributes", "") and not begins_chain:
        return None  # the fusions that continue and end a chain write its collective again
    axis, num_devices = _group(graph.module, instruction, mesh)
    return Collective(
        name=instruction.name,
        kind="reduce_scatter" if computation.name.startswith(_SUMS_AND_KEEPS_A_SHARD) else kind,
        axis=axis,
        num_devices=num_devices,
        array_bytes=_array_bytes(computation, instruction, kind),
        count=count,
        is_async=instruction.opcode.endswith("-start") or begins_chain or graph.is_started(computation.name),
        engine=_engine(graph.module, computation, instruction),
        op_name=nearest_scope(graph, computation, instruction),
        line=instruction.line,
    )


def _array_bytes(computation: Computation, instruction: Instruction, kind: str) -> float:
    """Of the larger of what goes in and comes out; of a ragged exchange, whose one side is room for more, the smaller.

    What a device sends or gets of it follows from data: of equal shares as much as the side that is full.
    """
    result_bytes = size_bytes(_result(instruction))
    if kind == _RAGGED:
        sent = computation.operand(instruction, 0)
        return nan if sent is None else min(size_bytes(sent.shape), result_bytes)
    return max(sum(size_bytes(each.shape) for each in _operands(computation, instruction)), result_bytes)


def _send(graph: CallGraph, computation: Computation, instruction: Instruction, count: float) -> Collective | None:
    """Between slices by the megascale runtime, or to one other device; None for a transfer to the host itself."""
    attributes = instruction.attributes.get("frontend_attributes", "")
    transfer, target = _TRANSFER_TYPE.search(attributes), _TARGET.search(attributes)
    if transfer is None and instruction.attributes.get("is_host_transfer") == "true":
        return None
    sent = computation.operand(instruction, 0)
    kind = transfer[1].lower() if transfer else "send"
    num_devices = _num_slices(target[1]) if target else nan if transfer else 2
    sent_bytes = size_bytes(sent.shape) if sent is not None else nan
    return Collective(
        name=instruction.name,
        kind=kind,
        axis=DCN_AXIS if transfer else "",
        num_devices=num_devices,
        array_bytes=sent_bytes * num_devices if kind == "all_gather" else sent_bytes,
        count=count,
        is_async=True,
        engine="megascale" if transfer else "",
        op_name=nearest_scope(graph, computation, instruction),
        line=instruction.line,
    )


def _num_slices(target: str) -> int:
    """Slices that take part, from the numbers of slices or of their devices.

    >>> _num_slices("1,2"), _num_slices("100000,100001,200000,200001")
    (2, 2)
    """
    numbers = [int(number) for number in target.split(",")]
    named = [number // _DEVICES_OF_A_SLICE or number for number in numbers]
    return len(set(named))


def _group(module: HloModule, instruction: Instruction, mesh: Mapping[str, int]) -> tuple[str, float]:
    """The axes, joined, and the devices of one group."""
    if "source_target_pairs" in instruction.attributes:
        pairs = _PAIR.findall(instruction.attributes["source_target_pairs"])
        return _permuted_axis([(int(source), int(target)) for source, target in pairs], mesh), 2
    groups = parse_groups(instruction.attributes.get("replica_groups", ""), num_devices=module.num_devices)
    if groups is None:
        return "", nan
    return "+".join(axes_in_mesh(groups, mesh)), groups.num_devices


def _mesh_in_text(module: HloModule) -> Mapping[str, int]:
    """The mesh of all devices that some replica groups name: the user's rather than the compiler's."""
    texts = dict.fromkeys(
        each.attributes.get("replica_groups", "") for one in module.computations.values() for each in one
    )
    meshes = [mesh for text in texts if prod((mesh := named_mesh(text)).values()) == module.num_devices and mesh]
    return min(meshes, key=_is_the_compilers, default=_NO_MESH)


def _is_the_compilers(mesh: Mapping[str, int]) -> bool:
    return all(_COMPILERS_AXIS.fullmatch(name) for name in mesh)


def _permuted_axis(pairs: Iterable[tuple[int, int]], mesh: Mapping[str, int]) -> str:
    """The mesh axes along which sources and targets differ."""
    crossed = {name for pair in pairs for name, one, other in _coordinates(pair, mesh) if one != other}
    return "+".join(name for name in mesh if name in crossed)


def _coordinates(pair: tuple[int, int], mesh: Mapping[str, int]) -> Iterator[tuple[str, int, int]]:
    one, other = pair
    for name, size in reversed(tuple(mesh.items())):
        yield name, one % size, other % size
        one, other = one // size, other // size


def _result(instruction: Instruction) -> Shape:
    shape = instruction.shape
    begins = instruction.opcode.endswith("-start") and instruction.opcode not in _RESULT_IS_WHOLE
    return shape.elements[1] if begins and isinstance(shape, TupleShape) and len(shape.elements) > 1 else shape


def _engine(module: HloModule, computation: Computation, instruction: Instruction) -> Engine:
    if computation.thread == SPARSE_CORE_THREAD or _SPARSE_CORE in instruction.backend_config:
        return "sparse_core"
    tiled = any(array.tile for each in module.entry_computation for array in arrays(each.shape))
    return "tensor_core" if tiled else ""


def _crossings(computation: Computation, instruction: Instruction) -> Iterator[tuple[Direction, float]]:
    """Where the memory spaces of what is read and what is written differ in being the host's."""
    if instruction.opcode in _COPIES:
        source, moved = _array(computation, instruction, 0), _copied(instruction)
        target = moved
    elif instruction.opcode in _UPDATES:
        source, target = _array(computation, instruction, 1), _array(computation, instruction, 0)
        moved = source
    else:
        return
    if source is None or target is None or moved is None:
        return
    if (target.memory_space == HOST) != (source.memory_space == HOST):
        yield ("to_host" if target.memory_space == HOST else "from_host"), moved.size_bytes


def _copied(instruction: Instruction) -> ArrayShape | None:
    """The result of a copy or slice; `copy-start` writes it first, other starts second."""
    shape = instruction.shape
    if isinstance(shape, TupleShape):
        place = 0 if instruction.opcode == "copy-start" else 1
        shape = shape.elements[place] if len(shape.elements) > place else shape
    return shape if isinstance(shape, ArrayShape) else None


def _operands(computation: Computation, instruction: Instruction) -> Iterator[Instruction]:
    return (each for name in instruction.operands if (each := computation.instructions.get(name)) is not None)


def _array(computation: Computation, instruction: Instruction, index: int) -> ArrayShape | None:
    operand = computation.operand(instruction, index)
    return operand.shape if operand is not None and isinstance(operand.shape, ArrayShape) else None
