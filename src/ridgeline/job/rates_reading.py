"""Reads dtypes and the rates of one chip: from its catalogue entry, or as the question states them."""

from __future__ import annotations

import re
from math import nan
from typing import TYPE_CHECKING, Literal, TypeAlias, TypedDict, get_args

from ridgeline.errors import InputError, nearest
from ridgeline.hardware.catalog import find_chip, load_chip
from ridgeline.hardware.scaling_book import chip_of_the_book, slice_of_the_book
from ridgeline.hardware.topology import parse_slice
from ridgeline.job.operation import MEMORIES, ElementBytes, Memory, Rates
from ridgeline.units import parse_bytes_per_s, parse_count, parse_flops_per_s

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ridgeline.hardware.chip import Chip
    from ridgeline.hardware.slice import Slice
    from ridgeline.job.said import Said, Value

Unit: TypeAlias = Literal["mxu", "vpu"]
"""The unit that computes: the matrix unit (a GPU's tensor cores), or the vector unit (its scalar cores)."""

UNITS: tuple[Unit, ...] = get_args(Unit)

BYTES_OF_ELEMENT: Mapping[str, float] = {
    "f32": 4.0,
    "bf16": 2.0,
    "f16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "fp4": 0.5,
    "int4": 0.5,
}
"""By dtype."""

FIGURES: tuple[Literal["catalog", "scaling-book"], ...] = ("catalog", "scaling-book")
"""Whose figures a chip has: the vendor's, or those that the book How To Scale Your Model uses."""

RATES = ("on", "figures", "peak", "sparsity", "hbm_bandwidth", "vmem_bandwidth", "vmem_over_hbm", "host_bandwidth")
"""What can be said of the machine."""

DTYPES = ("dtype", "weights_dtype", "activations_dtype", "outputs_dtype", "compute_dtype")
"""What can be said of precisions."""


class RateArguments(TypedDict, total=False):
    """What can be said of the machine and of precisions, as an argument or a flag; None says nothing.

    Keys:
        on: A chip or a slice.
        figures: Whose: `catalog`, or `scaling-book` for those that the book uses.
        peak: FLOPs a second of one chip, in place of the catalogue's.
        sparsity: What the peak is to be divided by, where it counts structured sparsity.
        hbm_bandwidth: Bytes a second of one chip's memory.
        vmem_bandwidth: The same of its vector memory.
        vmem_over_hbm: Or their ratio.
        host_bandwidth: From the host, over PCIe.
        weights_from: Where weights lie (in attention, keys and values): `hbm`, `vmem` or `host`.
        activations_from: Where the other operand and the output lie.
        dtype: Of every array: a dtype or the bytes of an element.
        weights_dtype: Of weights.
        activations_dtype: Of the other operand.
        outputs_dtype: Of the output; follows the activations.
        compute_dtype: Whose rate counts; follows the activations.
        unit: `mxu` or `vpu`.
    """

    on: str | None
    figures: str | None
    peak: Value
    sparsity: Value
    hbm_bandwidth: Value
    vmem_bandwidth: Value
    vmem_over_hbm: Value
    host_bandwidth: Value
    weights_from: str | None
    activations_from: str | None
    dtype: Value
    weights_dtype: Value
    activations_dtype: Value
    outputs_dtype: Value
    compute_dtype: str | None
    unit: str | None


_ALIASES = {
    "float32": "f32",
    "fp32": "f32",
    "bfloat16": "bf16",
    "float16": "f16",
    "fp16": "f16",
    "float8": "fp8",
}
_MOST_BYTES_OF_ELEMENT = 16.0


def read_machine(said: Said) -> tuple[Chip | None, Slice | None]:
    """The chip that was named, and the slice if it was one."""
    by_the_book = said.choice("figures", FIGURES, "catalog") == "scaling-book"
    name = said.arguments.get("on")
    if name is None:
        return None, None
    if find_chip(str(name)) is None and re.search(r"[:*-]", str(name)):
        hardware = parse_slice(str(name), where=said.written("on"))
        hardware = slice_of_the_book(hardware) if by_the_book else hardware
        return hardware.chip, hardware
    chip = load_chip(str(name), where=said.written("on"))
    return chip_of_the_book(chip) if by_the_book else chip, None


def read_rates(said: Said, chip: Chip | None, *, memories: Sequence[Memory], unit: Unit) -> tuple[Rates, str]:
    """The rates of one chip, and what had to be taken for granted."""
    peak_flops_per_s, note = _peak(said, chip, unit=unit)
    by_ratio = said.has("vmem_over_hbm")
    rates = Rates(
        peak_flops_per_s=peak_flops_per_s,
        memory_bytes_per_s={
            memory: _bandwidth(said, chip, "hbm" if by_ratio and memory == "vmem" else memory)
            for memory in dict.fromkeys(memories)
        },
        sparsity_factor=said.positive("sparsity", parse_count) or 1.0,
        vmem_over_hbm=said.positive("vmem_over_hbm", parse_count),
        vmem_bytes=None if chip is None or chip.vmem_bytes is None else chip.vmem_bytes * chip.devices_per_chip,
    )
    return rates, note


