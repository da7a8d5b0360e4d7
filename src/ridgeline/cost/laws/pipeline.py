"""What pipeline stages hand over and how long they wait for each other.

B  tokens of the slice     D  model width     b_a  bytes of an activation's element
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ridgeline.cost.work import larger, smaller

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


def layers_of_busiest_stage(*, L: float, num_stages: Number, num_repeats: Number = 1.0) -> Number:
    """Layers of the stage that has most, where they do not divide.

    Formula: num_repeats · ⌈L / (num_stages · num_repeats)⌉

    Assumes: the stages that hold the embedding and the head are given the fewer layers.
    Source: Narayanan et al., arXiv:2104.04473, section 2.2, for layers that divide; the rest derived.

    >>> float(layers_of_busiest_stage(L=61, num_stages=4)), float(layers_of_busiest_stage(L=126, num_stages=4))
    (16.0, 32.0)
    """
    return num_repeats * np.ceil(L / (num_stages * num_repeats))


def microbatches_in_schedule(*, num_stages: Number, num_microbatches: Number, num_repeats: Number = 1.0) -> Number:
    """Microbatches whose activations the first stage keeps under one forward, one backward.

    Formula: min(num_microbatches, num_stages + (num_stages − 1) / num_repeats); num_stages of one repeat

    Source: Korthikanti et al., arXiv:2205.05198, section 4.2.3: activations of L · (1 + (p − 1)/(p · v)) layers.

    >>> microbatches_in_schedule(num_stages=4, num_microbatches=16)
    4.0
    >>> microbatches_in_schedule(num_stages=4, num_microbatches=16, num_repeats=3)
    5.0
    """
    interleaved = smaller(larger(num_repeats - 1.0, 0.0), 1.0)
    return smaller(num_microbatches, num_stages + interleaved * (num_stages - 1) / num_repeats)


def hand_over_bytes(*, B_tokens: float, D: float, num_microbatches: float = 1.0, b_a: float = 2.0) -> float:
    """Activations of a microbatch that one stage hands to the next; as much comes back as gradients.

    Formula: b_a · B · D / num_microbatches

    Source: Scaling Book, ch. 5, pipelining: one hop at each boundary.

    >>> hand_over_bytes(B_tokens=1024, D=8, num_microbatches=4)
    4096.0
    """
    return b_a * B_tokens * D / num_microbatches
