"""How many sequences a slice has room for, how many requests it answers, and what a longer step buys.

P  parameters     B  sequences     T  tokens of a sequence     C, W_hbm  peak and bandwidth of a chip
"""

from __future__ import annotations

from math import floor


def slice_free_bytes(*, slice_hbm_bytes: float, weight_bytes: float) -> float:
    """Memory that weights leave on all chips together.

    Formula: slice_hbm_bytes − weight_bytes

    Source: Scaling Book, ch. 8, question 5; its first edition prints other figures for int8 and int4.

    >>> slice_free_bytes(slice_hbm_bytes=1.28e11, weight_bytes=7.0e10)
    58000000000.0
    """
    return slice_hbm_bytes - weight_bytes


def num_fitting_sequences(*, slice_free_bytes: float, sequence_cache_bytes: float) -> float:
    """Sequences whose caches fit beside the weights.

    Formula: ⌊slice_free_bytes / sequence_cache_bytes⌋

    Assumes: caches split over all chips without copies; activations are few beside them.

    Source: Scaling Book, ch. 7, question 2; ch. 8, question 5.

    >>> num_fitting_sequences(slice_free_bytes=5.8e10, sequence_cache_bytes=162e3 * 8192)
    43
    """
    return max(floor(slice_free_bytes / sequence_cache_bytes), 0)


def token_activation_bytes(*, D: float, b_a: float = 2.0) -> float:
    """One activation of a token: a row as wide as the model, or as its MLP.

    Formula: b_a · D

    Source: Scaling Book, ch. 7, memory.

    >>> token_activation_bytes(D=4096)
    8192.0
    """
    return D * b_a


def activation_bytes(*, token_activation_bytes: float, T: float = 1.0, B: float = 1.0) -> float:
    """One activation of all tokens of a pass: prompts of T tokens, or one token of each of B sequences.

    Formula: token_activation_bytes · T · B

    Assumes: a compiler frees it before the next but one is made, so that a few of them are all there is.

    Source: Scaling Book, ch. 7, memory.

    >>> activation_bytes(token_activation_bytes=8192.0, T=8192)
    67108864.0
    """
    return token_activation_bytes * T * B


def read_all_s(*, held_bytes: float, num_chips: float, W_hbm_bytes_per_s: float) -> float:
    """Time of a step of decoding that only reads: weights and caches once, at the bandwidth of all chips.

    Formula: T = held_bytes / (num_chips · W_hbm)

    Assumes: too few sequences for arithmetic to bind.

    Source: Scaling Book, ch. 7; ch. 8, question 3.

    >>> read_all_s(held_bytes=6.4e10, num_chips=8, W_hbm_bytes_per_s=8.0e11)
    0.01
    """
    return held_bytes / (num_chips * W_hbm_bytes_per_s)


def requests_per_s(*, B: float, decode_step_s: float, reply_tokens: float) -> float:
    """Requests that end in a second, in a steady state.

    Formula: B / (T_step · reply_tokens)

    Source: Scaling Book, ch. 8, question 7.

    >>> requests_per_s(B=40, decode_step_s=0.02, reply_tokens=500)
    4.0
    """
    return B / (decode_step_s * reply_tokens)


def requests_per_s_per_chip(*, requests_per_s: float, num_chips: float) -> float:
    """The same of each chip.

    Formula: requests_per_s / num_chips

    Source: Scaling Book, ch. 8, question 7.

    >>> requests_per_s_per_chip(requests_per_s=4.0, num_chips=16)
    0.25
    """
    return requests_per_s / num_chips


def cache_overtakes_math_tokens(
    *, P: float, token_cache_bytes: float, C_flops_per_s: float, W_hbm_bytes_per_s: float
) -> float:
    """Context from which a sequence's cache takes longer to read than its token to compute, whatever the batch.

    Formula: T = (2 · P / C) / (token_cache_bytes / W_hbm)

    Source: Scaling Book, ch. 8, latency and throughput; its prose says 2,048 where its code gives 3,557.

    >>> round(cache_overtakes_math_tokens(P=7e10, token_cache_bytes=163840, C_flops_per_s=1.97e14,
    ...                                   W_hbm_bytes_per_s=8.2e11))
    3557
    """
    return 2 * P / C_flops_per_s * W_hbm_bytes_per_s / token_cache_bytes


def lone_step_s(
    *, sequence_cache_bytes: float, weight_load_s: float, num_chips: float, W_hbm_bytes_per_s: float
) -> float:
    """Time of a step of decoding of one sequence: no step is shorter.

    Formula: T₁ = sequence_cache_bytes / (num_chips · W_hbm) + T_weights

    Assumes: one row of arithmetic hides behind reading weights.

    Source: Scaling Book, ch. 7.

    >>> lone_step_s(sequence_cache_bytes=8.0, weight_load_s=3.0, num_chips=2, W_hbm_bytes_per_s=4.0)
    4.0
    """
    return sequence_cache_bytes / (num_chips * W_hbm_bytes_per_s) + weight_load_s


def affordable_rows(
    *,
    latency_ratio: float,
    lone_step_s: float,
    weight_load_s: float,
    P: float,
    num_chips: float,
    C_flops_per_s: float,
) -> float:
    """Sequences that decode together in a step so many times as long as that of one sequence.

    Formula: B = min((r·T₁ − T_weights) / T_cache, r·T₁ / (T_cache + T_math)), T_cache = T₁ − T_weights of a
    sequence and T_math = 2·P / (num_chips · C)

    Source: T_cache·B + max(T_math·B, T_weights) = r·T₁ (Scaling Book, ch. 7), solved for B.

    >>> affordable_rows(latency_ratio=2, lone_step_s=3.0, weight_load_s=2.0, P=2, num_chips=4, C_flops_per_s=1.0)
    3.0
    """
    step_s, cache_s = latency_ratio * lone_step_s, lone_step_s - weight_load_s
    math_s = 2 * P / (num_chips * C_flops_per_s)
    return min((step_s - weight_load_s) / cache_s, step_s / (cache_s + math_s))


def cheaper_factor(*, affordable_rows: float, latency_ratio: float) -> float:
    """How many times cheaper a token is in that step than alone.

    Formula: B / r

    Source: Scaling Book, ch. 8, latency and throughput: a factor of about 100 for twice the latency.

    >>> cheaper_factor(affordable_rows=150, latency_ratio=2)
    75.0
    """
    return affordable_rows / latency_ratio
