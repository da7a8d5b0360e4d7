"""Is one operation bound by compute, by memory or by links, and from which size on.

Every resource has a time: what the operation asks of it, over its published peak. The slowest is the least that the
operation can take, their sum the most. Numbers are those of one chip; where the contraction is split, of one of the
chips that share it.
"""

from __future__ import annotations

from dataclasses import replace
from math import isnan, nan
from typing import TYPE_CHECKING

from ridgeline.cost.critical_size import critical_contraction_size
from ridgeline.cost.explain import derive
from ridgeline.cost.questions.chip_inside import dense_flops_per_s, padded_size, vmem_bytes_per_s, wasted_fraction
from ridgeline.cost.questions.collective_question import collective
from ridgeline.cost.questions.operation_demand import (
    Balance,
    Crossover,
    Figure,
    crossovers_of,
    exact_flops_of,
    flops_of,
    small_batch_intensity_of,
    traffic_of,
)
from ridgeline.cost.questions.roofline_answer import CriticalSize, OperationRoofline, SweptSize, Traffic
from ridgeline.cost.roofline import (
    compute_s,
    intensity_flops_per_byte,
    overlapped_s,
    ridge_flops_per_byte,
    summed_s,
    transfer_s,
)
from ridgeline.cost.single_operation import routed_rows
from ridgeline.job.operation import ElementBytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ridgeline.cost.questions.collective_answer import CollectiveAnswer
    from ridgeline.cost.questions.roofline_answer import Bound
    from ridgeline.job.operation import Memory, OperationKind, OperationQuestion, Rates, Split
    from ridgeline.job.transfer import Wires


def operation_roofline(question: OperationQuestion) -> OperationRoofline:
    """What bounds an operation.

    >>> from ridgeline.job.operation import ElementBytes, OperationQuestion, Rates
    >>> int8 = ElementBytes(weights=1.0, activations=1.0, outputs=1.0)
    >>> v5e = Rates(peak_flops_per_s=394e12, memory_bytes_per_s={"hbm": 810e9})
    >>> sizes = {"B": 64, "D": 4096, "F": 16384}
    >>> answer = operation_roofline(
    ...     OperationQuestion(kind="matmul", machine="v5e", sizes=sizes, element_bytes=int8, rates=v5e)
    ... )
    >>> answer.bound, round(answer.critical[0].rule_size), round(answer.critical[0].exact_size)
    ('hbm', 243, 263)
    """
    peak = peak_of(question.rates)
    sizes = _local_sizes(question)
    flops = flops_of(question.kind, sizes)
    few_rows = small_batch_intensity_of(question.kind, sizes, question.element_bytes)
    arithmetic = derive(compute_s, flops=flops.value, C_flops_per_s=peak.value)
    traffic = [
        each
        for memory in dict.fromkeys((question.weights_from, question.activations_from))
        if (each := _memory(question, memory, sizes, flops=flops.value, peak_flops_per_s=peak.value)) is not None
    ]
    if question.split is not None:
        traffic.append(_link(question, question.split, flops=flops.value, peak_flops_per_s=peak.value))
    times_s = {"T_math": arithmetic.value} | {_time_of(each): each.transfer_s for each in traffic}
    known_s = {name: time_s for name, time_s in times_s.items() if not isnan(time_s)}
    least, most = derive(overlapped_s, **known_s), derive(summed_s, **times_s)
    return OperationRoofline(
        question=question,
        num_chips=1 if question.split is None else question.split.num_chips,
        flops=flops.value,
        exact_flops=exact_flops_of(question.kind, sizes).value,
        read_bytes=_moved(question, sizes, outputs=False),
        written_bytes=_moved(question, sizes, outputs=True),
        small_batch_intensity_flops_per_byte=few_rows.value,
        peak_flops_per_s=peak.value,
        compute_s=arithmetic.value,
        traffic=tuple(traffic),
        lower_s=least.value,
        upper_s=most.value,
        bound=_bound(arithmetic.value, traffic),
        critical=tuple(_critical(traffic)),
        sweep=tuple(_swept(question)),
        notes=(*question.notes, *_notes(question, sizes, traffic)),
        derivations=(
            *peak.derivations,
            *flops.derivations,
            *few_rows.derivations,
            arithmetic,
            *(step for each in traffic for step in each.derivations),
            least,
            most,
        ),
    )


def peak_of(rates: Rates) -> Figure:
    """FLOPs a second of the unit that computes, dense."""
    if rates.sparsity_factor == 1:
        return Figure(value=rates.peak_flops_per_s)
    dense = derive(dense_flops_per_s, C_flops_per_s=rates.peak_flops_per_s, sparsity_factor=rates.sparsity_factor)
    return Figure(value=dense.value, derivations=(dense,))