def read_element_bytes(said: Said) -> ElementBytes:
    """Bytes of an element of each array: of its own dtype, else of that of all; outputs follow the activations."""
    every = read_dtype(said.arguments.get("dtype") or "bf16", where=said.written("dtype"))
    activations = _dtype(said, "activations_dtype", every)
    return ElementBytes(
        weights=bytes_of(_dtype(said, "weights_dtype", every)),
        activations=bytes_of(activations),
        outputs=bytes_of(_dtype(said, "outputs_dtype", activations)),
    )


def read_dtype(value: Value, *, where: str) -> str:
    """A dtype by the name that the catalogue has for it, or the bytes of an element as text.

    >>> read_dtype("bfloat16", where="--dtype"), read_dtype(0.5, where="--dtype")
    ('bf16', '0.5')
    """
    name = _ALIASES.get(str(value), str(value))
    if name in BYTES_OF_ELEMENT:
        return name
    if re.fullmatch(r"\d{1,2}(\.\d{1,4})?", name) and 0 < float(name) <= _MOST_BYTES_OF_ELEMENT:
        return f"{float(name):g}"
    raise InputError(
        "unknown dtype",
        where=where,
        value=value,
        expected=f"{', '.join(BYTES_OF_ELEMENT)}, or the bytes of an element",
        fix=nearest(name, BYTES_OF_ELEMENT) or "write bf16, or 2",
    )


def bytes_of(dtype: str) -> float:
    """Bytes of one element of a dtype that `read_dtype` gave.

    >>> bytes_of("int4"), bytes_of("2")
    (0.5, 2.0)
    """
    return BYTES_OF_ELEMENT[dtype] if dtype in BYTES_OF_ELEMENT else float(dtype)


def compute_dtype(said: Said) -> str:
    """The dtype in which a matmul is computed: that of the activations, unless it is said."""
    return _dtype(said, "compute_dtype", _dtype(said, "activations_dtype", _dtype(said, "dtype", "bf16")))


def _dtype(said: Said, name: str, usual: str) -> str:
    return read_dtype(said.arguments[name], where=said.written(name)) if said.has(name) else usual


def _peak(said: Said, chip: Chip | None, *, unit: Unit) -> tuple[float, str]:
    """FLOPs a second of the unit that computes, NaN where it is not known, and what was taken for granted."""
    given = said.positive("peak", parse_flops_per_s)
    if given is not None:
        return given, ""
    if chip is None:
        states = f"{said.written('peak')} and a bandwidth"
        raise said.refuse("no machine", "on", expected="a chip, or its rates", fix=f"name a chip, or give {states}")
    if unit == "mxu":
        return _matmul_peak(said, chip)
    if chip.vector_flops_per_s is not None:
        return chip.vector_flops_per_s, ""
    return nan, (
        f"The rate of {chip.name}'s vector unit is not published: its time is unknown. "
        f"{said.written('peak')} states a rate."
    )


def _matmul_peak(said: Said, chip: Chip) -> tuple[float, str]:
    """The rate of the compute dtype; that of bf16 where the chip has none for it."""
    dtype = compute_dtype(said)
    if dtype in chip.peak_flops_per_s:
        return chip.peak_flops_per_s[dtype], ""
    if said.has("compute_dtype") and dtype not in BYTES_OF_ELEMENT:
        raise said.refuse(
            "a rate belongs to a dtype", "compute_dtype", expected=", ".join(chip.peak_flops_per_s), fix="write bf16"
        )
    if said.has("compute_dtype") and dtype == "f32":
        raise said.refuse(
            f"{chip.name} has no published f32 matmul rate",
            "compute_dtype",
            expected=", ".join(chip.peak_flops_per_s),
            fix=f"leave it out, so that operands are multiplied as bf16, or state a rate with {said.written('peak')}",
        )
    is_plain = dtype in {"bf16", "f16"} or dtype not in BYTES_OF_ELEMENT
    note = "" if is_plain else f"{chip.name} has no rate of its own for {dtype}: operands are multiplied as bf16."
    return chip.peak_flops_per_s["bf16"], note


def _bandwidth(said: Said, chip: Chip | None, memory: Memory) -> float:
    """Bytes a second between a memory and the units that compute."""
    name = f"{memory}_bandwidth"
    given = said.positive(name, parse_bytes_per_s)
    if given is not None:
        return given
    if chip is None:
        raise said.refuse(
            f"no bandwidth of {memory}", name, expected="bytes a second, or a chip", fix="write, for example, 820GB/s"
        )
    published = {"hbm": chip.hbm_bytes_per_s, "vmem": chip.vmem_bytes_per_s, "host": chip.pcie_bytes_per_s}[memory]
    if published is not None:
        return published
    rule = f", or {said.written('vmem_over_hbm')} 22, the Scaling Book's rule of thumb" if memory == "vmem" else ""
    raise said.refuse(
        f"the {memory} bandwidth of {chip.name} is not published",
        name,
        expected="bytes a second",
        fix=f"state it with {said.written(name)}{rule}",
    )


def read_memory(said: Said, name: str) -> Memory:
    """Where some arrays lie; in HBM unless it is said."""
    return said.choice(name, MEMORIES, "hbm")
