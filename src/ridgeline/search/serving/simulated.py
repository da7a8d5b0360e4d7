"""The engine that a plan is simulated as: how long the passes of one rank take, and what it has room for.

Each set of devices that has sequences of its own schedules for itself, as if the others had as much to do.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING, Final

import numpy as np

from ridgeline.cost.serving.device import PhaseColumns, cache_bytes, cached_attentions
from ridgeline.cost.serving.machine import Pass
from ridgeline.cost.serving.memory import page_tokens
from ridgeline.cost.serving.step import serving_pass
from ridgeline.search.engine.setting import Disaggregated, Engine, Interleaved, Limits, Scheduling, Speculation
from ridgeline.search.engine.times import StepTable, StepTimes, step_table
from ridgeline.search.serving.candidates import read_tokens

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ridgeline.cost.serving.machine import ServingMachine
    from ridgeline.cost.serving.requests import RequestLengths
    from ridgeline.job.serving import ServingJob
    from ridgeline.search.serving.answer import ServingPoint
    from ridgeline.search.serving.candidates import Candidates

SHORTEST_PROMPT: Final = 64.0
"""Tokens of a prompt below which what its tokens see makes no difference: few keys beside what is read of weights."""


def engine_of(job: ServingJob, found: Candidates, index: int, point: ServingPoint) -> Engine:
    """The engine of one rank of a plan, one server of each kind.

    Args:
        job: The question.
        found: Of which the plan is one.
        index: Which.
        point: The plan, in steady state.
    """
    machine, plan, row = found.table.machine, point.plan, int(found.decode[index])
    columns, ways = found.table.row(row), found.table.mesh_of(row).batch_ways
    is_apart, sequences = plan.mode == "disaggregated", plan.batch // ways
    rows = ceil(sequences * machine.each_tokens)
    if is_apart:
        prompts = ceil(plan.prefill_batch * machine.setting.lengths.mean_read_tokens)
        prefill = _readers_table(machine, found.readers.row(int(found.prefill[index])), most_tokens=prompts)
        shared_s = 0.0
    else:
        prompts = plan.prefill_chunk
        prefill = prompt_times(machine, columns, most_tokens=prompts, ranks=ways)
        read = float(read_tokens(found.table.rows(np.array([row])))[0])
        together_s = float(found.decode_s[index]) + prefill.pass_s(read, _mean_keys(machine))
        shared_s = max(together_s - float(found.reading_s[index]), 0.0)
    decode = decode_times(machine, columns, most_rows=rows, ranks=ways)
    return Engine(
        times=StepTimes(decode=decode, prefill=prefill, shared_s=shared_s),
        limits=Limits(
            max_sequences=sequences,
            max_pass_tokens=max(prompts if is_apart else prompts + rows, rows),
            kv_pages=_pages(machine, point.max_concurrency // ways),
            page_tokens=page_tokens(machine),
        ),
        scheduling=Scheduling(prefix_hit_fraction=job.workload.prefix_cache.hit_fraction),
        speculation=_speculation(job),
        fleet=Disaggregated(transfer_s_per_token=_sent_s(machine)) if is_apart else Interleaved(),
    )


def _speculation(job: ServingJob) -> Speculation:
    """Drafts are part of the times of passes."""
    asked = job.plan.speculation
    if asked is None:
        return Speculation()
    return Speculation(draft_tokens=asked.draft_tokens, acceptance_fraction=asked.acceptance_fraction)


def _pages(machine: ServingMachine, sequences: int) -> int:
    """Pages of a rank, counted as if nothing were shared: of so many sequences as they run, or of the longest."""
    lengths, size = machine.setting.lengths, page_tokens(machine)
    each = (lengths.paged_tokens(size) + lengths.prefix_tokens) / size
    return max(int(sequences * each), ceil(machine.setting.context_len / size))


def _mean_keys(machine: ServingMachine) -> float:
    """Keys that a token of a prompt sees, mean, were every layer to see all."""
    lengths = machine.setting.lengths
    return lengths.own_prompt_tokens * (1.0 + lengths.cached_fraction) / 2


def decode_times(machine: ServingMachine, columns: PhaseColumns, *, most_rows: int, ranks: int) -> StepTable:
    """Passes over the sequences of one rank, beside which the others have as many."""
    setting, each = machine.setting, machine.each_tokens

    def pass_s(rows: NDArray[np.float64], keys: NDArray[np.float64]) -> NDArray[np.float64]:
        step = Pass(
            columns=columns,
            num_decoding=rows / each * ranks,
            context_keys=keys,
            prompt_tokens=0.0,
            each_tokens=each,
        )
        return rows * 0.0 + serving_pass(machine, step).expected_s

    rows = sorted({*_rows(each, most_rows), float(most_rows)})  # a full batch is what the steady state has
    return step_table(pass_s, rows=rows, keys=_doubling(1.0, setting.context_len))


def prompt_times(machine: ServingMachine, columns: PhaseColumns, *, most_tokens: int, ranks: int) -> StepTable:
    """Passes over prompts of one rank, beside which the others have as many."""
    return _prompts_table(machine, columns, full_tokens=most_tokens, least_tokens=0.0, ranks=ranks)


def _readers_table(machine: ServingMachine, columns: PhaseColumns, *, most_tokens: int) -> StepTable:
    """Passes of a server that only reads: with fewer prompts than ranks it takes as long as with one for each."""
    one_each = machine.setting.lengths.mean_read_tokens * float(columns.rank_degree * columns.transpose_degree)
    return _prompts_table(machine, columns, full_tokens=most_tokens, least_tokens=one_each, ranks=1)


def _prompts_table(
    machine: ServingMachine, columns: PhaseColumns, *, full_tokens: int, least_tokens: float, ranks: int
) -> StepTable:
    """Passes over prompts, by their tokens and the keys that these see; a prompt and a full pass are points."""
    seen, whole = _seen(machine), machine.setting.lengths.mean_read_tokens
    rows = np.array(sorted({*_rows(1.0, max(full_tokens, machine.setting.prompt_len)), whole, float(full_tokens)}))
    seconds: list[NDArray[np.float64]] = []
    for lengths in seen.values():
        prompts = replace(machine, setting=replace(machine.setting, requests=lengths))
        tokens = np.maximum(rows, least_tokens) * ranks
        step = Pass(columns=columns, num_decoding=0.0, context_keys=0.0, prompt_tokens=tokens)
        seconds.append(rows * 0.0 + serving_pass(prompts, step).expected_s)
    by_rows = np.stack(seconds, axis=1)
    return StepTable(rows=tuple(rows.tolist()), keys=tuple(seen), seconds=tuple(map(tuple, by_rows.tolist())))


def _seen(machine: ServingMachine) -> dict[float, RequestLengths]:
    """By the keys that a token of a prompt sees: prompts of which it sees so many; of prompts all alike, those."""
    lengths = machine.setting.lengths
    if len(lengths.read_tokens) == 1:
        return {0.0: lengths}
    computed = replace(lengths, prompt_tokens=lengths.mean_read_tokens)
    own = _doubling(SHORTEST_PROMPT, 2 * machine.setting.prompt_len)  # the last token of the longest sees all of it
    return {tokens / 2: replace(computed, own_prompt_tokens=tokens) for tokens in own}


def _doubling(least_count: float, most_count: float) -> tuple[float, ...]:
    """The least, twice as many, four times, …, up to the first that is no fewer than the most.

    Where the points lie does not depend on the most: one long request leaves the times of the others as they are.

    >>> _doubling(1.0, 9.0)
    (1.0, 2.0, 4.0, 8.0, 16.0)
    """
    powers = [float(least_count)]
    while powers[-1] < most_count:
        powers.append(2 * powers[-1])
    return tuple(powers)


def _rows(least_count: float, most_count: float) -> tuple[float, ...]:
    """The same, and each of them half as much again.

    >>> _rows(1.0, 3.0)
    (1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
    """
    return tuple(point * step for point in _doubling(least_count, most_count) for step in (1.0, 1.5))


def _sent_s(machine: ServingMachine) -> float:
    """Seconds to send what one token has in the cache, over the network of all chips of a server."""
    setting, hardware = machine.setting, machine.hardware
    whole = PhaseColumns(degrees={}, batch_size=1.0)
    sent_bytes = sum(
        float(count * cache_bytes(operation, setting, whole, tokens=1.0, num_sequences=1.0))
        for operation, count in cached_attentions(setting.tree)
    )
    return sent_bytes / (hardware.chip.network_bytes_per_s * machine.efficiency.network * hardware.num_chips)
