"""What measured servers may settle, how sure of each one is before, and how trial values enter an estimate."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

from ridgeline.cost.serving.efficiency import LARGEST
from ridgeline.study.steps.parameters import Parameter

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from ridgeline.cost.serving.efficiency import ServingEfficiency

_SURE: Final[Mapping[str, tuple[float, str]]] = {
    "weights": (0.1, "matrices are read by many short kernels"),
    "experts": (0.2, "each expert is a small matrix"),
    "balance": (0.3, "the fullest device is waited for"),
    "cache": (0.2, "sequences are read by pages"),
    "arithmetic": (0.2, "clock under power, kernels of engines"),
    "grouped": (0.2, "kernels for experts"),
    "widened": (0.3, "kernels that widen weights on their way"),
    "link": (0.2, "collectives of engines"),
    "kernel_s": (0.5, "programs that are replayed, kernels that are fused"),
    "collective_s": (0.7, "kernels of engines for few bytes"),
    "launch_s": (0.6, "what runs beside attention is replayed, too, by some engines"),
    "host_s": (0.7, "what an engine schedules ahead"),
    "sequence_s": (1.0, "what an engine does for each sequence"),
    "first_s": (0.8, "servers, tokenizers, queues"),
}

SERVING_PARAMETERS: Final = tuple(
    Parameter(key=key, deviation=deviation, largest=LARGEST[key], why=why) for key, (deviation, why) in _SURE.items()
)
"""In the order of the files."""


def with_serving_factors(prior: ServingEfficiency, factors: Mapping[str, NDArray[np.float64]]) -> ServingEfficiency:
    """A prior with each number a column: its value times each of many trial factors, cut at the largest.

    Args:
        prior: Of the kind of chip.
        factors: Key to trials.
    """
    columns = {
        parameter.key: (getattr(prior, parameter.key) * factors[parameter.key]).clip(max=parameter.largest)
        for parameter in SERVING_PARAMETERS
        if parameter.key in factors
    }
    # The fields say float; to the formulas a column is as good.
    return replace(prior, **cast("dict[str, float]", columns))
