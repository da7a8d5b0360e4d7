"""One plan of serving in full: its tree, its memory, what binds it, what it costs. The same functions, on one row."""

from __future__ import annotations

from dataclasses import dataclass
from math import nan
from typing import TYPE_CHECKING, Final

from ridgeline.cost.serving.device import held_cache_bytes
from ridgeline.cost.serving.memory import engine_bytes
from ridgeline.cost.serving.steady import million_tokens_usd, user_tokens_per_s
from ridgeline.cost.serving.step import roofline_s, serving_pass
from ridgeline.search.answer import MemoryEstimate
from ridgeline.search.engine.latency import Quantiles
from ridgeline.search.estimate import verdict
from ridgeline.search.serving.answer import Breakdown, Fleet, PassEstimate, ServingChoice, ServingPoint
from ridgeline.search.serving.plans import concurrency, decode_memory, decode_pass
from ridgeline.units import format_fraction, format_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.cost.serving.device import PhaseColumns
    from ridgeline.cost.serving.machine import ServingMachine
    from ridgeline.cost.work import Part
    from ridgeline.search.serving.answer import ServingBound
    from ridgeline.search.serving.candidates import Candidates

_WAITS: Final[Mapping[ServingBound, str]] = {
    "hbm": "reading weights and KV cache is",
    "compute": "arithmetic is",
    "ici": "waiting for other devices is",
    "network": "waiting for the network is",
    "overhead": "waiting for the host is",
}


def serving_point(found: Candidates, index: int, *, requests_per_s: float | None) -> ServingPoint:
    """The full estimate of one candidate."""
    machine, row = found.table.machine, int(found.decode[index])
    columns, chunk_tokens = found.table.row(row), float(found.table.chunk_tokens[row])
    step = _pass_estimate(machine, columns)
    paged, ideal = concurrency(columns, machine, chunk_tokens=chunk_tokens)
    bound = _bound(step)
    ways = found.table.mesh_of(row).batch_ways
    prices = [
        float(million_tokens_usd(usd_per_hour=each.usd_per_hour, tokens_per_s=each.tokens_per_s))
        for each in price_shares(found, index)
    ]
    whole_usd, input_usd, output_usd = prices or (None, None, None)
    return ServingPoint(
        plan=_choice(found, index),
        ttft=_mean(found.ttft_s[index]),
        tpot=_mean(found.tpot_s[index]),
        tokens_per_s_per_chip=float(found.tokens_per_s_per_chip[index]),
        tokens_per_s_per_user=float(user_tokens_per_s(T_token_s=float(found.tpot_s[index]))),
        requests_per_s=float(found.served_requests_per_s[index]),
        reply_tokens=machine.setting.lengths.reply_tokens,
        max_concurrency=int(float(paged)) // ways * ways,
        ideal_concurrency=int(float(ideal)) // ways * ways,
        memory=_memory(machine, columns, chunk_tokens),
        ideal_cache_bytes=float(held_cache_bytes(machine.setting, columns)),
        step=step,
        prefill_s=float(found.reading_s[index]),
        cost_per_million_output_tokens_usd=whole_usd,
        input_usd=input_usd,
        output_usd=output_usd,
        bound=bound,
        bound_reason=_reason(bound, step),
        fleet=None if requests_per_s is None else fleet_of(found, index, requests_per_s=requests_per_s),
    )


def fleet_of(found: Candidates, index: int, *, requests_per_s: float) -> Fleet:
    """Servers that keep up with a rate of requests; whole ones."""
    hardware = found.table.machine.hardware
    servers, readers = (int(column[index]) for column in found.fleet(requests_per_s))
    chips = (servers + readers) * hardware.num_chips
    price = next(iter(hardware.chip.prices), None)
    hourly = None if price is None else chips * price.usd_per_chip_hour
    tokens_per_s = requests_per_s * found.table.machine.setting.lengths.reply_tokens
    return Fleet(
        requests_per_s=requests_per_s,
        servers=servers,
        prefill_servers=readers,
        chips=chips,
        usd_per_hour=hourly,
        usd_per_million_output_tokens=None
        if hourly is None
        else float(million_tokens_usd(usd_per_hour=hourly, tokens_per_s=tokens_per_s)),
    )


def _choice(found: Candidates, index: int) -> ServingChoice:
    row, reading = int(found.decode[index]), int(found.prefill[index])
    mesh, table = found.table.mesh_of(row), found.table
    apart = reading >= 0
    return ServingChoice(
        slice=table.machine.hardware.name,
        mode="disaggregated" if apart else "interleaved",
        decode=mesh.degrees,
        prefill=found.readers.mesh_of(reading).degrees if apart else mesh.degrees,
        batch=int(table.batch_size[row]),
        prefill_batch=int(found.readers.batch_size[reading]) if apart else 0,
        prefill_chunk=int(table.chunk_tokens[row]),
        prefill_server_ratio=float(found.servers_ratio[index]),
        cache="spread" if table.spread[row] > 0 else "heads",
        dtypes=table.machine.setting.dtypes,
    )


