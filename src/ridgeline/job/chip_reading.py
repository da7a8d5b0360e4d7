"""Reads questions about a chip alone: its ridge, its critical batch, its units, its tiles."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, TypedDict

from ridgeline.hardware.catalog import chip_names, load_chip
from ridgeline.job.rates_reading import (
    DTYPES,
    RATES,
    UNITS,
    RateArguments,
    Unit,
    bytes_of,
    compute_dtype,
    read_dtype,
    read_element_bytes,
    read_machine,
    read_memory,
    read_rates,
)
from ridgeline.units import parse_count, parse_cycles_per_s, parse_flops_per_s, parse_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ridgeline.errors import InputError
    from ridgeline.hardware.chip import Chip
    from ridgeline.job.operation import ElementBytes, Memory, Rates
    from ridgeline.job.said import Said, Value

_PLACE = "weights_from"
_SHAPE = re.compile(r"\s*[0-9]+(\s*[x,×]\s*[0-9]+)*\s*", re.IGNORECASE)
_MOST_DIMENSIONS = 8
_MOST_ELEMENTS = 1e15

_MATRIX_UNIT: Mapping[str, tuple[str, Callable[..., float]]] = {
    "clock": ("clock_cycles_per_s", parse_cycles_per_s),
    "count": ("num_units", parse_count),
    "core_units": ("num_core_units", parse_count),
    "per_unit": ("unit_flops_per_s", parse_flops_per_s),
    "peak": ("chip_flops_per_s", parse_flops_per_s),
    "block_rows": ("block_rows", parse_count),
    "block_cycles": ("block_cycles", parse_count),
}
_VECTOR_UNIT: Mapping[str, tuple[str, Callable[..., float]]] = {
    "sublanes": ("num_sublanes", parse_count),
    "lanes": ("num_lanes", parse_count),
    "alus": ("num_alus_per_lane", parse_count),
    "clock": ("clock_cycles_per_s", parse_cycles_per_s),
    "cores": ("num_cores", parse_count),
    "registers": ("num_registers", parse_count),
}
"""Arguments, the name that the formulas have for each, and how it is read."""


class CriticalBatchArguments(RateArguments, total=False):
    """Of a matmul.

    Keys:
        D: Contracted width.
        F: Output width.
    """

    D: Value
    F: Value


class MatrixUnitArguments(TypedDict, total=False):
    """What can be said of matrix units.

    Keys:
        on: The chip.
        array: Rows and columns of one unit: `128x128`.
        clock: Cycles a second.
        count: Units of the chip.
        core_units: Units of one core.
        per_unit: FLOPs a second of one unit.
        peak: FLOPs a second of the chip.
        block_rows: Rows multiplied at once.
        block_cycles: The cycles that takes.
        versus: Rows and columns of another unit, to compare with.
    """

    on: str | None
    array: str | Sequence[int] | None
    clock: Value
    count: Value
    core_units: Value
    per_unit: Value
    peak: Value
    block_rows: Value
    block_cycles: Value
    versus: str | Sequence[int] | None


class VectorUnitArguments(TypedDict, total=False):
    """What can be said of vector units.

    Keys:
        on: The chip.
        sublanes: Rows of a register.
        lanes: Columns of a register.
        alus: Arithmetic units of each pair of a lane and a sublane.
        clock: Cycles a second.
        cores: Cores of the chip, with a vector unit each.
        registers: Registers of a core.
        dtype: Of what the registers hold: a dtype, or the bytes of an element.
    """

    on: str | None
    sublanes: Value
    lanes: Value
    alus: Value
    clock: Value
    cores: Value
    registers: Value
    dtype: Value


class PaddingArguments(TypedDict, total=False):
    """What can be said of an array in tiles beside its shape.

    Keys:
        on: The TPU; without it, every one.
        dtype: Of the array: a dtype, or the bytes of an element.
        array: Rows and columns of a matrix unit, in place of a TPU's.
    """

    on: str | None
    dtype: Value
    array: str | Sequence[int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RidgeQuestion:
    """What a chip needs per byte.

    Attributes:
        machine: Which chip; "a chip of the given rates" for none.
        rates: Of it.
        memory: Where operands come from; of a matmul, its weights.
        activations_from: Where the others of a matmul lie.
        computes: What computes, e.g. `MXU bf16`; "" where the rate was stated.
        element_bytes: Of each array of a matmul.
        sizes: `D` and `F` of a matmul, where they were given.
        notes: What was taken for granted.
    """

    machine: str
    rates: Rates
    memory: Memory
    activations_from: Memory
    computes: str
    element_bytes: ElementBytes
    sizes: Mapping[str, float]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PaddingQuestion:
    """An array to be cut into tiles.

    Attributes:
        shape: Of the array.
        element_bytes: Of one element.
        units: Rows and columns of each kind of matrix unit, with the chips that have it.
    """

    shape: tuple[int, ...]
    element_bytes: float
    units: tuple[tuple[tuple[str, ...], tuple[int, int]], ...]


def read_ridge(said: Said, *, question: str) -> RidgeQuestion:
    """The question after a ridge point, or a critical batch if widths are allowed.

    Raises:
        InputError: Something is unknown, missing or malformed.
    """
    is_matmul = question == "critical_batch"
    widths, places = (("D", "F"), (_PLACE, "activations_from")) if is_matmul else ((), (_PLACE,))
    said.refuse_unless((*RATES, *DTYPES, *places, "unit", *widths), question=question)
    chip, _ = read_machine(said)
    memory, activations_from = read_memory(said, _PLACE), read_memory(said, "activations_from")
    unit: Unit = said.choice("unit", UNITS, "mxu")
    sizes = {
        letter: parse_whole(str(said.arguments[letter]), where=said.written(letter))
        for letter in widths
        if said.has(letter)
    }
    if len(sizes) == 1:
        absent = next(letter for letter in widths if letter not in sizes)
        raise said.refuse(f"size {absent} is missing", absent, expected="both widths, or neither", fix="add it")
    rates, note = read_rates(said, chip, memories=[memory, activations_from] if sizes else [memory], unit=unit)
    return RidgeQuestion(
        machine="a chip of the given rates" if chip is None else chip.name,
        rates=rates,
        memory=memory,
        activations_from=activations_from,
        computes=_computes(said, unit),
        element_bytes=read_element_bytes(said),
        sizes=sizes,
        notes=(note,) if note else (),
    )


def read_matrix_unit(said: Said) -> dict[str, float]:
    """What is known of a chip's matrix units, by the names of `cost.chip_inside.MATRIX_UNIT`.

    Raises:
        InputError: Something is unknown or malformed, or the chip has no such unit.
    """
    said.refuse_unless(("on", "figures", "array", "versus", *_MATRIX_UNIT), question="mxu")
    chip, _ = read_machine(said)
    values = {} if chip is None else _matrix_unit_of(chip, said)
    for name, (rows, columns) in {
        "array": ("num_rows", "num_columns"),
        "versus": ("num_other_rows", "num_other_columns"),
    }.items():
        if said.has(name):
            values[rows], values[columns] = _square(said, name)
    return values | _stated(said, _MATRIX_UNIT)


def read_vector_unit(said: Said) -> dict[str, float]:
    """What is known of a chip's vector units, by the names of `cost.chip_inside.VECTOR_UNIT`.

    Raises:
        InputError: Something is unknown or malformed, or the chip has no such unit.
    """
    said.refuse_unless(("on", "dtype", *_VECTOR_UNIT), question="vpu")
    chip, _ = read_machine(said)
    values = {} if chip is None else _vector_unit_of(chip, said)
    if said.has("dtype"):
        values["element_bytes"] = bytes_of(read_dtype(said.arguments["dtype"], where=said.written("dtype")))
    return values | _stated(said, _VECTOR_UNIT)


def read_padding(said: Said) -> PaddingQuestion:
    """An array and the units that are to tile it: those of a chip, of a stated size, or of every TPU.

    Raises:
        InputError: Something is unknown, missing or malformed, or the chip has no such unit.
    """
    said.refuse_unless(("on", "shape", "dtype", "array"), question="padding")
    chip, _ = read_machine(said)
    if said.has("array"):
        units: dict[tuple[int, int], tuple[str, ...]] = {_square(said, "array"): ()}
    else:
        units = {}
        for each in _tpus() if chip is None else [chip]:
            shape = _matrix_unit_shape(each, said)
            units[shape] = (*units.get(shape, ()), each.name)
    return PaddingQuestion(
        shape=_shape(said, "shape"),
        element_bytes=bytes_of(read_dtype(said.arguments.get("dtype") or "bf16", where=said.written("dtype"))),
        units=tuple((chips, shape) for shape, chips in units.items()),
    )


def _stated(said: Said, names: Mapping[str, tuple[str, Callable[..., float]]]) -> dict[str, float]:
    found = {quantity: said.positive(name, parse) for name, (quantity, parse) in names.items()}
    return {quantity: number for quantity, number in found.items() if number is not None}


def _matrix_unit_of(chip: Chip, said: Said) -> dict[str, float]:
    """A chip's matrix units; its peak where no clock is known."""
    rows, columns = _matrix_unit_shape(chip, said)
    count = (chip.mxus_per_device or 0) * chip.devices_per_chip
    known = {
        "num_rows": rows,
        "num_columns": columns,
        "num_units": count,
        "num_core_units": count / (chip.tensorcores_per_chip or 1),
    }
    if chip.clock_cycles_per_s is None:
        return known | {"chip_flops_per_s": chip.peak_flops_per_s["bf16"]}
    return known | {"clock_cycles_per_s": chip.clock_cycles_per_s}


