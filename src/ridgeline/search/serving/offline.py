"""A run of requests that are all queued when it begins, as benchmarks of the most that a server yields are.

Which passes it takes does not hang on how long they take: prompts are read whole as far as a pass has room for them, a
sequence leaves with its last token, and the next prompt takes its place. A run of few requests is no steady state: it
fills, it empties, and where all of them fit at once, most of its passes read nothing.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from itertools import groupby
from math import ceil
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_MOST_STRETCHES: Final = 4
"""Stretches of a run of each kind (passes that read, passes that do not) that are told apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Passes of a run that are alike, or what they are on average.

    Attributes:
        num_passes: How many.
        num_decoding: Sequences that add a token.
        context_tokens: Tokens that each of them has, mean.
        num_prompts: Prompts that a pass reads, each of which yields its first token.
        padded_size: Sequences that a pass of decoding is replayed for, those that are not there included.
    """

    num_passes: float
    num_decoding: float
    context_tokens: float
    num_prompts: float
    padded_size: float


def run_stretches(
    *,
    num_requests: int,
    most_sequences: int,
    pass_tokens: int,
    prompt_tokens: int,
    reply_tokens: int,
    graph_sizes: Sequence[int] = (),
) -> tuple[Stretch, ...]:
    """The passes of a run in which requests are alike.

    Args:
        num_requests: All, queued when it begins.
        most_sequences: That are held at once.
        pass_tokens: Most tokens of a pass; a longer prompt has passes of its own.
        prompt_tokens: Of a prompt.
        reply_tokens: Of a reply.
        graph_sizes: Sizes of passes that only decode, which are replayed programs; those between are filled up.

    >>> [(s.num_passes, s.num_decoding, s.num_prompts) for s in run_stretches(
    ...     num_requests=2, most_sequences=2, pass_tokens=200, prompt_tokens=100, reply_tokens=3)]
    [(1.0, 0.0, 2.0), (2.0, 2.0, 0.0)]
    """
    passes = list(_passes(num_requests, most_sequences, pass_tokens, prompt_tokens, reply_tokens))
    padded = [replace(each, padded_size=_padded(each, graph_sizes)) for each in passes]
    reading = [each for each in padded if each.num_prompts]
    return tuple(_merged(reading)) + tuple(_merged([each for each in padded if not each.num_prompts]))


def slot_stretches(*, num_requests: int, slots: int, reply_tokens: float) -> tuple[Stretch, ...]:
    """The passes of a run whose replies differ, exponentially spread, on an engine with a fixed number of slots.

    Prompts are read until all slots are taken; no pass decodes before. While requests wait, each pass ends
    `slots / reply_tokens` of them, and as many prompts are read; the last ones take as long as the longest of them:
    `reply_tokens · (1 + 1/2 + … + 1/slots)` passes, few slots taken at the end.

    Args:
        num_requests: All, queued when it begins.
        slots: Sequences that every pass computes, those that are there or not.
        reply_tokens: Of a reply, mean, with the passes that its slot is kept for afterwards.

    >>> [(s.num_passes, s.num_decoding) for s in slot_stretches(num_requests=6, slots=2, reply_tokens=100.0)]
    [(200.0, 2.0), (150.0, 1.3333333333333333)]
    """
    held = min(slots, num_requests)
    longest = sum(1.0 / left for left in range(1, held + 1))
    full, last = (num_requests - held) * reply_tokens / held, reply_tokens * longest
    return tuple(
        Stretch(
            num_passes=num_passes,
            num_decoding=num_decoding,
            context_tokens=0.0,
            num_prompts=num_prompts,
            padded_size=float(slots),
        )
        for num_passes, num_decoding, num_prompts in (
            (full, float(held), held / reply_tokens),
            (last, held / longest, 0.0),
        )
    )


def _passes(
    num_requests: int, most_sequences: int, pass_tokens: int, prompt_tokens: int, reply_tokens: int
) -> Iterator[Stretch]:
    """Every pass that reads, and between those as many that only decode as leave the sequences the same."""
    waiting, held, tokens_held, now = num_requests, 0, 0.0, 0
    ends: deque[tuple[int, int]] = deque()
    while waiting or held:
        room = max(pass_tokens - held, prompt_tokens) // prompt_tokens
        begun = min(waiting, most_sequences - held, room)
        num_passes = 1 if begun else (ends[0][0] - now)
        mean = tokens_held / held + (num_passes - 1) / 2 if held else 0.0
        yield Stretch(
            num_passes=float(num_passes),
            num_decoding=float(held),
            context_tokens=mean,
            num_prompts=float(begun),
            padded_size=float(held),
        )
        now += num_passes
        tokens_held += held * num_passes
        if begun and reply_tokens > 1:
            ends.append((now + reply_tokens - 1, begun))
            held, tokens_held = held + begun, tokens_held + begun * (prompt_tokens + 1.0)
        waiting -= begun
        while ends and ends[0][0] == now:
            _, ended = ends.popleft()
            held, tokens_held = held - ended, tokens_held - ended * float(prompt_tokens + reply_tokens)


def _padded(each: Stretch, graph_sizes: Sequence[int]) -> float:
    """The next size of a program that is there; passes that read are none, and run as they are."""
    larger = [size for size in graph_sizes if size >= each.num_decoding]
    return float(min(larger)) if larger and not each.num_prompts else each.num_decoding


def _merged(passes: Iterable[Stretch]) -> Iterator[Stretch]:
    """Passes with like numbers of sequences as one: their means; how long a pass takes hardly bends between them."""
    those = sorted(passes, key=lambda each: each.num_decoding)
    most = max((each.num_decoding for each in those), default=0.0)
    for _, group in groupby(those, key=lambda each: ceil(_MOST_STRETCHES * each.num_decoding / most) if most else 0):
        alike = list(group)
        num_passes = sum(each.num_passes for each in alike)
        decoded = sum(each.num_passes * each.num_decoding for each in alike)
        read = sum(each.num_passes * each.num_decoding * each.context_tokens for each in alike)
        yield Stretch(
            num_passes=num_passes,
            num_decoding=decoded / num_passes,
            context_tokens=read / decoded if decoded else 0.0,
            num_prompts=sum(each.num_passes * each.num_prompts for each in alike) / num_passes,
            padded_size=sum(each.num_passes * each.padded_size for each in alike) / num_passes,
        )
