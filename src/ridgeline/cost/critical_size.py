"""From which size an operation is compute-bound: the rule for small sizes, and the exact crossover.

    C    peak FLOP/s      W  bandwidth, bytes/s      B, D, F  rows, contracted and output width
    T    queries          S  keys a query sees       G        query heads of a key-value head
    b_a  bytes of an activation's element            b_w  of a weight's            b_o  of an output's

A crossover solves T_math = T_comms. It is infinite where arithmetic grows no faster with the size than traffic.
"""

from __future__ import annotations

from math import inf, isnan, nan


def small_batch_critical_rows(*, b_w: float, C_flops_per_s: float, W_bytes_per_s: float) -> float:
    """Rows from which a matmul is compute-bound, by the rule for small batches.

    Formula: B = C·b_w / (2·W)

    Assumes: B much smaller than D and F, so that only the weights are traffic.

    Source: Scaling Book, ch. 1.

    >>> round(small_batch_critical_rows(b_w=2.0, C_flops_per_s=197e12, W_bytes_per_s=820e9))  # v5e, bf16
    240
    """
    return C_flops_per_s * b_w / (2 * W_bytes_per_s)


def matmul_critical_rows(
    *, D: float, F: float, b_a: float, b_w: float, b_o: float, C_flops_per_s: float, W_bytes_per_s: float
) -> float:
    """Rows from which x[B, D] @ W[D, F] is compute-bound.

    Formula: B = (b_w·D·F/W) / (2·D·F/C − (b_a·D + b_o·F)/W)

    Source: 2·B·D·F/C = (b_a·B·D + b_w·D·F + b_o·B·F)/W (Scaling Book, ch. 1), solved for B.

    >>> matmul_critical_rows(D=4.0, F=4.0, b_a=1.0, b_w=1.0, b_o=1.0, C_flops_per_s=32.0, W_bytes_per_s=16.0)
    2.0
    """
    gained_s = 2 * D * F / C_flops_per_s - (b_a * D + b_o * F) / W_bytes_per_s
    return b_w * D * F / W_bytes_per_s / gained_s if gained_s > 0 else inf


def expert_critical_rows(*, B: float, E: float, k: float) -> float:
    """Rows from which a matmul over experts is compute-bound, each row visiting k of E.

    Formula: B·E/k

    Assumes: balanced routing; B is the critical number of rows of one expert's matmul.

    Source: Scaling Book, ch. 4 and 7: the critical batch grows by E/k.

    >>> expert_critical_rows(B=240.0, E=16, k=2)
    1920.0
    """
    return B * E / k


def small_batch_critical_queries(*, G: float, b_w: float, C_flops_per_s: float, W_bytes_per_s: float) -> float:
    """Queries from which attention to many more keys is compute-bound.

    Formula: T = C·b_w / (2·G·W)

    Assumes: T·G much smaller than S, so that only keys and values are traffic; G·T rows share them, as a matmul's
    rows share its weights.

    Source: Scaling Book, ch. 4, question 4.

    >>> small_batch_critical_queries(G=8, b_w=2.0, C_flops_per_s=240.0, W_bytes_per_s=1.0)
    30.0
    """
    return small_batch_critical_rows(b_w=b_w, C_flops_per_s=C_flops_per_s, W_bytes_per_s=W_bytes_per_s) / G


def attention_critical_queries(
    *, S: float, G: float, b_a: float, b_w: float, C_flops_per_s: float, W_bytes_per_s: float
) -> float:
    """Queries from which attention to S keys is compute-bound.

    Formula: T = (b_w·S/W) / (2·G·S/C − b_a·G/W)

    Source: 4·T·S·N·H/C = (2·b_a·T·N·H + 2·b_w·S·K·H)/W (Scaling Book, ch. 4), solved for T.

    >>> attention_critical_queries(S=4.0, G=1.0, b_a=2.0, b_w=2.0, C_flops_per_s=2.0, W_bytes_per_s=1.0)
    4.0
    """
    gained_s = 2 * G * S / C_flops_per_s - b_a * G / W_bytes_per_s
    return b_w * S / W_bytes_per_s / gained_s if gained_s > 0 else inf


def self_attention_critical_queries(
    *, G: float, b_a: float, b_w: float, C_flops_per_s: float, W_bytes_per_s: float
) -> float:
    """Length from which attention of a sequence to itself is compute-bound.

    Formula: T = C/W · (b_a·G + b_w) / (2·G)

    Source: Scaling Book, ch. 4, question 4: in bf16, C/W · (G + 1)/G.

    >>> self_attention_critical_queries(G=1, b_a=2.0, b_w=2.0, C_flops_per_s=240.0, W_bytes_per_s=1.0)
    480.0
    """
    return C_flops_per_s / W_bytes_per_s * (b_a * G + b_w) / (2 * G)


def attention_critical_keys(
    *, T: float, G: float, b_a: float, b_w: float, C_flops_per_s: float, W_bytes_per_s: float
) -> float:
    """Keys from which attention of T queries is compute-bound; T = 1 is a step of decoding.

    Formula: S = (b_a·T·G/W) / (2·T·G/C − b_w/W)

    Source: 4·T·S·N·H/C = (2·b_a·T·N·H + 2·b_w·S·K·H)/W (Scaling Book, ch. 4), solved for S.

    >>> attention_critical_keys(T=1, G=8, b_a=2.0, b_w=2.0, C_flops_per_s=240.0, W_bytes_per_s=1.0)
    inf
    """
    gained_s = 2 * T * G / C_flops_per_s - b_w / W_bytes_per_s
    return b_a * T * G / W_bytes_per_s / gained_s if gained_s > 0 else inf


def critical_contraction_size(*, N: float, B: float, F: float, exchange_s: float, C_flops_per_s: float) -> float:
    """Contracted width from which a matmul split along it over N chips outlasts the sum of its partial results.

    Formula: D = N·C·t_exchange / (2·B·F)

    Assumes: bandwidth-bound, so that the exchange of [B, F] takes a time in proportion and B and F cancel.

    Source: 2·B·D·F/(N·C) = T_comms (Scaling Book, ch. 1, network rooflines), solved for D.

    >>> exchange_s = 2.0 * 8 * 16 / 45e9  # bf16[8, 16] to the other chip
    >>> round(critical_contraction_size(N=2, B=8, F=16, exchange_s=exchange_s, C_flops_per_s=197e12))
    8756
    """
    return N * C_flops_per_s * exchange_s / (2 * B * F)


def constant_critical_size(*, intensity_flops_per_byte: float, ridge_flops_per_byte: float) -> float:
    """Size from which an operation whose intensity does not grow with it is compute-bound: at once, or never.

    Unknown (NaN) where the ridge is.

    Formula: 0 if intensity > ridge, else ∞

    Source: Scaling Book, ch. 1, question 4.

    >>> constant_critical_size(intensity_flops_per_byte=2.0, ridge_flops_per_byte=240.0)
    inf
    """
    if isnan(ridge_flops_per_byte):
        return nan
    return 0.0 if intensity_flops_per_byte > ridge_flops_per_byte else inf
