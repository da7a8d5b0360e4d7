"""A whole training step: its tree of parts, its lower bound, its estimate.

    step = embedding + forward + backward + head + pipeline + optimizer + overhead + contention

`forward` and `backward` repeat the layers of the busiest stage for every microbatch; gradients that several
replicas share are summed behind the last microbatch's backward pass.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ridgeline.cost.collectives import gather, permute, reduce
from ridgeline.cost.columns import TENSOR_AXES, PlanColumns, TrainingSetting, tokens_per_microbatch
from ridgeline.cost.laws.pipeline import bubble_ratio
from ridgeline.cost.training.held_weights import elements_on_all_stages, summed_elements
from ridgeline.cost.training.launches import NO_KERNELS, num_kernels, waited_for_host_s, waits_for_routing
from ridgeline.cost.training.layer import gather_and_sum_trained, gathered_bytes, layer_cost
from ridgeline.cost.training.leaves import transfer_part
from ridgeline.cost.training.operation import operation_cost
from ridgeline.cost.training.optimizer import optimizer_part
from ridgeline.cost.training.pipeline import (
    has_uneven_stages,
    interleaved_share,
    pipelined_share,
    spared_share,
    worked_share,
)
from ridgeline.cost.training.table_rows import exchanged_share, row_exchange
from ridgeline.cost.work import Hiding, Number, Part, Work, in_sequence, larger, overlapped, scaled, smaller
from ridgeline.model.operations import Lookup, Matmul

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ridgeline.hardware.chip import Chip
    from ridgeline.model.operations import Block, ModelTree


def training_step(setting: TrainingSetting, columns: PlanColumns) -> Part:
    """The tree of one optimizer step; `expected_s` of its root is the estimate."""
    rows = tokens_per_microbatch(setting, columns)
    forward, backward, in_stages_s = _layers(setting, columns, rows)
    embedding = _embedding(setting, columns, rows)
    head = _head(setting, columns, rows)
    once = _hiding_of_sync(setting, columns)
    synced = overlapped(
        "backward_and_gradient_sync", "backward", backward, list(_gradient_sync(setting, columns)), hiding=once
    )
    if setting.optimizer.distributed:
        forward = overlapped(
            "forward_and_weight_sync", "forward", forward, list(_weight_sync(setting, columns)), hiding=once
        )
    parts = [
        embedding,
        forward,
        head,
        synced,
        _pipeline(setting, columns, rows, in_stages_s=in_stages_s, head_s=head.expected_s),
        optimizer_part(setting, columns),
        Part(name="overhead", phase="step", resource="overhead", expected_s=setting.efficiency.step_overhead_s),
    ]
    if setting.is_eager:
        parts.append(_launches(setting, columns, in_sequence("step", "step", parts), forward_s=forward.expected_s))
    return in_sequence("step", "step", [*parts, _contention(setting, in_sequence("step", "step", parts))])


def _hiding_of_sync(setting: TrainingSetting, columns: PlanColumns) -> Hiding:
    """What hides the sum of gradients: the last microbatch's pass, of interleaved stages that of all in flight.

    Nothing does where replicas wait for it.
    """
    if not setting.sync_overlaps:
        return Hiding(overlap=0.0, unhidden_share=1.0)
    window = 1.0 + (columns.stages - 1.0) * interleaved_share(setting, columns)
    return replace(setting.hiding, overlap=setting.hiding.overlap * smaller(window / columns.microsteps, 1.0))


def _launches(setting: TrainingSetting, columns: PlanColumns, step: Part, *, forward_s: Number) -> Part:
    """What a host still has to issue when everything else is done; it issues the layers' kernels one by one."""
    issued = NO_KERNELS
    for layer in setting.tree.layers:
        issued = issued + num_kernels(layer, setting=setting, columns=columns) * layer.count
    each_s = worked_share(setting, columns) * columns.microsteps * setting.efficiency.launch_s
    forward_host_s, backward_host_s = issued.num_forward * each_s, issued.num_backward * each_s
    host_s, rest_s = forward_host_s + backward_host_s, step.expected_s - forward_s
    if not waits_for_routing(setting):
        waits_s = larger(host_s - step.expected_s, 0.0)
    elif setting.expert_exchange_overlaps:
        waits_s = waited_for_host_s(host_s=host_s, device_s=step.expected_s)
    else:
        waits_s = waited_for_host_s(host_s=forward_host_s, device_s=forward_s)
        waits_s = waits_s + waited_for_host_s(host_s=backward_host_s, device_s=rest_s)
    return Part(name="launches", phase="step", resource="overhead", expected_s=waits_s)


