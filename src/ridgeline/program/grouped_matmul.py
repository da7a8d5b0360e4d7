"""Rows sorted by expert times each expert's matrix: a Pallas kernel on TPUs, and plain JAX.

The kernel, `gmm` in a plan, is that of tokamax where it is installed, else the one that comes with JAX (megablox).

Shapes: R rows, L experts of a device, K contracted width, N produced width.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from math import gcd, prod
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from ridgeline.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jax import Array

    from ridgeline.model.operations import ExpertMatmul
    from ridgeline.program.forward import ForwardProgram

    Kernel: TypeAlias = Literal["gmm", "ragged_dot"]

LEAST_ROWS: Final = 128
"""Rows that a tile of the kernel has at least: the matrix unit of v5 takes so many at once."""

_KERNELS: Final = (
    *("gmm", "tgmm"),
    *("pallas_tpu_ragged_dot_gmm", "pallas_tpu_ragged_dot_gmm_transpose_rhs", "pallas_tpu_ragged_dot_tgmm"),
    "ragged-dot-none",
)
"""Names of the kernels of JAX (megablox), of tokamax, and of the one that XLA:TPU makes of `ragged_dot`."""

_XLA_TILES: Final = "ragged-dot-metadata"
"""What XLA:TPU finds the tiles with."""

_MOST_ROWS = 512
_TILE_BYTES = 2048
"""Width of a tile in each direction: 1,024 elements of bf16. Operands, result and sum then fit 16 MiB of VMEM twice."""


def chosen_kernel(program: ForwardProgram, num_rows: int, *, is_tpu: bool) -> Kernel:
    """The kernel that is asked for; if none is, Pallas's where it can run.

    Raises:
        InputError: A kernel is asked for that cannot run here.
    """
    asked = program.experts.kernel
    obstacles = [
        *([] if is_tpu else ["it runs on TPUs alone"]),
        *([f"{num_rows} rows of a device are no multiple of {LEAST_ROWS}"] if num_rows % LEAST_ROWS else []),
    ]
    if asked is None:
        return "ragged_dot" if obstacles else "gmm"
    if asked == "ragged_dot":
        return "ragged_dot"
    if obstacles or asked != "gmm":
        raise InputError(
            f"our program has no {asked} kernel for dropless experts here",
            where="plan.moe.kernel",
            value=asked,
            expected="gmm or ragged_dot" if asked != "gmm" else f"another kernel: {'; '.join(obstacles)}",
            fix='use kernel = "ragged_dot", or leave it out',
        )
    return "gmm"


def grouped_matmul(rows: Array, weights: Array, group_sizes: Array, *, kernel: Kernel, row_tile: int) -> Array:
    """Each row times the matrix of its expert: [R, K] and [L, K, N] to [R, N]; rows beyond the groups are undefined.

    Args:
        rows: Sorted by expert.
        weights: Of each expert.
        group_sizes: Rows of each expert, [L].
        kernel: Which program.
        row_tile: Rows that the kernel computes at once.
    """
    import jax

    if kernel == "ragged_dot":
        return jax.lax.ragged_dot(rows, weights, group_sizes)
    if find_spec("tokamax") is not None:
        return _by_tokamax(rows, weights, group_sizes)
    from jax.experimental.pallas.ops.tpu.megablox import gmm

    width = min(_TILE_BYTES // rows.dtype.itemsize, *weights.shape[1:])
    return gmm(rows, weights, group_sizes, preferred_element_type=rows.dtype, tiling=(row_tile, width, width))


def _by_tokamax(rows: Array, weights: Array, group_sizes: Array) -> Array:
    """By the kernel of tokamax, in tiles that it knows for the chip.

    It looks for a TPU in this process unless it is told that it compiles for another machine; that must be said around
    both passes, and the backward pass is traced later.
    """
    import jax

    tokamax: Any = import_module("tokamax")  # of an extra that tests do without

    def product(rows: Array, weights: Array, group_sizes: Array) -> Array:
        with tokamax.config.cross_compile(True):
            return tokamax.ragged_dot(
                rows, weights, group_sizes, preferred_element_type=rows.dtype, implementation="mosaic"
            )

    def forward(*operands: Array) -> tuple[Array, tuple[Array, ...]]:
        return product(*operands), operands

    def backward(operands: tuple[Array, ...], gradient: Array) -> tuple[Array, Array, None]:
        rows, weights, group_sizes = operands
        with tokamax.config.cross_compile(True):
            _, transpose = jax.vjp(lambda rows, weights: product(rows, weights, group_sizes), rows, weights)
            of_rows, of_weights = transpose(gradient)
        return of_rows, of_weights, None

    run = jax.custom_vjp(product)
    run.defvjp(forward, backward)
    return run(rows, weights, group_sizes)


def rows_of_a_tile(num_rows: int, *, rows_of_an_expert: float) -> int:
    """Rows that the kernel computes at once: no more than an expert has on average, where the matrix unit has enough.

    >>> [rows_of_a_tile(16384, rows_of_an_expert=rows) for rows in (2048, 256, 64)]
    [512, 256, 128]
    """
    tile = gcd(num_rows, _MOST_ROWS)
    while tile > max(rows_of_an_expert, LEAST_ROWS):
        tile //= 2
    return tile


def gmm_flops(program: ForwardProgram, operation: ExpertMatmul) -> Mapping[str, float]:
    """Matmul FLOPs of one run of each kernel on one device, by the kernel's name, when all devices get equal shares.

    The three products of a matmul, forward and of both gradients, are alike. Rows that nobody sent are skipped. Where
    two experts meet within a tile of rows, it is computed for both: that follows from the router's choice, and is not
    counted.
    """
    _, *widths = operation.weight.shape
    rows = tokens_of_a_device(program) * operation.top_k
    product_flops = 2 * rows * prod(widths) / program.layout.ways(program.layout.tensor)
    return {**dict.fromkeys(_KERNELS, product_flops), _XLA_TILES: 0.0}


def tokens_of_a_device(program: ForwardProgram) -> int:
    """Tokens of one pass through a layer on one device, before the tensor axes share them out."""
    layout, passes = program.layout, program.micro_steps * program.pipeline.num_microbatches
    ways = layout.ways((*layout.batch, *layout.sequence))
    return program.global_batch * program.seq_len // (passes * ways)
