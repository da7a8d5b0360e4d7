"""Where the main numbers of one plan come from: the formulas that costed it, with the plan's own numbers put in."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ridgeline.cost.causes import COMMUNICATION
from ridgeline.cost.collectives import all_gather_s, all_reduce_s, all_to_all_s, permute_s
from ridgeline.cost.columns import tokens_per_microbatch
from ridgeline.cost.explain import Derivation, derive
from ridgeline.cost.laws.memory import gradient_bytes, optimizer_bytes, weight_bytes
from ridgeline.cost.laws.run import available_flops, chip_s, mfu, num_steps, run_s, run_usd
from ridgeline.cost.product import product_demand, product_formula
from ridgeline.cost.roofline import attention_flops, compute_s, matmul_flops, transfer_s
from ridgeline.cost.training.held_weights import local_elements, state_elements
from ridgeline.cost.training.muon import busiest_matrix
from ridgeline.cost.training.optimizer import moment_elements, moments_bytes
from ridgeline.cost.training.orthogonalization import newton_schulz_flops
from ridgeline.cost.training.step import published_host_rate_bytes_per_s
from ridgeline.job.job import BYTES_OF
from ridgeline.model.accounting import keys_read, operations
from ridgeline.model.operations import Attention, ExpertMatmul, Matmul
from ridgeline.search.estimate import mfu_peak_flops_per_s, step_flops

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ridgeline.cost.collectives import Link
    from ridgeline.cost.columns import PlanColumns, TrainingSetting
    from ridgeline.search.answer import PlanEstimate, RunEstimate


def explain_plan(setting: TrainingSetting, columns: PlanColumns, estimate: PlanEstimate) -> tuple[Derivation, ...]:
    """The step's largest matmul, attention and collective, its bound, its memory, its utilization.

    Args:
        setting: What the search shares.
        columns: The plan (scalar columns).
        estimate: Its estimate.
    """
    return (
        *_largest_product(setting, columns),
        *_largest_attention(setting, columns),
        *_busiest_links(setting, columns, estimate),
        *_bound(setting, estimate),
        *_memory(setting, columns),
        *_utilization(setting, estimate),
    )


def explain_run(setting: TrainingSetting, estimate: PlanEstimate, run: RunEstimate) -> Iterator[Derivation]:
    """Steps, duration and price of a run whose length is given."""
    batch_tokens = setting.global_batch * setting.seq_len
    chips = setting.hardware.num_chips
    steps = derive(num_steps, run_tokens=run.steps * batch_tokens, batch_tokens=batch_tokens)
    duration = derive(
        run_s,
        run_flops=run.steps * step_flops(setting),
        num_chips=chips,
        C_flops_per_s=mfu_peak_flops_per_s(setting),
        mfu=estimate.mfu,
    )
    yield replace(steps, quantity="steps of the run")
    yield replace(duration, quantity="duration of the run")
    if run.cost_usd is not None:
        price = run.cost_usd / run.chip_hours
        cost = derive(run_usd, chip_s=chips * run.duration_s, usd_per_chip_hour=price)
        yield replace(cost, quantity="price of the run")


def _largest_product(setting: TrainingSetting, columns: PlanColumns) -> Iterator[Derivation]:
    """FLOPs and time of the matmul of which a step does most, once through one layer."""
    rows = tokens_per_microbatch(setting, columns)
    found = [
        (path, product_demand(op, rows=rows, setting=setting, columns=columns), num_layers)
        for path, op, num_layers in operations(setting.tree)
        if isinstance(op, Matmul | ExpertMatmul)
    ]
    path, demand = max(found, key=lambda item: item[1].flops * item[2])[:2]
    flops = derive(
        matmul_flops,
        B=float(demand.rows),
        D=demand.contracted_width,
        F=float(demand.produced_width / demand.num_shards),
    )
    formula, asked = product_formula(demand, "output", setting=setting)
    busy = derive(formula, **{name: float(value) for name, value in asked.items()})
    yield replace(flops, quantity=f"FLOPs of {path}, one microbatch on one device")
    yield replace(busy, quantity=f"time of {path}, forward, overhead apart")


def _largest_attention(setting: TrainingSetting, columns: PlanColumns) -> Iterator[Derivation]:
    """FLOPs of the attention that sees most keys; nothing for models without any."""
    found = [(path, op) for path, op, _ in operations(setting.tree) if isinstance(op, Attention)]
    if found:
        path, op = max(found, key=lambda item: keys_read(item[1], seq_len=setting.seq_len))
        flops = derive(
            attention_flops,
            T=float(tokens_per_microbatch(setting, columns)),
            S=keys_read(op, seq_len=setting.seq_len),
            N=float(op.num_heads / columns.tensor),
            H=(op.qk_head_dim + op.v_head_dim) / 2,
        )
        yield replace(flops, quantity=f"FLOPs of {path}, one microbatch on one device")


def _busiest_links(setting: TrainingSetting, columns: PlanColumns, estimate: PlanEstimate) -> Iterator[Derivation]:
    """The collectives of a whole step that keep links busy longest; nothing for a single device."""
    amounts, efficiency = estimate.step.parts.work.amounts, setting.efficiency
    rate_bytes_per_s = setting.link_bytes_per_s * efficiency.link
    sent = {group: float(amounts.get(f"link.{group}", 0.0)) for group in COMMUNICATION}
    group = max(sent, key=lambda name: sent[name])
    if sent[group] > 0:
        yield replace(
            _on_links(columns.links[group], group, sent[group], rate_bytes_per_s),
            quantity=f"{COMMUNICATION[group]}, of a whole step, hidden or not",
        )
    network_bytes = float(amounts.get("network", 0.0))
    if network_bytes > 0:
        rate_bytes_per_s = setting.hardware.chip.network_bytes_per_s * efficiency.network
        network = derive(transfer_s, traffic_bytes=network_bytes, W_bytes_per_s=rate_bytes_per_s)
        yield replace(network, quantity="network between slices or hosts, of a whole step, hidden or not")


def _on_links(link: Link, group: str, sent_bytes: float, rate_bytes_per_s: float) -> Derivation:
    """The formula of a group's collective, for the bytes that it sent over the busiest link."""
    match group:
        case "stage":
            return derive(permute_s, V_bytes=sent_bytes / float(link.permute_load), W_bytes_per_s=rate_bytes_per_s)
        case "expert":
            load = float(link.exchange_load)
            return derive(all_to_all_s, V_bytes=sent_bytes / load, load=load, W_bytes_per_s=rate_bytes_per_s)
        case _:
            formula, times = (all_reduce_s, 2) if group == "data" else (all_gather_s, 1)
            load, size = float(link.gather_load), float(link.size)
            return derive(
                formula,
                V_bytes=sent_bytes / times / load,
                N=size,
                n=(size - 1) / size / load,
                W_bytes_per_s=rate_bytes_per_s,
            )


