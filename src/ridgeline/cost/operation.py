"""The time and work of one operation, on one device, for one microbatch through one layer.

Forward and backward are separate leaves; recomputation is the forward again, where the plan does not keep
the output. Which tokens and which slice of a weight a device holds follows from the logical axes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from ridgeline.cost.collectives import Transfer, exchange, gather
from ridgeline.cost.columns import PlanColumns, TrainingSetting, gathered_shards
from ridgeline.cost.roofline import (
    ATTENTION_BACKWARD_FACTOR,
    ATTENTION_BACKWARD_LEAST,
    attained_s,
    attention_flops,
    matmul_bytes,
    matmul_flops,
    visited_keys,
)
from ridgeline.cost.single_operation import expert_matmul_bytes
from ridgeline.cost.work import NOTHING, Number, Part, Phase, Work
from ridgeline.model.accounting import keys_read
from ridgeline.model.operations import Attention, Dispatch, Elementwise, ExpertMatmul, Lookup, Matmul, Recurrence

if TYPE_CHECKING:
    from ridgeline.model.operations import Operation


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


def operation_cost(
    operation: Operation, *, rows: Number, setting: TrainingSetting, columns: PlanColumns
) -> OperationCost:
    """Cost of an operation over `rows` tokens of this device (before tensor parallelism)."""
    match operation:
        case Matmul():
            return _matmul(operation, rows=rows, setting=setting, columns=columns)
        case ExpertMatmul():
            return _expert_matmul(operation, rows=rows, setting=setting, columns=columns)
        case Attention():
            return _attention(operation, rows=rows, setting=setting, columns=columns)
        case Elementwise():
            elements = operation.read_elements + operation.write_elements
            return _pass(operation.path, rows * elements / columns.tensor, setting=setting, output=operation.name)
        case Lookup():
            return _pass(operation.path, 2 * rows * operation.width / columns.tensor, setting=setting, output="")
        case Dispatch():
            return _dispatch(operation, rows=rows, setting=setting, columns=columns)
        case Recurrence():
            return _recurrence(operation, rows=rows, setting=setting, columns=columns)


def matmul_dtype(setting: TrainingSetting, *, quantizable: bool) -> str:
    """The dtype whose rate a matmul has: the recipe's where it applies and the chip has it, else the compute one."""
    recipe = setting.quantization
    if recipe is None or not quantizable or recipe.kind not in setting.hardware.chip.peak_flops_per_s:
        return setting.dtypes.compute
    return recipe.kind


def transfer_part(name: str, phase: Phase, group: str, transfer: Transfer, *, setting: TrainingSetting) -> Part:
    """A collective over a group of `placement.GROUPS` as a leaf."""
    chip, efficiency = setting.hardware.chip, setting.efficiency
    return Part(
        name=name,
        phase=phase,
        resource="ici",
        expected_s=transfer.expected_s(
            link_bytes_per_s=setting.link_bytes_per_s * efficiency.link,
            network_bytes_per_s=chip.network_bytes_per_s * efficiency.network,
        ),
        work=Work(amounts={f"link.{group}": transfer.link_bytes, "network": transfer.network_bytes}),
    )


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


def _matmul(op: Matmul, *, rows: Number, setting: TrainingSetting, columns: PlanColumns) -> OperationCost:
    contracted = prod(op.weight.shape[: op.num_contracted])
    produced = prod(op.weight.shape[op.num_contracted :])
    shards = gathered_shards(op.weight, columns)
    dtype = matmul_dtype(setting, quantizable=op.quantizable)
    flops = matmul_flops(B=rows, D=contracted, F=produced) / shards
    activation_bytes = setting.activation_bytes
    arrays_bytes = matmul_bytes(
        B=rows, D=contracted, F=produced, b_a=activation_bytes, b_w=setting.compute_bytes, b_o=activation_bytes
    )
    fraction = setting.efficiency.matmul[dtype]
    once_s = _matmul_s(flops, arrays_bytes / shards, setting=setting, dtype=dtype, fraction=fraction)
    return _three_products(op, once_s, flops, dtype)


def _expert_matmul(op: ExpertMatmul, *, rows: Number, setting: TrainingSetting, columns: PlanColumns) -> OperationCost:
    """As a matmul over every token's copies, at the grouped kernel's efficiency; the busiest expert sets the pace."""
    experts, contracted, produced = op.weight.shape[0], op.weight.shape[1], prod(op.weight.shape[2:])
    efficiency, dtype = setting.efficiency, matmul_dtype(setting, quantizable=True)
    routed, local_experts = rows * op.top_k, experts / columns.degrees["ep"]
    flops = matmul_flops(B=routed, D=contracted, F=produced) / columns.tensor
    activation_bytes = setting.activation_bytes
    arrays_bytes = expert_matmul_bytes(
        rows=routed,
        E=local_experts,
        D=contracted,
        F=produced,
        b_a=activation_bytes,
        b_w=setting.compute_bytes,
        b_o=activation_bytes,
    )
    once_s = _matmul_s(
        flops * setting.moe_imbalance,
        arrays_bytes / columns.tensor,
        setting=setting,
        dtype=dtype,
        fraction=efficiency.grouped_matmul * efficiency.matmul[dtype] / efficiency.matmul["bf16"],
    )
    return _three_products(op, once_s, flops, dtype)


