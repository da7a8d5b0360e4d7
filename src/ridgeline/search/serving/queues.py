"""How many servers of every plan hold the limits once requests queue, about: by which plans are worth simulating.

Requests come independently; what they wait for takes as long for each: queues M/D/c.
"""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING, Final

import numpy as np

from ridgeline.cost.serving.steady import first_token_s

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ridgeline.cost.work import Number
    from ridgeline.job.serving import ServingWorkload, Statistic
    from ridgeline.search.serving.candidates import Candidates

    Column = NDArray[np.float64]

GROWTH: Final = 0.1
"""Part by which servers grow where they do not suffice; at least one is added."""

_MOST_GROWINGS: Final = 12
"""Times that they grow, at most: to three times as many."""

_BEYOND: Final[dict[Statistic, float]] = {"p50": 0.5, "p90": 0.1, "p99": 0.01}
"""Part of requests that may take longer than what a limit is a limit of."""

_MOST_LOAD: Final = 0.999
"""Share of what servers can do at which a queue is counted; beyond, none ends."""


def queued_fleet(found: Candidates, workload: ServingWorkload) -> tuple[Column, Column]:
    """Servers that decode, or do both, and such as only read, so many that each plan holds the limits with its queues.

    As many as keep up of plans that are beyond the limits however few requests a server has, and where the job pins
    how many of the one come with the other.
    """
    servers, readers = least_fleet(found, workload)
    if found.server_ratio is not None:
        return servers, readers
    first_limit_s, token_limit_s = (np.inf if each is None else each for each in (workload.ttft_s, workload.tpot_s))
    short = np.flatnonzero((found.least_ttft_s <= first_limit_s) & (found.least_tpot_s <= token_limit_s))
    for _ in range(_MOST_GROWINGS):
        some = found.some(short)
        is_apart = some.prefill >= 0
        first, token = _queued_times(some, workload, servers[short], readers[short])
        late, slow = first > first_limit_s, token > token_limit_s
        is_short = late | slow
        if not is_short.any():
            break
        more_servers, more_readers = np.where(is_apart, slow, is_short), is_apart & late
        servers[short] = np.where(more_servers, grown(servers[short]), servers[short])
        readers[short] = np.where(more_readers, grown(readers[short]), readers[short])
        short = short[is_short]
    return servers, readers


def least_fleet(found: Candidates, workload: ServingWorkload) -> tuple[Column, Column]:
    """The same, did no request wait: so many that they keep up, none with more sequences than the limit lets it.

    Of plans that no number of servers brings within the limit, and of pinned ratios, as many as keep up.
    """
    rate, limit_s = workload.rate or 0.0, workload.tpot_s
    servers, readers = found.fleet(rate)
    if found.server_ratio is not None or limit_s is None:
        return servers, readers
    slow = np.flatnonzero((found.tpot_s > limit_s) & (found.least_tpot_s < limit_s))
    least_s = found.least_tpot_s[slow]
    load = (1.0 - least_s / limit_s) / (1.0 - least_s / found.tpot_s[slow])  # of loaded_token_s
    servers[slow] = np.maximum(servers[slow], np.ceil(rate / (load * found.served_requests_per_s[slow])))
    return servers, readers


def loaded_token_s(*, alone_s: Column, full_s: Column, load: Column) -> Column:
    """Time per token of a server with a part of the requests that it can serve.

    Formula: T = alone_s / (1 − load · (1 − alone_s / full_s))

    Assumes: a pass takes longer by as much for each sequence and each token of prompts; of both there are load · T /
        full_s as many as on a full server.

    Source: derived; Little's law.

    >>> loaded_token_s(alone_s=np.array([1.0]), full_s=np.array([4.0]), load=np.array([1.0])).tolist()
    [4.0]
    """
    return alone_s / (1.0 - load * (1.0 - alone_s / full_s))


def grown(count: Column) -> Column:
    """More servers: a part more, and one at least.

    >>> grown(np.array([1.0, 20.0])).tolist()
    [2.0, 22.0]
    """
    return count + np.maximum(np.ceil(GROWTH * count), 1.0)


