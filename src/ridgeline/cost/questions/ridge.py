"""How much arithmetic a chip needs per byte: its ridge point, and the batch from which a matmul reaches it."""

from __future__ import annotations

from dataclasses import dataclass
from math import nan
from typing import TYPE_CHECKING

from ridgeline.cost.critical_size import small_batch_critical_rows
from ridgeline.cost.explain import derive
from ridgeline.cost.questions.operation_roofline import bandwidth_of, operation_roofline, peak_of
from ridgeline.cost.roofline import attainable_flops_per_s, ridge_flops_per_byte
from ridgeline.job.operation import MEMORIES, OperationQuestion, Rates

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.cost.explain import Derivation
    from ridgeline.hardware.chip import Chip
    from ridgeline.job.operation import ElementBytes, Memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Ridge:
    """A peak over a bandwidth.

    Attributes:
        computes: What computes: `MXU bf16`, `VPU f32`; "" where the rate is stated.
        memory: Where operands come from.
        peak_flops_per_s: C, dense.
        bytes_per_s: W.
        ridge_flops_per_byte: C/W.
        derivations: Where the numbers come from.
    """

    computes: str
    memory: Memory
    peak_flops_per_s: float
    bytes_per_s: float
    ridge_flops_per_byte: float
    derivations: tuple[Derivation, ...]

    def attainable_flops_per_s(self, intensity_flops_per_byte: float) -> float:
        """The roofline: the rate at an arithmetic intensity."""
        rate = attainable_flops_per_s(
            intensity_flops_per_byte=intensity_flops_per_byte,
            C_flops_per_s=self.peak_flops_per_s,
            W_bytes_per_s=self.bytes_per_s,
        )
        return float(rate)


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticalBatch:
    """The rows from which a matmul is compute-bound.

    Attributes:
        ridge: Of the chip and the memory in which the weights lie.
        rule_size: By the rule for small batches.
        exact_size: The crossover for the sizes that were given, NaN without; infinite where no batch is enough.
        derivations: Where the numbers come from.
    """

    ridge: Ridge
    rule_size: float
    exact_size: float
    derivations: tuple[Derivation, ...]


def ridge_of(rates: Rates, memory: Memory, *, computes: str = "") -> Ridge:
    """The ridge point of one chip and one memory."""
    peak, rate = peak_of(rates), bandwidth_of(rates, memory)
    ridge = derive(ridge_flops_per_byte, C_flops_per_s=peak.value, W_bytes_per_s=rate.value)
    return Ridge(
        computes=computes,
        memory=memory,
        peak_flops_per_s=peak.value,
        bytes_per_s=rate.value,
        ridge_flops_per_byte=ridge.value,
        derivations=(*peak.derivations, *rate.derivations, ridge),
    )


def ridges_of(chip: Chip) -> tuple[Ridge, ...]:
    """Every ridge of a chip that is known: each rate of its matrix and vector units, over each of its memories."""
    vector = chip.vector_flops_per_s
    peaks = {f"MXU {dtype}": peak for dtype, peak in chip.peak_flops_per_s.items() if dtype != "f32"}
    peaks |= {} if vector is None else {"VPU f32": vector}
    known = {"hbm": chip.hbm_bytes_per_s, "vmem": chip.vmem_bytes_per_s, "host": chip.pcie_bytes_per_s}
    rates: Mapping[Memory, float] = {memory: rate for memory in MEMORIES if (rate := known[memory]) is not None}
    return tuple(
        ridge_of(Rates(peak_flops_per_s=peak, memory_bytes_per_s={memory: rate}), memory, computes=computes)
        for computes, peak in peaks.items()
        for memory, rate in rates.items()
    )


def critical_batch_of(
    rates: Rates,
    weights_from: Memory,
    *,
    activations_from: Memory = "hbm",
    element_bytes: ElementBytes,
    sizes: Mapping[str, float],
) -> CriticalBatch:
    """The critical batch of x[B, D] @ W[D, F].

    Args:
        rates: Of one chip.
        weights_from: Where weights lie.
        activations_from: Where the other operand and the output lie.
        element_bytes: Of each array.
        sizes: `D` and `F`; empty where they are left open.
    """
    ridge = ridge_of(rates, weights_from)
    meeting = {"C_flops_per_s": ridge.peak_flops_per_s, "W_bytes_per_s": ridge.bytes_per_s}
    rule = derive(small_batch_critical_rows, b_w=element_bytes.weights, **meeting)
    if not sizes:
        return CriticalBatch(ridge=ridge, rule_size=rule.value, exact_size=nan, derivations=(*ridge.derivations, rule))
    answer = operation_roofline(
        OperationQuestion(
            kind="matmul",
            machine="",
            sizes={"B": 1.0, **sizes},  # a crossover is the same whatever the rows
            element_bytes=element_bytes,
            rates=rates,
            weights_from=weights_from,
            activations_from=activations_from,
        )
    )
    crossovers = [crossover.exact for each in answer.traffic for crossover in each.crossovers]
    return CriticalBatch(
        ridge=ridge,
        rule_size=rule.value,
        exact_size=answer.critical[0].exact_size,
        derivations=(*ridge.derivations, rule, *(step for exact in crossovers for step in exact.derivations)),
    )
