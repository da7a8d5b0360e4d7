"""Numbers of chips to plan for, as written: `64:4096` doubles from the first to the last, `64,96,256` is a list."""

from __future__ import annotations

from ridgeline.errors import InputError
from ridgeline.units import parse_whole

MOST_COUNTS = 32


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
    if len(counts) > MOST_COUNTS:
        raise refuse(f"{len(counts)} sizes are too many", f"ask for {MOST_COUNTS} at most")
    return tuple(counts)
