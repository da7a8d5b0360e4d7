"""Which efficiencies whole steps may settle, how sure of each one is before, and how they enter an estimate.

Each is physical and belongs to a chip, never to a model or a shape. Its prior is what `cost/calibration/CHIP.toml`
states; a fit looks for a factor on it. Factors of the chips of one kind share a part: a chip with few measured steps
follows its relatives.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from ridgeline.cost.efficiency import Efficiency
    from ridgeline.hardware.chip import ChipKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """An efficiency that whole steps may settle.

    Attributes:
        key: In the calibration file.
        deviation: How far off the prior may be: the standard deviation of the logarithm of its factor.
        on_gpus: The same on GPUs, where it is another: kernels of other programs were timed, some on other chips.
        largest: What it cannot exceed.
        why: What only a whole step shows of it.
    """

    key: str
    deviation: float
    largest: float
    why: str
    on_gpus: float | None = None

    def deviation_on(self, kind: str) -> float:
        """How far off the prior may be on chips of a kind (`KINDS`)."""
        return self.on_gpus if kind == "GPU" and self.on_gpus is not None else self.deviation


PARAMETERS: Final = (
    Parameter(key="sustained", deviation=0.06, largest=1.15, why="clock under power, gaps of kernels", on_gpus=0.25),
    Parameter(key="sustained_narrow", deviation=0.15, largest=1.4, why="power of quantized products", on_gpus=0.25),
    Parameter(key="sustained_grouped", deviation=0.3, largest=2.0, why="kernels of programs, not the timed ones"),
    Parameter(key="attention_forward", deviation=0.02, largest=1.0, why="kernels of programs", on_gpus=0.25),
    Parameter(key="attention_backward", deviation=0.02, largest=1.0, why="kernels of programs", on_gpus=0.25),
    Parameter(key="elementwise", deviation=0.2, largest=1.0, why="which passes a compiler fuses", on_gpus=0.3),
    Parameter(key="vector", deviation=0.2, largest=1.0, why="which passes a compiler fuses", on_gpus=0.3),
    Parameter(key="hbm", deviation=0.02, largest=1.0, why="passes beside other work", on_gpus=0.2),
    Parameter(key="link", deviation=0.15, largest=1.0, why="collectives of a model beside arithmetic", on_gpus=0.3),
    Parameter(key="overlap", deviation=0.15, largest=1.0, why="what arithmetic leaves for collectives"),
    Parameter(key="unhidden", deviation=0.5, largest=1.0, why="what a layer waits for before it begins"),
    Parameter(key="unhidden_gather", deviation=0.5, largest=1.0, why="what a layer waits for before it begins"),
    Parameter(key="unhidden_sum", deviation=0.5, largest=1.0, why="what is left to sum when a layer ends"),
    Parameter(key="unhidden_network", deviation=0.5, largest=1.0, why="what waits for the network"),
    Parameter(key="tensor_overlap", deviation=0.5, largest=1.0, why="which matmuls are split to hide collectives"),
    Parameter(key="network", deviation=0.3, largest=1.0, why="sharing, congestion and messages of real runs"),
    Parameter(key="network_step_s", deviation=0.3, on_gpus=0.7, largest=0.01, why="hosts and switches of real runs"),
    Parameter(key="network_launch_s", deviation=0.7, largest=0.1, why="hosts that start a sum between slices"),
    Parameter(key="launch_s", deviation=0.5, largest=1e-3, why="hosts, and modules that wrap a kernel"),
    Parameter(key="step_overhead_s", deviation=0.7, largest=0.1, why="launch, host and input of a step"),
)
"""In the order of the files."""

KINDS: Final[tuple[ChipKind, ...]] = ("GPU", "TPU")
"""Kinds of chips."""

SHARED: Final = 0.5
"""Part of a parameter's prior variance that chips of one kind have in common; an assumption."""


def with_factors(prior: Efficiency, factors: Mapping[str, NDArray[np.float64]]) -> Efficiency:
    """A chip's efficiencies with some of them a column: its prior times each of many trial factors.

    The formulas do not look at values, so that one evaluation costs all trials. The column is cut at the parameter's
    largest value.

    Args:
        prior: Of the chip, `sustained` not yet applied.
        factors: Key to trials.
    """
    columns = {
        parameter.key: _cut(getattr(prior, parameter.key) * factors[parameter.key], parameter.largest)
        for parameter in PARAMETERS
        if parameter.key in factors
    }
    # The fields say float; to the formulas a column is as good.
    return replace(prior, **cast("dict[str, float]", columns)).in_whole_steps


def _cut(values: NDArray[np.float64], largest: float) -> NDArray[np.float64]:
    return values.clip(max=largest)
