"""The time of a kernel by the formulas of `cost`, on columns of measured sizes.

Parameters have the keys of a calibration file: a fit changes them, and a step estimate reads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ridgeline.cost.efficiency import head_dim_factor
from ridgeline.cost.kernel_time import grouped_matmul_s, partial_factor, ragged_rows, tiled_width, visited_keys
from ridgeline.cost.roofline import (
    ATTENTION_BACKWARD_FACTOR,
    attained_s,
    attention_flops,
    matmul_bytes,
    matmul_flops,
    transfer_s,
)
from ridgeline.cost.single_operation import expert_matmul_bytes
from ridgeline.model.operations import Span

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ridgeline.hardware.chip import Chip
    from ridgeline.study.kernels.times import KernelTime

    Columns = Mapping[str, NDArray[np.float64]]
    Parameters = Mapping[str, float]

_BF16_BYTES = 2.0
_REFERENCE_HEAD_DIM = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """What kernels run on: one JAX device of a chip.

    Attributes:
        peak_flops_per_s: In bf16.
        hbm_bytes_per_s: Published.
        mxu_side: Of a matrix unit; 1 where none is known.
    """

    peak_flops_per_s: float
    hbm_bytes_per_s: float
    mxu_side: int


def device_of(chip: Chip) -> Device:
    """One device of a chip."""
    return Device(
        peak_flops_per_s=chip.peak_flops_per_s["bf16"] / chip.devices_per_chip,
        hbm_bytes_per_s=chip.hbm_bytes_per_s / chip.devices_per_chip,
        mxu_side=1 if chip.mxu_shape is None else chip.mxu_shape[0],
    )


def columns_of(times: Sequence[KernelTime]) -> Columns:
    """The sizes of several times, a column a letter."""
    return {letter: np.array([time.sizes[letter] for time in times]) for letter in times[0].sizes}


def predicted_s(time: tuple[str, str], sizes: Columns, parameters: Parameters, device: Device) -> NDArray[np.float64]:
    """Times of one kernel and variant, for all its sizes.

    Raises:
        ValueError: No formula speaks of the kernel.
    """
    kernel, variant = time
    match kernel:
        case "matmul":
            return _matmul_s(sizes, parameters, device)
        case "grouped_matmul":
            return _grouped_s(variant, sizes, parameters, device)
        case "attention":
            return _attention_s(variant, sizes, parameters, device)
        case "loss":
            return _loss_s(variant, sizes, parameters, device)
        case "gated_unit":
            return _gated_unit_s(sizes, parameters, device)
        case "normalization":
            traffic_bytes = sizes["elements"] * sizes["passes"] * _BF16_BYTES
            return np.asarray(
                transfer_s(traffic_bytes=traffic_bytes, W_bytes_per_s=device.hbm_bytes_per_s * parameters["vector"])
                + parameters["matmul_overhead_s"]
            )
        case _:
            raise ValueError(kernel)


def _matmul_s(sizes: Columns, parameters: Parameters, device: Device) -> NDArray[np.float64]:
    return np.asarray(
        attained_s(
            flops=_tiled_flops(sizes, device),
            C_flops_per_s=device.peak_flops_per_s * parameters["matmul.bf16"],
            traffic_bytes=matmul_bytes(**_of(sizes, "BDF"), b_a=_BF16_BYTES, b_w=_BF16_BYTES, b_o=_BF16_BYTES),
            W_bytes_per_s=device.hbm_bytes_per_s * parameters["hbm"],
            fill_bytes=parameters["matmul_fill_bytes"],
        )
        + parameters["matmul_overhead_s"]
    )


def _grouped_s(variant: str, sizes: Columns, parameters: Parameters, device: Device) -> NDArray[np.float64]:
    visited_rows = ragged_rows(**_of(sizes, "BE"), edge_rows=parameters[f"grouped_edge_rows.{variant}"])
    partial = partial_factor(**_of(sizes, "DF"), factor=parameters["grouped_partial_factor"])
    return np.asarray(
        grouped_matmul_s(
            flops=_tiled_flops(sizes, device),
            idle_factor=visited_rows / sizes["B"] * partial,
            C_flops_per_s=device.peak_flops_per_s * parameters[f"grouped_matmul.{variant}"],
            traffic_bytes=expert_matmul_bytes(
                rows=sizes["B"], **_of(sizes, "EDF"), b_a=_BF16_BYTES, b_w=_BF16_BYTES, b_o=_BF16_BYTES
            ),
            W_bytes_per_s=device.hbm_bytes_per_s * parameters["hbm"],
        )
        + parameters["matmul_overhead_s"]
    )


def _attention_s(variant: str, sizes: Columns, parameters: Parameters, device: Device) -> NDArray[np.float64]:
    """Causal and full ones are two spans: a column of edges, without a branch."""
    width, keys, causal = (sizes["H"] + sizes["V"]) / 2, sizes["S"], sizes["causal"]
    block = parameters["attention_block"]
    masked, whole = (
        visited_keys(
            Span(kind=kind),
            visible_keys=keys / (1 + causal),
            sequence_keys=keys,
            tile=(sizes.get("tile_q", block), sizes.get("tile_kv", block)),
            tile_pairs=parameters["attention_tile_pairs"],
            row_keys=parameters["attention_row_keys"],
        )
        for kind in ("causal", "full")
    )
    visited = causal * masked + (1 - causal) * whole
    flops = attention_flops(T=sizes["B"] * sizes["T"], S=visited, N=sizes["N"], H=width)
    table = {int(key.rpartition(".")[2]): value for key, value in parameters.items() if "attention_head_dim." in key}
    rate = device.peak_flops_per_s * np.array(
        [head_dim_factor({_REFERENCE_HEAD_DIM: 1.0} | table, float(each)) for each in width]
    )
    factor = ATTENTION_BACKWARD_FACTOR if variant == "backward" else 1.0
    return np.asarray(factor * flops / (rate * parameters[f"attention_{variant}"]) + parameters["matmul_overhead_s"])


def _loss_s(variant: str, sizes: Columns, parameters: Parameters, device: Device) -> NDArray[np.float64]:
    """Forward one product, backward three (logits again, two gradients), and the passes of the softmax."""
    num_products = 3 if variant == "backward" else 1
    softmax_bytes = sizes["B"] * sizes["F"] * parameters[f"loss_{variant}_bytes"]
    passes_s = transfer_s(traffic_bytes=softmax_bytes, W_bytes_per_s=device.hbm_bytes_per_s * parameters["hbm"])
    return np.asarray(num_products * _matmul_s(sizes, parameters, device) + passes_s)


def _gated_unit_s(sizes: Columns, parameters: Parameters, device: Device) -> NDArray[np.float64]:
    """On a TPU both products and a pass over their outputs, on a GPU one kernel that never writes them."""
    both = dict(sizes) | {"F": 2 * sizes["F"]}
    if device.mxu_side == 1:
        traffic = matmul_bytes(**_of(both, "BDF"), b_a=_BF16_BYTES, b_w=_BF16_BYTES, b_o=_BF16_BYTES / 2)
        return np.asarray(
            attained_s(
                flops=matmul_flops(**_of(both, "BDF")),
                C_flops_per_s=device.peak_flops_per_s * parameters["matmul.bf16"],
                traffic_bytes=traffic,
                W_bytes_per_s=device.hbm_bytes_per_s * parameters["hbm"],
                fill_bytes=parameters["matmul_fill_bytes"],
            )
            + parameters["matmul_overhead_s"]
        )
    passes_s = transfer_s(
        traffic_bytes=3 * sizes["B"] * sizes["F"] * _BF16_BYTES,
        W_bytes_per_s=device.hbm_bytes_per_s * parameters["vector"],
    )
    return _matmul_s(both, parameters, device) + np.asarray(passes_s)


def _tiled_flops(sizes: Columns, device: Device) -> NDArray[np.float64]:
    """FLOPs of a product whose weight fills whole tiles of a matrix unit."""
    covered = {letter: tiled_width(width=sizes[letter], tile_size=device.mxu_side) for letter in "DF"}
    return np.asarray(matmul_flops(B=sizes["B"], **covered))


def _of(sizes: Columns, letters: str) -> dict[str, NDArray[np.float64]]:
    return {letter: sizes[letter] for letter in letters}
