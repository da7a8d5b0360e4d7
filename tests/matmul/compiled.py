"""The collectives of a program as XLA compiled it: kind, mesh axes and bytes, read from the text of its HLO."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Groups: TypeAlias = frozenset[frozenset[int]]

_COLLECTIVE = re.compile(
    r"= (?P<result>\S.*?) (?P<kind>all-gather|all-reduce|reduce-scatter|all-to-all|collective-permute)(?:-start)?\("
)
_ARRAY = re.compile(r"(\w+)\[([\d,]*)\]")
_BYTES = {"f32": 4, "bf16": 2}
_LISTED = re.compile(r"replica_groups=\{(\{[\d,{}]*\})\}")
_COUNTED = re.compile(r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_NAMED = re.compile(
    r"replica_groups=mesh\[(?P<mesh>[^\]]*)\](?:, device_ids=\(\[(?P<sizes>[\d,]+)\](?:T\((?P<order>[\d,]+)\))?\))? "
    r"\{(?P<axes>[^}]*)\}"
)
_PAIRS = re.compile(r"source_target_pairs=\{(\{[\d,{}]*\})\}")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Compiled:
    """One collective.

    Attributes:
        kind: As JAX and the planner call it: `all_gather`.
        axes: Mesh axes, in the order of the mesh.
        size_bytes: Gathered, before it is scattered, or handled by a device.
    """

    kind: str
    axes: tuple[str, ...]
    size_bytes: int


def collectives(hlo: str, mesh: Mapping[str, int]) -> Iterator[Compiled]:
    """Every collective of a compiled program, in the order of its text."""
    for line in hlo.splitlines():
        if found := _COLLECTIVE.search(line):
            axes = _axes(line, mesh)
            size = sum(_BYTES[dtype] * prod(_numbers(shape)) for dtype, shape in _ARRAY.findall(found["result"]))
            kind = found["kind"].replace("-", "_")
            scattered = prod(mesh[axis] for axis in axes) if kind == "reduce_scatter" else 1
            yield Compiled(kind=kind, axes=axes, size_bytes=size * scattered)


def _axes(line: str, mesh: Mapping[str, int]) -> tuple[str, ...]:
    """The mesh axes along which the devices of a group differ."""
    if pairs := _PAIRS.search(line):
        moved = [(_place(a, mesh), _place(b, mesh)) for a, b in _lists(pairs[1])]
        return tuple(axis for axis in mesh if any(a[axis] != b[axis] for a, b in moved))
    groups = _groups(line)
    for count in range(1, len(mesh) + 1):
        for axes in combinations(mesh, count):
            if _along(axes, mesh) == groups:
                return axes
    raise AssertionError(f"no mesh axes give the groups of: {line}")


def _groups(line: str) -> Groups:
    if named := _NAMED.search(line):
        sizes = {axis: int(size) for axis, size in re.findall(r"'(\w+)'=(\d+)", named["mesh"])}
        groups = _along(tuple(re.findall(r"'(\w+)'", named["axes"])), sizes)
        devices = _numbered(named["sizes"] or str(prod(sizes.values())), named["order"])
        return frozenset(frozenset(devices[place] for place in group) for group in groups)
    if listed := _LISTED.search(line):
        return frozenset(frozenset(group) for group in _lists(listed[1]))
    counted = _COUNTED.search(line)
    assert counted, line
    count, size = _numbers(counted[1])
    devices = _numbered(counted[2], counted[3])
    return frozenset(frozenset(devices[start : start + size]) for start in range(0, count * size, size))


def _numbered(shape: str, order: str | None) -> list[int]:
    """Numbers 0, 1, … as an array of some shape, its dimensions taken in another order: XLA's `[2,4]T(1,0)`."""
    sizes = _numbers(shape)
    strides = [prod(sizes[dim + 1 :]) for dim in range(len(sizes))]
    numbers = [0]
    for dim in _numbers(order) if order else range(len(sizes)):
        numbers = [number + index * strides[dim] for number in numbers for index in range(sizes[dim])]
    return numbers


def _along(axes: tuple[str, ...], mesh: Mapping[str, int]) -> Groups:
    """Devices that differ along some axes only."""
    groups: dict[tuple[int, ...], set[int]] = {}
    for device in range(prod(mesh.values())):
        place = _place(device, mesh)
        groups.setdefault(tuple(place[axis] for axis in mesh if axis not in axes), set()).add(device)
    return frozenset(map(frozenset, groups.values()))


def _place(device: int, mesh: Mapping[str, int]) -> dict[str, int]:
    """Where a device is along each axis; the last axis of a mesh runs fastest."""
    place = dict[str, int]()
    for axis, size in reversed(mesh.items()):
        device, place[axis] = divmod(device, size)
    return place


def _lists(text: str) -> list[list[int]]:
    return [_numbers(group) for group in re.findall(r"\{([\d,]*)\}", text)]


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",") if number]
