"""What requests meet at a rate: the servers of a plan, simulated, and so many of them that the limits hold.

The search itself knows means of full servers only. Requests that come independently are served one by one
(`search/engine`) by the plans that it shows; where queues make them wait longer than is allowed, servers are added.
Each set of devices that has sequences of its own schedules for itself, as if the others had as much to do.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, isfinite
from typing import TYPE_CHECKING, Final

from ridgeline.cost.serving.device import PhaseColumns, cache_bytes, cached_attentions
from ridgeline.cost.serving.machine import Pass
from ridgeline.cost.serving.memory import page_tokens
from ridgeline.cost.serving.step import serving_pass
from ridgeline.job.traffic import FixedLength, Traffic
from ridgeline.search.engine.arrivals import draw_requests
from ridgeline.search.engine.fleet import serve
from ridgeline.search.engine.latency import served_latency
from ridgeline.search.engine.setting import Disaggregated, Engine, Interleaved, Limits
from ridgeline.search.engine.times import StepTimes, step_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from ridgeline.cost.serving.machine import ServingMachine
    from ridgeline.job.serving import ServingJob
    from ridgeline.search.engine.latency import Latency, Quantiles
    from ridgeline.search.engine.times import StepTable
    from ridgeline.search.serving_answer import Fleet, ServingPoint
    from ridgeline.search.serving_candidates import Candidates

NUM_REQUESTS: Final = 4_000
"""Requests that are simulated for the plan that is taken: enough for what 99 of 100 stay below."""

NUM_FRONTIER_REQUESTS: Final = 1_000
"""The same for each point of the frontier."""

MOST_TRIES: Final = 12
"""Times that servers are added, a tenth each."""


def with_tails(job: ServingJob, found: Candidates, index: int, point: ServingPoint, *, in_limits: bool) -> ServingPoint:
    """The plan at the job's rate: times as simulated, with as many servers as a steady state takes.

    The plan stays as it is without a rate, and where no number of servers that is tried is enough.

    Args:
        job: The question.
        found: Of which the plan is one.
        index: Which.
        point: The plan, in steady state.
        in_limits: Whether the servers must be so many that the limits on the means hold, too.
    """
    rate, first = job.workload.rate, point.fleet
    if rate is None or first is None:
        return point
    traffic = Traffic(
        requests_per_s=rate,
        prompt=FixedLength(tokens=job.workload.prompt_len),
        output=FixedLength(tokens=job.workload.generate_len),
        num_requests=NUM_REQUESTS if in_limits else NUM_FRONTIER_REQUESTS,
    )
    requests, engine = draw_requests(traffic), _engine(found, index, point)
    ranks = found.table.mesh_of(int(found.decode[index])).batch_ways
    for fleet in _growing(first):
        whole = replace(engine, fleet=_fleet(engine, fleet, ranks))
        latency = served_latency(serve(requests, whole))
        if latency.is_stable and (not in_limits or _holds(latency, job)):
            return replace(point, fleet=fleet, ttft=latency.ttft, tpot=_per_token(latency, point))
    return point


def _growing(first: Fleet) -> Iterator[Fleet]:
    """Fleets, each a tenth larger than the first, whole servers."""
    chips_per_server = first.chips // (first.servers + first.prefill_servers)
    for more in range(MOST_TRIES):
        servers, readers = (ceil(count * (1 + more / 10)) for count in (first.servers, first.prefill_servers))
        chips = (servers + readers) * chips_per_server
        usd = None if first.usd_per_hour is None else first.usd_per_hour * chips / first.chips
        yield replace(first, servers=servers, prefill_servers=readers, chips=chips, usd_per_hour=usd)


def _holds(latency: Latency, job: ServingJob) -> bool:
    """Whether the means are within the limits."""
    ttft_s, tpot_s = job.workload.ttft_s, job.workload.tpot_s
    in_time = ttft_s is None or latency.ttft.mean_s <= ttft_s
    return in_time and (tpot_s is None or not latency.tpot.mean_s > tpot_s)


def _per_token(latency: Latency, point: ServingPoint) -> Quantiles:
    """As simulated; of replies of one token, as before."""
    return latency.tpot if isfinite(latency.tpot.mean_s) else point.tpot


def _fleet(engine: Engine, fleet: Fleet, ranks: int) -> Interleaved | Disaggregated:
    """Servers of the simulation: each rank of a server that decodes is one."""
    if isinstance(engine.fleet, Disaggregated):
        readers = max(fleet.prefill_servers, 1)
        return replace(engine.fleet, num_decode_servers=fleet.servers * ranks, num_prefill_servers=readers)
    return Interleaved(num_servers=fleet.servers * ranks)


def _engine(found: Candidates, index: int, point: ServingPoint) -> Engine:
    """The engine of one rank of a plan: how long its passes take, and what it has room for."""
    machine, plan, row = found.table.machine, point.plan, int(found.decode[index])
    columns, ways = found.table.row(row), found.table.mesh_of(row).batch_ways
    prompt_len, tokens_of_page = machine.setting.prompt_len, page_tokens(machine)
    pages = point.max_concurrency // ways * ceil(machine.setting.context_len / tokens_of_page)
    is_apart = plan.mode == "disaggregated"
    readers = found.readers.row(int(found.prefill[index])) if is_apart else columns
    chunk_tokens = plan.prefill_batch * prompt_len if is_apart else plan.prefill_chunk
    prefill = (
        _readers_table(machine, readers, most_tokens=chunk_tokens)
        if is_apart
        else _prefill_table(machine, columns, most_tokens=chunk_tokens, ranks=ways)
    )
    decode = _decode_table(machine, columns, most_requests=plan.batch // ways, ranks=ways)
    spent_s = float(found.decode_s[index]) + prefill.pass_s(chunk_tokens, 0.0)
    return Engine(
        times=StepTimes(
            decode=decode,
            prefill=prefill,
            shared_s=0.0 if is_apart else max(spent_s - float(found.reading_s[index]), 0.0),
        ),
        limits=Limits(
            max_sequences=plan.batch // ways,
            max_pass_tokens=chunk_tokens + (0 if is_apart else plan.batch // ways),
            kv_pages=pages,
            page_tokens=tokens_of_page,
        ),
        fleet=Disaggregated(transfer_s_per_token=_sent_s(machine)) if is_apart else Interleaved(),
    )


def _decode_table(machine: ServingMachine, columns: PhaseColumns, *, most_requests: int, ranks: int) -> StepTable:
    """Passes over the sequences of one rank, beside which the others have as many."""
    setting = machine.setting

    def pass_s(rows: NDArray[np.float64], keys: NDArray[np.float64]) -> NDArray[np.float64]:
        step = Pass(columns=columns, num_decoding=rows * ranks, context_keys=keys, prompt_tokens=0.0)
        return rows * 0.0 + serving_pass(machine, step).expected_s

    lengths = (float(setting.prompt_len), float(setting.context_len))
    return step_table(pass_s, rows=_doubling(most_requests), keys=lengths)


def _prefill_table(machine: ServingMachine, columns: PhaseColumns, *, most_tokens: int, ranks: int) -> StepTable:
    """Passes over prompts of one rank, beside which the others have as many."""

    def pass_s(rows: NDArray[np.float64], keys: NDArray[np.float64]) -> NDArray[np.float64]:
        del keys
        step = Pass(columns=columns, num_decoding=0.0, context_keys=0.0, prompt_tokens=rows * ranks)
        return rows * 0.0 + serving_pass(machine, step).expected_s

    return step_table(pass_s, rows=_doubling(most_tokens))


def _readers_table(machine: ServingMachine, columns: PhaseColumns, *, most_tokens: int) -> StepTable:
    """Passes of a server that only reads: with fewer prompts than ranks it takes as long as with one for each."""
    one_each = machine.setting.prompt_len * float(columns.rank_degree * columns.transpose_degree)

    def pass_s(rows: NDArray[np.float64], keys: NDArray[np.float64]) -> NDArray[np.float64]:
        del keys
        tokens = rows + (one_each - rows) * (rows < one_each)
        step = Pass(columns=columns, num_decoding=0.0, context_keys=0.0, prompt_tokens=tokens)
        return rows * 0.0 + serving_pass(machine, step).expected_s

    return step_table(pass_s, rows=_doubling(most_tokens))


def _doubling(most: int) -> tuple[float, ...]:
    """1, 2, 4, … and the most itself."""
    powers = {float(2**power) for power in range(most.bit_length())}
    return tuple(sorted({*powers, float(most)}))


def _sent_s(machine: ServingMachine) -> float:
    """Seconds to send what one token has in the cache, over the network of all chips of a server."""
    setting, hardware = machine.setting, machine.hardware
    whole = PhaseColumns(degrees={}, batch_size=1.0)
    sent_bytes = sum(
        float(count * cache_bytes(operation, setting, whole, tokens=1.0, num_sequences=1.0))
        for operation, count in cached_attentions(setting.tree)
    )
    return sent_bytes / (hardware.chip.network_bytes_per_s * machine.efficiency.network * hardware.num_chips)