def _contention(setting: TrainingSetting, step: Part) -> Part:
    """What the network still has to carry when everything else is done.

    Gathers of weights and sums of gradients hide behind the same backward pass; across slices they share one
    network, so no step is shorter than it is busy.
    """
    rate_bytes_per_s = setting.hardware.chip.network_bytes_per_s * setting.efficiency.network
    busy_s = step.work.amounts.get("network", 0.0) / rate_bytes_per_s
    left_s = larger(busy_s - step.expected_s, 0.0)
    return Part(name="contention", phase="step", resource="overhead", expected_s=left_s)


def roofline_s(work: Work, setting: TrainingSetting) -> Number:
    """Lower bound of a step: the busiest resource at its published peak, everything else perfectly hidden.

    max over { Σ FLOPs/peak of their dtype, HBM bytes/W, bytes over each group's links/W, network, host }
    """
    chip = setting.hardware.chip
    arithmetic_s: Number = 0.0
    bound_s: Number = 0.0
    for resource, amount in work.amounts.items():
        kind, _, which = resource.partition(".")
        match kind:
            case "flops":
                arithmetic_s = arithmetic_s + amount / setting.peak_flops_per_s(which)
            case "link":
                bound_s = larger(bound_s, amount / setting.link_bytes_per_s)
            case "network":
                bound_s = larger(bound_s, amount / chip.network_bytes_per_s)
            case "host":
                bound_s = larger(bound_s, amount * chip.devices_per_chip / published_host_rate_bytes_per_s(chip))
            case _:
                bound_s = larger(bound_s, amount / setting.hbm_bytes_per_s)
    return larger(bound_s, arithmetic_s)


def published_host_rate_bytes_per_s(chip: Chip) -> float:
    """The PCIe rate if it is more than an assumption; a bound that rests on one would not be a bound."""
    known = chip.pcie_bytes_per_s is not None and chip.facts["pcie_bytes_per_s"].kind != "derived"
    return chip.pcie_bytes_per_s if known and chip.pcie_bytes_per_s is not None else float("inf")


def embed_dim(tree: ModelTree) -> int:
    """Width of the residual stream."""
    table = next(operation for operation in tree.embedding.operations if isinstance(operation, Lookup))
    return table.width


def _layers(setting: TrainingSetting, columns: PlanColumns, rows: Number) -> tuple[Part, Part, Number]:
    """Forward and backward through all layers, and how long of that the stages of a pipeline take turns."""
    forward: list[Part] = []
    backward: list[Part] = []
    share, width = worked_share(setting, columns), embed_dim(setting.tree)
    in_stages_s: Number = 0.0
    for layer in setting.tree.layers:
        once_forward, once_backward = layer_cost(layer, rows=rows, embed_dim=width, setting=setting, columns=columns)
        times = layer.count * share * columns.microsteps
        forward.append(scaled(once_forward, times))
        backward.insert(0, scaled(once_backward, times))
        inside = times * pipelined_share(layer, setting, columns)
        in_stages_s = in_stages_s + (once_forward.expected_s + once_backward.expected_s) * inside
    return in_sequence("forward", "forward", forward), in_sequence("backward", "backward", backward), in_stages_s


def _embedding(setting: TrainingSetting, columns: PlanColumns, rows: Number) -> Part:
    """Lookups, and the gather of a table whose width is sharded, or the exchange of the rows looked up in it."""
    return _outside("embedding", setting.tree.embedding, setting, columns, rows)


def _head(setting: TrainingSetting, columns: PlanColumns, rows: Number) -> Part:
    """Final norm, logits and loss; every stage takes its share of the tokens (MaxText shards them over `stage`)."""
    return _outside("head", setting.tree.head, setting, columns, rows / columns.stages)


def _outside(name: str, block: Block, setting: TrainingSetting, columns: PlanColumns, rows: Number) -> Part:
    """A block outside the layers: forward, recomputation of tiled logits, backward, its weights gathered behind."""
    forward: list[Part] = []
    backward: list[Part] = []
    needed: Number = 0.0
    for operation in block.operations:
        cost = operation_cost(operation, rows=rows, setting=setting, columns=columns)
        forward.extend(
            (*cost.forward, *row_exchange(operation, "forward", rows=rows, setting=setting, columns=columns))
        )
        backward[:0] = (
            *row_exchange(operation, "backward", rows=rows, setting=setting, columns=columns),
            *cost.backward,
        )
        if setting.vocab_tiling > 1 and isinstance(operation, Matmul):
            again = [replace(part, phase="recompute") for part in cost.forward]
            backward.insert(0, in_sequence("recompute", "recompute", again))
        whole_bytes = gathered_bytes([operation], columns=columns, element_bytes=setting.compute_bytes)
        needed = needed + whole_bytes * (1.0 - exchanged_share(operation, rows=rows, setting=setting))
    gathers, sums = gather_and_sum_trained("weights", block.operations, needed, setting=setting, columns=columns)
    times = columns.microsteps * np.where(np.asarray(needed) > 0, 1.0, 0.0)
    return overlapped(
        name,
        "step",
        in_sequence("compute", "step", [*forward, *backward], times=columns.microsteps),
        [scaled(gathers, times), scaled(sums, times)],
        hiding=setting.hiding,
    )


