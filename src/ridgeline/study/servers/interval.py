"""What intervals of servers are made of, and how measured servers are left out to tell how wide they must be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ridgeline.cost.serving.calibration import SERVING_TERMS
from ridgeline.cost.uncertainty import ANYTHING, EXPERTS
from ridgeline.study.steps.cross_validation import BY_CLUSTER, Scheme
from ridgeline.study.steps.evidence import IntervalModel

if TYPE_CHECKING:
    from collections.abc import Mapping

SERVER_SCHEMES: Final = (
    Scheme(name=BY_CLUSTER),
    Scheme(name="chips", trait="chip"),
    Scheme(name="engines", trait="engine"),
    Scheme(name="models", trait="model"),
    Scheme(name="precisions", trait="precision"),
)
"""Tenths of the clusters; then, one at a time, what has a trait in common."""

_UNSEEN: Final = tuple(f"unseen_{trait}" for trait in SERVING_TERMS.traits)
_TOKEN: Final[Mapping[str, float]] = {ANYTHING: 0.15, EXPERTS: 0.15, **dict.fromkeys(_UNSEEN, 0.15)}
_FIRST: Final[Mapping[str, float]] = {ANYTHING: 0.6, EXPERTS: 0.15, **dict.fromkeys(_UNSEEN, 0.4)}

SERVER_INTERVAL: Final = IntervalModel(
    terms=SERVING_TERMS,
    schemes=SERVER_SCHEMES,
    priors={series: _FIRST if series.endswith("first") else _TOKEN for series in SERVING_TERMS.series},
)
"""Half-widths before errors are looked at: equal servers of which nothing else is told differ by up to 1.3 times; first
tokens hang on how requests come."""
