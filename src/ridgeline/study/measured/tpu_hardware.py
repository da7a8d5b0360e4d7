"""The slice and the mesh of a TPU record, however its source spells them."""

from __future__ import annotations

import re
from math import prod
from typing import TYPE_CHECKING, Final

from ridgeline.errors import nearest
from ridgeline.hardware.catalog import chip_names, find_chip
from ridgeline.hardware.topology import legal_shapes, parse_slice, written
from ridgeline.job.job import DCN_AXES, ICI_AXES
from ridgeline.job.mesh import FREE
from ridgeline.study.measured.records import number, sequence, table, text, unusable, whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.hardware.chip import Chip
    from ridgeline.hardware.slice import Slice
    from ridgeline.study.measured.records import Record

_SHAPE = re.compile(r"\d+(?:\s*[x×*]\s*\d+)+")
_WORDS = re.compile(r"[a-z0-9-]+")
_NUMBER = re.compile(r"\d+")
_DEGREE = re.compile(r"([a-z][a-z_]*)\s*[=:]?\s*(-?\d+)")
_ULYSSES: Final = "context_usp_ulysses"

_CHIPS: Final[Mapping[str, str]] = {
    "tpu7": "tpu7x",
    "v7x": "tpu7x",
    "v5lite": "v5e",
    "v5 lite": "v5e",
    "v6 lite": "v6e",
    "v6lite": "v6e",
}
"""Names of chips that are no alias in the catalogue."""

_AXES: Final[Mapping[str, str]] = {
    **{axis: axis for axis in ICI_AXES},
    "data": "dp",
    "replica": "dp",
    "ddp": "dp",
    "tensor": "tp",
    "model": "tp",
    "mp": "tp",
    "tensor_sequence": "tp_sequence",
    "context": "cp",
    _ULYSSES: "cp",
    "expert": "ep",
    "pipeline": "pp",
    "stage": "pp",
}
"""Mesh axes as MaxText, AXLearn, Levanter and PyTorch/XLA call them."""


