"""What an HLO text says of a program: FLOPs, collectives, memory and the compiler's cycles, loops multiplied out.

What the text does not tell is left out and listed: loops whose trip count cannot be read, kernels whose FLOPs no
rule gives, operations without an estimate of cycles.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, replace
from math import isnan, nan
from typing import TYPE_CHECKING, TypeAlias

from ridgeline.hlo.calls import call_graph
from ridgeline.hlo.collectives import collectives, host_transfers
from ridgeline.hlo.flops import is_matmul, matmul_dtype, matmul_flops
from ridgeline.hlo.memory import entry_memory, largest_buffers
from ridgeline.hlo.module import MAIN_THREAD
from ridgeline.hlo.parts import Place, differentiates, place_of
from ridgeline.hlo.scopes import place_of_operation
from ridgeline.hlo.traffic import hbm_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ridgeline.hlo.calls import CallGraph, Loop
    from ridgeline.hlo.collectives import Collective, HostTransfer
    from ridgeline.hlo.memory import Buffer, EntryMemory
    from ridgeline.hlo.module import Computation, HloModule, Instruction

    KernelRule: TypeAlias = Callable[[Computation, Instruction], float]
    """FLOPs of one run of a custom call."""

NO_ESTIMATE_CYCLES = 2**63 - 1
"""What the compiler writes where it has no estimate."""

DATA_MOVERS = {
    "AllocateBuffer",
    "AssumeGatherIndicesInBound",
    "AsyncCollectiveDone",
    "AsyncCollectiveStart",
    "ConcatBitcast",
    "GatherScatterIndicesBitpacked",
    "MoveToDevice",
    "MoveToHost",
    "PinToDevice",
    "PinToDeviceSram",
    "PinToVmem",
    "Sharding",
    "SliceId",
    "SPMDFullToShardShape",
    "SPMDShardToFullShape",
    "X64Combine",
    "X64SplitHigh",
    "X64SplitLow",
    "ZeroCrop",
    "annotate_device_placement",
}
"""Custom calls of the compiler itself, which compute nothing."""

KERNELS = "kernels"
"""Where a custom call's FLOPs are listed among those of dtypes: its operands do not say how it computes."""

MOST_BUFFERS = 16
MOST_OPERATIONS = 16

_CYCLES = re.compile(r'"estimated_cycles":\s*"?(\d+)')
_TARGET = re.compile(r'"([^"]*)"')
_NUMBERED = re.compile(r"[.\d]+$")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedCollective:
    """Equal collectives of one part and phase.

    Attributes:
        place: Where in the model and the step.
        collective: Any of them, its count that of all.
    """

    place: Place
    collective: Collective


@dataclass(frozen=True, slots=True, kw_only=True)
class PartTotal:
    """What one part does in one phase.

    Attributes:
        place: Part and phase.
        flops: Of its matmuls, and of kernels with a rule; NaN where something is not counted.
        hbm_bytes: Read and written by its operations.
        estimated_cycles: Of its operations that have an estimate; NaN where none has.
    """

    place: Place
    flops: float
    hbm_bytes: float
    estimated_cycles: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation with an estimate.

    Attributes:
        name: Of the instruction.
        opcode: As HLO writes it.
        place: Part and phase.
        count: How often it runs; NaN for unknown.
        estimated_cycles: Of all its runs.
    """

    name: str
    opcode: str
    place: Place
    count: float
    estimated_cycles: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UncountedOperation:
    """An operation that may compute, and whose FLOPs the text and our rules do not give.

    Attributes:
        name: Of the first instruction of its kind.
        target: What it calls, or its opcode.
        place: Part and phase.
        count: Runs of all of its kind; NaN for unknown.
        reason: Why it is not counted.
    """

    name: str
    target: str
    place: Place
    count: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HloSummary:
    """What a text says; all of one device and one run of the program.

    Attributes:
        name: Of the module.
        where: The file.
        num_devices: That run it together.
        num_instructions: In the text.
        is_scheduled: Whether the compiler has put the instructions in order.
        memory: Arguments and results.
        largest: The largest values.
        collectives: Between devices and slices, most bytes first.
        host_transfers: To and from the host.
        flops_by_dtype: Of matmuls and of kernels with a rule, by the dtype of the operands.
        uncounted: What is not in those.
        kernels: Names of the kernels that run, each once.
        parts: By part and phase, in the order of the text.
        heaviest: Operations by estimated cycles, most first.
        estimated_cycles: Sum over the operations that have an estimate; NaN where none has.
        num_without_cycles: Operations for which the compiler says that it has no estimate.
        loops: Every loop.
    """

    name: str
    where: str
    num_devices: int
    num_instructions: int
    is_scheduled: bool
    memory: EntryMemory
    largest: tuple[Buffer, ...]
    collectives: tuple[PlacedCollective, ...]
    host_transfers: tuple[HostTransfer, ...]
    flops_by_dtype: Mapping[str, float]
    uncounted: tuple[UncountedOperation, ...]
    kernels: tuple[str, ...]
    parts: tuple[PartTotal, ...]
    heaviest: tuple[Operation, ...]
    estimated_cycles: float
    num_without_cycles: int
    loops: tuple[Loop, ...]

    @property
    def counted_flops(self) -> float:
        """FLOPs of what can be counted; NaN where a loop's trip count is not known."""
        return sum(self.flops_by_dtype.values())

    @property
    def flops(self) -> float:
        """All FLOPs of matmuls and kernels; NaN where something is not counted."""
        return nan if self.uncounted else self.counted_flops

    @property
    def unknown_trip_counts(self) -> tuple[Loop, ...]:
        """Loops and conditionals that run an unknown number of times."""
        return tuple(loop for loop in self.loops if isnan(loop.trip_count))


