"""What one MLP layer computes and moves on a chip: In[B, D] · W_in[D, F] · W_out[F, D], forward and backward.

B  tokens of the slice     X  ways of data parallelism or FSDP     Y  ways of tensor parallelism
b_a, b_w  bytes of an activation's and of a weight's element       M_X, M_Y  torus axes given to each

A move is one array through one all-gather or reduce-scatter; an all-reduce is two. Which a scheme makes stands in
`layer_communication.py`.
"""

from __future__ import annotations

from ridgeline.cost.collectives import all_gather_limit_s
from ridgeline.cost.roofline import compute_s, matmul_flops


def forward_flops(*, B_tokens: float, D: float, F: float, X: float, Y: float, num_matrices: float = 2.0) -> float:
    """FLOPs of a chip in the forward pass.

    Formula: num_matrices · 2 · B · D · F / (X · Y)

    Source: Scaling Book, ch. 5, table of schemes.

    >>> forward_flops(B_tokens=8, D=2, F=4, X=2, Y=2)
    64.0
    """
    return float(num_matrices * matmul_flops(B=B_tokens, D=D, F=F) / (X * Y))


def backward_flops(*, forward_flops: float) -> float:
    """FLOPs of a chip in the backward pass: the gradients of the input and of the weights.

    Formula: 2 · forward_flops

    Source: Scaling Book, ch. 4.

    >>> backward_flops(forward_flops=64.0)
    128.0
    """
    return 2 * forward_flops


def weight_moves_bytes(*, D: float, F: float, Y: float, num_moves: float, b_w: float = 2.0) -> float:
    """Bytes of weights, or of their gradients, that move between the data-parallel ways.

    Formula: num_moves · b_w · D · F / Y

    Source: Scaling Book, ch. 5, table of schemes.

    >>> weight_moves_bytes(D=2, F=4, Y=2, num_moves=2)
    16.0
    """
    return num_moves * b_w * D * F / Y


def activation_moves_bytes(*, B_tokens: float, D: float, X: float, num_moves: float, b_a: float = 2.0) -> float:
    """Bytes of activations, or of their gradients, that move between the tensor-parallel ways.

    Formula: num_moves · b_a · B · D / X

    Source: Scaling Book, ch. 5, table of schemes.

    >>> activation_moves_bytes(B_tokens=8, D=2, X=4, num_moves=2)
    16.0
    """
    return num_moves * b_a * B_tokens * D / X


def math_s(*, flops: float, C_flops_per_s: float) -> float:
    """Time of the arithmetic.

    Formula: T_math = flops / C

    Source: Scaling Book, ch. 5.

    >>> math_s(flops=8.0, C_flops_per_s=2.0)
    4.0
    """
    return float(compute_s(flops=flops, C_flops_per_s=C_flops_per_s))


def moves_s(*, V_bytes: float, n_axes: float, W_ici_bytes_per_s: float) -> float:
    """Time of the moves over the torus axes of those ways.

    Formula: T_comms = V / (W_ici · n_axes)

    Assumes: rings, both directions at once, much longer than one hop.

    Source: Scaling Book, ch. 5.

    >>> moves_s(V_bytes=24.0, n_axes=2, W_ici_bytes_per_s=4.0)
    3.0
    """
    return float(all_gather_limit_s(V_bytes=V_bytes, n=2 * n_axes, W_bytes_per_s=W_ici_bytes_per_s / 2))
