"""What attention takes beside its arithmetic where the sequence is split: a gather, a ring, exchanges (Ulysses)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ridgeline.cost.collectives import exchange, gather, permute
from ridgeline.cost.training.context import (
    PARTIAL_BYTES,
    exchanged_elements,
    ring_handed_bytes,
    ring_merge_bytes,
)
from ridgeline.cost.training.leaves import OperationCost, traffic_part, transfer_part
from ridgeline.cost.work import Number, Part, Phase, larger, overlapped, smaller

if TYPE_CHECKING:
    from ridgeline.cost.collectives import Transfer
    from ridgeline.cost.columns import PlanColumns, TrainingSetting
    from ridgeline.model.operations import Attention


def split_attention(
    op: Attention, forward: Part, gradient: Part, *, rows: Number, setting: TrainingSetting, columns: PlanColumns
) -> OperationCost:
    """Cost of attention over `rows` tokens of a device, from that of its arithmetic, by the strategy of the job."""
    split = {"ring": _ring, "ulysses": _exchanged}.get(setting.context.strategy or "", _gathered)
    return split(op, forward, gradient, rows=rows, setting=setting, columns=columns)


def _gathered(
    op: Attention, forward: Part, gradient: Part, *, rows: Number, setting: TrainingSetting, columns: PlanColumns
) -> OperationCost:
    """All keys and values are gathered before, and their gradients scattered behind."""
    shared = gather(columns.links["context"], _context_bytes(op, rows=rows, setting=setting, columns=columns))
    return OperationCost(
        forward=(_gathered_keys("forward", shared, setting), forward),
        backward=(
            _gathered_keys("backward", shared, setting),
            gradient,
            transfer_part("key_value_gradient/reduce_scatter", "backward", "context", shared, setting=setting),
        ),
        output=op.output.name,
    )


def _ring(
    op: Attention, forward: Part, gradient: Part, *, rows: Number, setting: TrainingSetting, columns: PlanColumns
) -> OperationCost:
    """Keys and values go round beside the arithmetic, backward their gradients as well; partial results are merged."""
    ways, activation_bytes = columns.degrees["cp"], setting.activation_bytes
    shared_bytes = _context_bytes(op, rows=rows, setting=setting, columns=columns)
    gradient_bytes = shared_bytes * PARTIAL_BYTES / activation_bytes
    key_elements = shared_bytes / activation_bytes / ways
    query_elements, output_elements = (
        rows * op.num_heads * width / columns.tensor for width in (op.qk_head_dim, op.v_head_dim)
    )

    def beside(part: Part, handed_bytes: Number) -> Part:
        transfer = permute(columns.links["context"], ring_handed_bytes(V_bytes=handed_bytes, N=ways))
        moved = transfer_part("key_value/permute", part.phase, "context", transfer, setting=setting)
        return overlapped("ring", part.phase, part, [moved], hiding=setting.hiding)

    def merge(phase: Phase, elements: Number) -> Part:
        traffic_bytes = ring_merge_bytes(partial_elements=elements, N=ways, b_a=activation_bytes)
        return traffic_part("merge", phase, traffic_bytes, setting=setting, efficiency=setting.efficiency.vector)

    return OperationCost(
        forward=(beside(forward, shared_bytes), merge("forward", output_elements)),
        backward=(
            beside(gradient, shared_bytes + gradient_bytes),
            merge("backward", query_elements + key_elements),
        ),
        output=op.output.name,
    )


def _exchanged(
    op: Attention, forward: Part, gradient: Part, *, rows: Number, setting: TrainingSetting, columns: PlanColumns
) -> OperationCost:
    """Ulysses: a device hands over its stretch of all heads for the whole sequence of its share of them, and back."""
    ways = columns.degrees["cp"]
    num_kv_heads = op.num_kv_heads / columns.tensor if op.num_kv_heads > 1 else 1.0
    in_elements, out_elements = exchanged_elements(
        rows=rows,
        num_heads=op.num_heads / columns.tensor,
        num_kv_heads=larger(num_kv_heads, smaller(ways, op.num_heads / columns.tensor)),
        qk_head_dim=op.qk_head_dim,
        v_head_dim=op.v_head_dim,
    )

    def exchanged(name: str, phase: Phase, elements: Number) -> Part:
        transfer = exchange(columns.links["context"], elements * setting.activation_bytes)
        return transfer_part(f"{name}/all_to_all", phase, "context", transfer, setting=setting)

    return OperationCost(
        forward=(
            exchanged("query_key_value", "forward", in_elements),
            forward,
            exchanged("context", "forward", out_elements),
        ),
        backward=(
            exchanged("context_gradient", "backward", out_elements),
            gradient,
            exchanged("query_key_value_gradient", "backward", in_elements),
        ),
        output=op.output.name,
    )


def _gathered_keys(phase: Phase, transfer: Transfer, setting: TrainingSetting) -> Part:
    return transfer_part("key_value/all_gather", phase, "context", transfer, setting=setting)


def _context_bytes(op: Attention, *, rows: Number, setting: TrainingSetting, columns: PlanColumns) -> Number:
    """Keys and values of this device's sequences at full length: what context parallelism gathers."""
    width = op.num_kv_heads * (op.qk_head_dim + op.v_head_dim)
    ways = columns.tensor if op.num_kv_heads > 1 else 1.0
    return rows * columns.degrees["cp"] * width * setting.activation_bytes / ways
