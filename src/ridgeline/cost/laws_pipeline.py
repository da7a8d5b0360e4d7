"""What pipeline stages hand over and how long they wait for each other.

B  tokens of the slice     D  model width     b_a  bytes of an activation's element
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ridgeline.cost.work import Number


def bubble_ratio(*, num_stages: Number, num_microbatches: Number, num_repeats: Number = 1.0) -> Number:
    """Time in which a stage waits, over the time in which it works.

    Formula: (num_stages − 1) / (num_repeats · num_microbatches)

    Source: Narayanan et al., arXiv:2104.04473, section 2.2; MaxText has the same for its circular pipeline.

    >>> bubble_ratio(num_stages=4, num_microbatches=8)
    0.375
    """
    return (num_stages - 1) / (num_repeats * num_microbatches)


def bubble_fraction(*, bubble_ratio: Number) -> Number:
    """Share of a step in which a stage waits.

    Formula: bubble_ratio / (1 + bubble_ratio); (num_stages − 1) / (num_microbatches + num_stages − 1) of one repeat

    Source: Huang et al., arXiv:1811.06965, section 2.3.

    >>> round(bubble_fraction(bubble_ratio=0.375), 4)  # 3 / 11
    0.2727
    """
    return bubble_ratio / (1 + bubble_ratio)


def hand_over_bytes(*, B_tokens: float, D: float, num_microbatches: float = 1.0, b_a: float = 2.0) -> float:
    """Activations of a microbatch that one stage hands to the next; as much comes back as gradients.

    Formula: b_a · B · D / num_microbatches

    Source: Scaling Book, ch. 5, pipelining: one hop at each boundary.

    >>> hand_over_bytes(B_tokens=1024, D=8, num_microbatches=4)
    4096.0
    """
    return b_a * B_tokens * D / num_microbatches
