"""How long requests are, in the means that a server in steady state needs.

A sequence stays as long as its reply is, so that what a running one has is a mean over requests weighed by replies; a
token of a prompt is likelier one of a long prompt, so that what it sees is weighed by prompts.

P  tokens of a prompt     G  tokens of a reply     h  part of a prompt that is cached already
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ridgeline.cost.work import Number


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLengths:
    """Requests on average; where a mean will not do, lengths that are as likely as each other.

    Attributes:
        prompt_tokens: Of a prompt.
        reply_tokens: Of a reply.
        own_prompt_tokens: Of the prompt to which a token of a prompt belongs.
        context_tokens: Of a running sequence, mean over its passes.
        mean_read_tokens: Of a prompt, those that are computed.
        mean_end_tokens: Of a running sequence when it ends, those of its own.
        read_tokens: The same of prompts, as numbers that are equally likely.
        end_tokens: The same of running sequences.
        prefix_tokens: Kept once for all sequences of a rank; 0 where nothing is shared.
    """

    prompt_tokens: float
    reply_tokens: float
    own_prompt_tokens: float
    context_tokens: float
    mean_read_tokens: float
    mean_end_tokens: float
    read_tokens: tuple[float, ...]
    end_tokens: tuple[float, ...]
    prefix_tokens: float = 0.0

    @property
    def cached_fraction(self) -> float:
        """Part of prompts that is cached already."""
        return 1.0 - self.mean_read_tokens / self.prompt_tokens

    def paged_tokens(self, tokens_of_page: int) -> float:
        """Tokens for which a running sequence takes pages, its last one not full.

        >>> like(prompt_tokens=100, reply_tokens=50).paged_tokens(64)
        192.0
        """
        return float(np.mean(np.ceil(np.asarray(self.end_tokens) / tokens_of_page))) * tokens_of_page

    def chunk_count(self, chunk_tokens: Number) -> Number:
        """Passes that a prompt is read in, a chunk at a time: mean.

        >>> float(like(prompt_tokens=1000, reply_tokens=1).chunk_count(300.0))
        4.0
        """
        return self._chunks(chunk_tokens).mean(axis=-1)

    def chunk_wait_count(self, chunk_tokens: Number) -> Number:
        """Passes that a prompt takes which others wait for: a long one delays more of them, E[n²]/E[n].

        >>> float(like(prompt_tokens=1000, reply_tokens=1).chunk_wait_count(300.0))
        4.0
        """
        chunks = self._chunks(chunk_tokens)
        return (chunks**2).mean(axis=-1) / chunks.mean(axis=-1)

    def _chunks(self, chunk_tokens: Number) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        """Passes of each prompt, the last axis."""
        return np.ceil(np.asarray(self.read_tokens) / np.asarray(chunk_tokens, dtype=np.float64)[..., None])


def like(*, prompt_tokens: float, reply_tokens: float) -> RequestLengths:
    """Requests that are all alike.

    >>> like(prompt_tokens=1000, reply_tokens=500).context_tokens
    1250.0
    """
    return RequestLengths(
        prompt_tokens=float(prompt_tokens),
        reply_tokens=float(reply_tokens),
        own_prompt_tokens=float(prompt_tokens),
        context_tokens=prompt_tokens + reply_tokens / 2,
        mean_read_tokens=float(prompt_tokens),
        mean_end_tokens=float(prompt_tokens + reply_tokens),
        read_tokens=(float(prompt_tokens),),
        end_tokens=(float(prompt_tokens + reply_tokens),),
    )
