"""How a step of decoding is split: one matrix or both of its dimensions, and the KV cache by heads, sequences, tokens.

B  sequences     D, F  widths of model and MLP     N  chips     C, W_hbm, W_ici  peak, memory and one torus axis
Y  ways of tensor parallelism: W_in[D, F_Y] · W_out[F_Y, D]
X, Z  ways of both dimensions of *weight-stationary* matrices, X·Z = N: W_in[D_X, F_Z] · W_out[F_Z, D_X]

Of two weight-stationary matrices none moves: activations are gathered along one dimension and summed along the other.
"""

from __future__ import annotations

from math import inf, sqrt


def stationary_model_degree(*, D: float, F: float, N: float) -> float:
    """Ways of the model's width with the least communication, both dimensions being split.

    Formula: X = √(D · N / (2 · F))

    Assumes: as many bytes a second over the axes of one dimension as over those of the other.

    Source: Scaling Book, ch. 7, question 7: where 2·B·D/X = 4·B·F/Z.

    >>> stationary_model_degree(D=4096, F=16384, N=32)
    2.0
    """
    return sqrt(D * N / (2 * F))


def stationary_width_degree(*, N: float, stationary_model_degree: float) -> float:
    """Ways of the MLP's width beside those.

    Formula: Z = N / X

    Source: Scaling Book, ch. 7, question 7.

    >>> stationary_width_degree(N=32, stationary_model_degree=2.0)
    16.0
    """
    return N / stationary_model_degree


def stationary_link_s(
    *,
    B: float,
    D: float,
    F: float,
    stationary_model_degree: float,
    stationary_width_degree: float,
    W_ici_bytes_per_s: float,
) -> float:
    """Time that one MLP's activations are on the way when both dimensions of its matrices are split.

    The input is gathered and the output scattered along Z, and what lies between is summed along X.

    Formula: T = 2 · B · D / (X · W_ici) + 4 · B · F / (Z · W_ici)

    Assumes: two-byte activations; each collective at the bandwidth of one axis.

    Source: Scaling Book, ch. 7, question 7.

    >>> stationary_link_s(B=1, D=2, F=8, stationary_model_degree=2, stationary_width_degree=16, W_ici_bytes_per_s=4.0)
    1.0
    """
    ways = stationary_model_degree, stationary_width_degree
    return (2 * B * D / ways[0] + 4 * B * F / ways[1]) / W_ici_bytes_per_s


def stationary_link_factor(
    *, stationary_link_s: float, B: float, D: float, N: float, W_ici_bytes_per_s: float
) -> float:
    """That time in units of B·D/(√N·W_ici): it shrinks with the root of the number of chips.

    Formula: T · √N · W_ici / (B · D)

    Source: Scaling Book, ch. 7, question 7: √128 where F = 4·D.

    >>> stationary_link_factor(stationary_link_s=1.0, B=1, D=2, N=16, W_ici_bytes_per_s=4.0)
    8.0
    """
    return stationary_link_s * sqrt(N) * W_ici_bytes_per_s / (B * D)


def mlp_link_s(*, B: float, D: float, W_ici_bytes_per_s: float, n_axes: float = 3.0) -> float:
    """The same when one dimension is split: the input is gathered and the output scattered, over all axes.

    Formula: T = 4 · B · D / (n_axes · W_ici)

    Assumes: two-byte activations; a torus of three axes where n_axes is not given.

    Source: Scaling Book, ch. 7, question 7.

    >>> mlp_link_s(B=3, D=2, W_ici_bytes_per_s=4.0)
    2.0
    """
    return 4 * B * D / (n_axes * W_ici_bytes_per_s)


def stationary_critical_chips(*, D: float, F: float, n_axes: float = 3.0) -> float:
    """Chips from which splitting both dimensions communicates less than splitting one.

    Formula: N = 2 · n_axes² · F / D

    Source: Scaling Book, ch. 7, question 7, √(32·F/(D·N)) = 4/n_axes solved for N; its first edition prints 81 for 72.

    >>> stationary_critical_chips(D=8192, F=32768)
    72.0
    """
    return 2 * n_axes**2 * F / D


def stationary_is_quicker(*, N: float, stationary_critical_chips: float) -> bool:
    """Whether splitting both dimensions communicates less.

    Formula: N > 2 · n_axes² · F / D

    Source: Scaling Book, ch. 7, question 7.

    >>> stationary_is_quicker(N=64, stationary_critical_chips=72.0)
    False
    """
    return stationary_critical_chips < N


