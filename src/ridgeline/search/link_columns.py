"""The wiring of many meshes as columns."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

import numpy as np

from ridgeline.cost.collectives import Link

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_FIELDS = tuple(field.name for field in fields(Link))


def stacked_links(links: Sequence[Link]) -> Link:
    """The links of many meshes as one link of columns."""
    return Link(**{name: np.array([getattr(link, name) for link in links], dtype=np.float64) for name in _FIELDS})


def taken_links(link: Link, mesh: NDArray[np.int64]) -> Link:
    """The link's columns by plan instead of by mesh."""
    return Link(**{name: getattr(link, name)[mesh] for name in _FIELDS})
