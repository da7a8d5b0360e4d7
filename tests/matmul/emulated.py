"""Devices in numpy: what each holds of an array, and what each step of a resharding does to it.

An independent reading of the notation, against which the planner's steps are checked block by block.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ridgeline.cost.sharding.resharding import Step
    from ridgeline.cost.sharding.sharded_matmul import Strategy
    from ridgeline.job.sharding import ShardedArray

Array: TypeAlias = NDArray[np.float64]
Device: TypeAlias = tuple[int, ...]
Blocks: TypeAlias = dict[Device, Array]


def devices(mesh: Mapping[str, int]) -> Iterator[Device]:
    """Every device, by its place along each axis."""
    return product(*(range(size) for size in mesh.values()))


def blocks(whole: Array, array: ShardedArray, mesh: Mapping[str, int]) -> Blocks:
    """The block that each device holds of an array without partial sums."""
    return {device: _block(whole, array, device, mesh) for device in devices(mesh)}


def stepped(held: Blocks, step: Step, mesh: Mapping[str, int]) -> Blocks:
    """What each device holds after one step."""
    groups: dict[Device, dict[int, Device]] = {}
    for device in devices(mesh):
        others = tuple(place for axis, place in zip(mesh, device, strict=True) if axis not in step.axes)
        groups.setdefault(others, {})[_number(device, step.axes, mesh)] = device
    after: Blocks = {}
    for group in groups.values():
        members = [group[number] for number in sorted(group)]
        after |= dict(zip(members, _exchanged([held[member] for member in members], step, members, mesh), strict=True))
    return after


def multiplied(strategy: Strategy, left: Array, right: Array, mesh: Mapping[str, int]) -> Blocks:
    """What each device holds once a strategy has run, block by block."""
    operands = []
    for whole, source, target in zip(
        (left, right), strategy.product.arrays[:2], (strategy.left, strategy.right), strict=True
    ):
        held = blocks(whole, source, mesh)
        for step in strategy.before:
            if step.before.name == source.name:
                held = stepped(held, step, mesh)
        assert_same(held, blocks(whole, target, mesh))
        operands.append(held)
    letters = einsum_of(strategy.product.arrays)
    held = {device: np.einsum(letters, operands[0][device], operands[1][device]) for device in devices(mesh)}
    for step in strategy.after:
        held = stepped(held, step, mesh)
    return held


def einsum_of(arrays: Sequence[ShardedArray]) -> str:
    """A product in numpy's letters; dimensions have one-letter names here."""
    left, right, output = ("".join(array.dims) for array in arrays)
    return f"{left},{right}->{output}"


def assert_same(held: Blocks, expected: Blocks) -> None:
    """Every device holds what it should."""
    for device, block in expected.items():
        np.testing.assert_array_equal(held[device], block, err_msg=str(device))


def _exchanged(held: list[Array], step: Step, members: list[Device], mesh: Mapping[str, int]) -> list[Array]:
    """What the devices of one group hold afterwards, in the order of the step's axes."""
    count, dims = len(held), step.before.dims
    match step.kind:
        case "slice":
            return [np.split(block, count, axis=dims.index(step.to_dim))[number] for number, block in enumerate(held)]
        case "all_gather":
            return [np.concatenate(held, axis=dims.index(step.from_dim))] * count
        case "all_reduce":
            return [np.sum(held, axis=0)] * count
        case "reduce_scatter":
            return np.split(np.sum(held, axis=0), count, axis=dims.index(step.to_dim))
        case "all_to_all":
            parts = [np.split(block, count, axis=dims.index(step.to_dim)) for block in held]
            return [np.concatenate([part[n] for part in parts], axis=dims.index(step.from_dim)) for n in range(count)]
        case "collective_permute":
            wanted = step.after.layout[step.to_dim]
            return [held[_number(member, wanted, mesh)] for member in members]


def _block(whole: Array, array: ShardedArray, device: Device, mesh: Mapping[str, int]) -> Array:
    block = whole
    for dim, axes in enumerate(array.axes):
        count = int(np.prod([mesh[axis] for axis in axes]))
        block = np.split(block, count, axis=dim)[_number(device, axes, mesh)]
    return block


def _number(device: Device, axes: Sequence[str], mesh: Mapping[str, int]) -> int:
    """Which block a device holds of a dimension split over some axes, the first outermost."""
    place = dict(zip(mesh, device, strict=True))
    number = 0
    for axis in axes:
        number = number * mesh[axis] + place[axis]
    return number