def bandwidth_of(rates: Rates, memory: Memory) -> Figure:
    """Bytes a second of a memory."""
    stated_bytes_per_s = rates.memory_bytes_per_s[memory]
    if memory != "vmem" or rates.vmem_over_hbm is None:
        return Figure(value=stated_bytes_per_s)
    rate = derive(vmem_bytes_per_s, W_bytes_per_s=stated_bytes_per_s, vmem_over_hbm_ratio=rates.vmem_over_hbm)
    return Figure(value=rate.value, derivations=(rate,))


def _memory(
    question: OperationQuestion, memory: Memory, sizes: Mapping[str, float], *, flops: float, peak_flops_per_s: float
) -> Traffic | None:
    """What an operation asks of one memory; None where none of its arrays lies there."""
    element_bytes = _elements_in(question, memory)
    moved = traffic_of(question.kind, sizes, element_bytes)
    if not moved.value:
        return None
    rate = bandwidth_of(question.rates, memory)
    transfer = derive(transfer_s, traffic_bytes=moved.value, W_bytes_per_s=rate.value)
    intensity = derive(intensity_flops_per_byte, flops=flops, traffic_bytes=moved.value)
    ridge = derive(ridge_flops_per_byte, C_flops_per_s=peak_flops_per_s, W_bytes_per_s=rate.value)
    balance = Balance(
        element_bytes=element_bytes,
        peak_flops_per_s=peak_flops_per_s,
        bytes_per_s=rate.value,
        intensity_flops_per_byte=intensity.value,
        ridge_flops_per_byte=ridge.value,
    )
    crossovers = tuple(crossovers_of(question.kind, sizes, balance))
    worked = (figure for each in crossovers for figure in (each.rule, each.exact) if figure is not None)
    return Traffic(
        resource=memory,
        traffic_bytes=moved.value,
        bytes_per_s=rate.value,
        transfer_s=transfer.value,
        intensity_flops_per_byte=intensity.value,
        ridge_flops_per_byte=ridge.value,
        crossovers=crossovers,
        derivations=(
            *(*moved.derivations, *rate.derivations, transfer, intensity, ridge),
            *(step for figure in worked for step in figure.derivations),
        ),
    )


def _moved(question: OperationQuestion, sizes: Mapping[str, float], *, outputs: bool) -> float:
    """Bytes of the outputs alone, or of everything else, wherever they lie."""
    if question.kind == "work":
        return nan
    every = question.element_bytes
    written = ElementBytes(weights=0.0, activations=0.0, outputs=every.outputs)
    return traffic_of(question.kind, sizes, written if outputs else replace(every, outputs=0.0)).value


def _elements_in(question: OperationQuestion, memory: Memory) -> ElementBytes:
    """Bytes of the elements of those arrays that lie in a memory, zero for the others."""
    element_bytes = question.element_bytes
    streams = question.activations_from == memory
    return ElementBytes(
        weights=element_bytes.weights if question.weights_from == memory else 0.0,
        activations=element_bytes.activations if streams else 0.0,
        outputs=element_bytes.outputs if streams else 0.0,
    )


def _local_sizes(question: OperationQuestion) -> Mapping[str, float]:
    """The sizes that one chip computes: its share of the contraction."""
    if question.split is None:
        return question.sizes
    return {**question.sizes, "D": question.sizes["D"] / question.split.num_chips}


def _output_rows(kind: OperationKind, sizes: Mapping[str, float]) -> float:
    """Rows of the result of a product, each F wide; of experts, those of every expert, before they are combined."""
    match kind:
        case "batched_matmul":
            return sizes["B"] * sizes["T"]
        case "expert_matmul":
            return float(routed_rows(B=sizes["B"], k=sizes["k"]))
        case _:
            return sizes["B"]


def _exchange(question: OperationQuestion, split: Split) -> CollectiveAnswer:
    """The sum of partial results; devices of one chip that do not share the contraction split the output."""
    sizes, hardware = question.sizes, split.hardware
    shares_chip = hardware is None or any(axis.name == "core" for axis in split.axes)
    outputs = 1 if hardware is None or shares_chip else hardware.chip.devices_per_chip
    stated: Wires = {}
    if split.link_bytes_per_s is not None:
        stated["link_bytes_per_s"] = split.link_bytes_per_s
    if hardware is None and split.num_chips == 2:
        stated["wiring"] = "line"  # two chips have one link, not a ring of two
    return collective(
        "reduce_scatter" if split.scatter else "all_reduce",
        size_bytes=question.element_bytes.outputs * _output_rows(question.kind, sizes) * sizes["F"] / outputs,
        axes=split.axes,
        hardware=hardware,
        **stated,
    )


