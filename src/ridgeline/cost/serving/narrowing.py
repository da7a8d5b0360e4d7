"""Activations that a GPU narrows before a matmul of narrow operands: each array once, in a kernel of its own.

XLA fuses it into what makes the array; on GPUs engines have kernels for it, fused with a norm at best.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, cast

from ridgeline.cost.serving.device import tensor_shards
from ridgeline.cost.serving.machine import LEAST_ACTIVATION_BYTES
from ridgeline.cost.work import NOTHING, Part
from ridgeline.job.job import BYTES_OF
from ridgeline.model.operations import ExpertMatmul, Matmul

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ridgeline.cost.serving.machine import Pass, ServingMachine
    from ridgeline.job.job import Dtype
    from ridgeline.model.operations import Operation

_STREAM = {"embed_moe": "embed"}
"""Axes of what enters a block by another name: routed and shared experts read one array."""


def narrowing_parts(operations: Iterable[Operation], *, step: Pass, machine: ServingMachine) -> Iterator[Part]:
    """A kernel for each array of a block that some matmul reads narrowed: read in bf16, written narrow.

    Source: vLLM, `scaled_fp8_quant`, `per_token_group_quant_fp8` and `scaled_fp4_quant` before its linear layers.
    """
    if machine.hardware.chip.torus is not None:
        return
    narrowed: set[tuple[tuple[str, ...], bool]] = set()
    for op in operations:
        if not isinstance(op, Matmul | ExpertMatmul):
            continue
        dtype = machine.product_dtype(op.weight.axes)
        axes, shape = _contracted(op)
        array = axes, isinstance(op, ExpertMatmul) and axes != ("embed",)
        if BYTES_OF[cast("Dtype", dtype)] >= LEAST_ACTIVATION_BYTES or array in narrowed:
            continue
        narrowed.add(array)
        copies = op.top_k if isinstance(op, ExpertMatmul) and array[1] else 1
        elements = (
            step.rows
            * copies
            * prod(shape)
            / (tensor_shards(axes, shape, step.columns) * step.columns.transpose_degree)
        )
        traffic_bytes = elements * (machine.activation_element_bytes + BYTES_OF[cast("Dtype", dtype)])
        yield Part(
            name=f"{op.path}/narrow",
            phase="forward",
            resource="hbm",
            expected_s=traffic_bytes / machine.vector_bytes_per_s + machine.serving.kernel_s,
            work=NOTHING,
        )


def _contracted(op: Matmul | ExpertMatmul) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Logical axes and sizes of what a matmul reads of a token."""
    first, last = (1, 2) if isinstance(op, ExpertMatmul) else (0, op.num_contracted)
    axes = tuple(_STREAM.get(axis, axis) for axis in op.weight.axes[first:last])
    return axes, op.weight.shape[first:last]
