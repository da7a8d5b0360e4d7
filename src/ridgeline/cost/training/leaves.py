"""Leaves of the tree of a step: a pass over memory, arithmetic, a transfer; and what an operation is made of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ridgeline.cost.work import NOTHING, Number, Part, Phase, Work, smaller

if TYPE_CHECKING:
    from ridgeline.cost.collectives import Transfer
    from ridgeline.cost.columns import TrainingSetting


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationCost:
    """One operation of one layer, for one microbatch.

    Attributes:
        forward: Leaves of the forward pass, collectives of its own included.
        backward: Leaves of the backward pass.
        output: Checkpoint name whose keeping spares the recomputation; "" for what is always recomputed.
    """

    forward: tuple[Part, ...]
    backward: tuple[Part, ...]
    output: str


def transfer_part(name: str, phase: Phase, group: str, transfer: Transfer, *, setting: TrainingSetting) -> Part:
    """A collective over a group of `placement.GROUPS` as a leaf."""
    chip, efficiency = setting.hardware.chip, setting.efficiency
    return Part(
        name=name,
        phase=phase,
        resource="ici",
        expected_s=transfer.expected_s(
            link_bytes_per_s=setting.link_bytes_per_s * efficiency.link_fraction(transfer.num_rings),
            network_bytes_per_s=chip.network_bytes_per_s * efficiency.network,
            network_step_s=efficiency.network_step_s,
            network_launch_s=efficiency.network_launch_s,
        ),
        work=Work(amounts={f"link.{group}": transfer.link_bytes, "network": transfer.network_bytes}),
        array_bytes=transfer.array_bytes,
    )


def gather_and_sum(group: str, transfer: Transfer, *, setting: TrainingSetting) -> tuple[Part, Part]:
    """FSDP's gather of weights, and the sum of their gradients, its transpose.

    Where the compiler writes a reduce-scatter as an all-reduce, the links are busy twice as long for it; the bound
    keeps the bytes of the reduce-scatter.
    """
    gathered = transfer_part(f"{group}/all_gather", "forward", group, transfer, setting=setting)
    summed = replace(
        gathered,
        name=f"{group}/reduce_scatter",
        phase="backward",
        expected_s=gathered.expected_s * setting.efficiency.sum_passes,
        unhidden_share=_unhidden(setting.unhidden_sum_share, transfer, setting=setting),
    )
    return replace(gathered, unhidden_share=_unhidden(setting.unhidden_gather_share, transfer, setting=setting)), summed


def _unhidden(inside_share: Number, transfer: Transfer, *, setting: TrainingSetting) -> Number:
    """What of a transfer of FSDP nothing hides: one share inside a node of GPUs, another across nodes."""
    if setting.hardware.chip.switch is None:
        return inside_share
    return inside_share + (setting.efficiency.unhidden_network - inside_share) * smaller(transfer.network_steps, 1.0)


def traffic_part(
    name: str, phase: Phase, traffic_bytes: Number, *, setting: TrainingSetting, efficiency: float
) -> Part:
    """A pass over memory as a leaf. Fusion may spare it, so it counts in the estimate, not in the bound."""
    return Part(
        name=name,
        phase=phase,
        resource="hbm",
        expected_s=traffic_bytes / (setting.hbm_bytes_per_s * efficiency),
        work=NOTHING,
    )


def arithmetic_part(name: str, phase: Phase, expected_s: Number, flops: Number, dtype: str) -> Part:
    """Arithmetic as a leaf."""
    return Part(
        name=name, phase=phase, resource="compute", expected_s=expected_s, work=Work(amounts={f"flops.{dtype}": flops})
    )
