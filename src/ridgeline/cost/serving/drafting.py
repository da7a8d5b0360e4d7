"""Speculative decoding: a drafter proposes tokens one by one, and the next pass of the model verifies them together.

    pass = first draft (which reads prompts, too) + further drafts + the model over k + 1 tokens of each sequence

What drafts bring is the formula of `laws/speculation.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ridgeline.cost.serving.device import split_shards, stored_element_bytes
from ridgeline.cost.training.held_weights import step_weights

if TYPE_CHECKING:
    from ridgeline.cost.serving.device import PhaseColumns, ServingSetting
    from ridgeline.cost.work import Number


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafting:
    """What is drafted ahead, and by what.

    Attributes:
        num_draft_tokens: Drafted a pass and sequence.
        pass_tokens: Tokens that a pass adds to a sequence, mean.
        drafter: The model that drafts; None for what takes no time, as looking up words of the prompt.
        num_heads: Heads of the model that draft, each with weights and a cache of its own, but without embedding and
            output matrix; 0 for a model apart.
    """

    num_draft_tokens: int
    pass_tokens: float
    drafter: ServingSetting | None = None
    num_heads: int = 0

    @property
    def num_drafters(self) -> int:
        """Models whose weights and caches are kept."""
        return max(self.num_heads, 1)

    def weight_bytes(self, columns: PhaseColumns) -> Number:
        """Weights of all drafters on a device."""
        total: Number = 0.0
        if self.drafter is None:
            return total
        for tensor, count, _ in step_weights(self.drafter.tree):
            if not (self.num_heads and "vocab" in tensor.axes):
                stored = stored_element_bytes(self.drafter, tensor.axes)
                total = total + tensor.size * count * stored / split_shards(tensor.axes, tensor.shape, columns)
        return total * self.num_drafters
