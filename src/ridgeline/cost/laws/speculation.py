"""Speculative decoding: a drafter proposes some tokens, one pass of the model verifies them.

A *loop* is the drafts and the pass that verifies them. The acceptance of a loop is the part of its tokens, the drafts
and one of the pass itself, that are kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ridgeline.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

NO_LONGER_THAN: Final = 1.02
"""Of the drafts that take at most so many times as long as the best, the shortest asks the least of the chips."""

LONGEST_DRAFT: Final = 64


def loop_tokens(*, acceptance_fraction: float, num_draft_tokens: float) -> float:
    """Tokens that a loop adds.

    Formula: acceptance_fraction · (num_draft_tokens + 1)

    Source: Scaling Book, ch. 7, appendix D.

    >>> loop_tokens(acceptance_fraction=0.75, num_draft_tokens=3)
    3.0
    """
    return acceptance_fraction * (num_draft_tokens + 1)


def speculative_s(*, reply_tokens: float, loop_tokens: float, loop_s: float) -> float:
    """Time of a reply.

    Formula: reply_tokens / loop_tokens · loop_s

    Source: Scaling Book, ch. 7, appendix D.

    >>> speculative_s(reply_tokens=120, loop_tokens=3.0, loop_s=0.02)
    0.8
    """
    return reply_tokens / loop_tokens * loop_s


def speculative_token_s(*, loop_tokens: float, loop_s: float) -> float:
    """Time per output token.

    Formula: loop_s / loop_tokens

    Source: Scaling Book, ch. 7, appendix D.

    >>> speculative_token_s(loop_tokens=2.0, loop_s=0.02)
    0.01
    """
    return loop_s / loop_tokens


def speculative_speedup(*, decode_step_s: float, speculative_token_s: float) -> float:
    """How many times as fast tokens come as without drafts.

    Formula: T_step / (loop_s / loop_tokens)

    Source: the definition.

    >>> speculative_speedup(decode_step_s=0.02, speculative_token_s=0.01)
    2.0
    """
    return decode_step_s / speculative_token_s


def kept_tokens(*, token_acceptance_fraction: float, num_draft_tokens: float) -> float:
    """Tokens that a loop adds where each draft is accepted as likely as the one before it, after that.

    Formula: 1 + a + … + a^num_draft_tokens

    Assumes: acceptance is the same at every place.

    Source: Leviathan et al., arXiv:2211.17192, equation 1.

    >>> kept_tokens(token_acceptance_fraction=0.5, num_draft_tokens=2)
    1.75
    """
    return sum(token_acceptance_fraction**place for place in range(int(num_draft_tokens) + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftLengths:
    """How many tokens to draft.

    Attributes:
        token_acceptance_fraction: Chance that a draft is accepted where those before it were.
        best: The number of drafts with which replies are quickest.
        worthwhile: From the fewest drafts that take hardly longer to the best number.
    """

    token_acceptance_fraction: float
    best: int
    worthwhile: tuple[int, ...]


def draft_lengths(
    *, num_draft_tokens: Sequence[int], loop_s: Sequence[float], acceptance_fraction: Sequence[float]
) -> DraftLengths:
    """How many tokens to draft, from what was measured with a few numbers of drafts.

    A loop's time is a straight line through the measurements; the chance of a draft is what explains the tokens kept
    with the fewest drafts that were tried.

    >>> tried = {"num_draft_tokens": [0, 1], "loop_s": [4.0, 5.0], "acceptance_fraction": [1.0, 0.75]}
    >>> draft_lengths(**tried).best  # a token in 4, 5/1.5, 6/1.75, …
    1

    Args:
        num_draft_tokens: Drafts of a loop, by measurement.
        loop_s: Time of a loop, in any unit of time.
        acceptance_fraction: Part of a loop's tokens that were kept.

    Raises:
        InputError: Fewer than two measurements, lists of different lengths, or none with a draft.
    """
    tried = sorted(zip(num_draft_tokens, loop_s, acceptance_fraction, strict=False))
    is_whole = len(tried) == len(num_draft_tokens) == len(loop_s) == len(acceptance_fraction)
    if not is_whole or len(set(num_draft_tokens)) <= 1:
        raise InputError(
            "too few measurements of drafts",
            where="num_draft_tokens",
            value=list(num_draft_tokens),
            expected="two numbers of drafts at least, each with its time and its acceptance",
            fix="add the time and acceptance of another number of drafts",
        )
    (first, first_s, _), (last, last_s, _) = tried[0], tried[-1]
    fewest, _, acceptance = next(each for each in tried if each[0] > 0)
    chance = _chance(loop_tokens(acceptance_fraction=acceptance, num_draft_tokens=fewest), fewest)
    token_s = [
        (first_s + (last_s - first_s) * (count - first) / (last - first))
        / kept_tokens(token_acceptance_fraction=chance, num_draft_tokens=count)
        for count in range(LONGEST_DRAFT + 1)
    ]
    best = token_s.index(min(token_s))
    enough = next(count for count, each in enumerate(token_s) if each <= NO_LONGER_THAN * token_s[best])
    return DraftLengths(token_acceptance_fraction=chance, best=best, worthwhile=tuple(range(enough, best + 1)))


def _chance(tokens: float, num_draft_tokens: int) -> float:
    """The chance of a draft with which a loop keeps so many tokens, by halving an interval."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        kept = kept_tokens(token_acceptance_fraction=middle, num_draft_tokens=num_draft_tokens)
        low, high = (middle, high) if kept < tokens else (low, middle)
    return low
