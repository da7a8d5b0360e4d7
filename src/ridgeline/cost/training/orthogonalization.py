"""Muon's update of one matrix: Newton-Schulz iterations that make its momentum orthogonal.

    A = X·Xᵀ      B = b·A + c·A·A      X ← a·X + B·X      five times, X in bf16, its shorter side first

m  shorter side of the matrix      n  longer side      p, q  ways in which m and n are split

Split, a product's operands are gathered along m and its partial sums added along n, as XLA compiles it: of a matrix
with 4,096 of 14,336 rows and columns over eight v5p, each iteration gathers X and A in bf16; of one that is split along
its longer side it sums A in f32, and every device squares A whole (libtpu 0.0.50.1, optax 0.2.8).

Source: Jordan et al., kellerjordan.github.io/posts/muon; optax.contrib.muon, which MaxText's `opt_type: muon` calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ridgeline.cost.work import Number

NUM_ITERATIONS: Final = 5
"""Source: optax.contrib.muon and Levanter's MuonH (`ns_steps`, `backend_steps`)."""


def newton_schulz_flops(*, m: Number, n: Number, p: Number = 1.0, q: Number = 1.0) -> Number:
    """FLOPs of one device for one matrix: X·Xᵀ and B·X of 2m²n each, A·A of 2m³.

    Formula: 5 · 2 · (2·m²·n/(p·q) + m³/p)

    Source: the products above; per device as XLA counts them.

    >>> newton_schulz_flops(m=2.0, n=3.0)  # 24 + 24 + 16, five times
    320.0
    >>> newton_schulz_flops(m=2.0, n=3.0, q=2.0)  # partial sums along n; A is squared whole
    200.0
    """
    return NUM_ITERATIONS * 2.0 * (2.0 * m * m * n / (p * q) + m**3 / p)


def newton_schulz_bytes(*, m: Number, n: Number, p: Number = 1.0, q: Number = 1.0) -> Number:
    """Memory traffic of one device for one matrix: three products, operands of 2 bytes and results of 4.

    X·Xᵀ reads a device's part of X and X gathered, and writes A; A·A likewise; B·X reads B, X gathered and a·X, and
    writes X.

    Formula: 5 · (2·(mn/pq + mn/q) + 4·m²/p + 2·(m²/p + m²) + 4·m²/p + 2·(m²/p + mn/q) + 8·mn/pq)

    Assumes: no operand stays on the chip between two products.

    Source: derived from the products above.

    >>> newton_schulz_bytes(m=1.0, n=1.0)  # 4 + 4 + 4 + 4 + 4 + 8, five times
    140.0
    """
    whole, part = m * n / q, m * n / (p * q)
    return NUM_ITERATIONS * (4.0 * whole + 10.0 * part + 2.0 * m * m + 12.0 * m * m / p)


def newton_schulz_gathered_bytes(*, m: Number, n: Number, q: Number = 1.0) -> Number:
    """Array that is gathered along the shorter side for one matrix: X and A, in bf16.

    Formula: 5 · 2 · (m·n/q + m²)

    Source: compiled programs, as above.

    >>> newton_schulz_gathered_bytes(m=2.0, n=3.0)
    100.0
    """
    return NUM_ITERATIONS * 2.0 * (m * n / q + m * m)


def newton_schulz_summed_bytes(*, m: Number, p: Number = 1.0) -> Number:
    """Array that is summed along the longer side for one matrix: A, in f32.

    Formula: 5 · 4 · m²/p

    Source: compiled programs, as above.

    >>> newton_schulz_summed_bytes(m=2.0)
    80.0
    """
    return NUM_ITERATIONS * 4.0 * m * m / p


def newton_schulz_held_bytes(*, m: Number, n: Number, p: Number = 1.0, q: Number = 1.0) -> Number:
    """What a device holds beside its state while it iterates: X and A gathered twice over, X before and after in f32.

    Formula: 2 · (2·(m·n/q + m²) + 4·m·n/(p·q))

    Source: temporaries of four matrices of 4,096 by 14,336 over eight v5p, 1.45 GB (libtpu 0.0.50.1).

    >>> round(4 * newton_schulz_held_bytes(m=4096.0, n=14336.0, p=8.0) / 1e9, 2)
    1.44
    """
    return 2.0 * (2.0 * (m * n / q + m * m) + 4.0 * m * n / (p * q))
