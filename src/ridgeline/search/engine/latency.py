"""What a simulation says to its users: times to tokens, rates, and whether there is a steady state at all.

A steady state is watched from its middle: requests that come while servers fill up are served, but not counted, and so
are those that end when nothing comes any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ridgeline.search.engine.setting import Interleaved

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ridgeline.job.traffic import Requests
    from ridgeline.search.engine.load import Load
    from ridgeline.search.engine.setting import Fleet

_WARM_UP_FRACTION = 0.1
_LIFETIMES = 3
_BACKLOG_SIGMAS = 4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Served:
    """What happened to every request, in order of arrival, and to the servers.

    Attributes:
        requests: What was served.
        start_s: When its prefill began first.
        first_token_s: When its first token was out.
        joined_s: When it first had a place among the sequences that are decoded.
        finish_s: When its last token was out.
        preemptions: Times that a sequence lost its pages and was read anew.
        busy_s: Seconds in which servers worked, summed over servers; of prefill servers apart in `prefill_busy_s`.
        prefill_busy_s: Seconds of prefill servers; 0 where there are none.
        drain_s: Seconds that servers worked after the last request came, both kinds together.
        running_s: Integral of running sequences over time.
        passes: Passes that decoded, all servers.
        load: Work that arrives over what the servers can do; from 1 on no steady state exists.
        fleet: The servers.
    """

    requests: Requests
    start_s: NDArray[np.float64]
    first_token_s: NDArray[np.float64]
    joined_s: NDArray[np.float64]
    finish_s: NDArray[np.float64]
    preemptions: int
    busy_s: float
    prefill_busy_s: float
    drain_s: float
    running_s: float
    passes: int
    load: Load
    fleet: Fleet


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
        num_requests: Served, those of the beginning and of the end, too.
        is_stable: Whether servers keep up with what arrives.
        load_ratio: Work that arrives over what servers can do; 1 is the limit.
        ttft: Time to the first token, queueing included.
        tpot: Time per output token after the first, of a request; of replies of one token there is none.
        end_to_end: From arrival to last token.
        queueing: From arrival to the start of prefill.
        requests_per_s: Served.
        output_tokens_per_s: Served.
        utilization: Part of the time in which servers work, while requests come; of a replay, of all the time.
        num_running: Sequences that run at a time, mean over time, of all servers.
        num_preemptions_per_request: How often a sequence is read anew.
    """

    num_requests: int
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


def served_latency(served: Served, *, is_replay: bool = False) -> Latency:
    """Times and rates of what was served.

    Args:
        served: By `fleet.serve`.
        is_replay: Whether the requests are a trace, whose own times are asked for: all of it counts, from an empty
            server to an empty server, and its times stand even where it brings more than servers can do.
    """
    is_stable = served.load.ratio < 1 and (is_replay or not _has_backlog(served))
    counted = np.ones(served.requests.count, dtype=bool) if is_replay else _steady(served)
    arrival_s, outputs = served.requests.arrival_s[counted], served.requests.output_tokens[counted]
    start_s, first_s, finish_s = served.start_s[counted], served.first_token_s[counted], served.finish_s[counted]
    several = outputs > 1
    says = is_replay or is_stable
    makespan_s = float(served.finish_s.max(initial=0.0))
    rates = _rates(served, makespan_s if is_replay else float(served.requests.arrival_s[-1]))
    return Latency(
        num_requests=served.requests.count,
        is_stable=is_stable,
        load_ratio=served.load.ratio,
        ttft=_quantiles(first_s - arrival_s, says),
        tpot=_quantiles((finish_s - first_s)[several] / (outputs[several] - 1), says),
        end_to_end=_quantiles(finish_s - arrival_s, says),
        queueing=_quantiles(start_s - arrival_s, says),
        requests_per_s=rates[0],
        output_tokens_per_s=rates[1],
        utilization=_utilization(served, makespan_s if is_replay else float(served.requests.arrival_s[-1]), makespan_s),
        num_running=served.running_s / makespan_s if says else float("nan"),
        num_preemptions_per_request=served.preemptions / served.requests.count,
    )


def _has_backlog(served: Served) -> bool:
    """Whether more requests still wait when the last one comes than chance lets wait in a steady state."""
    waiting = int((served.joined_s > served.requests.arrival_s[-1]).sum())
    return waiting > _BACKLOG_SIGMAS * served.requests.count**0.5


def _steady(served: Served) -> NDArray[np.bool_]:
    """Requests that come after the servers have filled up, and are through before the last one comes."""
    arrival_s = served.requests.arrival_s
    span_s = float(arrival_s[-1])
    life_s = float(np.median(served.finish_s - arrival_s))
    since_s = min(max(_WARM_UP_FRACTION * span_s, _LIFETIMES * life_s), span_s / 2)
    counted = (arrival_s >= since_s) & (arrival_s <= max(span_s - life_s, since_s))
    return counted if counted.any() else np.ones_like(counted)


def _rates(served: Served, until_s: float) -> tuple[float, float]:
    """Requests and output tokens a second that are through by a moment."""
    done = served.finish_s <= until_s
    since_s = 0.0
    if until_s < float(served.finish_s.max()):
        since_s = until_s / 2
        done &= served.finish_s > since_s
    span_s = until_s - since_s
    return float(done.sum()) / span_s, float(served.requests.output_tokens[done].sum()) / span_s


def _utilization(served: Served, until_s: float, makespan_s: float) -> float:
    """Part of the time up to a moment, the last arrival or the end of all, in which servers work."""
    worked_s = served.busy_s + served.prefill_busy_s
    if until_s < makespan_s and until_s > 0:
        worked_s = max(worked_s - served.drain_s, 0.0)
    else:
        until_s = makespan_s
    return worked_s / (_num_servers(served.fleet) * until_s)


def _num_servers(fleet: Fleet) -> int:
    if isinstance(fleet, Interleaved):
        return fleet.num_servers
    return fleet.num_prefill_servers + fleet.num_decode_servers


def _quantiles(seconds: NDArray[np.float64], says: bool) -> Quantiles:  # noqa: FBT001 - the only other argument
    if not says or not len(seconds):
        return Quantiles(mean_s=float("nan"), p50_s=float("nan"), p90_s=float("nan"), p99_s=float("nan"))
    p50_s, p90_s, p99_s = map(float, np.quantile(seconds, (0.5, 0.9, 0.99)))
    return Quantiles(mean_s=float(seconds.mean()), p50_s=p50_s, p90_s=p90_s, p99_s=p99_s)
