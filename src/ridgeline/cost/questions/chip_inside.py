"""What is inside a TPU chip: how fast its units are, and how its tiles pad arrays.

The formulas of a unit share names, so that `MATRIX_UNIT` and `VECTOR_UNIT` give everything that follows from what is
known of one (`deduce.deduce`).
"""

from __future__ import annotations

from math import ceil, log2

from ridgeline.cost.laws.deduce import system


def num_alus(*, num_rows: float, num_columns: float) -> float:
    """Multiply-add units of one systolic array.

    Formula: num_rows·num_columns

    Source: Scaling Book, ch. 2, appendix B.

    >>> num_alus(num_rows=128, num_columns=128)
    16384
    """
    return num_rows * num_columns


def cycle_flops(*, num_alus: float) -> float:
    """FLOPs of one systolic array in one cycle.

    Formula: 2·num_alus

    Source: Scaling Book, ch. 2, appendix B: a multiply and an add of each.

    >>> cycle_flops(num_alus=16384)
    32768
    """
    return 2 * num_alus


def unit_flops_per_s(
    *,
    num_rows: float,
    num_columns: float,
    clock_cycles_per_s: float,
    block_rows: float = 8,
    block_cycles: float = 8,
) -> float:
    """FLOPs a second of one systolic array, which multiplies a block of rows by its weights in so many cycles.

    Formula: C = 2·block_rows·num_rows·num_columns/block_cycles · clock_cycles_per_s

    Source: Scaling Book, ch. 2: bf16[8, 128] @ bf16[128, 128] every 8 cycles.

    >>> unit_flops_per_s(num_rows=128, num_columns=128, clock_cycles_per_s=1.5e9)  # v5e
    49152000000000.0
    """
    return 2 * block_rows * num_rows * num_columns / block_cycles * clock_cycles_per_s


def shared_flops_per_s(*, chip_flops_per_s: float, num_units: float) -> float:
    """FLOPs a second of one unit, from those of the chip.

    Formula: C = chip/num_units

    Source: Scaling Book, ch. 2.

    >>> shared_flops_per_s(chip_flops_per_s=8.0, num_units=4)
    2.0
    """
    return chip_flops_per_s / num_units


def chip_flops_per_s(*, unit_flops_per_s: float, num_units: float) -> float:
    """FLOPs a second of all units of a kind.

    Formula: C = unit·num_units

    Source: Scaling Book, ch. 2.

    >>> chip_flops_per_s(unit_flops_per_s=49152e9, num_units=4)
    196608000000000.0
    """
    return unit_flops_per_s * num_units


def multiply_adds_count_per_s(*, chip_flops_per_s: float) -> float:
    """Multiply-adds a second: each is two FLOPs.

    Formula: chip / 2

    Source: Scaling Book, ch. 4: a multiply and an add are counted apart.

    >>> multiply_adds_count_per_s(chip_flops_per_s=10.0)
    5.0
    """
    return chip_flops_per_s / 2


def implied_clock_cycles_per_s(*, chip_flops_per_s: float, num_units: float, num_alus: float) -> float:
    """The clock at which so many matrix units would reach a chip's rate.

    Formula: chip / (2·num_units·num_alus)

    Assumes: a multiply and an add of each ALU in each cycle.

    Source: Scaling Book, ch. 2, appendix B.

    >>> round(implied_clock_cycles_per_s(chip_flops_per_s=275e12, num_units=8, num_alus=16384) / 1e6)  # v4, in MHz
    1049
    """
    return chip_flops_per_s / (2 * num_units * num_alus)


def gain_ratio(*, num_alus: float, num_other_rows: float, num_other_columns: float) -> float:
    """FLOPs a cycle of another systolic array over those of this one.

    Formula: num_other_rows·num_other_columns / num_alus

    Source: Scaling Book, ch. 2, appendix B.

    >>> gain_ratio(num_alus=16384, num_other_rows=256, num_other_columns=256)
    4.0
    """
    return num_other_rows * num_other_columns / num_alus


def filling_width(*, num_columns: float, num_core_units: float) -> float:
    """Width of a matrix from which every matrix unit of a core has a tile.

    Formula: num_columns·num_core_units

    Source: Scaling Book, ch. 2, appendix B.

    >>> filling_width(num_columns=128, num_core_units=4)
    512
    """
    return num_columns * num_core_units


MATRIX_UNIT = system(
    num_alus,
    cycle_flops,
    unit_flops_per_s,
    chip_flops_per_s,
    multiply_adds_count_per_s,
    implied_clock_cycles_per_s,
    gain_ratio,
    filling_width,
    unit_flops_per_s=shared_flops_per_s,
)
"""A chip's systolic arrays. A bf16 operand is meant; narrower ones are faster where the catalogue has a rate."""


