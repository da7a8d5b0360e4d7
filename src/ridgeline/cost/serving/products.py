"""The matmuls of a pass of a server: weights come from memory once a pass, whatever the tokens at hand.

B  tokens of a device     E  experts     k  experts a token visits
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from ridgeline.cost.columns import MESH_AXES_OF
from ridgeline.cost.kernel_time import grouped_matmul_s, ragged_rows, tiled_width
from ridgeline.cost.roofline import attained_s, matmul_bytes, matmul_flops
from ridgeline.cost.single_operation import expert_matmul_bytes
from ridgeline.cost.work import Part, Work, smaller
from ridgeline.model.operations import Matmul

if TYPE_CHECKING:
    from ridgeline.cost.serving.machine import Pass, ServingMachine
    from ridgeline.cost.work import Number
    from ridgeline.model.operations import ExpertMatmul


def read_experts_count(*, E: Number, k: Number, B: Number) -> Number:
    """Experts whose weights a pass reads: those that at least one token visits.

    Formula: E · (1 − (1 − k/E)^B)

    Assumes: tokens choose alike and independently of each other; alike choices of many tokens read fewer.

    Source: derived.

    >>> read_experts_count(E=8.0, k=2.0, B=1.0), round(read_experts_count(E=8.0, k=2.0, B=8.0), 2)
    (2.0, 7.2)
    """
    return E * (1.0 - (1.0 - k / E) ** B)


def most_experts_count(*, E: Number, read_count: Number, N: Number) -> Number:
    """Experts that the device reads which reads the most of them: all others wait for it.

    Of a device's E experts each is visited or not, so that their number scatters by √(r · (1 − r/E)); the fullest
    of N devices lies Φ⁻¹(0.5264^(1/N)) such deviations above the mean. Where all are read, none is waited for.

    Formula: min(E, r + 4.91 · (q^0.14 − (1 − q)^0.14) · √(r · (1 − r/E))), q = 0.5264^(1/N), r = read_count

    Assumes: experts are visited alike and independently.

    Source: derived; Chen and Tyler (1999) for the largest of N normal numbers, Tukey's lambda for Φ⁻¹.

    >>> round(most_experts_count(E=32.0, read_count=8.0, N=8.0), 1), most_experts_count(E=32.0, read_count=32.0, N=8.0)
    (11.5, 32.0)
    """
    quantile = 0.5264 ** (1.0 / N)
    deviations = 4.91 * (quantile**0.14 - (1.0 - quantile) ** 0.14)
    return smaller(E, read_count + deviations * (read_count * (1.0 - read_count / E)) ** 0.5)


def product_part(op: Matmul | ExpertMatmul, *, rows: Number, step: Pass, machine: ServingMachine) -> Part:
    """A matmul over `rows` tokens of a device; with experts, over their copies."""
    if isinstance(op, Matmul):
        return _matmul(op, rows=rows, step=step, machine=machine)
    return _expert_matmul(op, rows=rows, step=step, machine=machine)


def _matmul(op: Matmul, *, rows: Number, step: Pass, machine: ServingMachine) -> Part:
    shape, inner = op.weight.shape, op.num_contracted
    contracted, produced = prod(shape[:inner]), prod(shape[inner:])
    ways = step.shards(op.weight.axes, shape)
    b_a, b_w = machine.activation_element_bytes, machine.weight_element_bytes(op.weight.axes)
    flops = matmul_flops(B=rows, D=contracted, F=produced) / ways
    traffic_bytes = matmul_bytes(B=rows, D=contracted, F=produced, b_a=b_a, b_w=b_w, b_o=b_a) / ways
    expected_s = attained_s(
        flops=flops * _idle_factor(op.weight.axes, shape, inner, step, machine),
        C_flops_per_s=machine.matmul_flops_per_s(op.weight.axes),
        traffic_bytes=traffic_bytes,
        W_bytes_per_s=machine.weights_bytes_per_s,
        fill_bytes=machine.efficiency.matmul_fill_bytes,
    )
    return _product(op, expected_s, flops, op.weight.size * b_w / ways, machine)


def _expert_matmul(op: ExpertMatmul, *, rows: Number, step: Pass, machine: ServingMachine) -> Part:
    """The experts of a device that any token of its expert group visits; an edge is no longer than its group."""
    experts, contracted, produced = op.weight.shape[0], op.weight.shape[1], prod(op.weight.shape[2:])
    ways = step.columns.degree(MESH_AXES_OF["experts"])
    tensor = step.shards(op.weight.axes, op.weight.shape) / ways
    is_whole = machine.expert_split == "whole"
    held, narrowed = (tensor, 1.0) if is_whole else (1.0, tensor)  # devices that share out experts, or their width
    read = read_experts_count(E=float(experts), k=float(op.top_k), B=rows * ways) / (ways * held)
    copies, efficiency = rows * op.top_k / held, machine.efficiency
    b_a, b_w = machine.activation_element_bytes, machine.weight_element_bytes(op.weight.axes)
    flops = matmul_flops(B=copies, D=contracted, F=produced) / narrowed
    is_shared = smaller(ways * held - 1.0, 1.0)
    busiest = 1.0 + is_shared * (1.0 / machine.serving.balance - 1.0)  # the device with the most copies of tokens
    most = read + is_shared * (most_experts_count(E=experts / (ways * held), read_count=read, N=ways * held) - read)
    arrays_bytes = expert_matmul_bytes(
        rows=copies * busiest, E=most, D=contracted, F=produced, b_a=b_a, b_w=b_w, b_o=b_a
    )
    edge_rows = smaller(efficiency.grouped_edge_rows["output"], copies / read)
    split = 1.0 if is_whole else _idle_factor(op.weight.axes[1:], op.weight.shape[1:], 1, step, machine)
    expected_s = grouped_matmul_s(
        flops=flops * busiest,
        idle_factor=split * ragged_rows(B=copies, E=read, edge_rows=edge_rows) / copies,
        C_flops_per_s=machine.matmul_flops_per_s(op.weight.axes)
        * machine.serving.grouped
        * efficiency.grouped_matmul["output"]
        / efficiency.matmul["bf16"],
        traffic_bytes=arrays_bytes / narrowed,
        W_bytes_per_s=machine.experts_bytes_per_s,
    )
    return _product(op, expected_s, flops, read * contracted * produced * b_w / narrowed, machine)


def _product(
    op: Matmul | ExpertMatmul, expected_s: Number, flops: Number, weight_bytes: Number, machine: ServingMachine
) -> Part:
    amounts = {f"flops.{machine.product_dtype(op.weight.axes)}": flops, "hbm.weights": weight_bytes}
    return Part(
        name=op.path,
        phase="forward",
        resource="hbm",
        expected_s=expected_s + machine.serving.kernel_s,
        work=Work(amounts=amounts),
    )


def _idle_factor(
    axes: tuple[str, ...], shape: tuple[int, ...], num_contracted: int, step: Pass, machine: ServingMachine
) -> Number:
    """Tiles of a matrix unit that a device's slice of a weight takes, over the slice; 1 where nothing is known."""
    if machine.hardware.chip.mxu_shape is None:
        return 1.0
    factor: Number = 1.0
    halves = slice(None, num_contracted), slice(num_contracted, None)
    for half, tile_size in zip(halves, machine.hardware.chip.mxu_shape, strict=True):
        width = prod(shape[half]) / step.shards(axes[half], shape[half])
        factor = factor * tiled_width(width=width, tile_size=tile_size) / width
    return factor
