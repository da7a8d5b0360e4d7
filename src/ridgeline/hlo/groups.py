"""Which devices a collective joins: the three ways in which HLO writes replica groups, read into one.

{{0,1},{2,3}}                                   explicit
[4,32]<=[32,4]T(1,0)                            iota: count to 128, reshape, transpose, cut into 4 groups of 32
mesh['dcn'=1,'fsdp'=32,'tp'=4] {'fsdp'}         named: along these axes of this mesh
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_NAMED = re.compile(r"mesh\[([^\]]*)\][^{]*\{([^{}]*)\}")
_MESH_AXIS = re.compile(r"['\"]([^'\"]+)['\"]\s*=\s*(\d+)")
_GROUP_AXIS = re.compile(r"['\"]([^'\"]+)['\"](?::\((\d+)\)(\d+))?")
_IOTA = re.compile(r"\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_GROUP = re.compile(r"\{([\d,\s]*)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaGroups:
    """The devices that a collective joins.

    Attributes:
        num_devices: Of one group.
        axes: Mesh axes along which it lies; empty where the text names none.
        members: Device numbers of every group; empty where they cannot be told.
    """

    num_devices: int
    axes: tuple[str, ...] = ()
    members: tuple[tuple[int, ...], ...] = ()


@lru_cache(maxsize=1024)
def parse_groups(text: str, *, num_devices: int) -> ReplicaGroups | None:
    """The groups from their text; None where it is in no known form.

    Args:
        text: The value of `replica_groups`.
        num_devices: Of the program: the only group, when none is given.

    >>> parse_groups("mesh['dcn'=1,'fsdp'=32,'tp'=4] {'fsdp'}", num_devices=128).axes
    ('fsdp',)
    >>> parse_groups("[2,2]<=[2,2]T(1,0)", num_devices=4).members
    ((0, 2), (1, 3))
    """
    if named := _NAMED.search(text):
        sizes = named_mesh(text)
        axes = [(name, int(part) if part else sizes.get(name)) for name, _, part in _GROUP_AXIS.findall(named[2])]
        counts = [size for _, size in axes if size is not None]
        if len(counts) < len(axes) or not prod(counts):
            return None
        names, is_whole = tuple(name for name, _ in axes), not any(part for _, _, part in _GROUP_AXIS.findall(named[2]))
        members = _groups_along(names, sizes) if is_whole else ()
        return ReplicaGroups(num_devices=prod(counts), axes=names, members=members)
    if iota := _IOTA.fullmatch(text.strip()):
        return _iota(*(tuple(int(n) for n in part.split(",") if n) for part in (iota[1], iota[2], iota[3] or "")))
    if text.replace(" ", "") in {"", "{}"}:
        return ReplicaGroups(num_devices=num_devices, members=(tuple(range(num_devices)),))
    members = tuple(tuple(int(n) for n in group.split(",") if n.strip()) for group in _GROUP.findall(text))
    if not members or not all(members):
        return None
    return ReplicaGroups(num_devices=max(len(group) for group in members), members=members)


def _iota(shape: Sequence[int], counted: Sequence[int], order: Sequence[int]) -> ReplicaGroups | None:
    """0, 1, 2, … in an array of `counted` dimensions, those put in `order`, cut into `shape` = (groups, devices)."""
    order = order or tuple(range(len(counted)))
    if not prod(shape) == prod(counted) > 0 or sorted(order) != list(range(len(counted))):
        return None
    strides = [prod(counted[axis + 1 :]) for axis in range(len(counted))]
    numbers = [0]
    for axis in order:
        numbers = [number + step * strides[axis] for number in numbers for step in range(counted[axis])]
    size = prod(shape[1:])
    groups = tuple(tuple(numbers[start : start + size]) for start in range(0, len(numbers), size))
    return ReplicaGroups(num_devices=size, members=groups)


def named_mesh(text: str) -> dict[str, int]:
    """Degrees by axis of the mesh that replica groups name; empty where they name none."""
    named = _NAMED.search(text)
    return {name: int(size) for name, size in _MESH_AXIS.findall(named[1])} if named else {}


def axes_in_mesh(groups: ReplicaGroups, mesh: Mapping[str, int]) -> tuple[str, ...]:
    """The axes of a mesh along which groups lie; those that their text names, where they follow none of the mesh.

    Devices are numbered through the mesh with its last axis fastest, as JAX numbers them.

    >>> groups = parse_groups("{{0,1},{2,3}}", num_devices=4)
    >>> axes_in_mesh(groups, {"fsdp": 2, "tp": 2})
    ('tp',)
    """
    if not groups.members or prod(mesh.values()) != sum(map(len, groups.members)):
        return groups.axes
    names = [name for name, size in mesh.items() if size > 1]
    wanted = {frozenset(group) for group in groups.members}
    for length in range(len(names) + 1):
        for axes in combinations(names, length):
            if prod(mesh[name] for name in axes) == groups.num_devices and _sets_along(axes, mesh) == wanted:
                return axes
    return groups.axes


def _sets_along(axes: Sequence[str], mesh: Mapping[str, int]) -> set[frozenset[int]]:
    return {frozenset(group) for group in _groups_along(axes, mesh)}


def _groups_along(axes: Sequence[str], mesh: Mapping[str, int]) -> tuple[tuple[int, ...], ...]:
    """Devices of each group along axes of a mesh."""
    sizes = tuple(mesh.values())
    across = [axis for axis, name in enumerate(mesh) if name not in axes]
    along = [axis for axis, name in enumerate(mesh) if name in axes]
    found = _iota((prod(sizes[axis] for axis in across), prod(sizes[axis] for axis in along)), sizes, across + along)
    return found.members if found else ()