def num_adders(*, num_sublanes: float, num_lanes: float, num_alus_per_lane: float) -> float:
    """Arithmetic units of one vector unit.

    Formula: num_sublanes·num_lanes·num_alus_per_lane

    Source: Scaling Book, ch. 2, appendix C.

    >>> num_adders(num_sublanes=8, num_lanes=128, num_alus_per_lane=2)  # v4
    2048
    """
    return num_sublanes * num_lanes * num_alus_per_lane


def vector_flops_per_s(*, num_adders: float, clock_cycles_per_s: float, num_cores: float = 1) -> float:
    """f32 FLOPs a second of the vector units of a chip, one operation of each ALU a cycle.

    Formula: C = num_adders·clock_cycles_per_s·num_cores

    Source: Scaling Book, ch. 2, appendix C.

    >>> vector_flops_per_s(num_adders=4096, clock_cycles_per_s=1.5e9)  # v5e
    6144000000000.0
    """
    return num_adders * clock_cycles_per_s * num_cores


def register_elements(*, num_sublanes: float, num_lanes: float) -> float:
    """f32 elements of one vector register.

    Formula: num_sublanes·num_lanes

    Source: Scaling Book, ch. 2, appendix C.

    >>> register_elements(num_sublanes=8, num_lanes=128)
    1024
    """
    return num_sublanes * num_lanes


def register_bytes(*, register_elements: float, element_bytes: float = 4) -> float:
    """Bytes of one vector register.

    Formula: register_elements·element_bytes

    Source: Scaling Book, ch. 2, appendix C.

    >>> register_bytes(register_elements=1024)
    4096
    """
    return register_elements * element_bytes


def registers_bytes(*, num_registers: float, register_bytes: float) -> float:
    """Bytes that the vector registers of a core hold.

    Formula: num_registers·register_bytes

    Source: Scaling Book, ch. 2, appendix C.

    >>> registers_bytes(num_registers=32, register_bytes=4096)  # v4
    131072
    """
    return num_registers * register_bytes


VECTOR_UNIT = system(num_adders, vector_flops_per_s, register_elements, register_bytes, registers_bytes)
"""A chip's vector units and their registers."""


def dense_flops_per_s(*, C_flops_per_s: float, sparsity_factor: float) -> float:
    """The dense rate behind a peak that is quoted with structured sparsity.

    Formula: C / sparsity_factor

    Source: Scaling Book, ch. 1, question 5: spec sheets of GPUs quote twice the dense rate.

    >>> dense_flops_per_s(C_flops_per_s=1979e12, sparsity_factor=2)
    989500000000000.0
    """
    return C_flops_per_s / sparsity_factor


def vmem_bytes_per_s(*, W_bytes_per_s: float, vmem_over_hbm_ratio: float) -> float:
    """Bandwidth of vector memory, from that of HBM.

    Formula: W · vmem_over_hbm_ratio

    Source: Scaling Book, ch. 2: around 22 times.

    >>> vmem_bytes_per_s(W_bytes_per_s=810e9, vmem_over_hbm_ratio=22)
    17820000000000.0
    """
    return W_bytes_per_s * vmem_over_hbm_ratio


def memory_tile_rows(*, size: float, num_sublanes: float, packing_factor: float) -> float:
    """Rows of the tile in which an array of so many rows lies in memory; narrow elements pack several to a sublane.

    Formula: min(num_sublanes, max(packing_factor, 2^⌈log₂ size⌉))

    Source: XLA for TPU (libtpu 0.0.42.1): layouts of inputs of 1 to 4,100 rows, compiled for v5e and TPU7x.

    >>> [memory_tile_rows(size=size, num_sublanes=8, packing_factor=2) for size in (1, 3, 100)]  # bf16
    [2, 4, 8]
    """
    return min(num_sublanes, max(packing_factor, 2 ** ceil(log2(size))))


def register_tile_rows(*, num_sublanes: float, packing_factor: float) -> float:
    """Rows of an array that a vector register holds.

    Formula: num_sublanes·packing_factor

    Source: Scaling Book, ch. 2, appendix C; narrow elements pack several to a sublane.

    >>> register_tile_rows(num_sublanes=8, packing_factor=2)  # bf16
    16
    """
    return num_sublanes * packing_factor


def padded_size(*, size: float, tile_size: float) -> float:
    """A dimension as tiles cover it.

    Formula: ⌈size/tile_size⌉·tile_size

    Source: Scaling Book, ch. 2.

    >>> padded_size(size=300, tile_size=128)
    384
    """
    return ceil(size / tile_size) * tile_size


def wasted_fraction(*, size: float, whole_size: float) -> float:
    """The part of padded memory, or of the work on it, that is for nothing.

    Formula: 1 − size/whole_size

    Source: Scaling Book, ch. 2.

    >>> wasted_fraction(size=96, whole_size=128)
    0.25
    """
    return 1 - size / whole_size
