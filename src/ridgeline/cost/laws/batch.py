"""From how many tokens on a training step is bound by arithmetic, under each scheme, and how to split the chips.

The layer these laws are about is In[B, D] · W_in[D, F] · W_out[F, D] in two-byte numbers: no attention, no
vocabulary, rings on every axis that is used. A gate, or a narrower dtype, scales arithmetic and bytes alike.

B  tokens in a slice's share of the batch     N  chips of the slice          b    B / N, tokens a chip
X  ways of data parallelism (FSDP)            Y  ways of tensor parallelism  X·Y = N
α  C / W_ici, FLOPs in the time a byte arrives over one axis (both directions of a ring)
M_X, M_Y  torus axes given to each            n_axes  those given to a scheme that is used alone

`overlapped` says how FSDP's and tensor parallelism's collectives relate: one after the other, so that their times
add (the book's first edition), or at once, so that the longer counts (its later edition).
"""

from __future__ import annotations

from math import floor, inf, log2, sqrt

from ridgeline.cost.roofline import ridge_flops_per_byte

USUAL_TENSOR_DEGREES = (8, 16)
"""Ways of tensor parallelism that practice takes. Source: Scaling Book, ch. 5, summary: F/α of usual widths."""

_ROUNDING = 1e-9
"""Relative; a discriminant of zero must not turn negative by rounding."""


def alpha_flops_per_byte(*, C_flops_per_s: float, W_ici_bytes_per_s: float) -> float:
    """FLOPs a chip does while one byte arrives over one torus axis, both directions together.

    Formula: α = C / W_ici

    Source: Scaling Book, ch. 5, data parallelism.

    >>> alpha_flops_per_byte(C_flops_per_s=4.59e14, W_ici_bytes_per_s=1.8e11)  # v5p
    2550.0
    """
    return float(ridge_flops_per_byte(C_flops_per_s=C_flops_per_s, W_bytes_per_s=W_ici_bytes_per_s))


def tokens_per_chip(*, B_tokens: float, N: float) -> float:
    """Tokens of a batch on each chip.

    Formula: b = B / N

    Source: Scaling Book, ch. 5.

    >>> tokens_per_chip(B_tokens=4096, N=8)
    512.0
    """
    return B_tokens / N


def dp_critical_tokens_per_chip(*, alpha_flops_per_byte: float, n_axes: float, E: float = 1.0, k: float = 1.0) -> float:
    """Tokens a chip from which pure data parallelism is bound by arithmetic.

    The backward pass does 8·B·D·F/X FLOPs a chip while the gradients are all-reduced: 8·D·F bytes over n axes.
    Where a token visits k of E experts, the FLOPs shrink by k/E and the bytes do not.

    Formula: b = α / n_axes · E / k

    Assumes: rings, collectives hidden behind arithmetic.

    Source: Scaling Book, ch. 5, data parallelism; E/k from ch. 4, mixture of experts.

    >>> dp_critical_tokens_per_chip(alpha_flops_per_byte=2550, n_axes=3)
    850.0
    """
    return alpha_flops_per_byte / n_axes * E / k


def fsdp_critical_tokens_per_chip(
    *, alpha_flops_per_byte: float, n_axes: float, E: float = 1.0, k: float = 1.0
) -> float:
    """Tokens a chip from which FSDP is bound by arithmetic: as under data parallelism, in each pass.

    The forward pass does 4·B·D·F/X FLOPs a chip while 4·D·F bytes of weights are gathered; backward twice both.

    Formula: b = α / n_axes · E / k

    Assumes: rings, collectives hidden behind arithmetic.

    Source: Scaling Book, ch. 5, FSDP; E/k from ch. 4, mixture of experts.

    >>> fsdp_critical_tokens_per_chip(alpha_flops_per_byte=2550, n_axes=1)
    2550.0
    """
    return dp_critical_tokens_per_chip(alpha_flops_per_byte=alpha_flops_per_byte, n_axes=n_axes, E=E, k=k)


