"""Where the numbers of a serving plan come from: the formulas that costed it, with the plan's own numbers put in."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ridgeline.cost.explain import Derivation, derive
from ridgeline.cost.laws.memory import weight_bytes
from ridgeline.cost.laws.serving import sequence_cache_bytes
from ridgeline.cost.laws.speculation import kept_tokens
from ridgeline.cost.roofline import compute_s, transfer_s
from ridgeline.cost.serving.device import held_weight_bytes
from ridgeline.cost.serving.memory import ENGINE_SHARE, engine_bytes, engine_room_bytes, page_tokens, sequences_count
from ridgeline.cost.serving.steady import (
    batched_first_token_s,
    chip_tokens_per_s,
    first_token_s,
    million_tokens_usd,
    mixed_pass_s,
    pass_s,
    prefill_server_ratio,
    prefill_share,
    read_pass_tokens,
    requests_per_s,
    server_count,
    token_s,
    user_tokens_per_s,
)
from ridgeline.cost.serving.step import serving_pass
from ridgeline.search.serving.candidates import read_tokens
from ridgeline.search.serving.estimate import price_shares
from ridgeline.search.serving.laws import law_derivations
from ridgeline.search.serving.plans import decode_memory, decode_pass, own_cache_bytes, prefill_pass
from ridgeline.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ridgeline.cost.serving.machine import ServingMachine
    from ridgeline.job.serving import ServingJob
    from ridgeline.search.serving.answer import ServingPoint
    from ridgeline.search.serving.candidates import Candidates


def explain_serving(job: ServingJob, found: Candidates, index: int, best: ServingPoint) -> Iterator[Derivation]:
    """Times of a pass and its bound, what requests meet in steady state, what servers yield and cost, memory.

    Args:
        job: The question.
        found: Of which the plan is one.
        index: Which.
        best: Its estimate.
    """
    machine = found.table.machine
    yield from _pass_parts(machine, best)
    yield from _whole_pass(best)
    yield from _bound(machine, best)
    yield from _speculated(job)
    yield from _reading(found, index)
    mean_s = float(found.tpot_s[index]) * machine.pass_tokens
    if best.plan.mode == "interleaved":
        yield from _interleaved(found, index, mean_s)
    else:
        yield from _disaggregated(found, index, mean_s)
    yield from _yielded(found, index, best, mean_s)
    yield from _prices(found, index)
    yield from _memory(found, index, best)
    yield from law_derivations(found, index).values()


def _named(derivation: Derivation, quantity: str) -> Derivation:
    return replace(derivation, quantity=quantity)


def _pass_parts(machine: ServingMachine, best: ServingPoint) -> Iterator[Derivation]:
    """What a pass reads, computes and sends, each at the rate that programs reach."""
    work = {resource: float(amount) for resource, amount in best.step.parts.work.amounts.items() if amount}
    reads = (
        ("hbm.weights", "weights", machine.weights_bytes_per_s),
        ("hbm.kv_cache", "the KV cache", machine.cache_bytes_per_s),
    )
    for resource, what, rate in reads:
        if resource in work:
            read = derive(transfer_s, traffic_bytes=work[resource], W_bytes_per_s=rate)
            yield _named(read, f"reading {what}, a pass on one device")
    for resource, amount in work.items():
        kind, _, which = resource.partition(".")
        if kind == "flops":
            reached = machine.peak_flops_per_s(which) * machine.efficiency.matmul["bf16"] * machine.serving.arithmetic
            busy = derive(compute_s, flops=amount, C_flops_per_s=reached)
            yield _named(busy, f"arithmetic in {which}, a pass on one device, beside the reading")
        if kind == "link":
            link_rate = machine.link_bytes_per_s * machine.serving.link
            sent = derive(transfer_s, traffic_bytes=amount, W_bytes_per_s=link_rate)
            yield _named(sent, f"links of the {which} group, a pass, were no step shorter than its latency")


def _reading(found: Candidates, index: int) -> Iterator[Derivation]:
    """The arithmetic of a pass that reads prompts, which is most of it."""
    table, row, machine = found.table, int(found.decode[index]), found.table.machine
    reader, what = int(found.prefill[index]), "decodes and reads a piece of a prompt"
    filled = float(read_tokens(table.rows(np.array([row])))[0])
    step = decode_pass(table.row(row), machine, chunk_tokens=filled)
    if reader >= 0:
        step, what = prefill_pass(found.readers.row(reader), machine), "reads prompts"
    for resource, amount in serving_pass(machine, step).work.amounts.items():
        kind, _, which = resource.partition(".")
        if kind == "flops":
            reached = machine.peak_flops_per_s(which) * machine.efficiency.matmul["bf16"] * machine.serving.arithmetic
            busy = derive(compute_s, flops=float(amount), C_flops_per_s=reached)
            whole = format_seconds(float(found.reading_s[index]))
            yield _named(busy, f"arithmetic in {which} of a pass that {what}, which takes {whole} in all")


def _whole_pass(best: ServingPoint) -> Iterator[Derivation]:
    parts = best.step.breakdown
    whole = derive(
        pass_s,
        T_weights_s=parts.weights_s,
        T_cache_s=parts.kv_cache_s,
        T_collectives_s=parts.collectives_s,
        T_host_s=parts.overhead_s,
        T_rest_s=parts.other_s,
    )
    yield _named(whole, "a pass of decoding")


def _bound(machine: ServingMachine, best: ServingPoint) -> Iterator[Derivation]:
    """What bounds a pass from below: its busiest resource at the published peak."""
    work = {resource: float(amount) for resource, amount in best.step.parts.work.amounts.items()}
    read = sum(amount for resource, amount in work.items() if resource.startswith("hbm."))
    bounds = [
        _named(
            derive(transfer_s, traffic_bytes=read, W_bytes_per_s=machine.peak_hbm_bytes_per_s),
            "bound of a pass by what it reads",
        )
    ]
    for resource, amount in work.items():
        kind, _, which = resource.partition(".")
        if kind == "flops":
            busy = derive(compute_s, flops=amount, C_flops_per_s=machine.peak_flops_per_s(which))
            bounds.append(_named(busy, f"bound of a pass by its arithmetic in {which}"))
        elif kind == "link":
            sent = derive(transfer_s, traffic_bytes=amount, W_bytes_per_s=machine.link_bytes_per_s)
            bounds.append(_named(sent, f"bound of a pass by the links of the {which} group"))
    yield max(bounds, key=lambda each: each.value)


def _speculated(job: ServingJob) -> Iterator[Derivation]:
    asked = job.plan.speculation
    if asked is not None:
        added = derive(
            kept_tokens, token_acceptance_fraction=asked.acceptance_fraction, num_draft_tokens=asked.draft_tokens
        )
        yield _named(added, "tokens that a pass adds to a sequence")


def _interleaved(found: Candidates, index: int, mean_s: float) -> Iterator[Derivation]:
    """Servers that read a piece of a prompt beside each pass of decoding."""
    table, row, machine = found.table, int(found.decode[index]), found.table.machine
    lengths, chunk_tokens = machine.setting.lengths, float(table.chunk_tokens[row])
    asked = {
        "B": float(table.batch_size[row]) / table.mesh_of(row).batch_ways,
        "P": lengths.mean_read_tokens,
        "G": machine.reply_pass_count,
    }
    filled = derive(read_pass_tokens, **asked, chunk_tokens=chunk_tokens)
    yield _named(filled, "tokens of prompts in a pass of a rank that reads some")
    share = derive(prefill_share, **asked, chunk_tokens=filled.value)
    yield _named(share, "share of passes that read prompts")
    mixed_s = float(found.reading_s[index])
    mean = derive(mixed_pass_s, T_decode_s=float(found.decode_s[index]), T_mixed_s=mixed_s, prefill_share=share.value)
    yield _named(mean, "time of a pass, mean")
    yield _named(derive(token_s, T_pass_s=mean_s, pass_tokens=machine.pass_tokens), "time per output token")
    first = derive(
        first_token_s,
        T_mixed_s=mixed_s,
        num_passes=float(lengths.chunk_count(chunk_tokens)),
        num_passes_of_others=float(lengths.chunk_wait_count(chunk_tokens)),
        load_fraction=float(prefill_share(**asked, chunk_tokens=chunk_tokens)),
    )
    yield _named(first, "time to the first token, in steady state")


def _disaggregated(found: Candidates, index: int, mean_s: float) -> Iterator[Derivation]:
    """Servers that only decode, and servers that only read."""
    row, machine, reading_s = int(found.decode[index]), found.table.machine, float(found.reading_s[index])
    yield _named(derive(token_s, T_pass_s=mean_s, pass_tokens=machine.pass_tokens), "time per output token")
    yield _named(derive(batched_first_token_s, T_prefill_s=reading_s), "time to the first token, in steady state")
    ratio = derive(
        prefill_server_ratio,
        T_prefill_s=reading_s,
        num_prompts=float(found.readers.batch_size[int(found.prefill[index])]),
        B=float(found.table.batch_size[row]),
        T_token_s=mean_s,
        G=machine.reply_pass_count,
    )
    yield _named(ratio, "prefill servers that keep up with a decode server")


def _yielded(found: Candidates, index: int, best: ServingPoint, mean_s: float) -> Iterator[Derivation]:
    """Requests and tokens a second, and what they cost."""
    machine, row = found.table.machine, int(found.decode[index])
    lengths, served = machine.setting.lengths, float(found.served_requests_per_s[index])
    if found.server_ratio is None:
        full = derive(
            requests_per_s,
            B=float(found.table.batch_size[row]),
            T_token_s=mean_s,
            G=machine.reply_pass_count,
        )
        yield _named(full, "requests that a full server completes a second")
    of_chip = derive(
        chip_tokens_per_s,
        requests_per_s=served,
        G=lengths.reply_tokens,
        num_chips=machine.hardware.num_chips,
        server_ratio=float(found.servers_ratio[index]),
    )
    yield _named(of_chip, "output tokens a second of each chip")
    of_user = derive(user_tokens_per_s, T_token_s=float(found.tpot_s[index]))
    yield _named(of_user, "output tokens a second of each user")
    if best.fleet is not None:
        servers = derive(server_count, requests_per_s=best.fleet.requests_per_s, served_requests_per_s=served)
        yield _named(servers, "servers that decode and keep up, were they always full")


def _prices(found: Candidates, index: int) -> Iterator[Derivation]:
    """What a million tokens cost: all chips over replies, and what reading prompts and the rest take of them."""
    for each in price_shares(found, index):
        cost = derive(million_tokens_usd, usd_per_hour=each.usd_per_hour, tokens_per_s=each.tokens_per_s)
        yield _named(cost, f"price of a million {each.what}")


def _memory(found: Candidates, index: int, best: ServingPoint) -> Iterator[Derivation]:
    """What an engine may use of a device, what weights take of it, and for how many sequences the rest has room."""
    machine, row = found.table.machine, int(found.decode[index])
    chip, columns = machine.hardware.chip, found.table.row(row)
    yield _named(
        derive(
            engine_room_bytes,
            hbm_bytes=chip.hbm_bytes,
            usable_bytes=chip.usable_hbm_bytes,
            utilization=ENGINE_SHARE if machine.memory_utilization is None else machine.memory_utilization,
            num_devices=chip.devices_per_chip,
        ),
        "memory of a device for the engine",
    )
    of_a_byte = replace(machine.setting, dtypes=replace(machine.setting.dtypes, weights="int8", experts=None))
    elements = float(held_weight_bytes(of_a_byte, columns))
    held = derive(weight_bytes, P=elements, b_w=float(held_weight_bytes(machine.setting, columns)) / elements)
    yield _named(held, "weights on a device")
    size = page_tokens(machine)
    memory = decode_memory(columns, machine, chunk_tokens=float(found.table.chunk_tokens[row]))
    own = float(own_cache_bytes(memory))
    tokens = machine.setting.lengths.paged_tokens(size)
    of_a_sequence = derive(sequence_cache_bytes, token_cache_bytes=own / best.plan.batch / tokens, T=tokens)
    yield _named(of_a_sequence, f"KV cache of a sequence on a device, in pages of {size} tokens")
    room = derive(
        sequences_count,
        left_bytes=engine_bytes(machine) - float(memory.total_bytes) + own,
        sequence_bytes=own / best.plan.batch,
    )
    yield _named(room, "sequences for which a server has room, in pages")
