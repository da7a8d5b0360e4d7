"""All servers of an engine: which requests each is given, and what became of them together."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapreplace
from typing import TYPE_CHECKING, assert_never

import numpy as np

from ridgeline.search.engine.arrivals import decode_passes, new_tokens
from ridgeline.search.engine.checks import check_engine
from ridgeline.search.engine.clock import clock_of
from ridgeline.search.engine.latency import Served
from ridgeline.search.engine.load import load_of
from ridgeline.search.engine.server import UNSET, Log, Work, run_server
from ridgeline.search.engine.setting import Disaggregated, Interleaved

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ridgeline.job.traffic import Requests
    from ridgeline.search.engine.setting import Engine


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prefilled:
    """What prefill servers did.

    Attributes:
        start_s: When each request's pass began.
        end_s: When it ended.
        busy_s: Seconds of work, summed over servers.
    """

    start_s: NDArray[np.float64]
    end_s: NDArray[np.float64]
    busy_s: float


def serve(requests: Requests, engine: Engine) -> Served:
    """Serves every request, to the last token.

    Raises:
        InputError: A request that no server has room for, or limits that contradict each other.
    """
    check_engine(requests, engine)
    computed = new_tokens(requests.prompt_tokens, engine.scheduling.prefix_hit_fraction)
    match engine.fleet:
        case Interleaved(num_servers=count):
            return _served(requests, engine, _round(requests, requests.arrival_s, computed, engine, count), None)
        case Disaggregated(num_decode_servers=count, transfer_s_per_token=token_s, transfer_s=first_s):
            prefilled = _prefill(requests, computed, engine)
            ready_s = prefilled.end_s + first_s + token_s * requests.prompt_tokens
            decoded = _round(requests, ready_s, np.zeros_like(computed), engine, count)
            return _served(requests, engine, decoded, prefilled)
        case _:
            assert_never(engine.fleet)


def _prefill(requests: Requests, computed: NDArray[np.int64], engine: Engine) -> Prefilled:
    """One queue before all prefill servers; whichever is free first packs what has come into a pass."""
    clock, limit = clock_of(engine.times, engine.speculation), engine.limits.max_pass_tokens
    arrival_s, prompts, left = requests.arrival_s.tolist(), requests.prompt_tokens.tolist(), computed.tolist()
    free_s = [0.0] * engine.fleet.num_prefill_servers if isinstance(engine.fleet, Disaggregated) else [0.0]
    start_s, end_s = np.empty(len(left)), np.empty(len(left))
    busy_s, head = 0.0, 0
    while head < len(left):
        now_s = max(free_s[0], arrival_s[head])
        tokens, keys, last = 0, 0.0, head
        while last < len(left) and arrival_s[last] <= now_s and (last == head or tokens + left[last] <= limit):
            tokens += left[last]
            keys += left[last] * (prompts[last] - left[last] / 2)
            last += 1
        took_s = clock.prefill_s(tokens, keys / tokens)
        start_s[head:last], end_s[head:last] = now_s, now_s + took_s
        busy_s, head = busy_s + took_s, last
        heapreplace(free_s, now_s + took_s)
    return Prefilled(start_s=start_s, end_s=end_s, busy_s=busy_s)


def _round(
    requests: Requests, ready_s: NDArray[np.float64], computed: NDArray[np.int64], engine: Engine, count: int
) -> list[tuple[NDArray[np.int64], Log]]:
    """Gives requests to servers in turn, as they become ready; by server, whose they are and what happened."""
    order = np.argsort(ready_s, kind="stable")
    passes = decode_passes(requests.output_tokens, engine.speculation)
    shares = [order[server::count] for server in range(min(count, len(order)))]
    return [
        (
            share,
            run_server(
                Work(
                    ready_s=ready_s[share].tolist(),
                    prompt_tokens=requests.prompt_tokens[share].tolist(),
                    new_tokens=computed[share].tolist(),
                    passes=passes[share].tolist(),
                    output_tokens=requests.output_tokens[share].tolist(),
                ),
                engine,
            ),
        )
        for share in shares
    ]


def _served(
    requests: Requests,
    engine: Engine,
    logs: list[tuple[NDArray[np.int64], Log]],
    prefilled: Prefilled | None,
) -> Served:
    """What all servers did, in the order of the requests."""
    start_s, joined_s, finish_s = (np.full(requests.count, UNSET) for _ in range(3))
    for share, log in logs:
        start_s[share], joined_s[share], finish_s[share] = log.start_s, log.first_token_s, log.finish_s
    first_s = joined_s
    if prefilled is not None:
        start_s, first_s = prefilled.start_s, prefilled.end_s
        finish_s = np.where(requests.output_tokens > 1, finish_s, first_s)
    return Served(
        requests=requests,
        start_s=start_s,
        first_token_s=first_s,
        joined_s=joined_s,
        finish_s=finish_s,
        preemptions=sum(len(log.preemptions) for _, log in logs),
        busy_s=sum(sum(log.busy_s) for _, log in logs),
        drain_s=_drain_s(requests, logs, prefilled),
        prefill_busy_s=0.0 if prefilled is None else prefilled.busy_s,
        running_s=sum(sum(log.running_s) for _, log in logs),
        passes=sum(sum(log.decode_passes) for _, log in logs),
        load=load_of(requests, engine),
        fleet=engine.fleet,
    )


def _drain_s(requests: Requests, logs: list[tuple[NDArray[np.int64], Log]], prefilled: Prefilled | None) -> float:
    """Work after the last request came: from then on a server has all that it will be given, and works to its end.

    Passes over prompts hold several requests: each is counted once.
    """
    last_s = float(requests.arrival_s[-1])
    drained_s = sum(max(max(log.finish_s, default=0.0) - last_s, 0.0) for _, log in logs)
    if prefilled is None:
        return drained_s
    passes = np.unique(np.stack([prefilled.start_s, prefilled.end_s]), axis=1)
    return drained_s + float(np.maximum(passes[1] - np.maximum(passes[0], last_s), 0.0).sum())