def summarise(
    module: HloModule, *, mesh: Mapping[str, int] | None = None, rules: Mapping[str, KernelRule] | None = None
) -> HloSummary:
    """What a module's text says.

    Args:
        module: The program.
        mesh: Degrees by axis, outermost first, to name the axes of collectives where the text does not.
        rules: FLOPs of custom calls, by kernel name or target.
    """
    graph = call_graph(module)
    trains = any(differentiates(each.op_name) for computation in module.computations.values() for each in computation)
    computed = [*_matmuls(graph, trains=trains), *_kernels(graph, rules or {}, trains=trains)]
    uncounted = _uncounted(graph, rules or {}, trains=trains)
    estimates = _estimates(graph, trains=trains)
    return HloSummary(
        name=module.name,
        where=module.where,
        num_devices=module.num_devices,
        num_instructions=module.num_instructions,
        is_scheduled=module.is_scheduled,
        memory=entry_memory(module),
        largest=largest_buffers(graph, most=MOST_BUFFERS),
        collectives=_merged(collectives(graph, mesh=mesh), trains=trains),
        host_transfers=host_transfers(graph),
        flops_by_dtype=_by_dtype(computed),
        uncounted=uncounted,
        kernels=tuple(dict.fromkeys(kernel_name(each) for _, each, _ in _custom_calls(graph))),
        parts=_parts(computed, uncounted, estimates, _traffic(graph, trains=trains)),
        heaviest=tuple(sorted(estimates, key=_by_cycles)[:MOST_OPERATIONS]),
        estimated_cycles=sum(operation.estimated_cycles for operation in estimates) if estimates else nan,
        num_without_cycles=sum(_cycles(each) == NO_ESTIMATE_CYCLES for _, each, _ in _issued(graph)),
        loops=graph.loops,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Computed:
    """FLOPs of all runs of one instruction."""

    place: Place
    dtype: str
    flops: float


def _matmuls(graph: CallGraph, *, trains: bool) -> Iterator[_Computed]:
    """Every matmul that runs."""
    for computation, count in graph.reached():
        for instruction in computation:
            if is_matmul(instruction):
                yield _Computed(
                    place=place_of_operation(graph, computation, instruction, trains=trains),
                    dtype=matmul_dtype(computation, instruction),
                    flops=count * matmul_flops(computation, instruction),
                )


def _kernels(graph: CallGraph, rules: Mapping[str, KernelRule], *, trains: bool) -> Iterator[_Computed]:
    """Every custom call that a rule counts."""
    for computation, instruction, count in _custom_calls(graph):
        if (rule := _rule(rules, instruction)) is not None:
            place = place_of_operation(graph, computation, instruction, trains=trains)
            yield _Computed(place=place, dtype=KERNELS, flops=count * rule(computation, instruction))


def _uncounted(graph: CallGraph, rules: Mapping[str, KernelRule], *, trains: bool) -> tuple[UncountedOperation, ...]:
    """The custom calls that no rule counts, those alike as one."""
    found: dict[tuple[str, str, Place], UncountedOperation] = {}
    for computation, instruction, count in _custom_calls(graph):
        target, place = _target(instruction), place_of_operation(graph, computation, instruction, trains=trains)
        if _rule(rules, instruction) is not None:
            continue
        key = (target, kernel_name(instruction), place)
        kin = found.get(key) or UncountedOperation(
            name=instruction.name, target=target, place=place, count=0.0, reason="no rule"
        )
        found[key] = replace(kin, count=kin.count + count)
    return tuple(found.values())


def _custom_calls(graph: CallGraph) -> Iterator[tuple[Computation, Instruction, float]]:
    """What runs and may compute, without being a matmul that HLO knows."""
    return (
        (computation, instruction, count)
        for computation, count in graph.reached()
        for instruction in computation
        if (target := _target(instruction)) and target not in DATA_MOVERS and not is_matmul(instruction)
    )


def kernel_name(instruction: Instruction) -> str:
    """The name that a Pallas kernel was given: HLO numbers it.

    >>> from ridgeline.hlo.shape import parse_shape
    >>> from ridgeline.hlo.module import Instruction
    >>> kernel_name(
    ...     Instruction(name="splash_mha_fwd_residuals.12", shape=parse_shape("f32[]"), opcode="custom-call")
    ... )
    'splash_mha_fwd_residuals'
    """
    return _NUMBERED.sub("", instruction.name)


def _rule(rules: Mapping[str, KernelRule], instruction: Instruction) -> KernelRule | None:
    return rules.get(kernel_name(instruction)) or rules.get(_target(instruction))


def _target(instruction: Instruction) -> str:
    """What a custom call runs, or an opcode whose FLOPs depend on data; "" for any other instruction."""
    if instruction.opcode == "ragged-dot":
        return instruction.opcode
    if instruction.opcode != "custom-call":
        return ""
    target = _TARGET.match(instruction.attributes.get("custom_call_target", ""))
    return target[1] if target else instruction.opcode


def _issued(graph: CallGraph) -> Iterator[tuple[Computation, Instruction, float]]:
    """The instructions that the TensorCore is given one by one, each with how often."""
    return (
        (computation, instruction, count)
        for computation, count in graph.reached()
        if computation.thread == MAIN_THREAD and not graph.is_fused(computation.name)
        for instruction in computation
    )


def _estimates(graph: CallGraph, *, trains: bool) -> list[Operation]:
    return [
        Operation(
            name=instruction.name,
            opcode=instruction.opcode,
            place=place_of_operation(graph, computation, instruction, trains=trains),
            count=count,
            estimated_cycles=count * cycles,
        )
        for computation, instruction, count in _issued(graph)
        if (cycles := _cycles(instruction)) is not None and cycles != NO_ESTIMATE_CYCLES
    ]


def _cycles(instruction: Instruction) -> int | None:
    found = _CYCLES.search(instruction.backend_config)
    return int(found[1]) if found else None


def _by_cycles(operation: Operation) -> tuple[bool, float]:
    """Most first; those of unknown count before all, because they may be any number."""
    return not isnan(operation.estimated_cycles), -operation.estimated_cycles


def _by_dtype(computed: Iterable[_Computed]) -> dict[str, float]:
    totals: defaultdict[str, float] = defaultdict(float)
    for each in computed:
        totals[each.dtype] += each.flops
    return dict(totals)


def _traffic(graph: CallGraph, *, trains: bool) -> Mapping[Place, float]:
    """Bytes of HBM that each part reads and writes, those beside the TensorCore's own work too."""
    totals: defaultdict[Place, float] = defaultdict(float)
    for computation, count in graph.reached():
        if not graph.is_fused(computation.name):
            for instruction in computation:
                if moved_bytes := hbm_bytes(graph, computation, instruction):
                    place = place_of_operation(graph, computation, instruction, trains=trains)
                    totals[place] += count * moved_bytes
    return totals


def _parts(
    computed: Iterable[_Computed],
    uncounted: Iterable[UncountedOperation],
    estimates: Iterable[Operation],
    traffic: Mapping[Place, float],
) -> tuple[PartTotal, ...]:
    flops: defaultdict[Place, float] = defaultdict(float)
    cycles: defaultdict[Place, float] = defaultdict(float)
    for each in computed:
        flops[each.place] += each.flops
    for operation in uncounted:
        flops[operation.place] = nan
    for operation in estimates:
        cycles[operation.place] += operation.estimated_cycles
    return tuple(
        PartTotal(
            place=place,
            flops=flops.get(place, 0.0),
            hbm_bytes=traffic.get(place, 0.0),
            estimated_cycles=cycles.get(place, nan),
        )
        for place in dict.fromkeys([*flops, *cycles, *traffic])
    )


def _merged(found: Iterable[Collective], *, trains: bool) -> tuple[PlacedCollective, ...]:
    """Collectives alike in all that matters as one, most bytes first."""
    totals: defaultdict[tuple[object, ...], float] = defaultdict(float)
    first: dict[tuple[object, ...], PlacedCollective] = {}
    for each in found:
        place = place_of(each.op_name, trains=trains)
        key = (each.kind, each.axis, each.num_devices, each.array_bytes, each.is_async, each.engine, place)
        first.setdefault(key, PlacedCollective(place=place, collective=each))
        totals[key] += each.count
    merged = [replace(one, collective=replace(one.collective, count=totals[key])) for key, one in first.items()]
    return tuple(sorted(merged, key=lambda one: _bytes_first(one.collective)))


def _bytes_first(collective: Collective) -> tuple[bool, float]:
    return not isnan(collective.total_bytes), -collective.total_bytes
