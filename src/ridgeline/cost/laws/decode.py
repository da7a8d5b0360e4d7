"""How long decoding and prefill take, and what limits them, by the laws of the Scaling Book.

B  sequences     F  width of the MLP     Y  ways of tensor parallelism     n_axes  torus axes that they take
P  parameters    T  tokens of a sequence, or of a prompt                   C, W_hbm  peak and bandwidth of a chip
"""

from __future__ import annotations

from math import inf

from ridgeline.cost.critical_size import small_batch_critical_rows
from ridgeline.cost.serving.steady import prefill_server_ratio


def decode_critical_rows(
    *, b_w: float, C_flops_per_s: float, W_bytes_per_s: float, num_copies: float = 1.0, E: float = 1.0, k: float = 1.0
) -> float:
    """Sequences from which a matmul of decoding is bound by arithmetic; with experts each sees fewer of them.

    Formula: C·b_w / (2·W) · num_copies · E/k

    Assumes: each of num_copies of the weights, on devices of its own, has as many sequences as the others.

    Source: Scaling Book, ch. 1 and ch. 7, question 5.

    >>> decode_critical_rows(b_w=2.0, C_flops_per_s=240.0, W_bytes_per_s=1.0, E=256.0, k=8.0)
    7680.0
    """
    dense = small_batch_critical_rows(b_w=b_w, C_flops_per_s=C_flops_per_s, W_bytes_per_s=W_bytes_per_s)
    return dense * num_copies * E / k


def beta_ratio(*, W_hbm_bytes_per_s: float, W_ici_bytes_per_s: float) -> float:
    """Memory bandwidth over that of one torus axis.

    Formula: β = W_hbm / W_ici

    Source: Scaling Book, ch. 7.

    >>> beta_ratio(W_hbm_bytes_per_s=8.0, W_ici_bytes_per_s=1.0)
    8.0
    """
    return W_hbm_bytes_per_s / W_ici_bytes_per_s


def tensor_memory_degree(*, F: float, B: float, beta_ratio: float, b_w: float = 2.0, b_a: float = 2.0) -> float:
    """Ways of tensor parallelism up to which a step waits for weights, not for links: the limit of small batches.

    Formula: Y = F / (B · β) · b_w / b_a

    Source: Scaling Book, ch. 7; ch. 8, question 9: of weights (b_w bytes) and activations (b_a) of one dtype.

    >>> tensor_memory_degree(F=28672.0, B=64.0, beta_ratio=8.0)
    56.0
    """
    return F / (B * beta_ratio) * b_w / b_a


def crossover_keys(*, weight_bytes: float, B: float, token_cache_bytes: float, full_cache_bytes: float = 0.0) -> float:
    """Context from which reading the caches takes longer than reading the weights.

    Formula: S = (weight_bytes / B − full_cache_bytes) / token_cache_bytes

    Assumes: of a sequence, full_cache_bytes do not grow with its context: windows that are full, and states.

    Source: Scaling Book, ch. 7: both are read once a step, at the same bandwidth.

    >>> crossover_keys(weight_bytes=7.0e10, B=32.0, token_cache_bytes=163840.0) // 1
    13351.0
    """
    return max(weight_bytes / B - full_cache_bytes, 0.0) / token_cache_bytes if token_cache_bytes > 0 else inf


def cache_read_s(*, batch_cache_bytes: float, num_chips: float, W_hbm_bytes_per_s: float) -> float:
    """Time in which chips read the caches of all sequences.

    Formula: T = batch_cache_bytes / (num_chips · W_hbm)

    Source: Scaling Book, ch. 7.

    >>> cache_read_s(batch_cache_bytes=32.0, num_chips=4, W_hbm_bytes_per_s=2.0)
    4.0
    """
    return batch_cache_bytes / (num_chips * W_hbm_bytes_per_s)


def decode_math_s(*, B: float, P: float, num_chips: float, C_flops_per_s: float) -> float:
    """Time of the matmuls of a step of decoding.

    Formula: T = 2 · B · P / (num_chips · C)

    Source: Scaling Book, ch. 7.

    >>> decode_math_s(B=4.0, P=8.0, num_chips=2, C_flops_per_s=4.0)
    8.0
    """
    return 2 * B * P / (num_chips * C_flops_per_s)


def decode_step_s(*, cache_read_s: float, weight_load_s: float, decode_math_s: float = 0.0) -> float:
    """Time of a step of decoding: reading caches never hides, reading weights runs beside arithmetic.

    Formula: T = T_cache + max(T_math, T_weights)

    Assumes: weights and caches split over all chips; links and host take no time.

    Source: Scaling Book, ch. 7, theoretical estimates of latency and throughput.

    >>> decode_step_s(cache_read_s=1.0, weight_load_s=2.0, decode_math_s=3.0)
    4.0
    """
    return cache_read_s + max(decode_math_s, weight_load_s)


def decode_tokens_per_s(*, B: float, decode_step_s: float) -> float:
    """Tokens that all chips add in a second.

    Formula: B / T

    Source: Scaling Book, ch. 7.

    >>> decode_tokens_per_s(B=32.0, decode_step_s=0.5)
    64.0
    """
    return B / decode_step_s