def _vector_unit_of(chip: Chip, said: Said) -> dict[str, float]:
    """A chip's vector units, as far as they are published."""
    if chip.vpu is None:
        raise _no_unit(chip, said)
    known = {
        "num_sublanes": chip.vpu.num_sublanes,
        "num_lanes": chip.vpu.num_lanes,
        "num_cores": chip.tensorcores_per_chip,
        "num_alus_per_lane": chip.vpu.num_alus_per_lane,
        "num_registers": chip.vpu.num_registers,
        "clock_cycles_per_s": chip.clock_cycles_per_s,
    }
    found = {quantity: number for quantity, number in known.items() if number is not None}
    if "num_alus_per_lane" in found or chip.vpu.flops_per_s is None:
        return found
    return found | {"vector_flops_per_s": chip.vpu.flops_per_s}


def _matrix_unit_shape(chip: Chip, said: Said) -> tuple[int, int]:
    if chip.mxu_shape is None:
        raise _no_unit(chip, said)
    return chip.mxu_shape


def _no_unit(chip: Chip, said: Said) -> InputError:
    tpus = ", ".join(tpu.name for tpu in _tpus())
    return said.refuse(f"{chip.name} has no such unit", "on", expected=f"a TPU: {tpus}", fix="name one of these")


def _tpus() -> list[Chip]:
    return [chip for name in chip_names() if (chip := load_chip(name)).mxu_shape is not None]


