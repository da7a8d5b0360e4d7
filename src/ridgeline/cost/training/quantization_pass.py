"""What a low-precision recipe moves and computes beside its products: formulas; `conversion.py` applies them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.cost.work import Number
    from ridgeline.hardware.chip import Chip
    from ridgeline.job.job import Quantization

NARROW_BYTES: Final[Mapping[str, float]] = {"fp8": 1.0, "int8": 1.0, "fp4": 0.5}
"""Bytes of one narrowed element by kind of recipe, without its part of a scale."""

COPIES: Final = 2
"""An operand is narrowed along rows and along columns: its product and its gradient contract different dimensions.
Source: Transformer Engine user guide, FP8 and MXFP8: Hopper's fp8 products need a transposed copy, and blocks of scales
run along the contracted dimension."""


SUB_CHANNEL_SIZE: Final = 128
"""Elements of a contracted dimension that share a scale. A job does not say; DeepSeek-V3's report (arXiv:2412.19437,
section 3.3) and qwix's own threshold (`MIN_TILE_SIZE_TO_DEQUANT_ON_OUTPUT`) are 128."""

SCALE_BYTES: Final = 4.0
"""Of one scale: f32."""

BLOCK_OPERATIONS: Final = 3.0
"""On each partial sum of a block: times the scale of one operand, times that of the other, added."""


def narrowing_bytes(*, b_a: float, narrow_bytes: float, num_looks: int, num_copies: int = COPIES) -> float:
    """Traffic of narrowing one element: read, once more to find a scale that all of a tensor shares, and written.

    Formula: b_a · (1 + num_looks) + num_copies · narrow_bytes

    Source: derived from Transformer Engine's recipes.

    >>> narrowing_bytes(b_a=2.0, narrow_bytes=1.0, num_looks=1), narrowing_bytes(b_a=2.0, narrow_bytes=1.0, num_looks=0)
    (6.0, 4.0)
    """
    return b_a * (1 + num_looks) + num_copies * narrow_bytes


def num_copies(recipe: Quantization, *, chip: Chip, trains: bool) -> int:
    """Narrowed copies of an operand: two, but one where a scale is a tensor's and products read operands either way.

    The second copy, along columns, is for the weight's gradient; of a frozen weight there is none.

    Source: Transformer Engine, transformer_engine/pytorch/tensor/float8_tensor.py and utils.py
    (`is_non_tn_fp8_gemm_supported`): GPUs from Blackwell on, which are those that multiply fp4.
    """
    reads_either_way = "fp4" in chip.peak_flops_per_s and recipe.granularity == "per_tensor"
    return COPIES if trains and not reads_either_way else 1


def num_looks(recipe: Quantization) -> int:
    """Passes that find a scale before any element is narrowed: one for dynamic scales, of blocks none."""
    return int(recipe.scaling == "dynamic" and recipe.granularity != "sub_channel")


def scale_pass_bytes(*, elements_size: Number, b_a: float) -> Number:
    """Bytes read to find the largest number of an array, from which its scale follows.

    Formula: elements_size·b_a

    Assumes: one pass, whatever shares a scale: the tensor, each row, each block of a row; a maximum is no more to
    write than the scales themselves.

    Source: qwix 0.1.8, `qarray.calibrate` (`absmax`), as compiled for TPU7x: a fusion that reads the array and ends in
    maxima.

    >>> scale_pass_bytes(elements_size=8 * 16, b_a=2)
    256
    """
    return elements_size * b_a


def rounding_pass_bytes(*, P: Number, b_w: float, narrow_bytes: float, scale_bytes: float) -> Number:
    """Bytes of reading a gathered weight and writing it rounded, with the scales of its blocks if it has such.

    Formula: P·(b_w + narrow_bytes + scale_bytes)

    Assumes: weights are gathered before they are rounded, so no other operation writes them; scale_bytes is the part
    of one element of its block's scale, 0 where a tensor or a row has one scale.

    Source: qwix 0.1.8, `qarray.quantize`, as compiled for TPU7x: a fusion of its own (`clamp`, `convert`) in front of
    the product.

    >>> rounding_pass_bytes(P=100, b_w=2, narrow_bytes=1, scale_bytes=0)
    300
    """
    return P * (b_w + narrow_bytes + scale_bytes)


def partial_sums_flops(*, product_flops: Number, block_size: float, num_operations: float = BLOCK_OPERATIONS) -> Number:
    """Operations of the vector unit on the partial sums of a product whose contracted dimension is in blocks.

    Formula: product_flops/(2·block_size) · num_operations

    Assumes: a kernel that keeps partial sums in registers. As XLA compiles qwix (a batched product and a sum), a
    4,096-cube on TPU7x takes 16 (blocks of 1,024) to 22 (of 128) times as long as with one scale for the tensor.

    Source: qwix 0.1.8, `dot_general._fast_dot_general`; DeepSeek-V3 (arXiv:2412.19437), section 3.3.2.

    >>> partial_sums_flops(product_flops=2 * 8 * 256 * 16, block_size=128)  # 8·16 outputs, 2 blocks, 3 operations
    768.0
    """
    return product_flops / (2 * block_size) * num_operations
