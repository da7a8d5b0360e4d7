"""A pinned mesh: the degree of each named axis, and whether it can lie on the slice and split the batch."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Final

from ridgeline.errors import InputError, nearest
from ridgeline.job.job import BATCH_AXES, DCN_AXES, ICI_AXES, MESH_AXES
from ridgeline.units import format_count, parse_whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.hardware.slice import Slice

FREE: Final = -1
"""The degree of an axis that is left to the planner (MaxText's word for an axis that takes the rest)."""

_OTHER_NAMES: Final[Mapping[str, str]] = {
    "data": "dp",
    "tensor": "tp",
    "model": "tp",
    "sequence": "tp_sequence",
    "tensor_sequence": "tp_sequence",
    "context": "cp",
    "expert": "ep",
    "pipeline": "pp",
    "stage": "pp",
}
"""What other programs call our axes."""


def parse_pairs(text: str, *, where: str, example: str) -> dict[str, str]:
    """`fsdp=32,tp=4` as `{"fsdp": "32", "tp": "4"}`.

    Args:
        text: Pairs joined by commas; spaces do not matter.
        where: The flag, for error messages.
        example: A well-formed text, for error messages.
    """
    pairs: dict[str, str] = {}
    for number, item in enumerate(text.split(","), start=1):
        name, equals, value = (part.strip() for part in item.partition("="))
        if not (name and equals and value):
            what = f"item {number} is malformed: '{item.strip()}'"
        elif name in pairs:
            what = f"item {number} repeats '{name}'"
        else:
            pairs[name] = value
            continue
        raise InputError(
            what, where=where, value=text, expected="name=value pairs joined by commas", fix=f"write e.g. {example}"
        )
    return pairs


def parse_mesh(degrees: Mapping[str, str | float], *, where: str) -> dict[str, int]:
    """Degrees by axis, in the order of `MESH_AXES`; every axis known, every degree a whole number from 1, or `FREE`."""
    for axis in degrees:
        if axis not in MESH_AXES:
            other = _OTHER_NAMES.get(axis.lower())
            raise InputError(
                "unknown mesh axis",
                where=where,
                value=axis,
                expected=", ".join(MESH_AXES),
                fix=f"did you mean {other}?" if other else nearest(axis, MESH_AXES) or "use one of those",
            )
    return {axis: _degree(degrees[axis], where=f"{where}: {axis}") for axis in MESH_AXES if axis in degrees}


def pinned_degrees(mesh: Mapping[str, int]) -> dict[str, int]:
    """The degrees that a mesh leaves no choice about.

    Inside a slice, and across slices: once one axis is named, those not named are 1; those that are `FREE` are
    chosen. A level of which nothing is named is chosen altogether.

    >>> pinned_degrees({"tp": 4, "fsdp": -1})["cp"]
    1
    >>> "fsdp" in pinned_degrees({"tp": 4, "fsdp": -1}), pinned_degrees({})
    (False, {})
    """
    pinned: dict[str, int] = {}
    for axes in (ICI_AXES, DCN_AXES):
        if any(axis in mesh for axis in axes):
            pinned |= {axis: mesh.get(axis, 1) for axis in axes if mesh.get(axis) != FREE}
    return pinned


def check_mesh(mesh: Mapping[str, int], hardware: Slice, *, where: str) -> None:
    """Refuses degrees whose product is not the devices of a slice, or the slices.

    With a free axis among them, a product that divides is enough.
    """
    for axes, available, things in (
        (ICI_AXES, hardware.devices_per_slice, "devices in one slice"),
        (DCN_AXES, hardware.num_slices, "slices"),
    ):
        named = {axis: mesh[axis] for axis in axes if axis in mesh}
        product = prod(degree for degree in named.values() if degree != FREE)
        free = FREE in named.values()
        if not named or product == available or (free and available % product == 0):
            continue
        rest = f"{next(iter(named))}={FREE}"
        raise InputError(
            f"mesh does not {'divide' if free else 'fill'} the {things}",
            where=where,
            value=f"{_written(named)}, product {format_count(product)}",
            expected=f"{'a divisor of ' if free else ''}{available}: {hardware.name} has {available} {things}",
            fix=f"choose degrees whose product is {available}, or write {FREE} for an axis that takes the rest: {rest}",
        )


def check_batch(global_batch: int, mesh: Mapping[str, int], *, gradient_accumulation: int, where: str) -> None:
    """Refuses a batch that the pinned batch axes and micro-steps cannot share out evenly."""
    splits = {axis: mesh[axis] for axis in BATCH_AXES if mesh.get(axis, FREE) != FREE}
    ways = prod(splits.values()) * gradient_accumulation
    if global_batch % ways:
        micro_steps = f" × {gradient_accumulation} micro-steps" if gradient_accumulation > 1 else ""
        nearby = sorted({max(global_batch // ways, 1) * ways, (global_batch // ways + 1) * ways})
        raise InputError(
            "batch is not divisible",
            where=where,
            value=global_batch,
            expected=f"a multiple of {ways} sequences ({_written(splits)}{micro_steps})",
            fix=f"use {' or '.join(map(str, nearby))}, or lower a degree that splits the batch",
        )


def _written(mesh: Mapping[str, int]) -> str:
    return " ".join(f"{axis}={degree}" for axis, degree in mesh.items()) or "no batch axis"


def _degree(value: str | float, *, where: str) -> int:
    if str(value).strip() == str(FREE):
        return FREE
    return parse_whole(value, where=where, unit="devices")