def fsdp_matches_dp(*, dp_critical_tokens_per_chip: float, fsdp_critical_tokens_per_chip: float) -> bool:
    """Whether FSDP asks for as many tokens a chip as data parallelism.

    Formula: b_fsdp = b_dp

    Source: Scaling Book, ch. 5: an all-reduce is a reduce-scatter and an all-gather.

    >>> fsdp_matches_dp(dp_critical_tokens_per_chip=850.0, fsdp_critical_tokens_per_chip=850.0)
    True
    """
    return dp_critical_tokens_per_chip == fsdp_critical_tokens_per_chip


def fsdp_critical_tokens(*, fsdp_critical_tokens_per_chip: float, N: float) -> float:
    """Tokens a slice needs for FSDP over all its chips.

    Formula: B = b · N

    Source: Scaling Book, ch. 5.

    >>> fsdp_critical_tokens(fsdp_critical_tokens_per_chip=850.0, N=8960)
    7616000.0
    """
    return fsdp_critical_tokens_per_chip * N


def num_fsdp_chips(*, B_tokens: float, fsdp_critical_tokens_per_chip: float) -> float:
    """Chips over which FSDP can spread a batch before it waits for communication.

    Formula: N = B / b

    Source: Scaling Book, ch. 5.

    >>> num_fsdp_chips(B_tokens=1.7e6, fsdp_critical_tokens_per_chip=850.0)
    2000.0
    """
    return B_tokens / fsdp_critical_tokens_per_chip


def fsdp_is_compute_bound(*, tokens_per_chip: float, fsdp_critical_tokens_per_chip: float) -> bool:
    """Whether FSDP over every chip is bound by arithmetic.

    Formula: b > b_fsdp

    Source: Scaling Book, ch. 5.

    >>> fsdp_is_compute_bound(tokens_per_chip=468.0, fsdp_critical_tokens_per_chip=850.0)
    False
    """
    return tokens_per_chip > fsdp_critical_tokens_per_chip


def fsdp_compute_ratio(*, tokens_per_chip: float, fsdp_critical_tokens_per_chip: float) -> float:
    """Time of arithmetic over time of communication, FSDP alone.

    Formula: T_math / T_comms = b / b_fsdp

    Source: Scaling Book, ch. 5.

    >>> fsdp_compute_ratio(tokens_per_chip=425.0, fsdp_critical_tokens_per_chip=850.0)
    0.5
    """
    return tokens_per_chip / fsdp_critical_tokens_per_chip


def tensor_largest_degree(*, F: float, alpha_flops_per_byte: float, n_tensor_axes: float = 1.0) -> float:
    """Ways of tensor parallelism up to which a layer is bound by arithmetic, whatever the batch and the dtype.

    A layer does 4·B·D·F/Y FLOPs a chip while 4·B·D bytes of activations move.

    Formula: Y = n_tensor_axes · F / α

    Source: Scaling Book, ch. 5, tensor parallelism.

    >>> tensor_largest_degree(F=25500, alpha_flops_per_byte=2550)
    10.0
    """
    return n_tensor_axes * F / alpha_flops_per_byte


def tensor_whole_degree(*, tensor_largest_degree: float) -> float:
    """The same in whole ways.

    Formula: ⌊Y⌋

    Source: Scaling Book, ch. 5.

    >>> tensor_whole_degree(tensor_largest_degree=11.8)
    11
    """
    return floor(tensor_largest_degree)


def tensor_least_width(*, Y: float, alpha_flops_per_byte: float, n_tensor_axes: float = 1.0) -> float:
    """Width of the MLP from which Y-way tensor parallelism is bound by arithmetic.

    Formula: F = Y · α / n_tensor_axes

    Source: Scaling Book, ch. 5, tensor parallelism, solved for F.

    >>> tensor_least_width(Y=8, alpha_flops_per_byte=2550)
    20400.0
    """
    return Y * alpha_flops_per_byte / n_tensor_axes


