"""What one matrix product asks of one device, and the formula of its time.

A plain product and one over ragged groups (the experts of a device) differ in their formula; what a quantization
recipe takes of either runs at the rate of the recipe's dtype.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from ridgeline.cost.columns import PlanColumns, TrainingSetting, gathered_shards, tensor_shards
from ridgeline.cost.kernel_time import (
    GPU_FILL_BYTES,
    GPU_TILE_SIZE,
    grouped_matmul_s,
    partial_factor,
    ragged_rows,
    separate_products_factor,
    tiled_width,
)
from ridgeline.cost.roofline import attained_s, matmul_bytes, matmul_flops
from ridgeline.cost.single_operation import expert_matmul_bytes
from ridgeline.job.job import BYTES_OF
from ridgeline.job.precision import takes_experts
from ridgeline.model.operations import ExpertMatmul, Matmul

if TYPE_CHECKING:
    from collections.abc import Callable

    from ridgeline.cost.efficiency import Efficiency
    from ridgeline.cost.kernel_time import Product
    from ridgeline.cost.work import Number
    from ridgeline.job.job import Quantization


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductDemand:
    """What one matrix product of one layer and microbatch asks of one device.

    Attributes:
        rows: B: tokens, or their copies.
        contracted_width: D, of the whole weight.
        produced_width: F, of the whole weight.
        local_widths: D and F of this device's slice of it.
        num_shards: Ways in which tensor parallelism splits it.
        flops: Done by this device.
        busiest_flops: Done by the device whose experts have the most rows.
        idle_factor: Columns and rows of matrix units that its widths fill, whole tiles over what is used.
        num_groups: Experts of this device; None for a plain matmul.
        flops_per_s: That its dtype reaches in a large plain matmul.
        traffic_bytes: This device's part of both operands and the output.
        bytes_per_s: That memory reaches.
        dtype: Of the arithmetic.
    """

    rows: Number
    contracted_width: int
    produced_width: int
    local_widths: tuple[Number, Number]
    num_shards: Number
    flops: Number
    busiest_flops: Number
    idle_factor: Number
    num_groups: Number | None
    flops_per_s: float
    traffic_bytes: Number
    bytes_per_s: float
    dtype: str


def product_demand(
    op: Matmul | ExpertMatmul, *, rows: Number, setting: TrainingSetting, columns: PlanColumns
) -> ProductDemand:
    """What a matmul over `rows` tokens of this device asks for; with experts, over every token's copies."""
    return (
        _matmul_demand(op, rows=rows, setting=setting, columns=columns)
        if isinstance(op, Matmul)
        else _expert_matmul_demand(op, rows=rows, setting=setting, columns=columns)
    )


def _matmul_demand(op: Matmul, *, rows: Number, setting: TrainingSetting, columns: PlanColumns) -> ProductDemand:
    contracted = prod(op.weight.shape[: op.num_contracted])
    produced = prod(op.weight.shape[op.num_contracted :])
    shards = gathered_shards(op.weight, columns)
    widths = _local_widths(op.weight.axes, contracted, produced, op.num_contracted, columns)
    dtype = matmul_dtype(op, setting)
    activation_bytes = setting.activation_bytes
    arrays_bytes = matmul_bytes(
        B=rows, D=contracted, F=produced, b_a=activation_bytes, b_w=setting.compute_bytes, b_o=activation_bytes
    )
    flops = matmul_flops(B=rows, D=contracted, F=produced) / shards
    return ProductDemand(
        rows=rows,
        contracted_width=contracted,
        produced_width=produced,
        local_widths=widths,
        num_shards=shards,
        flops=flops,
        busiest_flops=flops,
        idle_factor=_idle_factor(widths, setting),
        num_groups=None,
        flops_per_s=setting.peak_flops_per_s(dtype) * setting.efficiency.matmul[dtype],
        traffic_bytes=arrays_bytes / shards,
        bytes_per_s=setting.hbm_bytes_per_s * setting.efficiency.hbm,
        dtype=dtype,
    )


def _expert_matmul_demand(
    op: ExpertMatmul, *, rows: Number, setting: TrainingSetting, columns: PlanColumns
) -> ProductDemand:
    """Every expert of the device is read; the busiest sets the pace, or with a capacity all alike, as plain matmuls."""
    experts, contracted, produced = op.weight.shape[0], op.weight.shape[1], prod(op.weight.shape[2:])
    efficiency, dtype = setting.efficiency, matmul_dtype(op, setting)
    widths = _local_widths(op.weight.axes[1:], contracted, produced, 1, columns)
    capacity_ratio = setting.expert_capacity_ratio
    routed, local_experts = rows * op.top_k * (capacity_ratio or 1.0), experts / columns.degrees["ep"]
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
    flops = matmul_flops(B=routed, D=contracted, F=produced) / columns.tensor
    return ProductDemand(
        rows=routed,
        contracted_width=contracted,
        produced_width=produced,
        local_widths=widths,
        num_shards=columns.tensor,
        flops=flops,
        busiest_flops=flops * (setting.moe_imbalance if capacity_ratio is None else 1.0),
        idle_factor=_idle_factor(widths, setting),
        num_groups=local_experts if capacity_ratio is None else None,
        flops_per_s=setting.peak_flops_per_s(dtype) * efficiency.matmul[dtype],
        traffic_bytes=arrays_bytes / columns.tensor,
        bytes_per_s=setting.hbm_bytes_per_s * efficiency.hbm,
        dtype=dtype,
    )


