"""Counts of a Transformer in the book's letters; what is counted comes from the model's tree.

P  parameters of matrices     B  sequences     T  tokens of a sequence
"""

from __future__ import annotations

from math import inf


def passes_flops(*, flops_per_token: float, num_tokens: float, num_passes: float) -> float:
    """FLOPs of some operations over all tokens: one pass forward, three for a training step.

    Formula: num_passes · num_tokens · flops_per_token

    Source: Scaling Book, ch. 4: the backward pass is twice the forward one.

    >>> passes_flops(flops_per_token=8.0, num_tokens=4, num_passes=3)
    96.0
    """
    return num_passes * num_tokens * flops_per_token


def scores_ratio(*, scores_flops_per_token: float, matmul_flops_per_token: float) -> float:
    """FLOPs of scores and values over those of the layers' matmuls.

    Formula: scores / matmuls; T / (8·D) where F = 4·D and N·H = D

    Assumes: no discount for a causal mask, unless the counts have one.

    Source: Scaling Book, ch. 4.

    >>> scores_ratio(scores_flops_per_token=1.0, matmul_flops_per_token=4.0)
    0.25
    """
    return scores_flops_per_token / matmul_flops_per_token


def crossover_tokens(
    *, matmul_flops_per_token: float, score_flops_per_key: float, windowed_flops_per_token: float = 0.0
) -> float:
    """Length from which scores and values take more FLOPs than some matmuls; ∞ where windows keep them below.

    Formula: T = (matmul_flops_per_token − windowed_flops_per_token) / score_flops_per_key

    Assumes: no discount for a causal mask, unless the counts have one; windows are full.

    Source: Scaling Book, ch. 4: 8·D against all matmuls, 2·D against those of attention, where F = 4·D and N·H = D.

    >>> crossover_tokens(matmul_flops_per_token=32.0, score_flops_per_key=4.0)
    8.0
    """
    beyond = matmul_flops_per_token - windowed_flops_per_token
    return beyond / score_flops_per_key if score_flops_per_key else inf


def cache_bytes(*, cache_elements: float, b_a: float = 2.0) -> float:
    """Bytes of a KV cache: a key and a value of each key-value head, layer and token.

    Formula: b_a · 2 · K · H · L · T

    Source: Scaling Book, ch. 4.

    >>> cache_bytes(cache_elements=2 * 8 * 128 * 80, b_a=1)
    163840
    """
    return b_a * cache_elements