def tensor_is_compute_bound(*, Y: float, tensor_largest_degree: float) -> bool:
    """Whether Y-way tensor parallelism is bound by arithmetic.

    Formula: Y < Y_max

    Source: Scaling Book, ch. 5.

    >>> tensor_is_compute_bound(Y=16, tensor_largest_degree=11.8)
    False
    """
    return tensor_largest_degree > Y


def tensor_compute_ratio(*, F: float, N: float, alpha_flops_per_byte: float, n_axes: float) -> float:
    """Time of arithmetic over time of communication, tensor parallelism over every chip; no batch helps.

    Formula: T_math / T_comms = n_axes · F / (α · N)

    Source: Scaling Book, ch. 5, tensor parallelism.

    >>> tensor_compute_ratio(F=25500, N=60, alpha_flops_per_byte=2550, n_axes=3)
    0.5
    """
    return n_axes * F / (alpha_flops_per_byte * N)


def optimal_data_degree(
    *, B_tokens: float, F: float, N: float, M_X: float = 2.0, M_Y: float = 1.0, E: float = 1.0, k: float = 1.0
) -> float:
    """Ways of FSDP that, the rest tensor parallel, leave the least communication.

    FSDP moves 4·D·F/(Y·M_X) bytes and tensor parallelism 4·B·D/(X·M_Y) for the same FLOPs; with X·Y = N their sum,
    and their larger, are least where they are equal. Experts multiply the weights by E and the activations by k.

    Formula: X = √(B / F · M_X / M_Y · N · k / E)

    Assumes: three torus axes, two of them for FSDP, where M_X and M_Y are not given.

    Source: Scaling Book, ch. 5, FSDP with tensor parallelism; k/E derived here.

    >>> optimal_data_degree(B_tokens=32768, F=32768, N=32, M_X=2, M_Y=1)
    8.0
    """
    return sqrt(B_tokens / F * M_X / M_Y * N * k / E)


def optimal_tensor_degree(*, N: float, optimal_data_degree: float) -> float:
    """Ways of tensor parallelism beside the best ways of FSDP.

    Formula: Y = N / X

    Source: Scaling Book, ch. 5.

    >>> optimal_tensor_degree(N=32, optimal_data_degree=8)
    4.0
    """
    return N / optimal_data_degree


def rounded_data_degree(*, optimal_data_degree: float, N: float) -> float:
    """The power of two nearest to the best ways of FSDP, as far as there are chips.

    Formula: 2^round(log₂ X), at most N

    Source: Scaling Book, ch. 6, which rounds so.

    >>> rounded_data_degree(optimal_data_degree=13.7, N=64)
    16
    """
    return min(2 ** round(log2(max(optimal_data_degree, 1.0))), 2 ** floor(log2(N)))


def rounded_tensor_degree(*, rounded_data_degree: float, N: float) -> float:
    """Ways of tensor parallelism that the rounded ways of FSDP leave.

    Formula: ⌊N / X⌋

    Source: Scaling Book, ch. 6.

    >>> rounded_tensor_degree(rounded_data_degree=2048, N=8960)  # 8192 of the 8960 chips
    4
    """
    return floor(N / rounded_data_degree)


def capped_data_degree(*, rounded_data_degree: float, sequence_limited_degree: float = inf) -> float:
    """Of those, the ways that split the batch between sequences.

    Formula: min(X, num_sequences)

    Source: Scaling Book, ch. 6: 1024 sequences for 2048 ways.

    >>> capped_data_degree(rounded_data_degree=2048, sequence_limited_degree=1024)
    1024
    """
    return min(rounded_data_degree, sequence_limited_degree)


def context_degree(*, rounded_data_degree: float, capped_data_degree: float) -> float:
    """The ways that are left to split sequences: context parallelism.

    Formula: X / capped_data_degree

    Source: Scaling Book, ch. 6.

    >>> context_degree(rounded_data_degree=2048, capped_data_degree=1024)
    2.0
    """
    return rounded_data_degree / capped_data_degree


