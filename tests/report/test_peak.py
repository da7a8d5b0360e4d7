"""What the table of the largest values says of the rest of the peak."""

from __future__ import annotations

from math import nan

import pytest

from ridgeline.hlo.peak import LiveValue
from ridgeline.report.peak import peak_table


def values(count: int) -> list[LiveValue]:
    """So many values of a GiB."""
    value = LiveValue(name="fusion", size_bytes=2**30, shape="", part="", phase="", role="temporary")
    return [value] * count


@pytest.mark.parametrize(
    ("count", "peak_bytes", "note"),
    [
        (3, 4 * 2**30, "together 3.00 GiB of 4.00 GiB at the peak"),
        (16, 20 * 2**30, "together 16.0 GiB of 20.0 GiB at the peak; 4 of them in --json only"),
        (3, 2**31, "together 3.00 GiB, more than the peak: some take another's place"),
        (3, nan, ""),
    ],
)
def test_the_table_says_how_much_of_the_peak_it_lists(count: int, peak_bytes: float, note: str) -> None:
    assert peak_table(values(count), peak_bytes=peak_bytes).note == note
