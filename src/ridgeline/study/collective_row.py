"""One collective by two witnesses, as a row: what the compiler has of it, what the equation has of it."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isnan, nan
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from ridgeline.hlo.collectives import Collective

Half: TypeAlias = Literal["forward", "backward"]
"""Half of a step: what is computed again, and the optimizer, belong to the backward one."""

AGREE: Final = 0.05
"""Difference, as a fraction of what is predicted, up to which two sides are taken for the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveRow:
    """One kind of collective along one set of mesh axes, of one part and phase.

    Attributes:
        kind: As HLO calls it.
        axes: Mesh axes that it lies along.
        part: Of the model; "" for none.
        phase: Of the step, by the compiler where it has any.
        found: What the compiler has of it: one of each size; empty where there is none.
        predicted_count: Runs by the equation; 0 where it has none.
        predicted_bytes: Of all runs by the equation; None where it has none.
        reason: Why the two differ; "" where they agree.
    """

    kind: str
    axes: tuple[str, ...]
    part: str
    phase: str
    found: tuple[Collective, ...] = ()
    predicted_count: float = 0.0
    predicted_bytes: float | None = None
    reason: str = ""

    @property
    def count(self) -> float:
        """Runs by the compiler."""
        return sum((each.count for each in self.found), start=0.0)

    @property
    def total_bytes(self) -> float:
        """Of all runs by the compiler; 0 where it has none."""
        return sum((each.total_bytes for each in self.found), start=0.0)

    @property
    def ratio(self) -> float:
        """The equation's bytes over the compiler's; NaN where either is missing or unknown."""
        return self.predicted_bytes / self.total_bytes if self.predicted_bytes and self.total_bytes else nan

    @property
    def half(self) -> Half:
        """The half of the step that it belongs to."""
        return half_of(self.phase)

    @property
    def agrees(self) -> bool:
        """Whether both witnesses have it, with the same bytes."""
        return agree(self.total_bytes, self.predicted_bytes or 0.0)

    @property
    def order(self) -> tuple[int, float]:
        """Missing and unexpected ones first, then what differs, then what agrees; most bytes first."""
        is_one_sided = not self.found or self.predicted_bytes is None
        moved_bytes = max(self.total_bytes, self.predicted_bytes or 0.0)
        return 0 if is_one_sided else 2 if self.agrees else 1, -inf if isnan(moved_bytes) else -moved_bytes


def half_of(phase: str) -> Half:
    """The half of the step that a phase belongs to; forward where the text does not tell.

    >>> [half_of(phase) for phase in ("forward", "recompute", "optimizer", "")]
    ['forward', 'backward', 'backward', 'forward']
    """
    return "forward" if phase in {"forward", ""} else "backward"


def agree(compiled_bytes: float, predicted_bytes: float, *, within: float = AGREE) -> bool:
    """Whether two amounts are the same but for what tiles, scalars and a peeled round of a loop add.

    >>> [agree(amount, 100.0) for amount in (97.0, 110.0, 0.0)]
    [True, False, False]
    """
    return compiled_bytes > 0 and abs(compiled_bytes - predicted_bytes) <= within * predicted_bytes