def num_mlp_parameters(*, D: float, F: float) -> float:
    """Weights of both matrices.

    Formula: 2 · D · F

    Source: Scaling Book, ch. 7, appendix A.

    >>> num_mlp_parameters(D=8, F=32)
    512
    """
    return 2 * D * F


def mlp_load_s(*, num_mlp_parameters: float, Y: float, W_hbm_bytes_per_s: float, b_w: float = 2.0) -> float:
    """Time in which a device reads its part of both: no batch is quicker.

    Formula: T = b_w · 2 · D · F / (Y · W_hbm)

    Source: Scaling Book, ch. 7, appendix A.

    >>> mlp_load_s(num_mlp_parameters=512, Y=4, W_hbm_bytes_per_s=64.0)
    4.0
    """
    return num_mlp_parameters * b_w / (Y * W_hbm_bytes_per_s)


def mlp_math_s(*, B: float, D: float, F: float, N: float, C_flops_per_s: float) -> float:
    """Time of the arithmetic of both matrices, however they are split.

    Formula: T = 4 · B · D · F / (N · C)

    Source: Scaling Book, ch. 7, question 7.

    >>> mlp_math_s(B=1, D=2, F=4, N=8, C_flops_per_s=2.0)
    2.0
    """
    return 4 * B * D * F / (N * C_flops_per_s)


def matmul_link_s(*, B: float, D: float, W_ici_bytes_per_s: float, b_a: float = 2.0) -> float:
    """Time in which the input of one matmul is gathered, whatever the ways of tensor parallelism.

    Formula: T = b_a · B · D / W_ici

    Source: Scaling Book, ch. 8, question 9.

    >>> matmul_link_s(B=64, D=8192, W_ici_bytes_per_s=2.0**20)
    1.0
    """
    return B * D * b_a / W_ici_bytes_per_s


def matmul_load_s(*, D: float, F: float, Y: float, W_hbm_bytes_per_s: float, b_w: float = 2.0) -> float:
    """Time in which a device reads its part of one matrix.

    Formula: T = b_w · D · F / (Y · W_hbm)

    Source: Scaling Book, ch. 8, question 9.

    >>> matmul_load_s(D=8, F=16, Y=4, W_hbm_bytes_per_s=32.0)
    2.0
    """
    return D * F * b_w / (Y * W_hbm_bytes_per_s)


def matmul_math_s(*, B: float, D: float, F: float, Y: float, C_flops_per_s: float) -> float:
    """Time of its arithmetic.

    Formula: T = 2 · B · D · F / (Y · C)

    Source: Scaling Book, ch. 8, question 9.

    >>> matmul_math_s(B=2, D=8, F=16, Y=4, C_flops_per_s=32.0)
    4.0
    """
    return 2 * B * D * F / (Y * C_flops_per_s)


def tensor_reads_longer(*, Y: float, tensor_memory_degree: float) -> bool:
    """Whether, so split, weights take longer to read than activations are on the way.

    Formula: Y < F / (B · β)

    Source: Scaling Book, ch. 8, question 9.

    >>> tensor_reads_longer(Y=32, tensor_memory_degree=56.0)
    True
    """
    return tensor_memory_degree > Y


def cache_head_degree(*, Y: float, K: float) -> float:
    """Ways in which key-value heads split the KV cache: the first choice, which moves nothing.

    Formula: min(Y, K)

    Source: Scaling Book, ch. 7, sharding the KV cache.

    >>> cache_head_degree(Y=32, K=8)
    8
    """
    return min(Y, K)


def cache_batch_degree(*, Y: float, cache_head_degree: float, B: float = inf) -> float:
    """Ways in which sequences split it further: queries and outputs change devices in two all-to-alls.

    Formula: min(Y / heads, B)

    Source: Scaling Book, ch. 7, sharding the KV cache.

    >>> cache_batch_degree(Y=32, cache_head_degree=8, B=64)
    4.0
    """
    return min(Y / cache_head_degree, B)


def cache_token_degree(*, Y: float, cache_head_degree: float, cache_batch_degree: float) -> float:
    """Ways that are left to split the tokens of a sequence: queries are gathered, partial softmaxes merged.

    Formula: Y / (heads · sequences)

    Source: Scaling Book, ch. 7, sharding the KV cache.

    >>> cache_token_degree(Y=32, cache_head_degree=8, cache_batch_degree=1)
    4.0
    """
    return Y / (cache_head_degree * cache_batch_degree)
