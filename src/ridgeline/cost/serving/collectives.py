"""Collectives of a pass of a server: few bytes each, so that hops count as much as bandwidth.

V  bytes of the array     N  devices     W  bytes/s of one device, one way     t  least time of a step
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from ridgeline.cost.collectives import exchange, gather, permute, reduce
from ridgeline.cost.serving.device import TRANSPOSED, tensor_shards
from ridgeline.cost.training.step import embed_dim
from ridgeline.cost.training.token_exchange import devices_visited_ratio, gathered_tokens_bytes, sent_once_ratio
from ridgeline.cost.work import Part, Work, larger, scaled, smaller
from ridgeline.job.job import TRANSPOSE_AXIS
from ridgeline.model.operations import ExpertMatmul, Matmul

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ridgeline.cost.collectives import Transfer
    from ridgeline.cost.serving.device import PhaseColumns
    from ridgeline.cost.serving.machine import Pass, ServingMachine
    from ridgeline.cost.work import Number
    from ridgeline.model.operations import Dispatch, Operation

DISPATCHED = "dispatch"
"""Path of tokens on their way to their experts."""

DEVICES_OF_SERVER = 8
"""GPUs that share fast links and no more: of racks whose links join more, engines have exchanges of their own."""

LEAST_LATENCY_S = 1e-9
"""A group of several devices has a longer one; one device has none, and no collective."""

SERVING_GROUPS: Mapping[str, tuple[str, ...]] = {
    "tensor": ("tp", "tp_sequence"),
    "transpose": (TRANSPOSE_AXIS,),
    "context": ("cp",),
    "expert": ("ep",),
    "stage": ("pp",),
}
"""Logical axes over which one collective of a server runs."""


def one_shot_all_reduce_s(*, V_bytes: Number, N: Number, W_bytes_per_s: float, t_min_s: float) -> Number:
    """Time of an all-reduce in which every device sends its whole array to all others at once, and each adds them up.

    It takes one step where a ring takes 2·(N − 1), and moves N/2 times as many bytes: quicker for few bytes.

    Formula: T = (N − 1) · V / W + t_min

    Assumes: a switch, through which every device reaches every other.

    Source: vLLM and TensorRT-LLM, custom all-reduce.

    >>> one_shot_all_reduce_s(V_bytes=8.0, N=3.0, W_bytes_per_s=4.0, t_min_s=1.0)
    5.0
    """
    return (N - 1) * V_bytes / W_bytes_per_s + t_min_s


def collective_part(name: str, group: str, transfer: Transfer, machine: ServingMachine) -> Part:
    """A collective over a group of `SERVING_GROUPS` as a leaf; the next operation waits for it."""
    chip, efficiency = machine.hardware.chip, replace(machine.efficiency, link=machine.serving.link)
    moved_s = transfer.expected_s(
        link_bytes_per_s=machine.link_bytes_per_s * efficiency.link_fraction(transfer.num_rings),
        network_bytes_per_s=chip.network_bytes_per_s * efficiency.network,
    )
    return Part(
        name=name,
        phase="forward",
        resource="ici",
        expected_s=moved_s + machine.serving.collective_s * smaller(transfer.latency_s / LEAST_LATENCY_S, 1.0),
        work=Work(amounts={f"link.{group}": transfer.link_bytes, "network": transfer.network_bytes}),
        array_bytes=transfer.array_bytes,
    )


def all_reduce_part(name: str, *, array_bytes: Number, step: Pass, machine: ServingMachine) -> Part:
    """The sum over tensor parallelism that ends a block; through a switch by the quicker of two ways."""
    link, switch = step.columns.links["tensor"], machine.hardware.chip.switch
    part = collective_part(name, "tensor", reduce(link, array_bytes), machine)
    if switch is None:
        return part
    at_once_s = one_shot_all_reduce_s(
        V_bytes=array_bytes,
        N=link.size,
        W_bytes_per_s=switch.bytes_per_s * machine.serving.link,
        t_min_s=switch.latency_s + machine.serving.collective_s,
    )
    is_inside = 1.0 - smaller(link.network_steps, 1.0)
    saved_s = larger(part.expected_s - at_once_s, 0.0) * is_inside
    return replace(part, expected_s=part.expected_s - saved_s)


def gathers_tokens(machine: ServingMachine, columns: PhaseColumns) -> Number:
    """1 where each device of a group of experts is given the tokens of all, 0 where those that it has experts for."""
    switch = machine.hardware.chip.switch
    if switch is None or switch.domain_size > DEVICES_OF_SERVER:
        return 0.0
    return 1.0 - smaller(columns.links["expert"].network_steps, 1.0)


def exchange_parts(op: Dispatch, *, step: Pass, machine: ServingMachine) -> Iterator[Part]:
    """Tokens on their way to their experts, in the dtype that these compute in, or back, in that of the stream.

    Inside a server of GPUs every device gathers the tokens of all, and sums are reduced and scattered; beyond, a token
    goes once to each device that has any of its experts, and one sum comes back. Each device of a rank carries its
    share.

    Source: vLLM, `allgather_reducescatter`, and SGLang and TensorRT-LLM, all of them unless told otherwise; DeepEP
        beyond a server.
    """
    columns, chip = step.columns, machine.hardware.chip
    sent_bytes = machine.dispatched_element_bytes if op.path.endswith(DISPATCHED) else machine.activation_element_bytes
    tokens_bytes = step.rows * op.width * sent_bytes / (columns.tensor * columns.transpose_degree)
    link = columns.links["expert"]
    travel = exchange(link, tokens_bytes * op.top_k)
    is_gathered = gathers_tokens(machine, columns)
    if chip.switch is not None:
        visited = devices_visited_ratio(N=link.size, k=op.top_k)
        travel = exchange(link, tokens_bytes * op.top_k * visited)
        ratio = sent_once_ratio(network_load=link.network_exchange_load, k=op.top_k) / visited
        travel = replace(travel, network_bytes=travel.network_bytes * ratio)
    sent = collective_part(f"{op.path}/all_to_all", "expert", travel, machine)
    yield scaled(sent, 1.0 - is_gathered)
    name = "all_gather" if op.path.endswith(DISPATCHED) else "reduce_scatter"
    gathered = gather(link, gathered_tokens_bytes(tokens_bytes=tokens_bytes, N=link.size))
    yield scaled(collective_part(f"{op.path}/{name}", "expert", gathered, machine), is_gathered)


def transposed_parts(
    operations: Iterable[Operation], *, rows: Number, step: Pass, machine: ServingMachine
) -> Iterator[Part]:
    """What `tp_transpose` exchanges around the matmuls of a block: 2D weight-stationary.

    Matmuls over a side that it splits yield partial sums: these are reduce-scattered, each device keeping some
    sequences. The matmul that leads back to the stream wants all of them again: an all-gather.
    """
    if TRANSPOSE_AXIS not in step.columns.degrees:
        return
    sums: dict[str, Number] = {}
    gathered: Number | None = None
    for op in operations:
        if isinstance(op, Matmul | ExpertMatmul):
            made, read = _sides_elements(op, step)
            split = next((axis for axis in _contracted(op) if axis in TRANSPOSED), None)
            if split is not None:
                sums[split] = sums.get(split, 0.0) + made
            elif any(axis in TRANSPOSED for axis in op.weight.axes):
                gathered = read if gathered is None else gathered + read
    link, row_bytes = step.columns.links["transpose"], rows * machine.activation_element_bytes
    for axis, elements in sums.items():
        name = f"{axis}/reduce_scatter"
        yield collective_part(name, "transpose", gather(link, elements * row_bytes), machine)
    if gathered is not None:
        yield collective_part("output/all_gather", "transpose", gather(link, gathered * row_bytes), machine)


def stage_part(*, step: Pass, machine: ServingMachine) -> Iterator[Part]:
    """The residual stream on its way from stage to stage; each device sends its share."""
    columns = step.columns
    if "pp" not in columns.degrees:
        return
    elements = step.rows * embed_dim(machine.setting.tree) / (columns.tensor * columns.transpose_degree)
    sent = permute(columns.links["stage"], elements * machine.activation_element_bytes)
    yield scaled(collective_part("stream/permute", "stage", sent, machine), columns.stages - 1.0)


def _contracted(op: Matmul | ExpertMatmul) -> tuple[str, ...]:
    return op.weight.axes[:2] if isinstance(op, ExpertMatmul) else op.weight.axes[: op.num_contracted]


def _sides_elements(op: Matmul | ExpertMatmul, step: Pass) -> tuple[Number, Number]:
    """Of a token, what a device makes and what it reads, when only tensor parallelism splits both."""
    inner = len(_contracted(op))
    first, copies = (1, op.top_k) if isinstance(op, ExpertMatmul) else (0, 1)
    read, made = (
        copies * prod(op.weight.shape[side]) / tensor_shards(op.weight.axes[side], op.weight.shape[side], step.columns)
        for side in (slice(first, inner), slice(inner, None))
    )
    return made, read
