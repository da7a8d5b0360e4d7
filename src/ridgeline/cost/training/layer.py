"""One decoder layer, forward and backward, on one device and for one microbatch.

What overlaps with what:

    forward  = max-like( operations and tensor-parallel collectives in sequence,
                         gather of the next layer's weights, offload of what is kept on the host )
    backward = max-like( recomputation, gradients and tensor-parallel collectives in sequence,
                         gather of weights again, reduce-scatter of their gradients, fetch from the host )

Tokens of experts travel in sequence as well, or, where a schedule runs two microbatches at once, among what is hidden.

"max-like" is `work.overlapped`: the first hides the others as far as the chip's overlap fraction reaches.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ridgeline.cost.collectives import gather
from ridgeline.cost.columns import PlanColumns, TrainingSetting, gathered_shards
from ridgeline.cost.training.accumulation import added_gradient_bytes
from ridgeline.cost.training.conversion import UNCONVERTED, conversions
from ridgeline.cost.training.leaves import gather_and_sum, traffic_part, transfer_part
from ridgeline.cost.training.operation import operation_cost, token_exchange
from ridgeline.cost.training.token_exchange import EXCHANGE_UNITS_SHARE
from ridgeline.cost.work import NOTHING, Number, Part, Phase, Work, in_sequence, larger, overlapped, scaled
from ridgeline.job.remat import LAYER_INPUT
from ridgeline.model.accounting import named_outputs
from ridgeline.model.operations import Activation, Block, Dispatch, ExpertMatmul, Layer, Operation, Tensor, weights_of
from ridgeline.model.recompute import projects_to_stream, recomputable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def layer_cost(
    layer: Layer, *, rows: Number, embed_dim: int, setting: TrainingSetting, columns: PlanColumns
) -> tuple[Part, Part]:
    """Forward and backward of one layer for `rows` tokens (before tensor parallelism), not yet repeated."""
    forward: list[Part] = []
    backward: list[Part] = []
    for block in layer.blocks:
        last = block is layer.blocks[-1]
        block_forward, block_backward = _block(
            block, rows=rows, embed_dim=embed_dim, last=last, setting=setting, columns=columns
        )
        forward.append(block_forward)
        backward.insert(0, block_backward)
    moved = list(_weights_moved(layer, setting=setting, columns=columns))
    gathers, sums = [gathered for gathered, _ in moved], [summed for _, summed in moved]
    to_host = host_part("offload", "forward", _offloaded_bytes(layer, rows, embed_dim, setting, columns), setting)
    once, again = _gathers_of_a_microbatch(columns)
    return (
        overlapped(
            layer.name,
            "forward",
            in_sequence("compute", "forward", forward),
            [
                *(scaled(part, once) for part in gathers),
                to_host,
                *_exchanges_beside(layer, "forward", rows=rows, setting=setting, columns=columns),
            ],
            hiding=setting.hiding,
        ),
        overlapped(
            layer.name,
            "backward",
            in_sequence("compute", "backward", [*backward, _accumulation(layer, setting=setting, columns=columns)]),
            [
                *(
                    replace(part, phase="backward")
                    for part in (
                        *(scaled(part, again) for part in gathers),
                        *(scaled(part, once) for part in sums),
                        to_host,
                    )
                ),
                *_exchanges_beside(layer, "backward", rows=rows, setting=setting, columns=columns),
            ],
            hiding=setting.hiding,
        ),
    )


def _exchanges_beside(
    layer: Layer, phase: Phase, *, rows: Number, setting: TrainingSetting, columns: PlanColumns
) -> Iterator[Part]:
    """Tokens on their way to experts beside the arithmetic of another microbatch; the first one has none to run beside.

    Those of a forward pass that is repeated travel again.
    """
    if not setting.expert_exchange_overlaps:
        return
    unhidden = larger(setting.efficiency.unhidden, 1.0 / columns.microsteps)
    unhidden = unhidden + (1.0 - unhidden) * (0.0 if setting.hardware.chip.switch is None else EXCHANGE_UNITS_SHARE)
    again = 1.0 - columns.saved["*"]
    for block in layer.blocks:
        for operation in block.operations:
            if not isinstance(operation, Dispatch):
                continue
            there = list(token_exchange(operation, "forward", rows=rows, setting=setting, columns=columns))
            if phase == "backward":
                there = [scaled(replace(part, phase="recompute"), again) for part in there]
                there.extend(token_exchange(operation, "backward", rows=rows, setting=setting, columns=columns))
            for part in there:
                yield replace(part, name=f"{block.name}/{part.name}", unhidden_share=unhidden)


def _gathers_of_a_microbatch(columns: PlanColumns) -> tuple[Number, Number]:
    """Gathers of a layer's weights in a microbatch's forward pass, and again in its backward pass.

    Gathered once a step, they stay for all microbatches and for both passes; so do the sums of their gradients.
    """
    return 1.0 - columns.gather_once * (1.0 - 1.0 / columns.microsteps), 1.0 - columns.gather_once


def host_part(name: str, phase: Phase, moved_bytes: Number, setting: TrainingSetting) -> Part:
    """A transfer between device and host; not a number where the chip's PCIe rate is not known and bytes move."""
    rate_bytes_per_s = setting.host_bytes_per_s
    if rate_bytes_per_s is None:
        unknown_s = np.where(np.asarray(moved_bytes) > 0, np.nan, 0.0)
        return Part(name=name, phase=phase, resource="host", expected_s=unknown_s, work=NOTHING)
    return Part(
        name=name,
        phase=phase,
        resource="host",
        expected_s=moved_bytes / (rate_bytes_per_s * setting.efficiency.pcie),
        work=Work(amounts={"host": moved_bytes}),
    )


