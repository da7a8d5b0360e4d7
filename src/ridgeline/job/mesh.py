"""A pinned mesh: the degree of each named axis, and whether it can lie on the slice and split the batch."""

from __future__ import annotations

from math import isqrt, prod
from typing import TYPE_CHECKING, Final

from ridgeline.errors import InputError, nearest
from ridgeline.job.job import BATCH_AXES, DCN_AXES, ICI_AXES, MESH_AXES
from ridgeline.units import format_count, parse_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ridgeline.hardware.slice import Slice

FREE: Final = -1
"""The degree of an axis that is left to the planner (MaxText's word for an axis that takes the rest)."""

_OTHER_NAMES: Final[Mapping[str, str]] = {
    "data": "dp",
    "tensor": "tp",
    "model": "tp",
    "sequence": "tp_sequence",
    "tensor_sequence": "tp_sequence",
    "tensor_transpose": "tp_transpose",
    "context": "cp",
    "expert": "ep",
    "pipeline": "pp",
    "stage": "pp",
}
"""What other programs call our axes."""


def mesh_in_words(mesh: Mapping[str, int]) -> str:
    """The degrees of a mesh as a phrase.

    >>> mesh_in_words({"fsdp": 32, "tp": 4}), mesh_in_words({})
    ('fsdp=32 tp=4', 'one device')
    """
    return " ".join(f"{axis}={degree}" for axis, degree in mesh.items()) or "one device"


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


def parse_mesh(degrees: Mapping[str, str | float], *, where: str, axes: Sequence[str] = MESH_AXES) -> dict[str, int]:
    """Degrees by axis, in the order of `axes`; every axis one of them, every degree a whole number from 1, or `FREE`.

    Upper and lower case are the same.
    """
    said: dict[str, str | float] = {}
    for name, degree in degrees.items():
        axis = _known_axis(name, where=where, axes=axes)
        if axis in said:
            fix = f"give {axis} once"
            raise InputError(f"{axis} is given twice", where=where, value=name, expected="each axis once", fix=fix)
        said[axis] = degree
    return {axis: _degree(said[axis], where=f"{where}: {axis}") for axis in axes if axis in said}


def parse_placement(placement: Mapping[str, str], hardware: Slice, *, where: Callable[[str], str]) -> dict[str, str]:
    """Physical axes by logical axis, e.g. `{"fsdp": "x y", "tp": "core"}`; every name known, on this slice.

    Args:
        placement: As written; several physical axes are separated by spaces or commas.
        hardware: The slice whose axes they are.
        where: From a logical axis to where its placement was written, for error messages.
    """
    physical = [axis.name for axis in (*hardware.axes, *([] if hardware.dcn is None else [hardware.dcn]))]
    found: dict[str, str] = {}
    for logical, text in placement.items():
        axis = _known_axis(logical, where=where(logical), axes=MESH_AXES)
        names = text.replace(",", " ").split()
        for name in names or [text]:
            if name not in physical:
                raise InputError(
                    "unknown physical axis",
                    where=where(logical),
                    value=name,
                    expected=f"axes of {hardware.name}: {', '.join(physical) or 'it has none'}",
                    fix=nearest(name, physical) or f"use one of those, or leave {axis} to the planner",
                )
        found[axis] = " ".join(names)
    return found


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
        ([axis for axis in mesh if axis not in DCN_AXES], hardware.devices_per_slice, "devices in one slice"),
        (DCN_AXES, hardware.num_slices, "slices"),
    ):
        named = {axis: mesh[axis] for axis in axes if axis in mesh}
        product = prod(degree for degree in named.values() if degree != FREE)
        free = FREE in named.values()
        if not named or product == available or (free and available % product == 0):
            continue
        if axes is DCN_AXES and available == 1:
            raise InputError(
                f"{hardware.name} is only one slice",
                where=where,
                value=_written(named),
                expected="no degree across slices",
                fix=f"leave {', '.join(named)} out, or plan for {product}*{hardware.name}",
            )
        rest = f"{next(iter(named))}={FREE}"
        raise InputError(
            f"mesh does not {'divide' if free else 'fill'} the {things}",
            where=where,
            value=f"{_written(named)}, product {format_count(product)}",
            expected=f"{'a divisor of ' if free else ''}{available}: {hardware.name} has {available} {things}",
            fix=f"choose degrees whose product is {available}, or write {FREE} for an axis that takes the rest: {rest}",
        )


def check_batch(
    global_batch: int,
    mesh: Mapping[str, int],
    *,
    gradient_accumulation: int,
    where: str,
    where_accumulation: str,
    axes: Sequence[str] = BATCH_AXES,
) -> None:
    """Refuses a batch that the pinned batch axes cannot share out evenly, or micro-steps that cannot share the rest.

    Args:
        global_batch: Sequences per step.
        mesh: Pinned degrees.
        gradient_accumulation: Micro-steps per step.
        where: Where the batch was written, for error messages.
        where_accumulation: Where the micro-steps were written.
        axes: That share out the batch.
    """
    splits = {axis: mesh[axis] for axis in axes if mesh.get(axis, FREE) != FREE}
    ways = prod(splits.values())
    rest, left_over = divmod(global_batch, ways)
    if left_over:
        nearby = sorted({max(rest, 1) * ways, (rest + 1) * ways})
        raise InputError(
            "batch is not divisible",
            where=where,
            value=global_batch,
            expected=f"a multiple of {ways} sequences ({_written(splits)})",
            fix=f"use {' or '.join(map(str, nearby))}, or lower a degree that splits the batch",
        )
    if rest % gradient_accumulation:
        shared = f"{rest} sequences that {_written(splits)} leaves of" if splits else "sequences of"
        raise InputError(
            "micro-steps do not divide the batch",
            where=where_accumulation,
            value=gradient_accumulation,
            expected=f"a divisor of the {shared} a batch of {global_batch}",
            fix=f"use {' or '.join(map(str, _divisors_beside(gradient_accumulation, rest)))}",
        )


def _divisors_beside(value: int, number: int) -> list[int]:
    """The divisors of a number next to a value that is none.

    >>> _divisors_beside(3, 256), _divisors_beside(7, 6)
    ([2, 4], [6])
    """
    small = [divisor for divisor in range(1, isqrt(number) + 1) if number % divisor == 0]
    divisors = sorted({*small, *(number // divisor for divisor in small)})
    below = [divisor for divisor in divisors if divisor < value]
    return below[-1:] + divisors[len(below) :][:1]


def _known_axis(name: str, *, where: str, axes: Sequence[str]) -> str:
    """The mesh axis of that name, in upper or lower case."""
    axis = name.strip().lower()
    if axis in axes:
        return axis
    other = _OTHER_NAMES.get(axis)
    raise InputError(
        "unknown mesh axis",
        where=where,
        value=name,
        expected=", ".join(axes),
        fix=f"did you mean {other}?" if other in axes else nearest(axis, axes) or "use one of those",
    )


def _written(mesh: Mapping[str, int]) -> str:
    return " ".join(f"{axis}={degree}" for axis, degree in mesh.items())


def _degree(value: str | float, *, where: str) -> int:
    text = str(value).strip()
    if text == str(FREE):
        return FREE
    if text.startswith("-"):
        raise InputError(
            "negative degree",
            where=where,
            value=value,
            expected=f"a number of devices, or {FREE} for an axis that takes the rest",
            fix=f"write {FREE}, or leave the axis out",
        )
    return parse_whole(value, where=where, unit="devices")