def _link(question: OperationQuestion, split: Split, *, flops: float, peak_flops_per_s: float) -> Traffic:
    """The exchange, on the kind of wire that sets its pace, in bytes over the busiest link."""
    answer = _exchange(question, split)
    stage = max(answer.stages, key=lambda stage: stage.bandwidth_s)
    link_bytes = stage.bandwidth_s * stage.bytes_per_s
    intensity = derive(intensity_flops_per_byte, flops=flops, traffic_bytes=link_bytes)
    ridge = derive(ridge_flops_per_byte, C_flops_per_s=peak_flops_per_s, W_bytes_per_s=stage.bytes_per_s)
    exact, rule = (
        derive(
            critical_contraction_size,
            N=split.num_chips,
            B=_output_rows(question.kind, question.sizes),
            F=question.sizes["F"],
            exchange_s=exchange_s,
            C_flops_per_s=peak_flops_per_s,
        )
        for exchange_s in (answer.bandwidth_s, answer.approximate_bandwidth_s)
    )
    crossover = Crossover(
        letter="D",
        exact=Figure(value=exact.value, derivations=(exact,)),
        rule=Figure(value=rule.value, derivations=(rule,)),
    )
    return Traffic(
        resource="link",
        traffic_bytes=link_bytes,
        bytes_per_s=stage.bytes_per_s,
        transfer_s=answer.time_s,
        intensity_flops_per_byte=intensity.value,
        ridge_flops_per_byte=ridge.value,
        crossovers=(crossover,),
        derivations=(*answer.derivations, intensity, ridge, exact),
    )


def _time_of(traffic: Traffic) -> str:
    """The book's name of a time: T_comms, with the memory or link where it is not HBM."""
    return "T_comms" if traffic.resource == "hbm" else f"T_{traffic.resource}"


def _bound(arithmetic_s: float, traffic: Sequence[Traffic]) -> Bound:
    """The slowest resource; arithmetic where it takes exactly as long."""
    if isnan(arithmetic_s):
        return "unknown"
    slowest = max(traffic, key=lambda each: each.transfer_s, default=None)
    return "compute" if slowest is None or slowest.transfer_s <= arithmetic_s else slowest.resource


def _critical(traffic: Sequence[Traffic]) -> Iterator[CriticalSize]:
    """For each size the largest crossover: from there on, no memory and no link binds."""
    every = [(each, crossover) for each in traffic for crossover in each.crossovers]
    for letter in dict.fromkeys(crossover.letter for _, crossover in every):
        of_letter = [pair for pair in every if pair[1].letter == letter]
        slowest, last = max(of_letter, key=lambda pair: pair[1].exact.value)
        yield CriticalSize(
            letter=letter,
            exact_size=last.exact.value,
            rule_size=nan if last.rule is None else last.rule.value,
            resource=slowest.resource,
        )


def _notes(question: OperationQuestion, sizes: Mapping[str, float], traffic: Sequence[Traffic]) -> Iterator[str]:
    """What the numbers do not say."""
    vmem_bytes = question.rates.vmem_bytes
    for each in traffic:
        if each.resource == "vmem" and vmem_bytes is not None and each.traffic_bytes > vmem_bytes:
            yield "What is to lie in vector memory is larger than it: it would have to stream through, from HBM."
    if question.kind == "attention" and sizes["T"] > 1:
        yield "Every query sees every key; a causal kernel that skips masked blocks does down to half of the FLOPs."
    if question.mxu_shape is not None and {"D", "F"} <= sizes.keys():
        D, F = (
            padded_size(size=sizes[letter], tile_size=side)
            for letter, side in zip("DF", question.mxu_shape, strict=True)
        )
        wasted = wasted_fraction(size=sizes["D"] * sizes["F"], whole_size=D * F)
        if wasted:
            yield f"The matrix unit pads D x F to {D:.0f} x {F:.0f}: {wasted:.1%} of its work is for nothing."


def _swept(question: OperationQuestion) -> Iterator[SweptSize]:
    if question.sweep is None:
        return
    for size in question.sweep.sizes:
        there = operation_roofline(replace(question, sizes={**question.sizes, question.sweep.letter: size}, sweep=None))
        yield SweptSize(
            size=size,
            intensity_flops_per_byte=there.intensity_flops_per_byte,
            lower_s=there.lower_s,
            attained_flops_per_s=there.attained_flops_per_s,
            bound=there.bound,
        )
