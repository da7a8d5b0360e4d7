"""Bytes that training keeps: weights, optimizer, gradients, and what the forward pass saves for the backward pass.

P  parameters     b_w, b_g, b_mu, b_nu  bytes of a weight, a gradient and Adam's two moments     b_a  of an activation
L  layers         D, F  model and MLP width
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from ridgeline.cost.work import larger, smaller

if TYPE_CHECKING:
    from ridgeline.cost.work import Number


def weight_bytes(*, P: Number, b_w: float = 2.0) -> Number:
    """Bytes of the weights.

    Formula: b_w · P

    Source: Scaling Book, ch. 5, memory.

    >>> weight_bytes(P=7.0e10)
    140000000000.0
    """
    return P * b_w


def optimizer_bytes(*, P: Number, b_mu: float = 4.0, b_nu: float = 4.0) -> Number:
    """Bytes of Adam's moments.

    Formula: (b_mu + b_nu) · P

    Source: Scaling Book, ch. 5, memory.

    >>> optimizer_bytes(P=7.0e10)
    560000000000.0
    """
    return P * (b_mu + b_nu)


def gradient_bytes(*, P: Number, b_g: float = 2.0) -> Number:
    """Bytes of the gradients, which are freed once the optimizer has used them.

    Formula: b_g · P

    Source: Scaling Book, ch. 5, ZeRO.

    >>> gradient_bytes(P=7.0e10)
    140000000000.0
    """
    return P * b_g


def state_bytes(*, weight_bytes: float, optimizer_bytes: float) -> float:
    """Bytes of what a training step leaves for the next: weights and moments.

    Formula: weight_bytes + optimizer_bytes

    Assumes: gradients, which do not outlive a step, are left out.

    Source: Scaling Book, ch. 5: 10 bytes a parameter with bf16 weights and f32 moments.

    >>> state_bytes(weight_bytes=2.6e10, optimizer_bytes=10.4e10)
    130000000000.0
    """
    return weight_bytes + optimizer_bytes


def mlp_width(*, D: float, mlp_ratio: float) -> float:
    """Width of the MLP.

    Formula: F = mlp_ratio · D

    Source: Scaling Book, ch. 5.

    >>> mlp_width(D=4096, mlp_ratio=4)
    16384
    """
    return mlp_ratio * D


def saved_width(*, D: float, num_stream_saved: float, F: float = 0.0, num_mlp_saved: float = 0.0) -> float:
    """Elements that a layer saves of each token: some intermediates as wide as the stream, some as the MLP.

    Formula: num_stream_saved · D + num_mlp_saved · F

    Source: Scaling Book, ch. 4: about 20·D for every node, 7·D for the matmuls, D for a block's input.

    >>> saved_width(D=8, num_stream_saved=1, F=32, num_mlp_saved=2)
    72
    """
    return num_stream_saved * D + num_mlp_saved * F


def saved_bytes(*, batch_tokens: Number, L: Number, saved_width: Number, b_a: float = 2.0) -> Number:
    """Bytes that the forward pass saves for the backward pass.

    Formula: b_a · batch_tokens · L · saved_width

    Source: Scaling Book, ch. 4, checkpointing.

    >>> saved_bytes(batch_tokens=4.0e6, L=64, saved_width=20 * 8192)
    83886080000000.0
    """
    return batch_tokens * L * saved_width * b_a


def head_bytes(*, logits_bytes: Number, table_bytes: Number) -> Number:
    """Bytes at the fullest instant of logits and loss: both operands of the backward matmuls, and one gradient.

    Formula: logits_bytes + table_bytes + max(logits_bytes, table_bytes)

    Assumes: logits in the compute dtype; the gradients of logits and table do not live at once.

    Source: buffer assignment of MaxText 0.2.5 programs by XLA (libtpu 0.0.52): Llama 3.1 8B holds its logits twice,
    Llama 3.1 70B with 8,192 tokens a device logits, gathered table and its gradient.

    >>> head_bytes(logits_bytes=4.0, table_bytes=1.0)
    9.0
    """
    return logits_bytes + table_bytes + larger(logits_bytes, table_bytes)


def head_waiting_bytes(*, logits_bytes: Number, table_bytes: Number) -> Number:
    """Bytes of the head that outlive it: its weight gradient, which only the optimizer reads, or what it is made from.

    Formula: min(logits_bytes, table_bytes)

    Assumes: the gradient is summed over the devices whole and divided where the optimizer uses it, or made that late.

    Source: live ranges of the same programs: the gradient of the table waits through the layers' backward pass.

    >>> head_waiting_bytes(logits_bytes=4.0, table_bytes=1.0)
    1.0
    """
    return smaller(logits_bytes, table_bytes)


def held_bytes(*, state_bytes: float, saved_bytes: float = 0.0) -> float:
    """Bytes that a training run holds, on all chips together.

    Formula: state_bytes + saved_bytes

    Assumes: nothing is replicated; gradients and working memory left out.

    Source: Scaling Book, ch. 6.

    >>> held_bytes(state_bytes=7.0e11, saved_bytes=3.0e11)
    1000000000000.0
    """
    return state_bytes + saved_bytes


def num_memory_chips(*, held_bytes: float, hbm_bytes: float) -> float:
    """Chips whose memory together holds the run.

    Formula: held_bytes / hbm_bytes

    Source: Scaling Book, ch. 6.

    >>> num_memory_chips(held_bytes=21.6e12, hbm_bytes=9.6e10)
    225.0
    """
    return held_bytes / hbm_bytes


def num_whole_memory_chips(*, num_memory_chips: float) -> float:
    """The same in whole chips.

    Formula: ⌈num_memory_chips⌉

    Source: Scaling Book, ch. 6.

    >>> num_whole_memory_chips(num_memory_chips=225.7)
    226
    """
    return ceil(num_memory_chips)


def chip_held_bytes(*, held_bytes: float, num_chips: float) -> float:
    """Bytes on each chip when everything is split over all of them.

    Formula: held_bytes / num_chips

    Source: Scaling Book, ch. 6.

    >>> chip_held_bytes(held_bytes=8.0e12, num_chips=4000)
    2000000000.0
    """
    return held_bytes / num_chips


def chip_staged_bytes(*, zero_bytes: float, num_chips: float, saved_bytes: float = 0.0) -> float:
    """Bytes on each chip under a stage of ZeRO: what it keeps of weights, gradients and optimizer, and its activations.

    Formula: zero_bytes + saved_bytes / num_chips

    Assumes: saved activations are split over all chips.

    Source: Rajbhandari et al., arXiv:1910.02054, figure 1; Scaling Book, ch. 5.

    >>> chip_staged_bytes(zero_bytes=1.6e10, saved_bytes=8.0e12, num_chips=4000)
    18000000000.0
    """
    return zero_bytes + saved_bytes / num_chips


def moments_bytes_per_parameter(*, b_mu: float, b_nu: float) -> float:
    """Bytes of optimizer state for each parameter: Adam's moments.

    Formula: kappa = b_mu + b_nu

    Assumes: no further copy of the weights; mixed precision that keeps one in f32 has kappa = 12.

    Source: Rajbhandari et al., arXiv:1910.02054, section 3.1.

    >>> moments_bytes_per_parameter(b_mu=4.0, b_nu=4.0)
    8.0
    """
    return b_mu + b_nu


def run_fits(*, chip_held_bytes: float, hbm_bytes: float) -> bool:
    """Whether the run fits when everything is split over all chips.

    Formula: chip_held_bytes ≤ hbm_bytes

    Source: Scaling Book, ch. 6.

    >>> run_fits(chip_held_bytes=2.4e9, hbm_bytes=9.6e10)
    True
    """
    return chip_held_bytes <= hbm_bytes


def replica_fits(*, state_bytes: float, hbm_bytes: float) -> bool:
    """Whether a chip can hold weights and moments whole, as pure data parallelism asks.

    Formula: state_bytes ≤ hbm_bytes

    Source: Scaling Book, ch. 5.

    >>> replica_fits(state_bytes=1.3e11, hbm_bytes=9.6e10)
    False
    """
    return state_bytes <= hbm_bytes


def num_replica_parameters(*, hbm_bytes: float, b_w: float = 2.0, b_mu: float = 4.0, b_nu: float = 4.0) -> float:
    """Parameters whose weights and moments one chip can hold.

    Formula: P = hbm_bytes / (b_w + b_mu + b_nu)

    Source: Scaling Book, ch. 5, data parallelism.

    >>> num_replica_parameters(hbm_bytes=9.6e10)
    9600000000.0
    """
    return hbm_bytes / (b_w + b_mu + b_nu)


def slice_hbm_bytes(*, num_chips: float, hbm_bytes: float) -> float:
    """Memory of all chips.

    Formula: num_chips · hbm_bytes

    Source: Scaling Book, ch. 5.

    >>> slice_hbm_bytes(num_chips=4096, hbm_bytes=9.6e10)
    393216000000000.0
    """
    return num_chips * hbm_bytes


def zero_bytes(*, P: float, X: float, stage: int, kappa: float = 12.0, b_w: float = 2.0, b_g: float = 2.0) -> float:
    """Bytes a device holds under a stage of ZeRO over X ways: weights, gradients, optimizer.

    Stage 1 splits the optimizer's kappa bytes a parameter, stage 2 the gradients too, stage 3 (FSDP) the weights too.

    Formula: Σ of b_w·P, b_g·P and kappa·P, the last `stage` of them divided by X

    Source: Rajbhandari et al., arXiv:1910.02054, figure 1; Scaling Book, ch. 5.

    >>> [zero_bytes(P=64, X=64, stage=stage) for stage in range(4)]
    [1024.0, 268.0, 142.0, 16.0]
    """
    num_whole, parts = 3 - int(stage), (b_w * P, b_g * P, kappa * P)
    return sum(parts[:num_whole]) + sum(parts[num_whole:]) / X
