"""FLOPs of matmuls, as a program states them: `dot`, and what XLA turns dots into.

That is a `convolution` on TPU, and a call of cuBLAS on NVIDIA's GPUs.

A multiply and an add are two. The dtype is that of the operands as written; what the matrix unit then does with
them the text does not say (a chip without fp8 keeps fp8 operands in its HLO).
"""

from __future__ import annotations

import re
from math import gcd, nan, prod
from typing import TYPE_CHECKING

from ridgeline.hlo.shape import ArrayShape, arrays

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ridgeline.hlo.module import Computation, Instruction

_MATMULS = {"dot", "convolution"}
_CUBLAS = re.compile(r'"__cublas\$(gemm|lt\$matmul(\$f8)?)"')
_CONTRACTED = re.compile(r'"lhs_contracting_dimensions":\[([\d",\s]*)\]')
_LARGEST_KERNEL = 1 << 20
"""Positions; a larger one is no matmul's batch."""

_FIELD = re.compile(r"(\w+)=([^\s{}]+)")
_LABELS = re.compile(r"(\w+)_(\w+)->(\w+)")


def is_matmul(instruction: Instruction) -> bool:
    """Whether an instruction is a matmul that can be counted here."""
    if instruction.opcode == "custom-call":
        return _CUBLAS.fullmatch(instruction.attributes.get("custom_call_target", "")) is not None
    return instruction.opcode in _MATMULS


def matmul_flops(computation: Computation, instruction: Instruction) -> float:
    """FLOPs of one execution of a matmul; NaN where the text lacks what they follow from."""
    left, right = (_array(computation, instruction, index) for index in (0, 1))
    output = next(arrays(instruction.shape), None)  # cuBLAS returns its workspace as well
    if left is None or right is None or output is None:
        return nan
    if instruction.opcode == "custom-call":
        contracted = _CONTRACTED.search(instruction.backend_config)
        return dot_flops(left, output, contracted=_ints(contracted[1].replace('"', ""))) if contracted else nan
    if instruction.opcode == "dot":
        return dot_flops(left, output, contracted=_ints(instruction.attributes.get("lhs_contracting_dims", "")))
    return convolution_flops(left, right, output, attributes=instruction.attributes)


def matmul_dtype(computation: Computation, instruction: Instruction) -> str:
    """The dtype of a matmul's operands: of the wider one, where they differ."""
    operands = [_array(computation, instruction, index) for index in (0, 1)]
    found = [operand for operand in operands if operand is not None]
    return max(found, key=lambda operand: operand.element_bits).dtype if found else ""


def dot_flops(left: ArrayShape, output: ArrayShape, *, contracted: Sequence[int]) -> float:
    """Two FLOPs for each output element and each step along the contracted dimensions.

    >>> from ridgeline.hlo.shape import parse_shape
    >>> dot_flops(parse_shape("bf16[2,3]"), parse_shape("bf16[2,5]"), contracted=(1,))  # 2 · 2·5 · 3
    60.0
    """
    if any(axis >= len(left.dims) for axis in contracted):
        return nan
    return 2.0 * output.num_elements * prod(left.dims[axis] for axis in contracted)


def convolution_flops(
    left: ArrayShape, right: ArrayShape, output: ArrayShape, *, attributes: Mapping[str, str]
) -> float:
    """Two FLOPs for each output element, input feature and kernel position that meets a real input element.

    XLA writes a batched matmul as a convolution whose kernel slides over the batch with padding and dilation; only
    the positions that are neither count.

    >>> from ridgeline.hlo.shape import parse_shape
    >>> shapes = [parse_shape(text) for text in ("bf16[2,3]", "bf16[3,5]", "bf16[2,5]")]
    >>> convolution_flops(*shapes, attributes={"dim_labels": "bf_io->bf"})  # 2 · 2·5 · 3
    60.0
    """
    labels = _LABELS.fullmatch(attributes.get("dim_labels", ""))
    if labels is None or (len(labels[1]), len(labels[2])) != (len(left.dims), len(right.dims)):
        return nan
    sizes = [
        dict(zip(label, shape.dims, strict=False))
        for label, shape in zip(labels.groups(), (left, right, output), strict=True)
    ]
    window = dict(_FIELD.findall(attributes.get("window", "")))
    spatial = sorted(label for label in labels[1] if label.isdecimal())
    if not all(label in size for label in spatial for size in sizes) or "i" not in sizes[1]:
        return nan
    positions: float = 1
    for index, label in enumerate(spatial):
        low, _, _ = _at(window, "pad", index, "0_0").partition("_")
        positions *= _meetings(
            input_size=sizes[0][label],
            kernel_size=sizes[1][label],
            output_size=sizes[2][label],
            stride=int(_at(window, "stride", index, "1")),
            pad=int(low),
            input_dilation=int(_at(window, "lhs_dilate", index, "1")),
            kernel_dilation=int(_at(window, "rhs_dilate", index, "1")),
        )
    others = prod(size for label, size in sizes[2].items() if label not in spatial)
    return 2.0 * others * sizes[1]["i"] * positions


def _meetings(
    *,
    input_size: int,
    kernel_size: int,
    output_size: int,
    stride: int,
    pad: int,
    input_dilation: int,
    kernel_dilation: int,
) -> float:
    """Pairs of an output and a kernel position, along one dimension, that meet an input element.

    They meet at place o·stride − pad + k·kernel_dilation of the dilated input, where only multiples of
    `input_dilation` hold elements. NaN for a window that cannot be.
    """
    if min(stride, input_dilation, kernel_dilation) < 1 or kernel_size > _LARGEST_KERNEL:
        return nan
    length = (input_size - 1) * input_dilation + 1
    shared = gcd(stride, input_dilation)
    period = input_dilation // shared
    inverse = pow(stride // shared, -1, period) if period > 1 else 0
    meetings = 0
    for k in range(kernel_size):
        offset = k * kernel_dilation - pad
        if offset % shared:
            continue
        first = max(0, -(offset // stride))
        last = min(output_size - 1, (length - 1 - offset) // stride)
        start = first + (-(offset // shared) * inverse - first) % period
        meetings += max(0, (last - start) // period + 1)
    return meetings


def _at(window: Mapping[str, str], field: str, index: int, otherwise: str) -> str:
    values = window[field].split("x") if field in window else []
    return values[index] if index < len(values) else otherwise


def _array(computation: Computation, instruction: Instruction, index: int) -> ArrayShape | None:
    operand = computation.operand(instruction, index)
    return operand.shape if operand is not None and isinstance(operand.shape, ArrayShape) else None


def _ints(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.strip("{} ").split(",") if number.strip().isdecimal())