def _three_products(op: Matmul | ExpertMatmul, once_s: Number, flops: Number, dtype: str) -> OperationCost:
    """Y = x·W forward; backward the gradients of x and of W, each as large."""
    return OperationCost(
        forward=(_arithmetic(op.path, "forward", once_s, flops, dtype),),
        backward=(
            _arithmetic(f"{op.path}/input_gradient", "backward", once_s, flops, dtype),
            _arithmetic(f"{op.path}/weight_gradient", "backward", once_s, flops, dtype),
        ),
        output=op.output.name,
    )


def _attention(op: Attention, *, rows: Number, setting: TrainingSetting, columns: PlanColumns) -> OperationCost:
    efficiency = setting.efficiency
    visible_keys = keys_read(op, seq_len=setting.seq_len)
    visited = visited_keys(op.span, visible_keys=visible_keys, block_keys=efficiency.attention_block)
    width = (op.qk_head_dim + op.v_head_dim) / 2
    flops = attention_flops(T=rows, S=visible_keys, N=op.num_heads, H=width) / columns.tensor
    rate = setting.peak_flops_per_s(setting.dtypes.compute) * efficiency.at_head_dim(width) * visible_keys / visited
    forward_s = flops / (rate * efficiency.attention_forward) + efficiency.matmul_overhead_s
    backward_s = ATTENTION_BACKWARD_FACTOR * flops / (rate * efficiency.attention_backward)
    shared = gather(columns.links["context"], _context_bytes(op, rows=rows, setting=setting, columns=columns))
    dtype = setting.dtypes.compute
    return OperationCost(
        forward=(
            _gathered_keys("forward", shared, setting),
            _arithmetic(op.path, "forward", forward_s, flops, dtype),
        ),
        backward=(
            _gathered_keys("backward", shared, setting),
            Part(
                name=f"{op.path}/gradient",
                phase="backward",
                resource="compute",
                expected_s=backward_s + efficiency.matmul_overhead_s,
                work=Work(amounts={f"flops.{dtype}": flops * ATTENTION_BACKWARD_LEAST}),
            ),
            transfer_part("key_value_gradient/reduce_scatter", "backward", "context", shared, setting=setting),
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


def _pass(path: str, elements: Number, *, setting: TrainingSetting, output: str) -> OperationCost:
    """A fused pass over memory; its gradient reads what it read, and the incoming gradient, and writes as much."""
    traffic_bytes = elements * setting.activation_bytes
    vector = setting.efficiency.vector
    return OperationCost(
        forward=(traffic_part(path, "forward", traffic_bytes, setting=setting, efficiency=vector),),
        backward=(traffic_part(f"{path}/gradient", "backward", 2 * traffic_bytes, setting=setting, efficiency=vector),),
        output=output,
    )


def _dispatch(op: Dispatch, *, rows: Number, setting: TrainingSetting, columns: PlanColumns) -> OperationCost:
    """Sorting tokens by expert moves each copy once; under expert parallelism they travel too, and back."""
    copies_bytes = rows * op.top_k * op.width * setting.activation_bytes / columns.tensor
    travel = exchange(columns.links["expert"], copies_bytes)
    vector = setting.efficiency.vector
    return OperationCost(
        forward=(
            traffic_part(f"{op.path}/sort", "forward", 2 * copies_bytes, setting=setting, efficiency=vector),
            transfer_part(f"{op.path}/all_to_all", "forward", "expert", travel, setting=setting),
        ),
        backward=(
            traffic_part(f"{op.path}/sort_gradient", "backward", 2 * copies_bytes, setting=setting, efficiency=vector),
            transfer_part(f"{op.path}/all_to_all_gradient", "backward", "expert", travel, setting=setting),
        ),
        output="",
    )


def _recurrence(op: Recurrence, *, rows: Number, setting: TrainingSetting, columns: PlanColumns) -> OperationCost:
    """The chunked form is made of small matmuls: matrix-unit FLOPs at the attention kernel's efficiency."""
    dtype = setting.dtypes.compute
    flops = rows * op.flops_per_token / columns.tensor
    traffic_bytes = rows * (op.read_elements + op.write_elements) * setting.activation_bytes / columns.tensor
    forward_s = attained_s(
        flops=flops,
        C_flops_per_s=setting.peak_flops_per_s(dtype) * setting.efficiency.attention_forward,
        traffic_bytes=traffic_bytes,
        W_bytes_per_s=setting.hbm_bytes_per_s * setting.efficiency.vector,
    )
    return OperationCost(
        forward=(_arithmetic(op.path, "forward", forward_s, flops, dtype),),
        backward=(_arithmetic(f"{op.path}/gradient", "backward", 2 * forward_s, 2 * flops, dtype),),
        output=op.output.name,
    )


def _matmul_s(flops: Number, traffic_bytes: Number, *, setting: TrainingSetting, dtype: str, fraction: float) -> Number:
    busy_s = attained_s(
        flops=flops,
        C_flops_per_s=setting.peak_flops_per_s(dtype) * fraction,
        traffic_bytes=traffic_bytes,
        W_bytes_per_s=setting.hbm_bytes_per_s * setting.efficiency.hbm,
    )
    return busy_s + setting.efficiency.matmul_overhead_s


def _arithmetic(name: str, phase: Phase, expected_s: Number, flops: Number, dtype: str) -> Part:
    return Part(
        name=name, phase=phase, resource="compute", expected_s=expected_s, work=Work(amounts={f"flops.{dtype}": flops})
    )