def decode_tokens_per_s_per_chip(*, decode_tokens_per_s: float, num_chips: float) -> float:
    """The same of each chip.

    Formula: tokens_per_s / num_chips

    Source: Scaling Book, ch. 8.

    >>> decode_tokens_per_s_per_chip(decode_tokens_per_s=64.0, num_chips=16)
    4.0
    """
    return decode_tokens_per_s / num_chips


def weights_and_caches_fit(*, held_bytes: float, num_chips: float, hbm_bytes: float) -> bool:
    """Whether weights and caches go into the memory of the chips.

    Formula: held_bytes ≤ num_chips · hbm_bytes

    Source: Scaling Book, ch. 7.

    >>> weights_and_caches_fit(held_bytes=15.0, num_chips=1, hbm_bytes=16.0)
    True
    """
    return held_bytes <= num_chips * hbm_bytes


def matmuls_compute(*, decode_math_s: float, weight_load_s: float) -> bool:
    """Whether the matmuls of a step are bound by arithmetic.

    Formula: T_math > T_weights

    Source: Scaling Book, ch. 7.

    >>> matmuls_compute(decode_math_s=2.0, weight_load_s=1.0)
    True
    """
    return decode_math_s > weight_load_s


def full_memory_step_s(*, hbm_bytes: float, W_hbm_bytes_per_s: float) -> float:
    """Time of a step of decoding whose weights and caches fill the memory of each chip.

    Formula: T = hbm_bytes / W_hbm

    Source: Scaling Book, ch. 8, question 6: 19 ms on v5e.

    >>> round(full_memory_step_s(hbm_bytes=16e9, W_hbm_bytes_per_s=8.2e11) * 1e3, 1)
    19.5
    """
    return hbm_bytes / W_hbm_bytes_per_s


def prefill_s(*, P: float, T: float, num_chips: float, C_flops_per_s: float, mfu: float) -> float:
    """Time to read a prompt.

    Formula: 2 · P · T / (num_chips · C · mfu)

    Assumes: bound by arithmetic; attention's own is little beside it.

    Source: Scaling Book, ch. 8, question 10.

    >>> round(prefill_s(P=70e9, T=8192, num_chips=16, C_flops_per_s=1.97e14, mfu=0.4), 2)
    0.91
    """
    return 2 * P * T / (num_chips * C_flops_per_s * mfu)


def prefill_servers_ratio(*, prefill_s: float, decode_step_s: float, B: float, reply_tokens: float) -> float:
    """Servers that read a prompt at a time for each one that decodes.

    Formula: T_prefill · B / (T_step · reply_tokens)

    Source: Scaling Book, ch. 8, question 12.

    >>> round(prefill_servers_ratio(prefill_s=0.91, decode_step_s=0.019, B=32.0, reply_tokens=512.0))
    3
    """
    return float(
        prefill_server_ratio(T_prefill_s=prefill_s, num_prompts=1.0, B=B, T_token_s=decode_step_s, G=reply_tokens)
    )


def finished_requests(*, B: float, reply_tokens: float) -> float:
    """Requests that end with a step, on average.

    Formula: B / reply_tokens

    Source: Scaling Book, ch. 8, question 11.

    >>> finished_requests(B=32.0, reply_tokens=4096.0)
    0.0078125
    """
    return B / reply_tokens


def evicted_tokens(*, finished_requests: float, prompt_tokens: float, reply_tokens: float) -> float:
    """Tokens whose cache is freed with a step, on average.

    Formula: finished_requests · (prompt_tokens + reply_tokens)

    Source: Scaling Book, ch. 8, question 11.

    >>> evicted_tokens(finished_requests=0.0078125, prompt_tokens=8192.0, reply_tokens=4096.0)
    96.0
    """
    return finished_requests * (prompt_tokens + reply_tokens)


def computed_fraction(*, shared_tokens: float, total_tokens: float) -> float:
    """Part of the work of prefill that is left where the beginning of prompts is cached.

    Formula: (total − shared) / total

    Assumes: work in proportion to tokens.

    Source: Scaling Book, ch. 7, prefix caching.

    >>> computed_fraction(shared_tokens=3.0, total_tokens=4.0)
    0.25
    """
    return (total_tokens - shared_tokens) / total_tokens


def cached_prefill_s(*, prefill_s: float, computed_fraction: float) -> float:
    """Time to read a prompt whose beginning is cached.

    Formula: T_prefill · computed_fraction

    Source: Scaling Book, ch. 7, prefix caching.

    >>> cached_prefill_s(prefill_s=0.9, computed_fraction=0.25)
    0.225
    """
    return prefill_s * computed_fraction


def prompt_is_compute_bound(*, T: float, decode_critical_rows: float) -> bool:
    """Whether the matmuls of a prompt's prefill are bound by arithmetic: its tokens are the rows of them.

    Formula: T > B_crit

    Source: Scaling Book, ch. 7, prefill.

    >>> prompt_is_compute_bound(T=8192, decode_critical_rows=240.0)
    True
    """
    return decode_critical_rows < T


def batch_is_compute_bound(*, B: float, decode_critical_rows: float) -> bool:
    """Whether the matmuls of a step of decoding are: one token of each sequence is a row.

    Formula: B > B_crit

    Source: Scaling Book, ch. 7, generation.

    >>> batch_is_compute_bound(B=64, decode_critical_rows=240.0)
    False
    """
    return decode_critical_rows < B
