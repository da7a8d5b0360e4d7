"""What limits the ways of data parallelism: memory bandwidth, the number of sequences, and the network of slices.

B  tokens in a slice's share of the batch     N  chips of the slice     T  tokens of a sequence

Several slices split the batch between them and sum their gradients over the data-centre network (DCN).
"""

from __future__ import annotations

from math import floor

from ridgeline.cost.critical_size import expert_critical_rows, small_batch_critical_rows
from ridgeline.cost.roofline import ridge_flops_per_byte


def batch_of_sequences_tokens(*, num_sequences: float, T: float) -> float:
    """Tokens in a batch of sequences.

    Formula: batch = num_sequences · T

    Source: Scaling Book, ch. 6.

    >>> batch_of_sequences_tokens(num_sequences=1024, T=4096)
    4194304
    """
    return num_sequences * T


def batch_of_slices_tokens(*, B_tokens: float, num_slices: float = 1.0) -> float:
    """Tokens in the whole batch.

    Formula: batch = B · num_slices

    Source: Scaling Book, ch. 5, across pods.

    >>> batch_of_slices_tokens(B_tokens=4096, num_slices=10)
    40960
    """
    return B_tokens * num_slices


def slice_batch_tokens(*, batch_tokens: float, num_slices: float = 1.0) -> float:
    """Tokens in a slice's share of the batch.

    Formula: B = batch_tokens / num_slices

    Source: Scaling Book, ch. 5, across pods.

    >>> slice_batch_tokens(batch_tokens=4.0e7, num_slices=10)
    4000000.0
    """
    return batch_tokens / num_slices


def num_chips_of_slices(*, N: float, num_slices: float = 1.0) -> float:
    """Chips of all slices.

    Formula: num_chips = N · num_slices

    Source: Scaling Book, ch. 5, across pods.

    >>> num_chips_of_slices(N=8960, num_slices=10)
    89600
    """
    return N * num_slices


def num_chips_of_slice(*, num_chips: float, num_slices: float = 1.0) -> float:
    """Chips of one slice.

    Formula: N = num_chips / num_slices

    Source: Scaling Book, ch. 5, across pods.

    >>> num_chips_of_slice(num_chips=89600, num_slices=10)
    8960.0
    """
    return num_chips / num_slices


def num_fsdp_slices(*, num_fsdp_chips: float, num_chips_per_pod: float) -> float:
    """The chips over which FSDP can spread a batch, in pods.

    Formula: num_fsdp_chips / num_chips_per_pod

    Source: Scaling Book, ch. 5.

    >>> num_fsdp_slices(num_fsdp_chips=2240.0, num_chips_per_pod=8960)
    0.25
    """
    return num_fsdp_chips / num_chips_per_pod


def num_sequences(*, batch_tokens: float, T: float) -> float:
    """Sequences in a batch.

    Formula: num_sequences = batch_tokens / T

    Source: Scaling Book, ch. 6.

    >>> num_sequences(batch_tokens=3145728, T=32768)
    96.0
    """
    return batch_tokens / T


def sequence_limited_degree(*, num_sequences: float) -> float:
    """Ways of data parallelism while no sequence is split (context parallelism splits them).

    Formula: ⌊num_sequences⌋

    Source: Scaling Book, ch. 6.

    >>> sequence_limited_degree(num_sequences=1024.5)
    1024
    """
    return floor(num_sequences)


def sequences_suffice(*, num_sequences: float, num_chips: float) -> bool:
    """Whether every chip can have a sequence of its own.

    Formula: num_sequences ≥ num_chips

    Source: Scaling Book, ch. 6.

    >>> sequences_suffice(num_sequences=1024, num_chips=8960)
    False
    """
    return num_sequences >= num_chips


def hbm_flops_per_byte(*, C_flops_per_s: float, W_hbm_bytes_per_s: float) -> float:
    """FLOPs a chip does while one byte comes from its memory: its ridge point.

    Formula: C / W_hbm

    Source: Scaling Book, ch. 1.

    >>> hbm_flops_per_byte(C_flops_per_s=4.8e14, W_hbm_bytes_per_s=2.0e12)
    240.0
    """
    return float(ridge_flops_per_byte(C_flops_per_s=C_flops_per_s, W_bytes_per_s=W_hbm_bytes_per_s))


