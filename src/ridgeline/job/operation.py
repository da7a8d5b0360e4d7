"""The question about one operation alone: how large, how precise, from which memory, at which rates.

Sizes go by the letters of the book *How To Scale Your Model* (docs/nomenclature.md). Rates are those of one chip.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.hardware.slice import Slice
    from ridgeline.job.transfer import Axis

OperationKind: TypeAlias = Literal[
    "matmul", "batched_matmul", "expert_matmul", "attention", "elementwise", "embedding", "dot", "work"
]
"""`work` is anything: so many FLOPs and so many bytes."""

Memory: TypeAlias = Literal["hbm", "vmem", "host"]
"""Where an array lies: the chip's memory, its vector memory, or the host's, behind PCIe."""

MEMORIES: tuple[Memory, ...] = get_args(Memory)

SIZES: Mapping[OperationKind, tuple[str, ...]] = {
    "matmul": ("B", "D", "F"),
    "batched_matmul": ("B", "T", "D", "F"),
    "expert_matmul": ("B", "E", "k", "D", "F"),
    "attention": ("B", "T", "S", "N", "K", "H"),
    "elementwise": ("B", "D"),
    "embedding": ("B", "D"),
    "dot": ("D",),
    "work": (),
}
"""The sizes of each operation, in the order of its shapes."""

SHAPES: Mapping[OperationKind, str] = {
    "matmul": "[B, D] @ [D, F]",
    "batched_matmul": "[B, T, D] @ [B, D, F]",
    "expert_matmul": "[k·B, D] @ [E, D, F]",
    "attention": "[B, T, N, H] over keys and values [B, S, K, H]",
    "elementwise": "[B, D]",
    "embedding": "[B] → [B, D]",
    "dot": "[D] · [D]",
    "work": "",
}
"""What each operation does, in its sizes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementBytes:
    """Bytes of one element.

    Attributes:
        weights: Of a weight; in attention of a key or value.
        activations: Of the other operand.
        outputs: Of the result, as it is stored.
    """

    weights: float
    activations: float
    outputs: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What one chip can do at best.

    Attributes:
        peak_flops_per_s: Of the unit the operation runs on; NaN when not known.
        memory_bytes_per_s: By memory, those that the operation reads or writes.
        sparsity_factor: What the peak is to be divided by: 2 for a peak quoted with structured sparsity.
        vmem_over_hbm: The rate of vector memory over that of HBM; None where it is known by itself.
        vmem_bytes: What vector memory holds; None where it is not known.
    """

    peak_flops_per_s: float
    memory_bytes_per_s: Mapping[Memory, float]
    sparsity_factor: float = 1.0
    vmem_over_hbm: float | None = None
    vmem_bytes: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A contraction split over chips, which then sum their partial results.

    Attributes:
        num_chips: That share it.
        axes: Of the slice, over which they lie; of a size each where there is no slice.
        hardware: The slice; None where the rate of a link is given.
        link_bytes_per_s: Of one link, one way, in place of the catalogue's; None for that.
        scatter: Whether each chip keeps only its share of the sum (a reduce-scatter).
    """

    num_chips: int
    axes: tuple[Axis, ...]
    hardware: Slice | None
    link_bytes_per_s: float | None = None
    scatter: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """One size over a range.

    Attributes:
        letter: Which size.
        sizes: Its values, ascending.
    """

    letter: str
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationQuestion:
    """One operation on one chip, or split over several.

    Attributes:
        kind: What it computes.
        machine: The chip or slice, or "the given rates".
        sizes: By letter, of the whole operation; for `elementwise` also `reads` and `writes` (arrays) and
            `flops_per_element`; for `work` only `flops` and `bytes`.
        element_bytes: Bytes of the elements of each array.
        rates: Of one chip.
        weights_from: Where the weights lie (in attention: keys and values).
        activations_from: Where the other operand and the output lie.
        split: How the contraction is split; None on one chip.
        sweep: A size to vary; None when not asked.
        mxu_shape: Rows and columns of the matrix unit it runs on; None for any other, or an unknown one.
        notes: What was taken for granted.
    """

    kind: OperationKind
    machine: str
    sizes: Mapping[str, float]
    element_bytes: ElementBytes
    rates: Rates
    weights_from: Memory = "hbm"
    activations_from: Memory = "hbm"
    split: Split | None = None
    sweep: Sweep | None = None
    mxu_shape: tuple[int, int] | None = None
    notes: tuple[str, ...] = ()