def read_again(layer: Layer) -> Iterator[Activation]:
    """The named intermediates that the backward pass reads; what only adds to the next layer's input is never kept."""
    for block in layer.blocks:
        for operation in recomputable(block, last=block is layer.blocks[-1]):
            yield from named_outputs(operation)


def named_activations(layer: Layer) -> Iterator[Activation]:
    """The intermediates of a layer that have checkpoint names, in order."""
    for block in layer.blocks:
        for operation in block.operations:
            yield from named_outputs(operation)


def gathered_bytes(operations: Iterable[Operation], *, columns: PlanColumns, element_bytes: float) -> Number:
    """Bytes of weights as their operations see them: gathered over FSDP, still split by tensor and expert ways."""
    total: Number = 0.0
    for operation in operations:
        for tensor in weights_of(operation):
            total = total + gathered_tensor_bytes(tensor, columns=columns, element_bytes=element_bytes)
    return total


def gathered_tensor_bytes(tensor: Tensor, *, columns: PlanColumns, element_bytes: float) -> Number:
    """Bytes of one weight as its operation sees it."""
    return tensor.size * element_bytes / gathered_shards(tensor, columns)


def _block(
    block: Block, *, rows: Number, embed_dim: int, last: bool, setting: TrainingSetting, columns: PlanColumns
) -> tuple[Part, Part]:
    """One residual branch: its input gathered and its output reduce-scattered under tensor parallelism."""
    stream = gather(columns.links["tensor"], rows * embed_dim * setting.activation_bytes)
    exposed = 1.0 - setting.tensor_overlap

    def tensor(name: str, phase: Phase) -> Part:
        return _exposed(transfer_part(name, phase, "tensor", stream, setting=setting), exposed)

    forward, recompute, backward = [tensor("input/all_gather", "forward")], list[Part](), list[Part]()
    by_mask = setting.expert_capacity_ratio is not None
    repeated = tuple(recomputable(block, last=last, combines_by_mask=by_mask))
    converting = conversions(block, rows=rows, setting=setting, columns=columns)
    again = 1.0 - columns.saved["*"]
    for operation in block.operations:
        cost = operation_cost(operation, rows=rows, setting=setting, columns=columns)
        conversion = converting.get(operation.path, UNCONVERTED)
        forward.extend((*conversion.forward, *cost.forward, *conversion.sums))
        recompute.extend(scaled(replace(part, phase="recompute"), again) for part in conversion.forward)
        if operation in repeated:
            share = 1.0 - columns.kept(cost.output)
            recompute.extend(
                scaled(replace(part, phase="recompute"), share) for part in (*cost.forward, *conversion.sums)
            )
            if projects_to_stream(operation):
                recompute.append(scaled(tensor("output/reduce_scatter", "recompute"), share))
        backward[:0] = (*conversion.backward, *cost.backward)
    forward.append(tensor("output/reduce_scatter", "forward"))
    backward.insert(0, tensor("output_gradient/all_gather", "backward"))
    recompute.insert(0, tensor("input/all_gather", "recompute"))
    backward.append(tensor("input_gradient/reduce_scatter", "backward"))
    return (
        in_sequence(block.name, "forward", forward),
        in_sequence(
            block.name,
            "backward",
            [in_sequence("recompute", "recompute", recompute), in_sequence("gradient", "backward", backward)],
        ),
    )


