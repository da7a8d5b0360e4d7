"""Whether attention is bound by arithmetic: its FLOPs for each byte, in prefill and in decoding.

T  queries     S  keys     G  query heads of a key-value head, N/K     ridge  FLOPs a chip does while a byte arrives

Two-byte numbers; one fused kernel, so that scores never leave the chip.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from ridgeline.cost.critical_size import self_attention_critical_queries
from ridgeline.cost.laws.deduce import Laws, System, deduce, read_quantities, system
from ridgeline.cost.laws.slices import hbm_flops_per_byte
from ridgeline.cost.roofline import attention_flops, intensity_flops_per_byte
from ridgeline.cost.single_operation import attention_bytes


def heads_per_group_count(*, N: float, K: float) -> float:
    """Query heads of a key-value head.

    Formula: G = N / K

    Source: Scaling Book, ch. 4.

    >>> heads_per_group_count(N=64, K=8)
    8.0
    """
    return N / K


def attention_intensity_flops_per_byte(*, T: float, S: float, G: float = 1.0) -> float:
    """FLOPs of T queries over S keys, for each byte of queries, keys, values and output.

    Formula: AI = T · S · G / (T · G + S)

    Assumes: two-byte numbers; scores stay on the chip.

    Source: Scaling Book, ch. 4, question 4; ch. 7.

    >>> attention_intensity_flops_per_byte(T=8192, S=8192)
    4096.0
    """
    traffic_bytes = attention_bytes(T=T, S=S, N=G, K=1.0, H=1.0, b_a=2.0, b_w=2.0)
    return float(intensity_flops_per_byte(flops=attention_flops(T=T, S=S, N=G, H=1.0), traffic_bytes=traffic_bytes))


def prefill_intensity_flops_per_byte(*, T: float, G: float = 1.0) -> float:
    """The same where a sequence attends to itself: S = T.

    Formula: AI = T · G / (G + 1)

    Source: Scaling Book, ch. 4, question 4.

    >>> prefill_intensity_flops_per_byte(T=8192)
    4096.0
    """
    return attention_intensity_flops_per_byte(T=T, S=T, G=G)


def decode_intensity_flops_per_byte(*, S: float, G: float = 1.0) -> float:
    """The same for one new token: T = 1. Of many keys it tends to G.

    Formula: AI = S · G / (G + S)

    Source: Scaling Book, ch. 4, question 4.

    >>> decode_intensity_flops_per_byte(S=7.0, G=7)
    3.5
    """
    return attention_intensity_flops_per_byte(T=1.0, S=S, G=G)


def prefill_critical_tokens(*, ridge_flops_per_byte: float, G: float = 1.0) -> float:
    """Length from which a sequence's attention to itself is bound by arithmetic.

    Formula: T = ridge · (G + 1) / G

    Source: Scaling Book, ch. 4, question 4; ch. 7: 480 on v5e for a head of its own each, 240 for many in a group.

    >>> prefill_critical_tokens(ridge_flops_per_byte=240, G=1)
    480.0
    """
    return self_attention_critical_queries(G=G, b_a=2.0, b_w=2.0, C_flops_per_s=ridge_flops_per_byte, W_bytes_per_s=1.0)


def prefill_is_compute_bound(*, prefill_intensity_flops_per_byte: float, ridge_flops_per_byte: float) -> bool:
    """Whether prefill is bound by arithmetic.

    Formula: AI > ridge

    Source: Scaling Book, ch. 7.

    >>> prefill_is_compute_bound(prefill_intensity_flops_per_byte=4096, ridge_flops_per_byte=240)
    True
    """
    return prefill_intensity_flops_per_byte > ridge_flops_per_byte


def decode_is_compute_bound(*, decode_intensity_flops_per_byte: float, ridge_flops_per_byte: float) -> bool:
    """Whether decoding is bound by arithmetic: no batch and no length makes it so.

    Formula: AI > ridge

    Source: Scaling Book, ch. 7.

    >>> decode_is_compute_bound(decode_intensity_flops_per_byte=1, ridge_flops_per_byte=240)
    False
    """
    return decode_intensity_flops_per_byte > ridge_flops_per_byte


ATTENTION: Final[System] = (
    *system(G=heads_per_group_count, ridge_flops_per_byte=hbm_flops_per_byte),
    *system(
        attention_intensity_flops_per_byte,
        prefill_intensity_flops_per_byte,
        decode_intensity_flops_per_byte,
        prefill_critical_tokens,
        prefill_is_compute_bound,
        decode_is_compute_bound,
    ),
)
"""What can be said of attention."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionLaws(Laws):
    """What the laws of attention say of what was given."""

    @property
    def prefill_bound(self) -> Literal["compute", "memory"]:
        """What prefill waits for."""
        return "compute" if self.known["prefill_is_compute_bound"] else "memory"

    @property
    def decode_bound(self) -> Literal["compute", "memory"]:
        """What decoding waits for."""
        return "compute" if self.known["decode_is_compute_bound"] else "memory"


def attention_laws(**given: float | str) -> AttentionLaws:
    """Everything these laws say of what is given.

    >>> laws = attention_laws(T=8192, S=8192, G=8, ridge_flops_per_byte=240)
    >>> laws["prefill_critical_tokens"], laws.decode_bound
    (270.0, 'memory')

    Args:
        **given: T, S, G (or N and K), ridge_flops_per_byte (or C_flops_per_s and W_hbm_bytes_per_s).
    """
    return AttentionLaws(known=deduce(ATTENTION, read_quantities(given)))