def _queued_times(
    found: Candidates, workload: ServingWorkload, num_servers: Column, num_readers: Column
) -> tuple[Column, Column]:
    """Time to the first token, of what the limit is a limit of, and mean time per token, with so many servers.

    Where a place among the sequences of a server is missing, the first token waits for one; where another server reads,
    the second token does.
    """
    rate, table, lengths = workload.rate or 0.0, found.table, found.table.machine.setting.lengths
    is_apart, ways = found.prefill >= 0, table.batch_ways[found.decode]
    places = table.batch_size[found.decode] / ways
    taken = np.minimum(rate / (num_servers * found.served_requests_per_s), _MOST_LOAD)
    token_s = loaded_token_s(alone_s=found.least_tpot_s, full_s=found.tpot_s, load=taken)
    reply_s = lengths.reply_tokens * token_s
    place_s = wait_s(num_servers=places, service_s=reply_s, load=taken)
    reading = np.minimum(rate * found.prompt_s / np.maximum(num_readers, 1.0), _MOST_LOAD)
    first_apart = found.reading_s + tail_s(
        wait_s(num_servers=np.maximum(num_readers, 1.0), service_s=found.prompt_s, load=reading),
        wait_share(num_servers=np.maximum(num_readers, 1.0), load=reading),
        workload.ttft_of,
    )
    chunks = np.maximum(table.chunk_tokens[found.decode], 1.0)
    busy = rate / (num_servers * ways) * lengths.mean_read_tokens / chunks * found.reading_s
    alone = np.where(is_apart, 1.0, chunks)
    queued = first_token_s(
        T_mixed_s=found.reading_s,
        num_passes=_by_value(lengths.chunk_count, alone),
        num_passes_of_others=_by_value(lengths.chunk_wait_count, alone),
        load_fraction=np.minimum(busy, _MOST_LOAD),
    )
    first_beside = np.asarray(queued) + tail_s(place_s, wait_share(num_servers=places, load=taken), workload.ttft_of)
    token = token_s + np.where(is_apart, place_s / lengths.reply_tokens, 0.0)
    return np.where(is_apart, first_apart, first_beside), token


def wait_share(*, num_servers: Column, load: Column) -> Column:
    """Share of requests that wait at all, about.

    Formula: load^(√(2 (c + 1)) − 1)

    Source: Sakasegawa, "An approximation formula L_q ≃ α·ρ^β/(1−ρ)", Ann. Inst. Statist. Math. 29 (1977).

    >>> wait_share(num_servers=np.array([1.0]), load=np.array([0.8])).round(3).tolist()
    [0.8]
    """
    return load ** (np.sqrt(2.0 * (num_servers + 1.0)) - 1.0)


def wait_s(*, num_servers: Column, service_s: Column, load: Column) -> Column:
    """Mean time until one of several servers is free, each of which takes as long for all.

    Formula: wait_share · service_s / (2 · c · (1 − load))

    Source: Sakasegawa (1977); for one server it is Pollaczek and Khinchine's.

    >>> wait_s(num_servers=np.array([1.0]), service_s=np.array([2.0]), load=np.array([0.5])).tolist()
    [1.0]
    """
    return wait_share(num_servers=num_servers, load=load) * service_s / (2.0 * num_servers * (1.0 - load))


def tail_s(mean_s: Column, share: Column, of: Statistic) -> Column:
    """What a limit looks at of a wait: its mean, or what so many requests stay below; it is exponential for who waits.

    >>> tail_s(np.array([1.0]), np.array([0.5]), "p90").round(3).tolist()
    [3.219]
    """
    if of == "mean":
        return mean_s
    share = np.maximum(share, 1e-9)
    return mean_s / share * np.maximum(np.log(share) - log(_BEYOND[of]), 0.0)


def _by_value(count: Callable[[Column], Number], chunks: Column) -> Column:
    """A count that depends on the chunk alone, taken once for each."""
    values, place = np.unique(chunks, return_inverse=True)
    return np.asarray(count(values))[place]
