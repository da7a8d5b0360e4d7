"""Slices that a serving question may choose from: the one it names, or those of a chip that it names alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ridgeline.errors import InputError
from ridgeline.hardware.catalog import find_chip
from ridgeline.hardware.sizes import sized

if TYPE_CHECKING:
    from ridgeline.hardware.slice import Slice

SIZES: Final = (1, 2, 4, 8, 16, 32, 64)
"""Chips of a server that are searched where the chip alone is named."""


def slices_of_family(on: str | None) -> tuple[Slice, ...]:
    """The slices of a chip that is named alone, those that exist, the smallest first; none for a slice.

    >>> [each.name for each in slices_of_family("v6e")]
    ['v6e:1x1', 'v6e:2x2', 'v6e:2x4', 'v6e:4x4', 'v6e:4x8', 'v6e:8x8']
    >>> slices_of_family("v6e:2x4")
    ()

    Args:
        on: As written.
    """
    chip = None if on is None else find_chip(on)
    if chip is None:
        return ()
    found: list[Slice] = []
    for count in SIZES:
        try:
            found.append(sized(chip, count))
        except InputError:  # no such slice
            continue
    return tuple(found)
