"""The gradient of queries where one kernel computes all gradients of attention on a TPU.

Its grid goes along keys outside and queries inside: gradients of keys and values stay in VMEM, that of queries would
have to come back for each tile of keys. The kernel writes one part for each instead, of all queries, and an operation
behind it adds them up. Two kernels, one for each side, need no such parts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ridgeline.job.job import BYTES_OF

if TYPE_CHECKING:
    from ridgeline.cost.work import Number

FEW_PARTS: Final = 4
"""Up to so many parts have the dtype of the queries; more are in f32, to add up as well.
Source: openxla/tokamax (783ea957, tokamax/_src/ops/experimental/tpu/splash_attention, `_splash_attention_bwd_dkv`)."""


def query_gradient_bytes(*, elements: Number, num_parts: Number, b_a: float) -> Number:
    """Traffic of adding up the parts of a gradient of queries.

    Formula: elements · (parts · b_p + b_a); b_p = b_a up to 4 parts, 4 bytes beyond; 0 for one part

    Assumes: tiles that a mask leaves out are read as well; writing them hides behind the kernel's arithmetic.

    Source: as FEW_PARTS: the kernel returns [tiles of keys, heads, queries, head_dim], which are summed over the first.

    >>> [float(query_gradient_bytes(elements=100.0, num_parts=parts, b_a=2.0)) for parts in (1, 2, 8)]
    [0.0, 600.0, 3400.0]
    """
    import numpy as np

    part_bytes = np.where(np.asarray(num_parts) > FEW_PARTS, BYTES_OF["f32"], b_a)
    return elements * np.where(np.asarray(num_parts) > 1, num_parts * part_bytes + b_a, 0.0)
