"""The rotary embedding where a framework applies it in passes of its own, not in one kernel.

Megatron-LM does it by operations of PyTorch where the kernel of Transformer Engine cannot do what a model asks: YaRN's
factor on cosine and sine (GPT-OSS).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ridgeline.cost.work import Number

FORWARD_MOVES: Final = 12
"""Reads and writes of an element of queries and keys: times cosine (2); a half negated (1) and joined to the other (2);
times sine (2); added (3); joined to what is not rotated (2).
Source: Megatron-LM, megatron/core/models/common/embeddings/rope_utils.py (`_apply_rotary_pos_emb_bshd`)."""

BACKWARD_MOVES: Final = 17
"""Its gradient: times sine and times cosine (2 + 2); a half negated (1), both joined (2), both uses added (3); what is
rotated and what is not each put into zeros (3 + 1), and added (3).
Source: derived from the same, as PyTorch differentiates it."""


def unfused_rotary_bytes(*, elements: Number, num_moves: int, b_a: float) -> Number:
    """Traffic of rotating queries and keys operation by operation.

    Formula: num_moves · elements · b_a

    Source: docs/gpu.md.

    >>> unfused_rotary_bytes(elements=100.0, num_moves=FORWARD_MOVES, b_a=2.0)
    2400.0
    """
    return num_moves * elements * b_a