def num_layout_chips(*, capped_data_degree: float, context_degree: float, rounded_tensor_degree: float) -> float:
    """Chips that the layout uses.

    Formula: capped_data_degree · context_degree · rounded_tensor_degree

    Source: Scaling Book, ch. 6.

    >>> num_layout_chips(capped_data_degree=1024, context_degree=2, rounded_tensor_degree=4)
    8192
    """
    return capped_data_degree * context_degree * rounded_tensor_degree


def whole_tensor_degree(*, optimal_tensor_degree: float, N: float) -> float:
    """The power of two nearest to the best ways of tensor parallelism that divides the chips: none is left out.

    Formula: 2^round(log₂ Y), at most the largest power of two that divides N

    Source: Scaling Book, ch. 6: 2240 · 4 chips in place of 2048 · 4.

    >>> whole_tensor_degree(optimal_tensor_degree=5.54, N=8960)
    4
    """
    return min(2 ** round(log2(max(optimal_tensor_degree, 1.0))), int(N) & -int(N))


def whole_data_degree(*, whole_tensor_degree: float, N: float) -> float:
    """Ways of FSDP beside it.

    Formula: N / Y

    Source: Scaling Book, ch. 6.

    >>> whole_data_degree(whole_tensor_degree=4, N=8960)
    2240.0
    """
    return N / whole_tensor_degree


def mixed_critical_tokens_per_chip(
    *,
    alpha_flops_per_byte: float,
    F: float,
    M_X: float = 2.0,
    M_Y: float = 1.0,
    E: float = 1.0,
    k: float = 1.0,
    overlapped: bool = False,
) -> float:
    """Tokens a chip from which FSDP with tensor parallelism, split at its best, is bound by arithmetic.

    Formula: b = (4, or 1 where overlapped) · α² / (M_X · M_Y · F) · E / k

    Assumes: the best split, before rounding; three torus axes, two of them for FSDP, where M_X and M_Y are not given.

    Source: Scaling Book, ch. 5, FSDP with tensor parallelism, appendix; its later edition for the overlap.

    >>> mixed_critical_tokens_per_chip(alpha_flops_per_byte=2560, F=32768, M_X=2, M_Y=1)
    400.0
    >>> mixed_critical_tokens_per_chip(alpha_flops_per_byte=2560, F=32768, M_X=2, M_Y=1, overlapped=True)
    100.0
    """
    return (1 if overlapped else 4) * alpha_flops_per_byte**2 / (M_X * M_Y * F) * E / k


def mixed_critical_tokens(*, mixed_critical_tokens_per_chip: float, N: float) -> float:
    """Tokens a slice needs so that some scheme is bound by arithmetic.

    Formula: B = b · N

    Source: Scaling Book, ch. 5; the first edition prints 1.6e10 where it means 1.6e6.

    >>> mixed_critical_tokens(mixed_critical_tokens_per_chip=400.0, N=4096)
    1638400.0
    """
    return mixed_critical_tokens_per_chip * N


def num_mixed_chips(*, B_tokens: float, mixed_critical_tokens_per_chip: float) -> float:
    """Chips over which FSDP with tensor parallelism can spread a batch before it waits for communication.

    Formula: N = B / b

    Source: Scaling Book, ch. 5.

    >>> num_mixed_chips(B_tokens=2.0e6, mixed_critical_tokens_per_chip=400.0)
    5000.0
    """
    return B_tokens / mixed_critical_tokens_per_chip


def mixed_is_compute_bound(*, tokens_per_chip: float, mixed_critical_tokens_per_chip: float) -> bool:
    """Whether FSDP with tensor parallelism, split at its best, is bound by arithmetic.

    Formula: b > b_mixed

    Source: Scaling Book, ch. 5.

    >>> mixed_is_compute_bound(tokens_per_chip=468.0, mixed_critical_tokens_per_chip=453.6)
    True
    """
    return tokens_per_chip > mixed_critical_tokens_per_chip


