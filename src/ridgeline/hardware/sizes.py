"""Slices of other sizes: the same chips, fewer or more of them."""

from __future__ import annotations

from itertools import count
from math import prod
from typing import TYPE_CHECKING

from ridgeline.errors import InputError
from ridgeline.hardware.topology import gpu_cluster, legal_shapes, parse_slice, torus_slice

if TYPE_CHECKING:
    from ridgeline.hardware.chip import Chip, Torus
    from ridgeline.hardware.slice import Slice


def resized(hardware: Slice, num_chips: int, *, where: str = "chips") -> Slice:
    """The slice of so many of the same chips.

    A slice of the size asked for stays as it is, and several slices stay of their shape while their number changes.
    One slice becomes the one that `sized` gives.

    >>> resized(parse_slice("2*v5e:16x16"), 1024).name, resized(parse_slice("tpu7x:2x2x4"), 16).name
    ('4*v5e:16x16', 'tpu7x:2x2x4')

    Args:
        hardware: What is there.
        num_chips: Chips in all slices.
        where: The flag or argument that the number came from, for the error message.

    Raises:
        InputError: There is no such slice; the message names the nearest that there are.
    """
    torus, each = hardware.chip.torus, prod(hardware.shape)
    if num_chips == hardware.num_chips:
        return hardware
    if torus is None or hardware.num_slices == 1:
        return sized(hardware.chip, num_chips, where=where)
    if num_chips % each:
        below = max(num_chips // each, 1) * each
        raise InputError(
            f"{num_chips:,} chips are no whole number of slices of {each:,}",
            where=where,
            value=num_chips,
            expected=f"a multiple of {each:,}: the job is on several slices, and these keep their shape",
            fix=f"the nearest are {below:,} and {below + each:,} chips",
        )
    return torus_slice(hardware.chip, torus, hardware.shape, num_chips // each)


def sized(chip: Chip, num_chips: int, *, where: str = "chips") -> Slice:
    """The slice of so many chips: the most cube-like; beyond the largest there is, several.

    Of several slices each has at least half of the largest's chips, and there are as few as can be.

    >>> for number in (64, 4096, 16384):
    ...     print(sized(parse_slice("tpu7x:4x4x4").chip, number).name)
    tpu7x:4x4x4
    tpu7x:16x16x16
    2*tpu7x:16x16x32

    Args:
        chip: Of which the slice is made.
        num_chips: Chips in all slices.
        where: The flag or argument that the number came from, for the error message.

    Raises:
        InputError: There is no such slice; the message names the nearest that there are.
    """
    if chip.switch is not None:
        return gpu_cluster(chip, chip.switch, num_chips, where=where)
    if chip.torus is None:
        return parse_slice(f"{chip.name}:{num_chips}", where=where)
    found = _on_torus(chip, chip.torus, num_chips)
    if found is None:
        raise _no_such_number(chip, chip.torus, num_chips, where)
    return found


def _on_torus(chip: Chip, torus: Torus, num_chips: int) -> Slice | None:
    shapes = legal_shapes(torus)
    largest = max(map(prod, shapes))
    of_size = [shape for shape in shapes if prod(shape) == num_chips]
    if of_size or num_chips < largest:
        return torus_slice(chip, torus, of_size[0], 1) if of_size else None
    whole = [shape for shape in shapes if num_chips % prod(shape) == 0 and prod(shape) * 2 >= largest]
    if not whole:
        return None
    shape = max(whole, key=lambda each: (prod(each), -sum(each)))
    return torus_slice(chip, torus, shape, num_chips // prod(shape))


def _no_such_number(chip: Chip, torus: Torus, num_chips: int, where: str) -> InputError:
    """Names the nearest sizes that exist, below and above."""
    beside = (range(num_chips - 1, 0, -1), count(num_chips + 1))
    near = [
        next((found for number in numbers if (found := _on_torus(chip, torus, number)) is not None), None)
        for numbers in beside
    ]
    names = [f"{each.num_chips:,} ({each.name})" for each in near if each is not None]
    return InputError(
        f"{chip.name} has no slice of {num_chips:,} chips",
        where=where,
        value=num_chips,
        expected="the size of a slice, or of equal slices of at least half the largest",
        fix=f"the nearest are {' and '.join(names)}",
    )