def _gradient_sync(setting: TrainingSetting, columns: PlanColumns) -> Iterator[Part]:
    """Sum of gradients over replicas, once a step.

    All-reduces over dp, and dp across slices, in the compute dtype; a distributed optimizer reduce-scatters what
    has been accumulated. What every stage of a pipeline holds is summed over the stages as well.
    """
    for group, elements in summed_elements(setting, columns).items():
        if setting.optimizer.distributed:
            transfer = gather(columns.links[group], elements * setting.gradient_bytes)
            yield transfer_part(f"{group}/reduce_scatter", "backward", group, transfer, setting=setting)
        else:
            yield _replicas_sum(group, elements * setting.compute_bytes, setting=setting, columns=columns)
    replicated_bytes = elements_on_all_stages(setting, columns) * setting.compute_bytes
    transfer = reduce(columns.links["stage"], replicated_bytes)
    yield transfer_part("gradient/all_reduce", "backward", "stage", transfer, setting=setting)


def _replicas_sum(group: str, summed_bytes: Number, *, setting: TrainingSetting, columns: PlanColumns) -> Part:
    """All-reduces of the gradients over replicas, one a layer as the backward pass ends it."""
    link, efficiency = columns.links[group], setting.efficiency
    num_sums = sum(layer.count for layer in setting.tree.layers) / columns.stages
    transfer = reduce(link, summed_bytes)
    steps, launches = transfer.network_steps * num_sums, transfer.num_network_launches * num_sums
    transfer = replace(transfer, network_steps=steps, num_network_launches=launches)
    summed = transfer_part("gradient/all_reduce", "backward", group, transfer, setting=setting)
    if not setting.sync_overlaps:
        return summed
    within, across = setting.carried_share("all_reduce", efficiency.unhidden_sum), efficiency.unhidden_network
    return replace(summed, unhidden_share=within + (across - within) * smaller(link.network_steps, 1.0))


def _weight_sync(setting: TrainingSetting, columns: PlanColumns) -> Iterator[Part]:
    """A distributed optimizer's gather of the weights that each replica has updated a part of, once a step."""
    for group, elements in summed_elements(setting, columns).items():
        transfer = gather(columns.links[group], elements * setting.compute_bytes)
        yield transfer_part(f"{group}/all_gather", "forward", group, transfer, setting=setting)


def _pipeline(
    setting: TrainingSetting, columns: PlanColumns, rows: Number, *, in_stages_s: Number, head_s: Number
) -> Part:
    """Bubble, hand-overs between stages, and the wait for the stage that has the head.

    The bubble is `bubble_ratio` of the time of the layers in the pipeline. Interleaved stages hand over while they
    work on. Where stages run programs of their own the head is the last one's alone.
    """
    stages = columns.stages
    waiting = bubble_ratio(num_stages=stages, num_microbatches=columns.microbatches, num_repeats=columns.repeats)
    bubble_s = waiting * in_stages_s
    spared_s = spared_share(setting, columns) * in_stages_s
    waiting_s = larger((stages - 1.0) * head_s - spared_s, 0.0) if has_uneven_stages(setting) else head_s * 0.0
    shown = 1.0 - setting.hiding.overlap * interleaved_share(setting, columns)
    width = embed_dim(setting.tree)
    handed_bytes = rows * width * setting.activation_bytes / columns.degree(TENSOR_AXES)
    transfer = permute(columns.links["stage"], handed_bytes)
    hand_over = transfer_part("hand_over/permute", "step", "stage", transfer, setting=setting)
    return in_sequence(
        "pipeline",
        "step",
        [
            Part(name="bubble", phase="step", resource="overhead", expected_s=bubble_s),
            Part(name="last_stage", phase="step", resource="overhead", expected_s=waiting_s),
            scaled(
                replace(hand_over, expected_s=hand_over.expected_s * shown), 2 * columns.microsteps * columns.repeats
            ),
        ],
    )