def memory_critical_tokens_per_chip(
    *, hbm_flops_per_byte: float, E: float = 1.0, k: float = 1.0, b_w: float = 2.0
) -> float:
    """Tokens a chip from which reading its weights no longer binds a matmul.

    Formula: b = (b_w / 2) · C / W_hbm · E / k

    Assumes: few tokens beside the widths, so that reading weights is all the traffic.

    Source: Scaling Book, ch. 1, critical batch; ch. 4, mixture of experts: E are read and k used.

    >>> memory_critical_tokens_per_chip(hbm_flops_per_byte=240, E=16, k=2)
    1920.0
    """
    rows = small_batch_critical_rows(b_w=b_w, C_flops_per_s=hbm_flops_per_byte, W_bytes_per_s=1.0)
    return expert_critical_rows(B=rows, E=E, k=k)


def chip_dcn_bytes_per_s(*, W_host_bytes_per_s: float, num_chips_per_host: float) -> float:
    """Network bandwidth of one chip.

    Formula: W_dcn = W_host / num_chips_per_host

    Source: Scaling Book, ch. 5, across pods.

    >>> chip_dcn_bytes_per_s(W_host_bytes_per_s=2.5e10, num_chips_per_host=4)
    6250000000.0
    """
    return W_host_bytes_per_s / num_chips_per_host


def num_hosts(*, N: float, num_chips_per_host: float) -> float:
    """Hosts of a slice.

    Formula: N / num_chips_per_host

    Source: Scaling Book, ch. 2.

    >>> num_hosts(N=8960, num_chips_per_host=4)
    2240.0
    """
    return N / num_chips_per_host


def slice_dcn_bytes_per_s(*, N: float, W_dcn_bytes_per_s: float) -> float:
    """Network bandwidth of a slice.

    Formula: N · W_dcn

    Source: Scaling Book, ch. 5, across pods.

    >>> slice_dcn_bytes_per_s(N=4, W_dcn_bytes_per_s=6.25e9)
    25000000000.0
    """
    return N * W_dcn_bytes_per_s


def slice_flops_per_s(*, N: float, C_flops_per_s: float) -> float:
    """Peak of a slice.

    Formula: N · C

    Source: Scaling Book, ch. 5.

    >>> slice_flops_per_s(N=2, C_flops_per_s=4.59e14)
    918000000000000.0
    """
    return N * C_flops_per_s


def dcn_flops_per_byte(*, C_flops_per_s: float, W_dcn_bytes_per_s: float) -> float:
    """FLOPs a chip does while one byte of its own arrives over the network.

    Formula: C / W_dcn

    Source: Scaling Book, ch. 5, across pods.

    >>> dcn_flops_per_byte(C_flops_per_s=4.59e14, W_dcn_bytes_per_s=6.25e9)
    73440.0
    """
    return float(ridge_flops_per_byte(C_flops_per_s=C_flops_per_s, W_bytes_per_s=W_dcn_bytes_per_s))


def dcn_critical_tokens(*, dcn_flops_per_byte: float) -> float:
    """Tokens a slice needs to hide the sum of gradients over the network, whatever its size.

    Formula: B = C / W_dcn

    Assumes: two-byte gradients, summed behind the backward pass.

    Source: Scaling Book, ch. 5, across pods; the first edition prints 76,000 and 75,000 on v5p, of rounded figures.

    >>> dcn_critical_tokens(dcn_flops_per_byte=73440.0)
    73440.0
    """
    return dcn_flops_per_byte


def dcn_is_hidden(*, B_tokens: float, dcn_critical_tokens: float) -> bool:
    """Whether a slice's arithmetic hides the sum of gradients over the network.

    Formula: B > B_dcn

    Source: Scaling Book, ch. 5, across pods; the first edition has one inequality the wrong way round.

    >>> dcn_is_hidden(B_tokens=4.0e6, dcn_critical_tokens=73440.0)
    True
    """
    return B_tokens > dcn_critical_tokens
