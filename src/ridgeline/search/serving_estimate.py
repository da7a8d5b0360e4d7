"""One plan of serving in full: its tree, its memory, what binds it, what it costs. The same functions, on one row."""

from __future__ import annotations

from math import nan
from typing import TYPE_CHECKING, Final

from ridgeline.cost.critical_size import small_batch_critical_rows
from ridgeline.cost.laws.batch import alpha_flops_per_byte, tensor_largest_degree
from ridgeline.cost.laws.decode import beta_ratio, crossover_keys, decode_critical_rows, tensor_memory_degree
from ridgeline.cost.serving.device import held_cache_bytes
from ridgeline.cost.serving.memory import engine_bytes
from ridgeline.cost.serving.steady import million_tokens_usd
from ridgeline.cost.serving.step import PASS_OVERHEAD_S, roofline_s, serving_pass
from ridgeline.cost.training.step import step_weights
from ridgeline.model.accounting import operations
from ridgeline.model.operations import ExpertMatmul
from ridgeline.search.answer import MemoryEstimate
from ridgeline.search.engine.latency import Quantiles
from ridgeline.search.estimate import verdict
from ridgeline.search.serving_answer import Breakdown, DecodeLaws, Fleet, PassEstimate, ServingChoice, ServingPoint
from ridgeline.search.serving_plans import concurrency, decode_memory, decode_pass
from ridgeline.units import format_fraction, format_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.cost.serving.device import PhaseColumns
    from ridgeline.cost.serving.machine import ServingMachine
    from ridgeline.cost.work import Part
    from ridgeline.search.serving_answer import ServingBound
    from ridgeline.search.serving_candidates import Candidates

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
    costs = _costs(found, index)
    return ServingPoint(
        plan=_choice(found, index),
        ttft=_mean(found.ttft_s[index]),
        tpot=_mean(found.tpot_s[index]),
        tokens_per_s_per_chip=float(found.tokens_per_s_per_chip[index]),
        tokens_per_s_per_user=1.0 / float(found.tpot_s[index]),
        requests_per_s=float(found.served_requests_per_s[index]),
        reply_tokens=machine.setting.lengths.reply_tokens,
        max_concurrency=int(float(paged)) // ways * ways,
        ideal_concurrency=int(float(ideal)) // ways * ways,
        memory=_memory(machine, columns, chunk_tokens),
        ideal_cache_bytes=float(held_cache_bytes(machine.setting, columns)),
        step=step,
        prefill_s=float(found.reading_s[index]),
        cost_per_million_output_tokens_usd=costs[0],
        input_usd=costs[1],
        output_usd=costs[2],
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
    return Fleet(
        requests_per_s=requests_per_s,
        servers=servers,
        prefill_servers=readers,
        chips=chips,
        usd_per_hour=None if price is None else chips * price.usd_per_chip_hour,
    )


def decode_laws(found: Candidates, index: int) -> DecodeLaws:
    """What laws say of the slice and the batch of a candidate."""
    machine, row = found.table.machine, int(found.decode[index])
    chip, setting = machine.hardware.chip, machine.setting
    columns, mesh = found.table.row(row), found.table.mesh_of(row)
    experts, top_k = _experts(found)
    copies = mesh.batch_ways / (1 if experts == 1.0 else mesh.degrees.get("ep", 1))
    dense = small_batch_critical_rows(
        b_w=machine.weight_element_bytes(()),
        C_flops_per_s=machine.peak_flops_per_s(machine.compute_dtype),
        W_bytes_per_s=machine.peak_hbm_bytes_per_s,
    )
    work = _work(serving_pass(machine, decode_pass(columns, machine)))
    read_bytes = float(work.get("hbm.weights", nan))
    context = setting.lengths.context_tokens
    compute_degree = memory_degree = None
    if chip.torus is not None:
        width = _mlp_width(found)
        axes, axis_bytes_per_s = chip.torus.dimensions, 2 * chip.torus.link_bytes_per_s
        alpha = alpha_flops_per_byte(
            C_flops_per_s=chip.peak_flops_per_s[machine.compute_dtype], W_ici_bytes_per_s=axis_bytes_per_s
        )
        beta = beta_ratio(W_hbm_bytes_per_s=chip.hbm_bytes_per_s, W_ici_bytes_per_s=axis_bytes_per_s)
        compute_degree = tensor_largest_degree(F=width, alpha_flops_per_byte=alpha, n_tensor_axes=axes)
        memory_degree = tensor_memory_degree(F=width, B=float(columns.batch_size) / mesh.batch_ways, beta_ratio=beta)
    token_bytes = float(work.get("hbm.kv_cache", nan)) / context
    return DecodeLaws(
        critical_batch_size=decode_critical_rows(dense_critical_rows=dense, E=experts, k=top_k) * copies,
        context_crossover_tokens=crossover_keys(weight_bytes=read_bytes, B=1.0, token_cache_bytes=token_bytes),
        tensor_compute_degree=compute_degree,
        tensor_memory_degree=None if memory_degree is None else float(memory_degree),
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
    collectives_s = sum(
        float(part.expected_s) for _, part in tree.walk() if part.composition == "leaf" and part.resource == "ici"
    )
    weights_s = work.get("hbm.weights", 0.0) / machine.hbm_bytes_per_s
    cache_s = work.get("hbm.kv_cache", 0.0) / machine.hbm_bytes_per_s
    beside_s = weights_s + cache_s + collectives_s + PASS_OVERHEAD_S
    return Breakdown(
        weights_s=weights_s,
        kv_cache_s=cache_s,
        flops_s=flops_s / machine.efficiency.matmul["bf16"],
        collectives_s=collectives_s,
        overhead_s=PASS_OVERHEAD_S,
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


def _costs(found: Candidates, index: int) -> tuple[float | None, float | None, float | None]:
    """Dollars of a million output tokens, all chips over them; and of a million tokens of prompts and replies apart."""
    machine, lengths = found.table.machine, found.table.machine.setting.lengths
    price = next(iter(machine.hardware.chip.prices), None)
    if price is None:
        return None, None, None
    servers, requests = 1.0 + float(found.servers_ratio[index]), float(found.served_requests_per_s[index])
    hourly = machine.hardware.num_chips * price.usd_per_chip_hour
    is_apart = int(found.prefill[index]) >= 0
    pass_s = float(found.tpot_s[index]) * machine.pass_tokens
    decoding = 1.0 if is_apart else float(found.decode_s[index]) / pass_s
    prompts_per_s, replies_per_s = requests * lengths.prompt_tokens, requests * lengths.reply_tokens
    return (
        float(million_tokens_usd(usd_per_hour=hourly * servers, tokens_per_s=replies_per_s)),
        float(million_tokens_usd(usd_per_hour=hourly * (servers - decoding), tokens_per_s=prompts_per_s)),
        float(million_tokens_usd(usd_per_hour=hourly * decoding, tokens_per_s=replies_per_s)),
    )


def _experts(found: Candidates) -> tuple[float, float]:
    """Experts, and those that a token visits; 1 and 1 of a dense model."""
    for _, operation, _ in operations(found.table.machine.setting.tree):
        if isinstance(operation, ExpertMatmul):
            return float(operation.weight.shape[0]), float(operation.top_k)
    return 1.0, 1.0


def _mlp_width(found: Candidates) -> float:
    """F: the widest MLP's; of experts, all that a token visits together."""
    _, top_k = _experts(found)
    widths = [
        size * (top_k if axis == "mlp_moe" else 1.0)
        for tensor, _, _ in step_weights(found.table.machine.setting.tree)
        for axis, size in zip(tensor.axes, tensor.shape, strict=True)
        if axis in {"mlp", "mlp_moe"}
    ]
    return max(widths, default=nan)
