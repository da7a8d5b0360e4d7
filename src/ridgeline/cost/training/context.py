"""What splitting a sequence over devices does to its attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ridgeline.cost.work import Number

PARTIAL_BYTES = 4.0
"""A partial result of attention is f32 until all keys have been seen. Source: tokamax, ring attention over splash."""


def causal_imbalance(*, N: Number) -> Number:
    """Causal work of the busiest of N devices over the mean, where each has the next stretch of the sequence.

    The last device's queries see S·(1 − 1/2N) keys on average, those of the whole sequence S/2. A balanced order gives
    every device a stretch from the front and one from the back.

    Formula: 2 − 1/N

    Source: derived.

    >>> causal_imbalance(N=1.0), causal_imbalance(N=4.0)
    (1.0, 1.75)
    """
    return 2.0 - 1.0 / N


def ring_merge_bytes(*, partial_elements: Number, N: Number, b_a: float) -> Number:
    """Memory traffic of adding up attention whose keys come round a ring of N devices.

    Every further stretch of keys yields one more partial result, as wide as the output; the sum so far is read,
    rescaled and written.

    Formula: (N − 1) · elements · (2·4 + b_a)

    Assumes: the first stretch is written as it is; sums stay in f32.
    Source: derived.

    >>> ring_merge_bytes(partial_elements=100.0, N=3.0, b_a=2.0)
    2000.0
    """
    return (N - 1.0) * partial_elements * (2.0 * PARTIAL_BYTES + b_a)


def ring_handed_bytes(*, V_bytes: Number, N: Number) -> Number:
    """What one device hands to its neighbour while an array that N devices share goes round once.

    Formula: V · (N − 1)/N

    Source: derived.

    >>> ring_handed_bytes(V_bytes=8.0, N=4.0)
    6.0
    """
    return V_bytes * (N - 1.0) / N


def exchanged_elements(
    *, rows: Number, num_heads: Number, num_kv_heads: Number, qk_head_dim: int, v_head_dim: int
) -> tuple[Number, Number]:
    """Elements of what Ulysses exchanges that a device holds: queries, keys and values before, the output behind.

    Formula: rows · (heads · d_qk + kv_heads · (d_qk + d_v)), rows · heads · d_v

    Assumes: keys and values have at least as many heads as there are devices; fewer are repeated before.

    Source: arXiv:2309.14509, section 3.1; Megatron-LM, `--cp-comm-type a2a`.

    >>> exchanged_elements(rows=10.0, num_heads=8.0, num_kv_heads=2.0, qk_head_dim=4, v_head_dim=4)
    (480.0, 320.0)
    """
    return rows * (num_heads * qk_head_dim + num_kv_heads * (qk_head_dim + v_head_dim)), rows * num_heads * v_head_dim