def _bound(setting: TrainingSetting, estimate: PlanEstimate) -> Iterator[Derivation]:
    """What bounds the step from below: the whole work of its busiest resource at the published peak."""
    demands = {resource: float(amount) for resource, amount in estimate.step.parts.work.amounts.items() if amount}
    arithmetic = [
        replace(
            derive(compute_s, flops=flops, C_flops_per_s=setting.peak_flops_per_s(dtype)),
            quantity=f"bound of a step by its arithmetic in {dtype}",
        )
        for kind, _, dtype in (resource.partition(".") for resource in demands)
        if kind == "flops"
        for flops in (demands[f"flops.{dtype}"],)
    ]
    chip = setting.hardware.chip
    rates_bytes_per_s = {
        "hbm": ("memory traffic", setting.hbm_bytes_per_s),
        "link": ("chip-to-chip links", setting.link_bytes_per_s),
        "network": ("network", chip.network_bytes_per_s),
        "host": ("transfers to and from the host", published_host_rate_bytes_per_s(chip) / chip.devices_per_chip),
    }
    moved = [
        replace(
            derive(transfer_s, traffic_bytes=demands[resource], W_bytes_per_s=rate),
            quantity=f"bound of a step by its {what}",
        )
        for resource in demands
        for what, rate in (rates_bytes_per_s.get(resource.partition(".")[0], ("", 0.0)),)
        if rate
    ]
    slowest = max(moved, key=lambda each: each.value, default=None)
    if slowest is not None and slowest.value > sum(each.value for each in arithmetic):
        yield slowest
    else:
        yield from arithmetic


def _memory(setting: TrainingSetting, columns: PlanColumns) -> Iterator[Derivation]:
    """What a device keeps of weights, moments and gradients; how long moments on the host are on their way."""
    parameters, dtypes, optimizer = float(local_elements(setting, columns)), setting.dtypes, setting.optimizer
    states = float(state_elements(setting, columns))
    weights = derive(weight_bytes, P=states, b_w=BYTES_OF[dtypes.weights])
    yield replace(weights, quantity="weights on a device")
    b_mu, b_nu = BYTES_OF[optimizer.mu_dtype], BYTES_OF[optimizer.nu_dtype]
    place = "the host, of a device" if columns.moments_on_host else "a device"
    first, second = (float(elements) for elements in moment_elements(setting, columns))
    if first == second:
        moments = derive(optimizer_bytes, P=states, b_mu=b_mu, b_nu=b_nu)
        yield replace(moments, quantity=f"optimizer state on {place}")
    else:
        for which, elements, b_w in (("first", first, b_mu), ("second", second, b_nu)):
            moment = derive(weight_bytes, P=elements, b_w=b_w)
            yield replace(moment, quantity=f"{which} moments on {place}")
    if columns.moments_on_host and setting.host_bytes_per_s is not None:
        rate_bytes_per_s = setting.host_bytes_per_s * setting.efficiency.pcie
        both_bytes = 2 * float(moments_bytes(setting, columns))
        moved = derive(transfer_s, traffic_bytes=both_bytes, W_bytes_per_s=rate_bytes_per_s)
        yield replace(moved, quantity="optimizer state from the host and back")
    gradients = derive(gradient_bytes, P=parameters, b_g=BYTES_OF[dtypes.gradients])
    yield replace(gradients, quantity="gradients on a device")
    if optimizer.is_muon:
        name, asked = busiest_matrix(setting, columns)
        yield replace(
            derive(newton_schulz_flops, **asked), quantity=f"FLOPs to make one {name} orthogonal, of a device"
        )


def _utilization(setting: TrainingSetting, estimate: PlanEstimate) -> Iterator[Derivation]:
    """Model FLOPs over what the chips could have done in the step."""
    num_chips, step_s = setting.hardware.num_chips, estimate.step.expected_s
    busy = derive(chip_s, num_chips=num_chips, run_s=step_s)
    available = derive(available_flops, chip_s=busy.value, C_flops_per_s=mfu_peak_flops_per_s(setting))
    yield replace(available, quantity="what all chips could do in a step")
    yield replace(derive(mfu, run_flops=step_flops(setting), available_flops=available.value), quantity="MFU")
