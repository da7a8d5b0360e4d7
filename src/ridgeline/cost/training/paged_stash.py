"""Pages that hold what experts keep for the backward pass, where a replayed graph's own buffers have room to spare.

A graph has buffers of one size, for more tokens than come on average; Megatron-LM packs the rows that came into pages
after the forward pass of a layer, and unpacks them before its backward pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ridgeline.cost.work import Number


def stashed_bytes(*, B: Number, D: int, F: int, operand_bytes: float, b_a: float) -> Number:
    """Traffic of packing, or of unpacking, what a product over B rows keeps: D elements read, F outputs made.

    Formula: 2 · B · (D · operand_bytes + F · b_a)

    Assumes: the copies take the multiprocessors from other work, so that nothing hides them.

    Source: Megatron-LM core_v0.18.0, megatron/core/transformer/moe/paged_stash.py.

    >>> stashed_bytes(B=10.0, D=4, F=6, operand_bytes=1.0, b_a=2.0)
    320.0
    """
    return 2 * B * (D * operand_bytes + F * b_a)
