"""What requests meet: the servers of a plan, simulated, and so many of them that the limits hold.

The search itself knows means of full servers only. Requests that come independently, or as a trace says, are served one
by one (`search/engine`) by the plans that it shows; where queues make them wait longer than is allowed, servers are
added, of the kind that keeps them waiting.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, floor, inf, isfinite
from typing import TYPE_CHECKING, Final, TypeAlias

from ridgeline.job.traffic import Requests, Traffic
from ridgeline.search.engine.arrivals import draw_requests
from ridgeline.search.engine.fleet import serve
from ridgeline.search.engine.latency import served_latency
from ridgeline.search.engine.load import load_of
from ridgeline.search.engine.setting import Disaggregated, Interleaved
from ridgeline.search.serving.answer import Simulation
from ridgeline.search.serving.queues import GROWTH
from ridgeline.search.serving.sample import FleetSample, fleet_sample
from ridgeline.search.serving.simulated import engine_of

if TYPE_CHECKING:
    from ridgeline.job.serving import ServingJob, ServingWorkload, Statistic
    from ridgeline.search.engine.latency import Latency, Quantiles, Served
    from ridgeline.search.engine.setting import Engine
    from ridgeline.search.serving.answer import Fleet, ServingPoint
    from ridgeline.search.serving.candidates import Candidates

NUM_REQUESTS: Final = 4_000
"""Requests that are simulated for the plan that is taken, at least: enough for what 99 of 100 stay below."""

NUM_FEW_REQUESTS: Final = 1_000
"""The same for each of many plans: of the short list, and of the frontier."""

MOST_TRACED_REQUESTS: Final = 100_000
"""Requests of a trace that are served; of a longer one, the busiest that follow each other."""

NUM_FEW_TRACED_REQUESTS: Final = 5_000
"""The same for each of many plans."""

MOST_GROWTH: Final = 4
"""Times as many servers as a steady state takes, at most: where these do not suffice, no number does."""

_ENOUGH: Final = 4_000
"""Requests whose mean says how much they ask for."""

Counts: TypeAlias = "tuple[int, int]"
"""Servers that decode, or do both, and servers that only read prompts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """How a plan is tried.

    Attributes:
        is_limited: Whether there must be so many servers that the limits hold, too.
        is_final: Whether requests are to be as many as their tails need.
        most_chips: Beyond which no servers are added: with more, the plan is of no interest.
        sufficed: Servers that held the limits for fewer requests: one step before them is tried first.
    """

    is_limited: bool
    is_final: bool = False
    most_chips: float = inf
    sufficed: Counts | None = None


def with_tails(job: ServingJob, found: Candidates, index: int, point: ServingPoint, trial: Trial) -> ServingPoint:
    """The plan as requests meet it: times as simulated, with as many servers as that takes.

    The plan stays as it is without a rate, and where no number of servers keeps up.

    Args:
        job: The question.
        found: Of which the plan is one.
        index: Which.
        point: The plan, in steady state.
        trial: How it is tried.
    """
    workload, first = job.workload, point.fleet
    if workload.rate is None or first is None:
        return point
    engine, ranks = engine_of(job, found, index, point), found.table.mesh_of(int(found.decode[index])).batch_ways
    counts, met = _enough(job, engine, first, ranks, is_final=trial.is_final), point
    if trial.sufficed is not None and job.plan.server_ratio is None:
        counts = max(counts[0], _fewer(trial.sufficed[0])), max(counts[1], _fewer(trial.sufficed[1]))
    most = min(MOST_GROWTH * sum(counts), trial.most_chips / found.table.machine.hardware.num_chips)
    while sum(counts) <= most:
        sample = _sample(workload, point, counts, ranks, is_final=trial.is_final)
        served = serve(
            _requests(workload, sample, is_final=trial.is_final), replace(engine, fleet=_fleet(engine, sample))
        )
        latency = served_latency(served, is_replay=workload.trace is not None)
        if latency.is_stable:
            met = _simulated(workload, point, latency, counts, share=sample.num_ranks / (counts[0] * ranks))
        short = _short(workload, latency, served, sample, is_limited=trial.is_limited)
        if not any(short):
            break
        counts = _grown(job, counts, short)
    return met


def in_limits(workload: ServingWorkload, ttft: Quantiles, tpot: Quantiles) -> tuple[bool, bool]:
    """Whether the time to the first token is within its limit, and the time per output token."""
    first = workload.ttft_s is None or limit_of(ttft, workload.ttft_of) <= workload.ttft_s
    token = workload.tpot_s is None or not limit_of(tpot, workload.tpot_of) > workload.tpot_s
    return first, token


def limit_of(times: Quantiles, of: Statistic) -> float:
    """The number that a limit is a limit of."""
    return {"mean": times.mean_s, "p50": times.p50_s, "p90": times.p90_s, "p99": times.p99_s}[of]


def _enough(job: ServingJob, engine: Engine, first: Fleet, ranks: int, *, is_final: bool) -> Counts:
    """The least servers that requests do not ask more of than they can do: what comes next is chance."""
    one_each = FleetSample(num_ranks=ranks, num_readers=1, requests_per_s=first.requests_per_s, num_requests=_ENOUGH)
    requests = _requests(job.workload, one_each, is_final=is_final)
    load = load_of(requests, replace(engine, fleet=_fleet(engine, one_each)))
    needed = floor(load.decode_ratio) + 1, floor(load.prefill_ratio) + 1 if first.prefill_servers else 0
    if job.workload.trace is None:
        needed = max(needed[0], first.servers), max(needed[1], first.prefill_servers)
    if job.plan.server_ratio is None:
        return needed
    readers, writers = job.plan.server_ratio
    groups = max(ceil(needed[0] / writers), ceil(needed[1] / readers))
    return groups * writers, groups * readers


