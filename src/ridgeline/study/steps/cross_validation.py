"""What a fit says of runs that it did not see: every scheme parts the rows, and each part is estimated by the rest."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ridgeline.cost.uncertainty import PLAIN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ridgeline.cost.uncertainty import Trait
    from ridgeline.study.measured.measurement import Measurement
    from ridgeline.study.steps.fit import Fits, Measured

BY_CLUSTER: Final = "clusters"
"""The scheme whose errors are the headline: clusters left out, a tenth at a time."""

IN_SAMPLE: Final = "in_sample"
"""No scheme: the estimates of the fit that saw every row, to compare."""

_FOLDS: Final = 10


def fold(cluster: str) -> str:
    """The tenth that a cluster belongs to, by a hash of its name: the same in every run, whatever else is measured."""
    return str(int.from_bytes(sha256(cluster.encode()).digest()[:4], "big") % _FOLDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """A way to part rows.

    Attributes:
        name: What is left out.
        trait: What the cases of a part have in common; None where they are a tenth of the clusters.
    """

    name: str
    trait: Trait | None = None

    def part(self, case: Measurement[Any, Any]) -> str:
        """Which part a case belongs to; "" where there is nothing to leave out: FSDP alone is no way to split."""
        if self.trait is None:
            return fold(case.cluster)
        value = case.traits[self.trait]
        return "" if value == PLAIN else value


SCHEMES: Final = (
    Scheme(name=BY_CLUSTER),
    Scheme(name="families", trait="model"),
    Scheme(name="scales", trait="scale"),
    Scheme(name="chips", trait="chip"),
    Scheme(name="parallelism", trait="parallelism"),
    Scheme(name="model_kinds", trait="model_kind"),
    Scheme(name="precisions", trait="precision"),
)
"""Tenths of the clusters; then, one at a time, what has a trait in common."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Folds:
    """What a cross-validation fits.

    Attributes:
        selections: True where a fit sees a row; the first fit sees all; [selections, rows].
        unseen_by: Of every scheme, the number of the fit that did not see a row; 0 where it has no part; [rows].
    """

    selections: NDArray[np.bool_]
    unseen_by: Mapping[str, NDArray[np.int64]]


def folds(rows: Sequence[Measured], schemes: Sequence[Scheme] = SCHEMES) -> Folds:
    """The selections of all schemes, behind the one that holds every row."""
    selections = [np.ones(len(rows), dtype=np.bool_)]
    unseen_by: dict[str, NDArray[np.int64]] = {}
    for scheme in schemes:
        parts = [scheme.part(row.case) for row in rows]
        unseen = np.zeros(len(rows), dtype=np.int64)
        for part in sorted(set(parts) - {""}):
            is_held_out = np.array([each == part for each in parts])
            unseen[is_held_out] = len(selections)
            selections.append(~is_held_out)
        unseen_by[scheme.name] = unseen
    return Folds(selections=np.stack(selections), unseen_by=unseen_by)


def held_out_s(fits: Fits, folded: Folds, scheme: str) -> NDArray[np.float64]:
    """Expected times of every row, by the fit that did not see its part."""
    unseen = folded.unseen_by[scheme]
    return fits.expected_s[unseen, np.arange(len(unseen))]
