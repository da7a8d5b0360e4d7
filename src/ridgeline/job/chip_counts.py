"""Numbers of chips to plan for, as written: `64:4096` doubles from the first to the last, `64,96,256` is a list."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ridgeline.errors import InputError
from ridgeline.hardware.catalog import find_chip
from ridgeline.hardware.sizes import sized
from ridgeline.hardware.topology import MOST_CHIPS
from ridgeline.units import parse_whole

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_COUNTS = 32

_SMALLEST = (1, 2, 4, 8)
"""Sizes of which every chip has one; tried where there is none of those asked for, so that this is what is said."""


def parse_chip_counts(text: str, *, where: str = "--chips") -> tuple[int, ...]:
    """The numbers, ascending.

    >>> parse_chip_counts("64:512"), parse_chip_counts("256, 64")
    ((64, 128, 256, 512), (64, 256))

    Args:
        text: As written.
        where: The flag, for error messages.

    Raises:
        InputError: Not such a text, a range that ends before it starts, or too many numbers.
    """

    def refuse(what: str, fix: str) -> InputError:
        return InputError(what, where=where, value=text, expected="FIRST:LAST, or numbers joined by commas", fix=fix)

    first, colon, last = text.partition(":")
    if colon:
        low, high = (parse_whole(part.strip(), where=where, unit="chips") for part in (first, last))
        if high < low:
            raise refuse("the range ends before it starts", f"write {high}:{low}")
        counts = [low]
        while counts[-1] * 2 <= high:
            counts.append(counts[-1] * 2)
    else:
        counts = sorted({parse_whole(part.strip(), where=where, unit="chips") for part in text.split(",")})
    if counts[-1] > MOST_CHIPS:
        raise refuse("no such number of chips", f"ask for {MOST_CHIPS:,} at most")
    if len(counts) > MOST_COUNTS:
        raise refuse(f"{len(counts)} sizes are too many", f"ask for {MOST_COUNTS} at most")
    return tuple(counts)


def slice_to_start_from(on: str, counts: Sequence[int]) -> str:
    """The slice that a job names, where it may name the chip alone: its smallest slice that is asked for.

    >>> slice_to_start_from("v5e", (48, 64)), slice_to_start_from("v5e:4x4", (64,))
    ('v5e:8x8', 'v5e:4x4')

    Args:
        on: As written: `v5e`, or a slice, which stays as it is.
        counts: Numbers of chips, ascending.
    """
    chip = find_chip(on)
    for count in (*counts, *_SMALLEST) if chip is not None else ():
        try:
            return on if chip is None else sized(chip, count).name
        except InputError:
            continue
    return on
