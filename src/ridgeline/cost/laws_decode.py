"""What limits decoding, by the laws of the Scaling Book.

B  sequences     F  width of the MLP     Y  ways of tensor parallelism     n_axes  torus axes that they take
"""

from __future__ import annotations


def decode_critical_rows(*, dense_critical_rows: float, E: float = 1.0, k: float = 1.0) -> float:
    """Sequences from which a matmul of decoding is bound by arithmetic; with experts each sees fewer of them.

    Formula: B_crit · E/k

    Source: Scaling Book, ch. 7, question 5.

    >>> decode_critical_rows(dense_critical_rows=240.0, E=256.0, k=8.0)
    7680.0
    """
    return dense_critical_rows * E / k


def beta_ratio(*, W_hbm_bytes_per_s: float, W_ici_bytes_per_s: float) -> float:
    """Memory bandwidth over that of one torus axis.

    Formula: β = W_hbm / W_ici

    Source: Scaling Book, ch. 7.

    >>> beta_ratio(W_hbm_bytes_per_s=8.0, W_ici_bytes_per_s=1.0)
    8.0
    """
    return W_hbm_bytes_per_s / W_ici_bytes_per_s


def tensor_memory_degree(*, F: float, B: float, beta_ratio: float) -> float:
    """Ways of tensor parallelism up to which a step waits for weights, not for links: the limit of small batches.

    Formula: Y = F / (B · β)

    Source: Scaling Book, ch. 7; ch. 8, question 9.

    >>> tensor_memory_degree(F=28672.0, B=64.0, beta_ratio=8.0)
    56.0
    """
    return F / (B * beta_ratio)


def crossover_keys(*, weight_bytes: float, B: float, token_cache_bytes: float) -> float:
    """Context from which reading the caches takes longer than reading the weights.

    Formula: S = weight_bytes / (B · token_cache_bytes)

    Source: Scaling Book, ch. 7: both are read once a step, at the same bandwidth.

    >>> crossover_keys(weight_bytes=7.0e10, B=32.0, token_cache_bytes=163840.0) // 1
    13351.0
    """
    return weight_bytes / (B * token_cache_bytes)
