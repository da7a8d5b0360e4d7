"""What a simulation says to its users: times to tokens, rates, and whether there is a steady state at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ridgeline.job.traffic import Requests


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Served:
    """What happened to every request, in order of arrival, and to the servers.

    Attributes:
        requests: What was served.
        start_s: When its prefill began first.
        first_token_s: When its first token was out.
        finish_s: When its last token was out.
        preemptions: Times that a sequence lost its pages and was read anew.
        busy_s: Seconds in which servers worked, summed over servers; of prefill servers apart in `prefill_busy_s`.
        prefill_busy_s: Seconds of prefill servers; 0 where there are none.
        running_s: Integral of running sequences over time.
        passes: Passes that decoded, all servers.
        load_ratio: Work that arrives over what the servers can do; from 1 on no steady state exists.
    """

    requests: Requests
    start_s: NDArray[np.float64]
    first_token_s: NDArray[np.float64]
    finish_s: NDArray[np.float64]
    preemptions: int
    busy_s: float
    prefill_busy_s: float
    running_s: float
    passes: int
    load_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiles:
    """A distribution of seconds: its mean, and what 50, 90 and 99 of 100 requests stay below."""

    mean_s: float
    p50_s: float
    p90_s: float
    p99_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """The answer. Where it is not stable, times and concurrency are NaN: they would grow with the time watched.

    Attributes:
        is_stable: Whether servers keep up with what arrives.
        load_ratio: Work that arrives over what servers can do; 1 is the limit.
        ttft: Time to the first token, queueing included.
        tpot: Time per output token after the first, of a request; of replies of one token there is none.
        end_to_end: From arrival to last token.
        queueing: From arrival to the start of prefill.
        requests_per_s: Served.
        output_tokens_per_s: Served.
        utilization: Part of the time in which servers work.
        num_running: Sequences that run at a time, mean over time, of all servers.
        num_preemptions_per_request: How often a sequence is read anew.
    """

    is_stable: bool
    load_ratio: float
    ttft: Quantiles
    tpot: Quantiles
    end_to_end: Quantiles
    queueing: Quantiles
    requests_per_s: float
    output_tokens_per_s: float
    utilization: float
    num_running: float
    num_preemptions_per_request: float