def _local_widths(
    axes: tuple[str, ...], contracted: int, produced: int, num_contracted: int, columns: PlanColumns
) -> tuple[Number, Number]:
    """Contracted and output width of a device's slice of a weight."""
    return (
        contracted / tensor_shards(axes[:num_contracted], columns),
        produced / tensor_shards(axes[num_contracted:], columns),
    )


def _idle_factor(local_widths: tuple[Number, Number], setting: TrainingSetting) -> Number:
    """Tiles of a matrix unit that a device's slice of a weight takes, over the slice; 1 where nothing is known."""
    if setting.hardware.chip.mxu_shape is None:
        return 1.0
    factor: Number = 1.0
    for width, tile_size in zip(local_widths, setting.hardware.chip.mxu_shape, strict=True):
        factor = factor * tiled_width(width=width, tile_size=tile_size) / width
    return factor


def product_formula(
    demand: ProductDemand, product: Product, *, setting: TrainingSetting
) -> tuple[Callable[..., Number], dict[str, Number]]:
    """The formula of one product's time, overhead apart, and what it is asked with.

    A kernel for ragged groups reaches less of the peak than a plain matmul, in quantized dtypes by as much.
    """
    efficiency = setting.efficiency
    traffic: dict[str, Number] = {"traffic_bytes": demand.traffic_bytes, "W_bytes_per_s": demand.bytes_per_s}
    if demand.num_groups is None:
        flops = demand.busiest_flops * demand.idle_factor
        fill_bytes = efficiency.matmul_fill_bytes
        return attained_s, {"flops": flops, "C_flops_per_s": demand.flops_per_s, "fill_bytes": fill_bytes, **traffic}
    is_ragged = setting.hardware.chip.vendor == "google"
    group_rows = demand.rows / demand.num_groups
    factor = (
        _ragged_factor(demand, product, group_rows, efficiency)
        if is_ragged
        else _separate_factor(demand, product, group_rows)
    )
    return grouped_matmul_s, {
        "flops": demand.busiest_flops,
        "idle_factor": demand.idle_factor * factor,
        "C_flops_per_s": demand.flops_per_s * efficiency.grouped_matmul[product] / efficiency.matmul["bf16"],
        **traffic,
    }


def _ragged_factor(demand: ProductDemand, product: Product, group_rows: Number, efficiency: Efficiency) -> Number:
    """One kernel for all experts of a device."""
    partial = partial_factor(
        D=demand.contracted_width, F=demand.produced_width, factor=efficiency.grouped_partial_factor
    )
    return partial * ragged_rows(B=group_rows, E=1.0, edge_rows=efficiency.grouped_edge_rows[product]) / group_rows


def _separate_factor(demand: ProductDemand, product: Product, group_rows: Number) -> Number:
    """A product for each expert."""
    contracted, produced = demand.local_widths
    sides: dict[Product, tuple[Number, Number]] = {
        "output": (contracted, produced),
        "input_gradient": (produced, contracted),
        "weight_gradient": (group_rows, produced),
    }
    depth, width = sides[product]
    return separate_products_factor(
        D=depth,
        F=width,
        tile_size=GPU_TILE_SIZE,
        edge_rows=0.0 if product == "weight_gradient" else GPU_TILE_SIZE / 2,
        B=group_rows,
        fill_elements=GPU_FILL_BYTES / BYTES_OF[demand.dtype],
    )


def is_quantized(op: Matmul | ExpertMatmul, recipe: Quantization | None) -> bool:
    """Whether a recipe takes a product: those of layers, not routers and heads; of experts not every one."""
    if recipe is None:
        return False
    return op.quantizable if isinstance(op, Matmul) else takes_experts(recipe)


def matmul_dtype(op: Matmul | ExpertMatmul, setting: TrainingSetting) -> str:
    """The dtype whose rate a matmul has: the recipe's where it applies and the chip has it, else the compute one."""
    recipe = setting.quantization
    if recipe is None or not is_quantized(op, recipe) or recipe.kind not in setting.hardware.chip.peak_flops_per_s:
        return setting.dtypes.compute
    return recipe.kind
