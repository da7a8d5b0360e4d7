"""FLOPs and bytes of one operation asked about alone; matmul and scores are in `roofline.py`.

    B  rows, or sequences        D  contracted width        F  output width        E, k  experts, those a row visits
    T  queries of a sequence     S  keys a query sees       N, K, H  query heads, key-value heads, width of a head

    b_a  bytes of an activation's element        b_w  of a weight's        b_o  of an output's

Each array is moved once. An array that lies in another memory counts there: here its element has zero bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ridgeline.cost.roofline import matmul_bytes, matmul_flops
from ridgeline.cost.work import smaller

if TYPE_CHECKING:
    from ridgeline.cost.work import Number


def matmul_exact_flops(*, B: Number, D: Number, F: Number) -> Number:
    """FLOPs of x[B, D] @ W[D, F], counting one addition fewer than products for each output.

    Formula: B·F·(2·D − 1)

    Source: Scaling Book, ch. 1.

    >>> matmul_exact_flops(B=2, D=3, F=5)
    50
    """
    return B * F * dot_flops(D=D)


def small_batch_intensity_flops_per_byte(*, rows: Number, b_w: Number) -> Number:
    """Intensity of a matmul of so few rows that its weights are all the traffic.

    Formula: 2·rows/b_w

    Assumes: rows much fewer than the widths of the matrix.

    Source: Scaling Book, ch. 1: in bf16, B.

    >>> small_batch_intensity_flops_per_byte(rows=64, b_w=2.0)
    64.0
    """
    return 2 * rows / b_w


def batched_matmul_flops(*, B: Number, T: Number, D: Number, F: Number) -> Number:
    """FLOPs of x[B, T, D] @ W[B, D, F], a matrix of its own for each of B examples.

    Formula: 2·B·T·D·F

    Source: Scaling Book, ch. 1, question 4.

    >>> batched_matmul_flops(B=2, T=1, D=3, F=5)
    60
    """
    return B * matmul_flops(B=T, D=D, F=F)


def batched_matmul_bytes(*, B: Number, T: Number, D: Number, F: Number, b_a: float, b_w: float, b_o: float) -> Number:
    """Bytes moved by x[B, T, D] @ W[B, D, F]: the weights grow with the batch.

    Formula: B·(b_a·T·D + b_w·D·F + b_o·T·F)

    Source: Scaling Book, ch. 1, question 4.

    >>> batched_matmul_bytes(B=2, T=1, D=2, F=3, b_a=1.0, b_w=1.0, b_o=1.0)
    22.0
    """
    return B * matmul_bytes(B=T, D=D, F=F, b_a=b_a, b_w=b_w, b_o=b_o)


def routed_rows(*, B: Number, k: Number) -> Number:
    """Rows that all experts together compute.

    Formula: k·B

    Source: Scaling Book, ch. 4, mixture of experts.

    >>> routed_rows(B=3, k=2)
    6
    """
    return k * B


def visited_experts_count(*, E: Number, rows: Number) -> Number:
    """Experts whose weights are read: all of them, once there are as many rows as experts.

    Formula: min(E, rows)

    Assumes: balanced routing.

    Source: Scaling Book, ch. 4, mixture of experts.

    >>> visited_experts_count(E=8, rows=6), visited_experts_count(E=8, rows=64)
    (6, 8)
    """
    return smaller(E, rows)


def expert_matmul_bytes(*, rows: Number, E: Number, D: Number, F: Number, b_a: float, b_w: float, b_o: float) -> Number:
    """Bytes moved by x[rows, D] @ W[E, D, F], rows grouped by expert.

    Formula: b_a·rows·D + b_w·E·D·F + b_o·rows·F

    Source: Scaling Book, ch. 4, mixture of experts.

    >>> expert_matmul_bytes(rows=4, E=2, D=2, F=3, b_a=1.0, b_w=1.0, b_o=1.0)
    32.0
    """
    return b_a * rows * D + b_w * E * D * F + b_o * rows * F


def attention_bytes(*, T: Number, S: Number, N: Number, K: Number, H: Number, b_a: float, b_w: float) -> Number:
    """Bytes moved by attention: T queries and outputs, S keys and values, those of all sequences, once each.

    Formula: 2·b_a·T·N·H + 2·b_w·S·K·H

    Assumes: a fused kernel: scores never leave the chip. b_a is the mean of query and output, b_w of key and value.

    Source: Scaling Book, ch. 4, question 4.

    >>> attention_bytes(T=1, S=2, N=4, K=2, H=3, b_a=2.0, b_w=1.0)
    72.0
    """
    return 2 * b_a * T * N * H + 2 * b_w * S * K * H


def dot_flops(*, D: Number) -> Number:
    """FLOPs of the dot product of two vectors: as many products as elements, one sum fewer.

    Formula: 2·D − 1

    Source: Scaling Book, ch. 1.

    >>> dot_flops(D=4)
    7
    """
    return 2 * D - 1


def dot_bytes(*, D: Number, b_a: float, b_w: float, b_o: float) -> Number:
    """Bytes moved by the dot product of two vectors.

    Formula: b_a·D + b_w·D + b_o

    Source: Scaling Book, ch. 1.

    >>> dot_bytes(D=4, b_a=2.0, b_w=2.0, b_o=2.0)
    18.0
    """
    return b_a * D + b_w * D + b_o


def elementwise_flops(*, B: Number, D: Number, flops_per_element: float) -> Number:
    """FLOPs of an operation on each element of an array [B, D].

    Formula: flops_per_element·B·D

    Source: Scaling Book, ch. 2, the vector unit.

    >>> elementwise_flops(B=2, D=3, flops_per_element=4.0)
    24.0
    """
    return flops_per_element * B * D


def elementwise_bytes(*, B: Number, D: Number, num_reads: float, num_writes: float, b_a: float, b_o: float) -> Number:
    """Bytes moved by an operation that reads and writes so many arrays [B, D].

    Formula: (num_reads·b_a + num_writes·b_o)·B·D

    Source: Scaling Book, ch. 2, the vector unit.

    >>> elementwise_bytes(B=2, D=3, num_reads=2, num_writes=1, b_a=2.0, b_o=2.0)
    36.0
    """
    return (num_reads * b_a + num_writes * b_o) * B * D


def embedding_bytes(*, B: Number, D: Number, b_w: float, b_o: float) -> Number:
    """Bytes moved by looking up B rows of width D: read from the table, written out.

    Formula: (b_w + b_o)·B·D

    Source: Scaling Book, ch. 4: a lookup computes nothing.

    >>> embedding_bytes(B=2, D=3, b_w=2.0, b_o=2.0)
    24.0
    """
    return (b_w + b_o) * B * D
