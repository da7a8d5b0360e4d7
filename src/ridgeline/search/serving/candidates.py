"""Servers in steady state: every plan of a slice with its times to tokens and what it yields, as columns.

Interleaved servers read prompts beside decoding, a piece with every pass; disaggregated ones leave that to servers of
their own, so many that neither kind waits for the other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import TYPE_CHECKING, Final

import numpy as np

from ridgeline.cost.serving.steady import (
    batched_first_token_s,
    chip_tokens_per_s,
    first_token_s,
    mixed_pass_s,
    prefill_server_ratio,
    prefill_share,
    read_pass_tokens,
    requests_per_s,
    server_count,
    token_s,
)
from ridgeline.cost.serving.step import serving_pass
from ridgeline.job.job import TRANSPOSE_AXIS
from ridgeline.search.serving.plans import (
    CHUNKS,
    MOST_PREFILL_SHARE,
    decode_memory,
    decode_pass,
    decode_table,
    finer_batches,
    fits,
    joined_tables,
    plainest_table,
    prefill_pass,
    prefill_table,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from ridgeline.cost.serving.device import PhaseColumns
    from ridgeline.cost.serving.machine import ServingMachine
    from ridgeline.job.serving import ServingJob, ServingWorkload
    from ridgeline.search.serving.meshes import ServingMesh
    from ridgeline.search.serving.plans import ServingTable

    Column = NDArray[np.float64]

ROOM_TO_QUEUE: Final = 0.7
"""Part of the limits that some of the plans which are simulated keep within in steady state: queues have the rest."""

ELABORATE_AXES: Final = frozenset({TRANSPOSE_AXIS, "pp"})
"""Axes of a mesh that few engines have, or that take care to run: plans without are preferred among equals."""

SPARE_SIGMAS: Final = 3.0
"""Standard deviations of a random number of sequences, for which a rank should have places beyond the mean."""

MOST_SPARE_LOAD: Final = 0.5
"""Share of passes that read prompts up to which requests hardly queue for them."""

PREFILL_STEP: Final = 0.01
"""Part by which a plan of prefill servers must be cheaper a prompt than all that are quicker, to be worth a look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Plans in steady state.

    Attributes:
        table: Of servers that decode.
        readers: Of servers that read prompts.
        decode: Row of `table`, by candidate.
        prefill: Row of `readers`; −1 for interleaved servers.
        decode_s: A pass that only decodes.
        reading_s: A pass that reads prompts, alone or beside decoding.
        ttft_s: Mean time to the first token.
        tpot_s: Mean time per output token.
        least_ttft_s: At a rate, the time to the first token of servers with no other prompt to read; else `ttft_s`.
        least_tpot_s: The same of servers with one sequence on a rank, at a rate with a limit; else `tpot_s`.
        served_requests_per_s: Requests that a server and its share of prefill servers complete a second.
        servers_ratio: Prefill servers for each server that decodes.
        server_ratio: Prefill and decode servers as they are pinned; None for as many as keep up.
        costed: Plans looked at, those that do not fit too.
        closest: The plan that needs least, at the batch asked for or the smallest; None where no mesh takes it.
    """

    table: ServingTable
    readers: ServingTable
    decode: NDArray[np.int64]
    prefill: NDArray[np.int64]
    decode_s: Column
    reading_s: Column
    ttft_s: Column
    tpot_s: Column
    least_ttft_s: Column
    least_tpot_s: Column
    served_requests_per_s: Column
    servers_ratio: Column
    server_ratio: tuple[int, int] | None
    costed: int
    closest: PhaseColumns | None

    def __len__(self) -> int:
        """Candidates."""
        return len(self.decode)

    def some(self, index: NDArray[np.int64] | NDArray[np.bool_]) -> Candidates:
        """Some of the candidates."""
        return replace(
            self,
            decode=self.decode[index],
            prefill=self.prefill[index],
            decode_s=self.decode_s[index],
            reading_s=self.reading_s[index],
            ttft_s=self.ttft_s[index],
            tpot_s=self.tpot_s[index],
            least_ttft_s=self.least_ttft_s[index],
            least_tpot_s=self.least_tpot_s[index],
            served_requests_per_s=self.served_requests_per_s[index],
            servers_ratio=self.servers_ratio[index],
        )

    def meshes_of(self, index: int) -> tuple[int, int]:
        """Which meshes a candidate has: to decode, and to read; −1 for the same."""
        reading = int(self.prefill[index])
        return int(self.table.mesh[self.decode[index]]), int(self.readers.mesh[reading]) if reading >= 0 else -1

    @property
    def is_elaborate(self) -> NDArray[np.bool_]:
        """Whether either phase splits both sides of matrices, or layers into stages."""
        decode, prefill = (
            np.array([not ELABORATE_AXES.isdisjoint(mesh.degrees) for mesh in table.meshes], dtype=np.bool_)[table.mesh]
            for table in (self.table, self.readers)
        )
        apart = self.prefill >= 0
        found = decode[self.decode]
        found[apart] |= prefill[self.prefill[apart]]
        return found

    def is_tight(self, requests_per_s: float | None) -> NDArray[np.bool_]:
        """Whether at a rate of requests a rank has no place to spare for those that come by chance at once."""
        if requests_per_s is None:
            return np.zeros(len(self), dtype=np.bool_)
        servers, _ = self.fleet(requests_per_s)
        places = (self.table.batch_size / self.table.batch_ways)[self.decode]
        taken = places * requests_per_s / (servers * self.served_requests_per_s)
        return taken + SPARE_SIGMAS * np.sqrt(taken) > places

    @property
    def prompt_s(self) -> Column:
        """Time of a prefill server for each prompt; 0 of interleaved servers."""
        apart = np.flatnonzero(self.prefill >= 0)
        found = np.zeros(len(self))
        found[apart] = self.reading_s[apart] / self.readers.batch_size[self.prefill[apart]]
        return found

    def fleet(self, requests_per_s: float) -> tuple[Column, Column]:
        """Whole servers that decode, or do both, and whole ones that only read, for a rate of requests."""
        served = self.served_requests_per_s
        servers = np.asarray(server_count(requests_per_s=requests_per_s, served_requests_per_s=served))
        if self.server_ratio is None:
            return servers, np.ceil(requests_per_s * self.prompt_s)
        readers, writers = self.server_ratio
        groups = np.ceil(servers / writers)
        return groups * writers, groups * readers

    def fleet_chips(self, requests_per_s: float) -> Column:
        """Chips of whole servers for a rate of requests."""
        return sum(self.fleet(requests_per_s), start=np.zeros(len(self))) * self.table.machine.hardware.num_chips

    @property
    def tokens_per_s_per_chip(self) -> Column:
        """Output tokens, chips of prefill servers counted."""
        machine = self.table.machine
        return np.asarray(
            chip_tokens_per_s(
                requests_per_s=self.served_requests_per_s,
                G=machine.setting.lengths.reply_tokens,
                num_chips=machine.hardware.num_chips,
                server_ratio=self.servers_ratio,
            )
        )


def candidates(
    job: ServingJob, machine: ServingMachine, decode: Sequence[ServingMesh], prefill: Sequence[ServingMesh]
) -> Candidates:
    """Every plan of a slice that fits, in steady state.

    Args:
        job: The question.
        machine: The slice.
        decode: Meshes of servers that decode; interleaved ones have no others.
        prefill: Meshes of servers that only read prompts.
    """
    table = decode_table(machine, decode, batch=job.workload.batch, chunks=_chunks(job), cache=job.plan.cache)
    readers = prefill_table(machine, prefill, prompts=job.plan.prefill_batch)
    costed = len(table) + len(readers)
    table, readers = _fitting(table), _fitting_readers(readers)
    closest = _closest(machine, decode, job.workload.batch)
    is_limited = job.workload.rate is not None and job.workload.tpot_s is not None
    alone_s = _alone_s(table) if is_limited else np.full(2 * len(table.meshes), inf)
    found = _steady(job, table, readers, alone_s, costed=costed, closest=closest)
    bounds = list(limits_of(job.workload))
    finer = finer_batches(table, _last_within(found, bounds))
    if len(finer) == 0:
        return found
    steps = _steady(job, finer, readers, alone_s, costed=costed + len(finer), closest=closest)
    return _without_steps(_joined(found, steps), len(table), bounds)


def limits_of(workload: ServingWorkload) -> Iterator[tuple[float, float]]:
    """Times to the first token, and per token, within which plans are looked for; at a rate also such as leave room."""
    first, token = (inf if limit_s is None else limit_s for limit_s in (workload.ttft_s, workload.tpot_s))
    if isfinite(min(first, token)):
        yield first, token
        if workload.rate is not None:
            yield first * ROOM_TO_QUEUE, token * ROOM_TO_QUEUE


def _within(found: Candidates, bounds: tuple[float, float]) -> NDArray[np.bool_]:
    """By row of the table, whether a plan with it is within limits; of prefill servers the batch changes nothing."""
    first, token = bounds
    held = (found.tpot_s <= token) & ((found.ttft_s <= first) | (found.prefill >= 0))
    within = np.zeros(len(found.table), dtype=np.bool_)
    within[found.decode[held]] = True
    return within


def _last_within(found: Candidates, bounds: Sequence[tuple[float, float]]) -> NDArray[np.int64]:
    """Rows of the table within limits that the next batch of the same plan is not within, where that would be cheapest.

    What lies between the two is no cheaper than the larger one.
    """
    table, usd = found.table, 1.0 / found.tokens_per_s_per_chip
    is_last = np.zeros(len(table), dtype=np.bool_)
    for first, token in bounds:
        is_in_time = (found.ttft_s <= first) | (found.prefill < 0)
        within = is_in_time & (found.ttft_s <= first) & (found.tpot_s <= token)
        is_cheap = np.zeros(len(table), dtype=np.bool_)
        is_cheap[found.decode[is_in_time & (usd < usd[within].min(initial=inf))]] = True
        last = np.flatnonzero(_within(found, (first, token)))
        last = last[last + 1 < len(table)]
        is_last[last] |= is_cheap[last + 1] & ~_within(found, (first, token))[last + 1]
    last = np.flatnonzero(is_last)
    return last[table.is_alike(last, last + 1)]


def _joined(found: Candidates, steps: Candidates) -> Candidates:
    """The candidates of both, of the same prefill servers."""
    names = ("decode_s", "reading_s", "ttft_s", "tpot_s", "least_ttft_s", "least_tpot_s")
    names = (*names, "served_requests_per_s", "servers_ratio")
    both: dict[str, Column] = {name: np.concatenate([getattr(found, name), getattr(steps, name)]) for name in names}
    return replace(
        steps,
        table=joined_tables(found.table, steps.table),
        decode=np.concatenate([found.decode, steps.decode + len(found.table)]),
        prefill=np.concatenate([found.prefill, steps.prefill]),
        **both,
    )


def _without_steps(found: Candidates, coarse: int, bounds: Sequence[tuple[float, float]]) -> Candidates:
    """Of the batches between two that were searched first, those alone that are the last within some limits."""
    table = found.table
    order = np.lexsort((table.batch_size, table.chunk_tokens, table.spread, table.mesh))
    after = np.concatenate([order[1:], order[-1:]])
    is_kept = np.arange(len(table)) < coarse
    for each in bounds:
        within = _within(found, each)
        is_kept[order] |= within[order] & table.is_alike(order, after) & ~within[after]
    return found.some(is_kept[found.decode])


def _steady(
    job: ServingJob,
    table: ServingTable,
    readers: ServingTable,
    alone_s: Column,
    *,
    costed: int,
    closest: PhaseColumns | None,
) -> Candidates:
    """Plans of servers that decode, alone and with each of those that read."""
    machine = table.machine
    decode_s = _wide(serving_pass(machine, decode_pass(table.columns, machine)).expected_s, table)
    both = _interleaved(table, decode_s)
    apart = _disaggregated(job, table, readers, decode_s)
    joined = {name: np.concatenate([both[name], apart[name]]) for name in both}
    decode, is_at_rate = joined["decode"].astype(np.int64), job.workload.rate is not None
    return Candidates(
        table=table,
        readers=readers,
        decode=decode,
        prefill=joined["prefill"].astype(np.int64),
        decode_s=joined["decode_s"],
        reading_s=joined["reading_s"],
        ttft_s=joined["ttft_s"],
        tpot_s=joined["tpot_s"],
        least_ttft_s=joined["alone_ttft_s" if is_at_rate else "ttft_s"],
        least_tpot_s=np.minimum(joined["tpot_s"], alone_s[_kinds(table)][decode]),
        served_requests_per_s=joined["served_requests_per_s"],
        servers_ratio=joined["servers_ratio"],
        server_ratio=job.plan.server_ratio,
        costed=costed,
        closest=closest,
    )


def _alone_s(table: ServingTable) -> Column:
    """Time per token of a server that has one sequence on a rank and reads nothing, by `_kinds`."""
    machine, found = table.machine, np.full(2 * len(table.meshes), inf)
    kinds, first = np.unique(_kinds(table), return_index=True)
    alone = table.rows(first)
    columns = replace(alone.columns, batch_size=alone.batch_ways)
    pass_s = _wide(serving_pass(machine, decode_pass(columns, machine)).expected_s, alone)
    found[kinds] = token_s(T_pass_s=pass_s, pass_tokens=machine.pass_tokens)
    return found


def _kinds(table: ServingTable) -> NDArray[np.int64]:
    """Rows that differ in their batch, or in pieces of prompts, have one number."""
    return (table.mesh * 2 + table.spread).astype(np.int64)


def _closest(machine: ServingMachine, meshes: Sequence[ServingMesh], batch: int | None) -> PhaseColumns | None:
    """Of servers that only decode, the plan that needs the least memory."""
    whole = plainest_table(machine, meshes, batch=batch)
    if len(whole) == 0:
        return None
    held = _wide(decode_memory(whole.columns, machine, chunk_tokens=0.0).total_bytes, whole)
    return whole.row(int(held.argmin()))


def _chunks(job: ServingJob) -> tuple[int, ...]:
    """Pieces of prompts that interleaved servers read with a pass; 0 of servers that only decode."""
    pieces = CHUNKS if job.plan.prefill_chunk is None else (job.plan.prefill_chunk,)
    modes = job.plan.modes
    return (*(pieces if "interleaved" in modes else ()), *((0,) if "disaggregated" in modes else ()))


def _fitting(table: ServingTable) -> ServingTable:
    return table.rows(fits(table, chunk_tokens=table.chunk_tokens))


def _fitting_readers(table: ServingTable) -> ServingTable:
    prompts = table.batch_size / table.batch_ways * (table.machine.setting.lengths.mean_read_tokens - 1)
    return table.rows(fits(table, chunk_tokens=prompts))


def _wide(value: object, table: ServingTable) -> Column:
    """A column, also of what is the same for all."""
    return np.broadcast_to(np.asarray(value, dtype=np.float64), len(table)).copy()


def read_tokens(table: ServingTable) -> Column:
    """Tokens of prompts in a pass of a rank that reads some, by row; of servers that only decode, those of a prompt."""
    lengths = table.machine.setting.lengths
    each = read_pass_tokens(
        B=table.batch_size / table.batch_ways,
        P=lengths.mean_read_tokens,
        G=table.machine.reply_pass_count,
        chunk_tokens=np.where(table.chunk_tokens > 0, table.chunk_tokens, np.inf),
    )
    return np.asarray(each)


def _interleaved(table: ServingTable, decode_s: Column) -> dict[str, Column]:
    machine, lengths = table.machine, table.machine.setting.lengths
    passes = machine.reply_pass_count
    asked = {"B": table.batch_size / table.batch_ways, "P": lengths.mean_read_tokens, "G": passes}
    load = np.asarray(prefill_share(**asked, chunk_tokens=np.maximum(table.chunk_tokens, 1.0)))
    rows = np.flatnonzero((table.chunk_tokens > 0) & (load <= MOST_PREFILL_SHARE) & ~_is_spare(table, load))
    some, filled = table.rows(rows), read_tokens(table)
    mixed_s = _wide(
        serving_pass(machine, decode_pass(some.columns, machine, chunk_tokens=filled[rows])).expected_s, some
    )
    share = np.asarray(prefill_share(**asked, chunk_tokens=filled))[rows]
    pass_s = mixed_pass_s(T_decode_s=decode_s[rows], T_mixed_s=mixed_s, prefill_share=share)
    ttft_s, alone_ttft_s = (
        first_token_s(
            T_mixed_s=mixed_s,
            num_passes=lengths.chunk_count(some.chunk_tokens),
            num_passes_of_others=lengths.chunk_wait_count(some.chunk_tokens),
            load_fraction=load_fraction,
        )
        for load_fraction in (load[rows], 0.0)
    )
    return {
        "decode": rows.astype(np.float64),
        "prefill": np.full(len(rows), -1.0),
        "decode_s": decode_s[rows],
        "reading_s": mixed_s,
        "ttft_s": np.asarray(ttft_s),
        "alone_ttft_s": np.asarray(alone_ttft_s),
        "tpot_s": np.asarray(token_s(T_pass_s=pass_s, pass_tokens=machine.pass_tokens)),
        "served_requests_per_s": np.asarray(requests_per_s(B=some.batch_size, T_token_s=pass_s, G=passes)),
        "servers_ratio": np.zeros(len(rows)),
    }


def _is_spare(table: ServingTable, load: Column) -> NDArray[np.bool_]:
    """Chunks of which half is searched, too, and would do: it holds every prompt, and few passes read."""
    half, longest = table.chunk_tokens / 2, max(table.machine.setting.lengths.read_tokens)
    return np.isin(half, table.chunk_tokens) & (half >= longest) & (2 * load <= MOST_SPARE_LOAD)


def _disaggregated(job: ServingJob, table: ServingTable, readers: ServingTable, decode_s: Column) -> dict[str, Column]:
    machine = table.machine
    passes = machine.reply_pass_count
    reading_s = _wide(serving_pass(machine, prefill_pass(readers.columns, machine)).expected_s, readers)
    best = _worth_reading(reading_s, reading_s / readers.batch_size)
    rows = np.flatnonzero(table.chunk_tokens == 0)
    decode, prefill = (grid.ravel() for grid in np.meshgrid(rows, best, indexing="ij"))
    pass_s, batch = decode_s[decode], table.batch_size[decode]
    prompt_s = reading_s[prefill] / readers.batch_size[prefill]
    served = requests_per_s(B=batch, T_token_s=pass_s, G=passes)
    ratio = prefill_server_ratio(
        T_prefill_s=reading_s[prefill], num_prompts=readers.batch_size[prefill], B=batch, T_token_s=pass_s, G=passes
    )
    if job.plan.server_ratio is not None:
        pinned = job.plan.server_ratio[0] / job.plan.server_ratio[1]
        served, ratio = np.minimum(served, pinned / prompt_s), np.full(len(decode), pinned)
    return {
        "decode": decode.astype(np.float64),
        "prefill": prefill.astype(np.float64),
        "decode_s": pass_s,
        "reading_s": reading_s[prefill],
        "ttft_s": np.asarray(batched_first_token_s(T_prefill_s=reading_s[prefill])),
        "alone_ttft_s": np.asarray(batched_first_token_s(T_prefill_s=reading_s[prefill])),
        "tpot_s": np.asarray(token_s(T_pass_s=pass_s, pass_tokens=machine.pass_tokens)),
        "served_requests_per_s": np.asarray(served),
        "servers_ratio": np.asarray(ratio),
    }


def _worth_reading(reading_s: Column, prompt_s: Column) -> NDArray[np.int64]:
    """Plans of prefill servers that no other beats, quicker or cheaper a prompt; of like ones the quickest."""
    kept: list[int] = []
    for row in unbeaten((reading_s, prompt_s)).tolist():
        if not kept or prompt_s[row] < prompt_s[kept[-1]] * (1.0 - PREFILL_STEP):
            kept.append(row)
    return np.array(kept, dtype=np.int64)


def unbeaten(points: tuple[Column, Column]) -> NDArray[np.int64]:
    """Rows that no other row beats in both, the least in the first one first.

    >>> unbeaten((np.array([1.0, 2.0, 3.0]), np.array([5.0, 5.0, 4.0]))).tolist()
    [0, 2]
    """
    first, second = points
    order = np.lexsort((second, first))
    least = np.minimum.accumulate(np.concatenate([[np.inf], second[order]]))[:-1]
    return order[second[order] < least]