def _exposed(part: Part, share: float) -> Part:
    """Only a share of its time shows; its bytes all move."""
    return replace(part, expected_s=part.expected_s * share)


def _weights_moved(layer: Layer, *, setting: TrainingSetting, columns: PlanColumns) -> Iterator[tuple[Part, Part]]:
    """FSDP's gathers and sums of one layer: dense weights over one group, expert weights over another."""
    for group, members in _by_group(layer):
        needed = gathered_bytes(members, columns=columns, element_bytes=setting.compute_bytes)
        yield gather_and_sum_trained(group, members, needed, setting=setting, columns=columns)


def gather_and_sum_trained(
    group: str, members: Iterable[Operation], weights_bytes: Number, *, setting: TrainingSetting, columns: PlanColumns
) -> tuple[Part, Part]:
    """The gather of so many bytes of weights, and the sum of the gradients of those that are trained."""
    gathers, sums = gather_and_sum(group, gather(columns.links[group], weights_bytes), setting=setting)
    if not setting.has_adapters:
        return gathers, sums
    trained = trained_bytes(members, setting=setting, columns=columns, element_bytes=setting.compute_bytes)
    return gathers, gather_and_sum(group, gather(columns.links[group], trained), setting=setting)[1]


def trained_bytes(
    operations: Iterable[Operation], *, setting: TrainingSetting, columns: PlanColumns, element_bytes: float
) -> Number:
    """Bytes of the gradients of trained weights, as their operations make them."""
    total: Number = 0.0
    for operation in operations:
        for tensor in weights_of(operation):
            if setting.trains(tensor):
                total = total + gathered_tensor_bytes(tensor, columns=columns, element_bytes=element_bytes)
    return total


def _accumulation(layer: Layer, *, setting: TrainingSetting, columns: PlanColumns) -> Part:
    """Of several microbatches each adds its gradients to those that a device keeps, where the products do not."""
    total: Number = 0.0
    added_apart = () if setting.adds_gradients_in_products else _by_group(layer)
    for group, members in added_apart:
        made = trained_bytes(members, setting=setting, columns=columns, element_bytes=setting.gradient_bytes)
        total = total + added_gradient_bytes(
            gradient_bytes=made / columns.links[group].size, num_microbatches=columns.microsteps
        )
    hbm = setting.efficiency.hbm
    return traffic_part("gradient/accumulate", "backward", total, setting=setting, efficiency=hbm)


def _by_group(layer: Layer) -> Iterator[tuple[str, list[Operation]]]:
    """The operations of a layer by the group that their weights are gathered over."""
    operations = [operation for block in layer.blocks for operation in block.operations]
    for group, has_experts in (("weights", False), ("expert_weights", True)):
        members = [operation for operation in operations if isinstance(operation, ExpertMatmul) == has_experts]
        if members:
            yield group, members


def _offloaded_bytes(
    layer: Layer, rows: Number, embed_dim: int, setting: TrainingSetting, columns: PlanColumns
) -> Number:
    """Bytes that travel to the host in the forward pass of one layer, and back in its backward pass."""
    moved = columns.offloaded.get(LAYER_INPUT, 0.0) * embed_dim
    for activation in read_again(layer):
        moved = moved + columns.offloaded.get(activation.name, 0.0) * activation.size
    return moved * rows * setting.activation_bytes / columns.tensor
