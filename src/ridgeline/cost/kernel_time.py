"""How long one kernel takes, beyond its roofline: partial tiles, edges of a mask, idle rows of a matrix unit.

B, D, F  rows, contracted and output width      E  experts with rows      T  queries      S  keys a query sees
C        FLOP/s that the kernel reaches         W  bytes/s that memory reaches

`study.kernels` fits the parameters of these formulas to measured kernels; a training step is made of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from ridgeline.cost.work import larger, smaller

if TYPE_CHECKING:
    from ridgeline.cost.work import Number
    from ridgeline.model.operations import Span

Product: TypeAlias = Literal["output", "input_gradient", "weight_gradient"]
"""Of the three products of a trained matmul: y = x·W, dx = dy·Wᵀ, dW = xᵀ·dy. For ragged groups each has a kernel."""

LANES = 128
"""Of a vector register of a TPU."""

PRODUCTS: tuple[Product, ...] = ("output", "input_gradient", "weight_gradient")

GPU_TILE_SIZE = 256
"""Of a tile of the output, the longer side: two multiprocessors of a GPU make it together, or one with two groups of
warps.
Source: CUTLASS, media/docs/cpp/blackwell_functionality.md, table 4: tiles of two multiprocessors are 256 by 64, 128,
192 or 256 and 4 steps of 32 bytes deep. On earlier GPUs an assumption."""

GPU_FILL_BYTES = 256.0
"""Of each operand's row, what a tile of the output takes to begin and end, beside its arithmetic: the first tile of
the contracted dimension arrives, 128 bytes deep, and as much again for the last to leave.
Source: derived, an assumption. Of the shipped bf16 times of ragged products (docs/calibration.md) those of outputs give
285 bytes on B200 and 344 on H100; gradients of inputs, by kernels of another layout, 36 and none."""


def ragged_rows(*, B: Number, E: Number, edge_rows: Number) -> Number:
    """Rows' worth of time of a matmul over ragged groups.

    A group ends within a tile of rows, which is visited again for the next; starting a group also waits for its
    weights, and ending one writes its gradient. All of it is per group, and counted in rows.

    Formula: B + E · edge

    Source: docs/calibration.md.

    >>> ragged_rows(B=131072.0, E=256.0, edge_rows=128.0)
    163840.0
    """
    return B + E * edge_rows


def separate_products_factor(
    *, D: Number, F: Number, B: Number, tile_size: int, edge_rows: Number, fill_elements: float
) -> Number:
    """Time of one product an expert over that of its FLOPs in deep and whole tiles, as libraries of GPUs have it.

    A tile of the output begins with operands to wait for and ends with a result to write, the more of its time the
    shallower the contracted dimension is. One side of tiles is as wide as the arithmetic wants it, and the last one
    along the features is whole; the other is chosen to fit, but for rows, of which each expert has its own number.

    Formula: (1 + fill/D) · ⌈F/tile⌉ · tile/F · (1 + edge/B)

    Assumes: gate and up are two products, as wide as one expert each.

    Source: derived. Transformer Engine's `GroupedLinear` multiplies expert by expert with cuBLAS
    (transformer_engine/common/gemm/cublaslt_gemm.cu, `nvte_multi_tensor_gemm`).

    >>> whole = {"B": 512.0, "tile_size": 256, "edge_rows": 128.0, "fill_elements": 128.0}
    >>> print(separate_products_factor(D=1024.0, F=768.0, **whole))
    1.40625
    >>> print(separate_products_factor(D=1024.0, F=2880.0, **whole))  # 12 tiles for 11.25
    1.5

    Args:
        D: Contracted: of the gradient of a weight, the rows of one expert.
        F: Features that the product makes.
        B: Rows of one expert.
        tile_size: Features of a tile.
        edge_rows: Of the last tile, empty; 0 where rows are contracted.
        fill_elements: What beginning and ending a tile takes, in elements of the contracted dimension.
    """
    return (1.0 + fill_elements / D) * tiled_width(width=F, tile_size=tile_size) / F * (1.0 + edge_rows / B)


def partial_factor(*, D: Number, F: Number, factor: float) -> Number:
    """Time of a matmul over ragged groups over what it would be if its widths filled registers of 128 lanes.

    The last tile of a width that does not is masked, in every step of the kernel.

    Formula: factor once for each of D and F that is no multiple of 128

    Source: docs/calibration.md.

    >>> [float(partial_factor(D=2816.0, F=width, factor=1.25)) for width in (704.0, 768.0)]
    [1.25, 1.0]
    """
    import numpy as np

    num_partial = np.where(np.mod(D, LANES) > 0, 1.0, 0.0) + np.where(np.mod(F, LANES) > 0, 1.0, 0.0)
    return factor**num_partial


def grouped_matmul_s(
    *, flops: Number, idle_factor: Number, C_flops_per_s: float, traffic_bytes: Number, W_bytes_per_s: float
) -> Number:
    """Time of a matmul over ragged groups: the longer of its arithmetic and its traffic.

    Formula: T = max(flops/C · idle, traffic/W)

    Assumes: the next tiles are fetched while one is multiplied, as these kernels are written to do.

    Source: docs/calibration.md.

    >>> grouped_matmul_s(flops=8.0, idle_factor=1.25, C_flops_per_s=2.0, traffic_bytes=3.0, W_bytes_per_s=1.0)
    5.0
    """
    return larger(flops / C_flops_per_s * idle_factor, traffic_bytes / W_bytes_per_s)


def visited_keys(
    span: Span,
    *,
    visible_keys: Number,
    sequence_keys: Number,
    tile: tuple[Number, Number],
    tile_pairs: float,
    row_keys: float,
) -> Number:
    """Keys' worth of time that a tiled attention spends on a query, on average.

    The visible ones; at each edge of the mask half a tile that is masked out, though no more than the sequence has;
    what starting each tile costs, and starting a row of them.

    Formula: computed · (1 + pairs/(q · kv)) + row

    Source: docs/calibration.md.

    >>> from ridgeline.model.operations import Span
    >>> costs = {"tile_pairs": 262144.0, "row_keys": 500.0}
    >>> sizes = {"visible_keys": 4096.0, "sequence_keys": 8192.0}
    >>> [visited_keys(Span(kind="causal"), tile=(side, side), **sizes, **costs) for side in (512.0, 2048.0)]
    [9204.0, 5940.0]

    Args:
        span: What a query sees.
        visible_keys: A query's, on average.
        sequence_keys: S.
        tile: Queries and keys of one.
        tile_pairs: What starting one costs, in query-key pairs.
        row_keys: What starting a row of them costs, in keys of one query.
    """
    queries, keys = tile
    computed = computed_keys(span, visible_keys=visible_keys, sequence_keys=sequence_keys, tile=tile)
    return computed * (1.0 + tile_pairs / (queries * keys)) + row_keys


def computed_keys(span: Span, *, visible_keys: Number, sequence_keys: Number, tile: tuple[Number, Number]) -> Number:
    """Keys that a tiled attention computes for a query, on average: whole tiles, those at the mask's edges too.

    Formula: min(visible + edges · max(q, kv)/2, S)

    Source: docs/calibration.md.

    >>> from ridgeline.model.operations import Span
    >>> computed_keys(Span(kind="causal"), visible_keys=4096.0, sequence_keys=8192.0, tile=(512.0, 512.0))
    4352.0

    Args:
        span: What a query sees; causal and chunked spans have one edge, sliding two, full none.
        visible_keys: A query's, on average.
        sequence_keys: S.
        tile: Queries and keys of one.
    """
    edges = {"causal": 1, "chunked": 1, "sliding": 2, "full": 0}[span.kind]
    return smaller(visible_keys + edges * larger(*tile) / 2, sequence_keys)


def tiled_width(*, width: Number, tile_size: int) -> Number:
    """A width as the tiles of a matrix unit cover it.

    Formula: ⌈width/tile⌉ · tile

    Source: Scaling Book, ch. 2.

    >>> print(tiled_width(width=2880.0, tile_size=256))
    3072.0
    """
    import numpy as np

    return np.ceil(width / tile_size) * tile_size
