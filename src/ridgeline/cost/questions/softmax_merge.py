"""Softmax over keys that arrive in chunks: each chunk's maximum and sum are enough to merge them exactly.

This is what lets attention work in blocks, and across the chips of a sequence that is split.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, isclose
from typing import TYPE_CHECKING

from ridgeline.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftmaxSum:
    """The denominator of a softmax, kept from overflowing.

    M = max(M₁, M₂), L = exp(M₁ − M)·L₁ + exp(M₂ − M)·L₂, each Lᵢ a sum of exp(x − Mᵢ) over its own chunk.
    Source: Scaling Book, ch. 4, appendix; its first edition prints the first chunk's maximum in the second's sum.

    Attributes:
        largest_logit: M, the largest logit.
        exponential_sum: L, the sum of exp(x − M).
    """

    largest_logit: float
    exponential_sum: float

    def __add__(self, other: SoftmaxSum) -> SoftmaxSum:
        """Both chunks together."""
        largest = max(self.largest_logit, other.largest_logit)
        total = sum(exp(each.largest_logit - largest) * each.exponential_sum for each in (self, other))
        return SoftmaxSum(largest_logit=largest, exponential_sum=total)


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftmaxMerge:
    """Chunks merged, beside all logits at once.

    Attributes:
        merged: Chunk by chunk.
        whole: At once.
    """

    merged: SoftmaxSum
    whole: SoftmaxSum

    @property
    def matches(self) -> bool:
        """Whether both are the same, up to rounding."""
        return self.merged.largest_logit == self.whole.largest_logit and isclose(
            self.merged.exponential_sum, self.whole.exponential_sum, rel_tol=_ROUNDING
        )


def merge_softmax(*chunks: Sequence[float]) -> SoftmaxMerge:
    """The softmax denominators of some chunks of logits, merged.

    >>> merge_softmax([0.5, 2.0, -1.0], [3.0, 0.1]).matches
    True
    """
    if not chunks or not all(chunks):
        raise InputError(
            "a chunk has no logits", where="chunks", value=chunks, expected="one number or more each", fix="drop it"
        )
    first, *others = (_softmax_sum(chunk) for chunk in chunks)
    merged = sum(others, start=first)
    return SoftmaxMerge(merged=merged, whole=_softmax_sum([x for chunk in chunks for x in chunk]))


def _softmax_sum(values: Sequence[float]) -> SoftmaxSum:
    largest = max(values)
    return SoftmaxSum(largest_logit=largest, exponential_sum=sum(exp(x - largest) for x in values))