def _square(said: Said, name: str) -> tuple[int, int]:
    """Rows and columns of a matrix unit: `128x128`, or 128 for as many of both."""
    rows, *columns = _shape(said, name)
    if len(columns) > 1:
        raise said.refuse("a matrix unit has two dimensions", name, expected="ROWSxCOLUMNS", fix="write 128x128")
    return rows, columns[0] if columns else rows


def _shape(said: Said, name: str) -> tuple[int, ...]:
    """Dimensions joined by x or commas, at least one each."""
    value = said.arguments.get(name)
    text = "" if value is None else str(value)
    sizes = tuple(int(size) for size in re.findall(r"[0-9]+", text)) if _SHAPE.fullmatch(text) else ()
    if not sizes or min(sizes) < 1 or len(sizes) > _MOST_DIMENSIONS or prod(sizes) > _MOST_ELEMENTS:
        raise said.refuse(
            "not a shape" if text else f"{name} is missing",
            name,
            expected=f"1 to {_MOST_DIMENSIONS} sizes of at least 1, joined by x",
            fix="write, for example, 4096x14336",
        )
    return sizes


def _computes(said: Said, unit: Unit) -> str:
    if said.has("peak"):
        return ""
    return "VPU f32" if unit == "vpu" else f"MXU {compute_dtype(said)}"