def mixed_compute_ratio(*, tokens_per_chip: float, mixed_critical_tokens_per_chip: float) -> float:
    """Time of arithmetic over time of communication at the best split.

    It is √(B·F·M_X·M_Y) / (2α·√N), without the 2 where overlapped: the square root of b over its critical value.

    Formula: T_math / T_comms = √(b / b_mixed)

    Source: Scaling Book, ch. 5; the first edition's prose says square where its formula has the root.

    >>> mixed_compute_ratio(tokens_per_chip=100.0, mixed_critical_tokens_per_chip=400.0)
    0.5
    """
    return sqrt(tokens_per_chip / mixed_critical_tokens_per_chip)


def compute_bound_split_exists(
    *,
    tokens_per_chip: float,
    F: float,
    alpha_flops_per_byte: float,
    M_X: float = 2.0,
    M_Y: float = 1.0,
    E: float = 1.0,
    k: float = 1.0,
) -> bool:
    """Whether any X and Y with X·Y = N make communication, summed, no longer than arithmetic.

    F·X/(N·M_X) · E/k + B/(X·M_Y) ≤ B·F/(N·α) is a quadratic in X: it has a solution where its discriminant is not
    negative.

    Formula: (b · F / α)² ≥ 4 · b · F / (M_X · M_Y) · E / k

    Source: Scaling Book, ch. 5, appendix C.

    >>> [compute_bound_split_exists(tokens_per_chip=b, F=32768, alpha_flops_per_byte=2560) for b in (399, 400)]
    [False, True]
    """
    slope, product = tokens_per_chip * F / alpha_flops_per_byte, 4 * tokens_per_chip * F / (M_X * M_Y) * E / k
    return slope**2 >= product * (1 - _ROUNDING)


def fsdp_overtakes_tokens_per_chip(
    *, F: float, n_axes: float, M_X: float = 2.0, M_Y: float = 1.0, overlapped: bool = False
) -> float:
    """Tokens a chip from which FSDP alone communicates less than FSDP with tensor parallelism at its best split.

    Formula: b = F · M_X · M_Y / ((4, or 1 where overlapped) · n_axes²)

    Source: Scaling Book, ch. 5, figure of the three schemes; derived from their communication times.

    >>> fsdp_overtakes_tokens_per_chip(F=36000, n_axes=3, M_X=2, M_Y=1)
    2000.0
    """
    return F * M_X * M_Y / ((1 if overlapped else 4) * n_axes**2)


def split_critical_tokens(
    *, F: float, X: float, Y: float, alpha_flops_per_byte: float, M_X: float = 2.0, M_Y: float = 1.0
) -> float:
    """Tokens a slice needs with X-way FSDP and Y-way tensor parallelism, communication summed; ∞ where none suffice.

    Formula: B = F / (Y · M_X) / (F / (X · Y · α) − 1 / (X · M_Y))

    Source: Scaling Book, ch. 5, figure of a 16x16x16 slice; derived from 4·D·F/(Y·M_X) + 4·B·D/(X·M_Y) bytes.

    >>> split_critical_tokens(F=8, X=4, Y=2, alpha_flops_per_byte=2, M_X=1, M_Y=1)  # 4 / (1/2 − 1/4)
    16.0
    """
    spared = F / (X * Y * alpha_flops_per_byte) - 1 / (X * M_Y)
    return F / (Y * M_X) / spared if spared > 0 else inf


def fsdp_overtakes_tokens(*, F: float, X: float, Y: float, n_axes: float, M_X: float = 2.0, M_Y: float = 1.0) -> float:
    """Tokens a slice needs for FSDP over all its axes to communicate less than this X by Y split.

    Formula: B = (F / n_axes − F / (Y · M_X)) · X · M_Y

    Source: Scaling Book, ch. 5, figure of a 16x16x16 slice; derived from 4·D·F/n_axes bytes.

    >>> fsdp_overtakes_tokens(F=12, X=4, Y=2, n_axes=3, M_X=2, M_Y=1)
    4.0
    """
    return (F / n_axes - F / (Y * M_X)) * X * M_Y