def record_slice(record: Record) -> tuple[Slice, tuple[str, ...]]:
    """The slice of a record, and what of it was assumed.

    Raises:
        InputError: The chip is unknown or no TPU, or shape and number of chips contradict each other.
    """
    chip = _chip(text(record, "chip"))
    if chip.torus is None:
        raise unusable("a chip that is no TPU in a TPU record", chip.name, key="chip")
    stated, is_assumed = _shape(record)
    chips, slices = whole(record, "num_chips"), whole(record, "slices")
    in_slice = whole(record, "chips_per_slice")
    if in_slice is None:
        in_slice = _chips_per_slice(chips, slices, stated)
    slices = slices or (max(chips // in_slice, 1) if chips else 1)
    if chips is not None and chips != slices * in_slice:
        raise unusable(f"{slices} slices of {in_slice} chips are not {chips} chips", chips, key="num_chips")
    shape = stated or next((shape for shape in legal_shapes(chip.torus) if prod(shape) == in_slice), None)
    if shape is None:
        raise unusable(f"no slice of {chip.name} has {in_slice} chips", in_slice, key="num_chips")
    if prod(shape) != in_slice:
        raise unusable(
            f"the topology has {prod(shape)} chips, the record {in_slice} a slice", written(shape), key="topology"
        )
    hardware = parse_slice(f"{slices}*{chip.name}:{written(shape)}", where="topology")
    return hardware, () if stated and not is_assumed else (f"topology: {written(shape)}",)


def record_mesh(record: Record, hardware: Slice) -> tuple[dict[str, int], tuple[str, ...]]:
    """Degrees by mesh axis, and what of them was assumed; empty where the record has none.

    MaxText's rules: an axis of -1 takes the rest; so does `fsdp` inside a slice and `data` across slices where
    neither is named. Degrees that count chips where the job counts devices grow to fill the slice.

    Raises:
        InputError: An axis or a degree is unknown, or the degrees do not fill the slice.
    """
    inside, across = _degrees(record, hardware)
    if not inside and not across:
        return {}, ()
    if prod(inside.values()) == hardware.num_devices > hardware.devices_per_slice and not across:
        inside, across = _split_over_slices(inside, hardware)
    ici, said = _filled(inside, hardware.devices_per_slice, hardware)
    dcn, said_across = _filled(across, hardware.num_slices, hardware, prefix="dcn_")
    mesh = ici | (dcn if hardware.num_slices > 1 else {})
    return {axis: degree for axis, degree in mesh.items() if degree > 1} or {"dp": 1}, (*said, *said_across)


def ulysses_degree(record: Record) -> int:
    """The Ulysses part of context parallelism that has a ring part too; 1 for none."""
    return whole(table(table(record, "sharding"), "ici"), _ULYSSES) or 1


def _chip(name: str) -> Chip:
    plain = name.lower().removeprefix("tpu ").removeprefix("tpu-").removeprefix("google ")
    for spelling in (name.lower(), plain, _CHIPS.get(plain, ""), f"tpu{plain}", *_WORDS.findall(plain)):
        chip = find_chip(spelling) if spelling else None
        if chip is not None:
            return chip
    close = nearest(plain, chip_names())
    raise unusable(f"unknown chip; {close}" if close else "unknown chip", name, key="chip")


def _shape(record: Record) -> tuple[tuple[int, ...] | None, bool]:
    """The stated shape of a slice, and whether the record itself assumes it."""
    said = "x".join(map(str, sequence(record, "topology"))) or text(record, "topology")
    found = _SHAPE.search(said)
    if found is None:
        return None, False
    return tuple(int(digits) for digits in _NUMBER.findall(found.group())), "assumed" in said


def _chips_per_slice(chips: int | None, slices: int | None, shape: tuple[int, ...] | None) -> int:
    """Chips of one slice where the record does not say."""
    if shape is not None and (chips is None or slices is None):
        return prod(shape)
    if chips is None:
        raise unusable("neither a number of chips nor a topology", None, key="num_chips")
    in_slice, left_over = divmod(chips, slices or 1)
    if left_over:
        raise unusable(f"{chips} chips are not a whole number of {slices} slices", chips, key="slices")
    return in_slice


def _degrees(record: Record, hardware: Slice) -> tuple[dict[str, int], dict[str, int]]:
    """Degrees inside a slice and across slices, as far as they are stated."""
    sharding = record.get("sharding")
    if isinstance(sharding, str):
        said: dict[str, object] = dict(_DEGREE.findall(sharding.lower()))
    else:
        ici, dcn = table(table(record, "sharding"), "ici"), table(table(record, "sharding"), "dcn")
        flat = {name: value for name, value in table(record, "sharding").items() if _axis(name)}
        said = {**flat, **ici, **{f"dcn_{name.removeprefix('dcn_')}": value for name, value in dcn.items()}}
    inside: dict[str, int] = {}
    across: dict[str, int] = {}
    for name, value in said.items():
        degree = _degree(name, value)
        axis = _axis(name)
        if axis is None and degree != 1:
            raise unusable("unknown mesh axis", f"{name}={value}", key="sharding")
        level = across if name.lower().startswith("dcn_") else inside
        if axis is not None and degree != 1:
            level[axis] = FREE if FREE in {degree, level.get(axis)} else level.get(axis, 1) * degree
    unknown = [axis for axis in across if f"dcn_{axis}" not in DCN_AXES]
    if unknown and hardware.num_slices > 1:
        raise unusable(f"{unknown[0]} across slices", f"dcn {unknown[0]}={across[unknown[0]]}", key="sharding")
    return inside, across


def _axis(name: str) -> str | None:
    """Our name of a mesh axis: `ici_fsdp_parallelism` is fsdp."""
    plain = name.lower().removeprefix("ici_").removeprefix("dcn_").removesuffix("_parallelism")
    return _AXES.get(plain)


def _degree(name: str, value: object) -> int:
    """A degree; what is said to span all chips takes the rest."""
    words = str(value).strip().lower()
    if value is None or words == "0":  # an axis that is off
        return 1
    if words == str(FREE) or words.startswith("all"):
        return FREE
    found = number({name: value}, name)
    if found is None or found != int(found):
        raise unusable("a degree that is no whole number", f"{name}={value}", key="sharding")
    return int(found)


def _split_over_slices(inside: Mapping[str, int], hardware: Slice) -> tuple[dict[str, int], dict[str, int]]:
    """Degrees over all slices at once, parted into those inside a slice and those across."""
    slices = hardware.num_slices
    axis = next((axis for axis in ("dp", "fsdp", "pp") if inside.get(axis, 1) % slices == 0), None)
    if axis is None:
        raise unusable("no axis of the mesh spans the slices", dict(inside), key="sharding")
    return {**inside, axis: inside[axis] // slices}, {axis: slices}


def _filled(
    degrees: Mapping[str, int], available: int, hardware: Slice, *, prefix: str = ""
) -> tuple[dict[str, int], tuple[str, ...]]:
    """Degrees whose product is what there is, and what was assumed to make it so."""
    named = {f"{prefix}{axis}": degree for axis, degree in degrees.items() if degree != FREE}
    free = [f"{prefix}{axis}" for axis, degree in degrees.items() if degree == FREE]
    rest, left_over = divmod(available, prod(named.values()))
    if left_over or len(free) > 1:
        things = "slices" if prefix else "devices of a slice"
        raise unusable(f"the mesh does not fill the {available} {things}", named, key="sharding")
    if free:
        return {**named, free[0]: rest}, ()
    if rest == 1:
        return named, ()
    counts_chips = not prefix and rest == hardware.chip.devices_per_chip and "fsdp" in named
    axis = f"{prefix}dp" if prefix or ("fsdp" in named and not counts_chips) else "fsdp"
    why = "degrees count chips" if counts_chips else "takes the rest"
    # Across slices MaxText itself lets `data` take the rest, so that this is no assumption.
    said = () if prefix else (f"mesh: {axis} {why}, times {rest}",)
    return {**named, axis: named.get(axis, 1) * rest}, said