def _mean(value_s: float) -> Quantiles:
    """A mean whose tails are not known."""
    return Quantiles(mean_s=float(value_s), p50_s=nan, p90_s=nan, p99_s=nan)


def _memory(machine: ServingMachine, columns: PhaseColumns, chunk_tokens: float) -> MemoryEstimate:
    memory, usable_bytes = decode_memory(columns, machine, chunk_tokens=chunk_tokens), engine_bytes(machine)
    total_bytes = float(memory.total_bytes)
    return MemoryEstimate(
        verdict="fits" if total_bytes <= usable_bytes else verdict(total_bytes, usable_bytes),
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
        parts={name: float(part) for name, part in memory.parts.items()},
    )


def _pass_estimate(machine: ServingMachine, columns: PhaseColumns) -> PassEstimate:
    tree = serving_pass(machine, decode_pass(columns, machine))
    return PassEstimate(
        roofline_s=float(roofline_s(tree.work, machine)),
        expected_s=float(tree.expected_s),
        parts=tree,
        breakdown=_breakdown(tree, machine),
    )


def _breakdown(tree: Part, machine: ServingMachine) -> Breakdown:
    work = _work(tree)
    flops_s = sum(
        amount / machine.peak_flops_per_s(resource.removeprefix("flops."))
        for resource, amount in work.items()
        if resource.startswith("flops.")
    )
    leaves = [part for _, part in tree.walk() if part.composition == "leaf"]
    collectives_s, overhead_s = (
        sum(float(part.expected_s) for part in leaves if part.resource == resource) for resource in ("ici", "overhead")
    )
    weights_s = work.get("hbm.weights", 0.0) / machine.weights_bytes_per_s
    cache_s = work.get("hbm.kv_cache", 0.0) / machine.cache_bytes_per_s
    beside_s = weights_s + cache_s + collectives_s + overhead_s
    return Breakdown(
        weights_s=weights_s,
        kv_cache_s=cache_s,
        flops_s=flops_s / machine.efficiency.matmul["bf16"] / machine.serving.arithmetic,
        collectives_s=collectives_s,
        overhead_s=overhead_s,
        other_s=max(float(tree.expected_s) - beside_s, 0.0),
    )


def _work(tree: Part) -> dict[str, float]:
    return {resource: float(amount) for resource, amount in tree.work.amounts.items()}


def _bound(step: PassEstimate) -> ServingBound:
    """The largest share of a pass."""
    parts = step.breakdown
    shares: dict[ServingBound, float] = {
        "hbm": parts.weights_s + parts.kv_cache_s,
        "compute": parts.flops_s,
        "ici": parts.collectives_s,
        "overhead": parts.overhead_s,
    }
    largest = max(shares, key=lambda name: shares[name])
    work = step.parts.work.amounts
    crosses = float(work.get("network", 0.0)) > float(max(work.get("link.tensor", 0.0), work.get("link.expert", 0.0)))
    return "network" if largest == "ici" and crosses else largest


def _reason(bound: ServingBound, step: PassEstimate) -> str:
    parts = step.breakdown
    busy_s = {
        "hbm": parts.weights_s + parts.kv_cache_s,
        "compute": parts.flops_s,
        "ici": parts.collectives_s,
        "network": parts.collectives_s,
        "overhead": parts.overhead_s,
    }[bound]
    share = format_fraction(busy_s / step.expected_s)
    return f"{_WAITS[bound]} {format_seconds(busy_s)} of a pass of {format_seconds(step.expected_s)} ({share})"


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceShare:
    """What some tokens are charged for.

    Attributes:
        what: Which tokens.
        usd_per_hour: Of a server and its share of prefill servers, the part that these tokens take.
        tokens_per_s: That it gives.
    """

    what: str
    usd_per_hour: float
    tokens_per_s: float


def price_shares(found: Candidates, index: int) -> tuple[PriceShare, ...]:
    """All chips over output tokens; and apart what reading prompts adds, and the rest; none without a public price."""
    machine, lengths = found.table.machine, found.table.machine.setting.lengths
    price = next(iter(machine.hardware.chip.prices), None)
    if price is None:
        return ()
    servers, requests = 1.0 + float(found.servers_ratio[index]), float(found.served_requests_per_s[index])
    hourly = machine.hardware.num_chips * price.usd_per_chip_hour
    is_apart = int(found.prefill[index]) >= 0
    pass_s = float(found.tpot_s[index]) * machine.pass_tokens
    decoding = 1.0 if is_apart else float(found.decode_s[index]) / pass_s
    prompts_per_s, replies_per_s = requests * lengths.prompt_tokens, requests * lengths.reply_tokens
    return (
        PriceShare(what="output tokens, prompts included", usd_per_hour=hourly * servers, tokens_per_s=replies_per_s),
        PriceShare(what="input tokens", usd_per_hour=hourly * (servers - decoding), tokens_per_s=prompts_per_s),
        PriceShare(what="output tokens alone", usd_per_hour=hourly * decoding, tokens_per_s=replies_per_s),
    )
