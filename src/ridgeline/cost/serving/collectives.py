"""Collectives of a pass of a server: few bytes each, so that hops count as much as bandwidth.

V  bytes of the array     N  devices     W  bytes/s of one device, one way     t  least time of a step
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ridgeline.cost.collectives import exchange, reduce
from ridgeline.cost.training.token_exchange import sent_once_ratio
from ridgeline.cost.work import Part, Work, larger, smaller

if TYPE_CHECKING:
    from ridgeline.cost.collectives import Transfer
    from ridgeline.cost.serving.machine import Pass, ServingMachine
    from ridgeline.cost.work import Number
    from ridgeline.model.operations import Dispatch


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
    """A collective over a group of `placement.GROUPS` as a leaf; the next operation waits for it."""
    chip, efficiency = machine.hardware.chip, machine.efficiency
    return Part(
        name=name,
        phase="forward",
        resource="ici",
        expected_s=transfer.expected_s(
            link_bytes_per_s=machine.link_bytes_per_s * efficiency.link_fraction(transfer.num_rings),
            network_bytes_per_s=chip.network_bytes_per_s * efficiency.network,
        ),
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
        W_bytes_per_s=switch.bytes_per_s * machine.efficiency.link,
        t_min_s=switch.latency_s,
    )
    is_inside = 1.0 - smaller(link.network_steps, 1.0)
    saved_s = larger(part.expected_s - at_once_s, 0.0) * is_inside
    return replace(part, expected_s=part.expected_s - saved_s)


def exchange_part(op: Dispatch, *, step: Pass, machine: ServingMachine) -> Part:
    """Copies of tokens on their way to their experts, or back; each tensor-parallel device carries its share."""
    columns, rows = step.columns, step.rows
    copies_bytes = rows * op.top_k * op.width * machine.activation_element_bytes / columns.tensor
    link = columns.links["expert"]
    travel = exchange(link, copies_bytes)
    if machine.hardware.chip.switch is not None:
        ratio = sent_once_ratio(network_load=link.network_exchange_load, k=op.top_k)
        travel = replace(travel, network_bytes=travel.network_bytes * ratio)
    return collective_part(f"{op.path}/all_to_all", "expert", travel, machine)
