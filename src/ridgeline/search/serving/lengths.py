"""The lengths of a job's requests, as a steady state weighs them: of distributions, or of a trace.

A distribution is replaced by its quantiles. Prompts and replies are paired as a lattice does: every part of the one
meets every part of the other as often, as independence has it, and without a draw.
"""

from __future__ import annotations

from math import log
from statistics import NormalDist
from typing import TYPE_CHECKING, Final

import numpy as np

from ridgeline.cost.serving.requests import RequestLengths
from ridgeline.job.traffic import EmpiricalLength, FixedLength, LognormalLength, UniformLength
from ridgeline.search.engine.arrivals import new_tokens

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ridgeline.job.serving import ServingWorkload
    from ridgeline.job.traffic import Length

    Tokens = NDArray[np.float64]

NUM_PAIRS: Final = 1597
"""Pairs that stand for two distributions: a number of Fibonacci, for which the lattice is even."""

LATTICE_STEP: Final = 987
"""Fibonacci's number before it."""

MOST_PAIRS: Final = 50_000
"""Requests of a trace over which means are taken."""

NUM_QUANTILES: Final = 256
"""Equally likely lengths that are kept where a mean will not do."""


def request_lengths(workload: ServingWorkload) -> RequestLengths:
    """Means over a job's requests."""
    prompts, replies = paired_lengths(workload)
    cache = workload.prefix_cache
    read = new_tokens(np.rint(prompts).astype(np.int64), cache.hit_fraction).astype(np.float64)
    found = prompts - read
    own = prompts - (found if cache.shared else 0.0)
    return RequestLengths(
        prompt_tokens=float(prompts.mean()),
        reply_tokens=float(replies.mean()),
        own_prompt_tokens=float(np.average(prompts, weights=prompts)),
        context_tokens=float(np.average(prompts + replies / 2, weights=replies)),
        mean_read_tokens=float(read.mean()),
        mean_end_tokens=float(np.average(own + replies, weights=replies)),
        read_tokens=_evenly(read, np.ones_like(read)),
        end_tokens=_evenly(own + replies, replies),
        prefix_tokens=float(found.mean()) if cache.shared else 0.0,
    )


def paired_lengths(workload: ServingWorkload) -> tuple[Tokens, Tokens]:
    """Prompts and replies of requests that are equally likely: of a trace its own, of a long one some, evenly."""
    if workload.trace is not None:
        requests = workload.trace.requests
        some = np.unique(np.linspace(0, requests.count - 1, MOST_PAIRS).astype(np.int64))
        return requests.prompt_tokens[some].astype(np.float64), requests.output_tokens[some].astype(np.float64)
    prompts, replies = workload.prompts, workload.replies
    if isinstance(prompts, FixedLength) and isinstance(replies, FixedLength):
        return np.array([float(prompts.tokens)]), np.array([float(replies.tokens)])
    places = np.arange(NUM_PAIRS)
    parts, others = (places + 0.5) / NUM_PAIRS, (places * LATTICE_STEP % NUM_PAIRS + 0.5) / NUM_PAIRS
    return length_quantiles(prompts, parts), length_quantiles(replies, others)


def length_quantiles(length: Length, parts: Tokens) -> Tokens:
    """What these parts of all lengths stay below.

    >>> length_quantiles(UniformLength(least_tokens=1, most_tokens=10), np.array([0.05, 0.95])).tolist()
    [1.0, 10.0]
    """
    match length:
        case FixedLength(tokens=tokens):
            return np.full(len(parts), float(tokens))
        case UniformLength(least_tokens=least, most_tokens=most):
            return least + np.floor(parts * (most - least + 1))
        case LognormalLength(sigma=sigma):
            normal = NormalDist(log(length.median_tokens), sigma) if sigma else None
            logs = [normal.inv_cdf(part) if normal else log(length.median_tokens) for part in parts.tolist()]
            return np.clip(np.rint(np.exp(logs)), 1.0, float(length.longest_tokens))
        case EmpiricalLength(tokens=seen):
            return np.sort(np.asarray(seen, dtype=np.float64))[(parts * len(seen)).astype(np.int64)]


def _evenly(tokens: Tokens, weights: Tokens) -> tuple[float, ...]:
    """Equally likely lengths that stand for weighed ones; where all are alike, the one."""
    if (tokens == tokens[0]).all():
        return (float(tokens[0]),)
    order = np.argsort(tokens, kind="stable")
    tokens, shares = tokens[order], np.cumsum(weights[order]) / weights.sum()
    parts = (np.arange(NUM_QUANTILES) + 0.5) / NUM_QUANTILES
    return tuple(map(float, tokens[np.minimum(np.searchsorted(shares, parts), len(tokens) - 1)]))
