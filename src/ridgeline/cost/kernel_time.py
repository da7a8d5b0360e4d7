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
