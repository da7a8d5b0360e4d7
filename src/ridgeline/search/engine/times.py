"""How long a pass of a server takes, as tables that the caller fills and the simulation reads between their points."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTable:
    """Seconds of a pass by its rows and by the keys that they read; bilinear between the points.

    Below the first point of an axis its value holds; beyond the last the last slope goes on.

    Attributes:
        rows: Query tokens of a pass, all sequences together, ascending: of decode (without speculation) its sequences.
        keys: Keys that a row reads, mean over the rows, ascending: half the length for a whole prompt, and the
            part that is cached besides; one point where the time does not depend on it.
        seconds: By row, then by keys.
    """

    rows: tuple[float, ...]
    keys: tuple[float, ...]
    seconds: tuple[tuple[float, ...], ...]

    def at_rows(self, rows: float) -> tuple[float, ...]:
        """Seconds of a pass of so many rows, by keys.

        >>> StepTable(rows=(1, 3), keys=(0, 100), seconds=((1.0, 2.0), (3.0, 5.0))).at_rows(2)
        (2.0, 3.5)
        """
        if rows <= self.rows[0] or len(self.rows) == 1:
            return self.seconds[0]
        high = min(bisect_right(self.rows, rows), len(self.rows) - 1)
        below, above = self.rows[high - 1], self.rows[high]
        part = (rows - below) / (above - below)
        pairs = zip(self.seconds[high - 1], self.seconds[high], strict=True)
        return tuple(first + part * (second - first) for first, second in pairs)

    def line_at(self, rows: float, num_keys: float) -> tuple[float, float]:
        """Seconds at this point, and seconds that one more key a row adds."""
        return line_at(self.keys, self.at_rows(rows), num_keys)

    def pass_s(self, rows: float, num_keys: float) -> float:
        """Seconds of one pass."""
        return self.line_at(rows, num_keys)[0]


def line_at(keys: tuple[float, ...], seconds: tuple[float, ...], num_keys: float) -> tuple[float, float]:
    """Value and slope of a piecewise linear function.

    >>> line_at((0, 100), (2.0, 3.0), 50), line_at((0,), (2.0,), 50), line_at((10, 20), (2.0, 3.0), 5)
    ((2.5, 0.01), (2.0, 0.0), (2.0, 0.0))
    """
    if len(keys) == 1 or num_keys < keys[0]:
        return seconds[0], 0.0
    high = min(bisect_right(keys, num_keys), len(keys) - 1)
    below = keys[high - 1]
    slope = (seconds[high] - seconds[high - 1]) / (keys[high] - below)
    return seconds[high - 1] + slope * (num_keys - below), slope


def step_table(
    pass_s: Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]],
    *,
    rows: Sequence[float],
    keys: Sequence[float] = (0.0,),
) -> StepTable:
    """Fills a table from a function of arrays.

    Args:
        pass_s: Seconds by rows and keys, which it is given as arrays of equal shape.
        rows: Points at which it is asked; powers of two do well, for times are nearly linear between them.
        keys: The same of keys.

    >>> step_table(lambda rows, keys: 1.0 + rows * keys, rows=(1, 2), keys=(0, 10)).pass_s(2, 5)
    11.0
    """
    grid = np.meshgrid(np.asarray(rows, dtype=np.float64), np.asarray(keys, dtype=np.float64), indexing="ij")
    seconds = np.broadcast_to(pass_s(grid[0], grid[1]), grid[0].shape)
    return StepTable(
        rows=tuple(map(float, rows)),
        keys=tuple(map(float, keys)),
        seconds=tuple(tuple(map(float, row)) for row in seconds),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """All that a server's clock needs to know.

    Attributes:
        decode: A pass that adds tokens to running sequences.
        prefill: A pass over prompt tokens alone.
        shared_s: What a decode pass and a prefill pass would each spend, and a pass with both spends once: reading the
            weights, launching. Such a pass takes the sum less this, and never less than the longer of the two.
        draft: A pass of the draft model, or of a prediction head; None where drafts cost nothing.
    """

    decode: StepTable
    prefill: StepTable
    shared_s: float = 0.0
    draft: StepTable | None = None
