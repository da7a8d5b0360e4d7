"""Requests drawn at random: when they come, how long they are, and how many passes their replies take."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ridgeline.job.traffic import (
    EmpiricalLength,
    FixedLength,
    Length,
    LognormalLength,
    Requests,
    Traffic,
    UniformLength,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ridgeline.search.engine.setting import Speculation


def draw_requests(traffic: Traffic) -> Requests:
    """Requests of a Poisson process; equal seeds give equal requests.

    The gaps between arrivals are drawn in units of their mean, so that another rate stretches the same trace.
    """
    gaps, prompts, outputs = np.random.default_rng(traffic.seed).spawn(3)
    arrivals = np.cumsum(gaps.exponential(size=traffic.num_requests)) / traffic.requests_per_s
    return Requests(
        arrival_s=arrivals,
        prompt_tokens=_draw(traffic.prompt, traffic.num_requests, prompts),
        output_tokens=_draw(traffic.output, traffic.num_requests, outputs),
    )


def new_tokens(prompt_tokens: NDArray[np.int64], prefix_hit_fraction: float) -> NDArray[np.int64]:
    """Tokens of prompts that are not in the prefix cache: at least the last one is computed.

    >>> new_tokens(np.array([1, 1000]), 0.25).tolist(), new_tokens(np.array([7]), 1.0).tolist()
    ([1, 750], [1])
    """
    return np.maximum(prompt_tokens - (prompt_tokens * prefix_hit_fraction).astype(np.int64), 1)


def decode_passes(output_tokens: NDArray[np.int64], speculation: Speculation) -> NDArray[np.int64]:
    """Passes that each reply takes after its first token; with speculation a number that chance decides.

    Assumes: of many passes; their number is then nearly normal, with the mean n / m and the variance n·v / m³ of a
        renewal process, for n tokens in passes of mean m and variance v.
    """
    tokens = output_tokens - 1
    if speculation.draft_tokens == 0:
        return tokens
    counts = np.arange(1, speculation.draft_tokens + 2)
    chances = speculation.acceptance_fraction ** (counts - 1.0)
    chances[:-1] *= 1.0 - speculation.acceptance_fraction
    mean = float(chances @ counts)
    variance = float(chances @ (counts - mean) ** 2)
    noise = np.random.default_rng(speculation.seed).standard_normal(len(tokens))
    passes = np.rint(tokens / mean + noise * np.sqrt(tokens * variance / mean**3)).astype(np.int64)
    return np.clip(passes, -(-tokens // (speculation.draft_tokens + 1)), tokens)


def _draw(length: Length, num_requests: int, generator: np.random.Generator) -> NDArray[np.int64]:
    match length:
        case FixedLength(tokens=tokens):
            return np.full(num_requests, tokens, dtype=np.int64)
        case UniformLength(least_tokens=least, most_tokens=most):
            return generator.integers(least, most, size=num_requests, endpoint=True)
        case LognormalLength(median_tokens=median, sigma=sigma, longest_tokens=longest):
            drawn = generator.lognormal(np.log(median), sigma, size=num_requests)
            return np.clip(np.rint(drawn), 1, longest).astype(np.int64)
        case EmpiricalLength(tokens=seen):
            return generator.choice(np.asarray(seen, dtype=np.int64), size=num_requests)