def _sample(
    workload: ServingWorkload, point: ServingPoint, counts: Counts, ranks: int, *, is_final: bool
) -> FleetSample:
    """The part of the fleet that is simulated: of a trace, all."""
    servers, readers = counts
    if workload.trace is not None:
        return FleetSample(num_ranks=servers * ranks, num_readers=readers, requests_per_s=0.0, num_requests=0)
    return fleet_sample(
        num_ranks=servers * ranks,
        num_readers=readers,
        requests_per_s=workload.rate or 0.0,
        request_s=point.ttft.mean_s + point.reply_tokens * point.tpot.mean_s,
        least_requests=NUM_REQUESTS if is_final else NUM_FEW_REQUESTS,
    )


def _requests(workload: ServingWorkload, sample: FleetSample, *, is_final: bool) -> Requests:
    """Those of the trace, or some that come at random to a part of the fleet."""
    if workload.trace is not None:
        return busiest(workload.trace.requests, MOST_TRACED_REQUESTS if is_final else NUM_FEW_TRACED_REQUESTS)
    drawn = draw_requests(
        Traffic(
            requests_per_s=sample.requests_per_s,
            prompt=workload.prompts,
            output=workload.replies,
            num_requests=sample.num_requests,
        )
    )
    asked_s = drawn.count / sample.requests_per_s  # a sample that comes quicker than it should asks for more servers
    return replace(drawn, arrival_s=drawn.arrival_s * (asked_s / float(drawn.arrival_s[-1])))


def busiest(requests: Requests, count: int) -> Requests:
    """So many requests of a trace that follow each other, where they come quickest; all of a shorter one."""
    if requests.count <= count:
        return requests
    arrival_s = requests.arrival_s
    start = int((arrival_s[count - 1 :] - arrival_s[: requests.count - count + 1]).argmin())
    some = slice(start, start + count)
    return Requests(
        arrival_s=arrival_s[some] - arrival_s[start],
        prompt_tokens=requests.prompt_tokens[some],
        output_tokens=requests.output_tokens[some],
    )


def _short(
    workload: ServingWorkload, latency: Latency, served: Served, sample: FleetSample, *, is_limited: bool
) -> tuple[bool, bool]:
    """Whether there are too few servers that decode, or do both, and too few that read."""
    if not latency.is_stable:
        is_reading = served.load.prefill_ratio > served.load.decode_ratio
        return not is_reading, is_reading
    if not is_limited:
        return False, False
    first, token = in_limits(workload, latency.ttft, latency.tpot)
    return (not token, not first) if sample.num_readers else (not (first and token), False)


def _grown(job: ServingJob, counts: Counts, short: tuple[bool, bool]) -> Counts:
    """More servers of the kind that is short; of both in a ratio that is pinned."""
    if job.plan.server_ratio is not None:
        readers, writers = job.plan.server_ratio
        groups = _more(counts[0] // writers)
        return groups * writers, groups * readers
    return (_more(counts[0]) if short[0] else counts[0]), (_more(counts[1]) if short[1] else counts[1])


def _more(count: int) -> int:
    return count + max(ceil(GROWTH * count), 1)


def _fewer(count: int) -> int:
    """As many as one step before."""
    return count - max(ceil(GROWTH / (1 + GROWTH) * count), 1)


def _simulated(
    workload: ServingWorkload, point: ServingPoint, latency: Latency, counts: Counts, *, share: float
) -> ServingPoint:
    """The plan with what was simulated of this share of its fleet; of replies of one token, times per token as before.

    What is served a second is the whole fleet's: the others do as much.
    """
    return replace(
        point,
        fleet=None if point.fleet is None else _resized(point.fleet, counts),
        ttft=latency.ttft,
        tpot=latency.tpot if isfinite(latency.tpot.mean_s) else point.tpot,
        simulation=Simulation(
            num_requests=latency.num_requests,
            is_trace=workload.trace is not None,
            queueing=latency.queueing,
            requests_per_s=latency.requests_per_s / share,
            output_tokens_per_s=latency.output_tokens_per_s / share,
            utilization=latency.utilization,
            num_preemptions_per_request=latency.num_preemptions_per_request,
        ),
    )


def _resized(fleet: Fleet, counts: Counts) -> Fleet:
    chips = sum(counts) * (fleet.chips // (fleet.servers + fleet.prefill_servers))
    resized = replace(fleet, servers=counts[0], prefill_servers=counts[1], chips=chips)
    hourly, million = fleet.usd_per_hour, fleet.usd_per_million_output_tokens
    if hourly is None or million is None:
        return resized
    growth = chips / fleet.chips
    return replace(resized, usd_per_hour=hourly * growth, usd_per_million_output_tokens=million * growth)


def _fleet(engine: Engine, sample: FleetSample) -> Interleaved | Disaggregated:
    """Servers of the simulation: each rank of a server that decodes is one."""
    if isinstance(engine.fleet, Disaggregated):
        return replace(engine.fleet, num_decode_servers=sample.num_ranks, num_prefill_servers=sample.num_readers)
    return Interleaved(num_servers=sample.num_ranks)
