"""The answer to what bounds one operation: its resources, its bounds, and the sizes from which compute binds."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, nan
from typing import TYPE_CHECKING, Literal, TypeAlias, assert_never

if TYPE_CHECKING:
    from ridgeline.cost.explain import Derivation
    from ridgeline.cost.questions.operation_demand import Crossover
    from ridgeline.job.operation import OperationQuestion

Resource: TypeAlias = Literal["compute", "hbm", "vmem", "host", "link"]
"""What an operation can wait for; `link` joins chips."""

Bound: TypeAlias = Resource | Literal["unknown"]
"""What it waits for; unknown where a rate is."""

Limit: TypeAlias = Literal["compute", "memory", "communication", "unknown"]
"""The same, as rooflines are spoken of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Bytes over one memory or link, and what they mean for the operation.

    Attributes:
        resource: Which.
        traffic_bytes: Per chip; of a link, over the busiest one.
        bytes_per_s: Its rate.
        transfer_s: Their time.
        intensity_flops_per_byte: FLOPs per byte of it.
        ridge_flops_per_byte: From which the operation does not wait for it.
        crossovers: The sizes from which that is so.
        derivations: Where the numbers come from.
    """

    resource: Resource
    traffic_bytes: float
    bytes_per_s: float
    transfer_s: float
    intensity_flops_per_byte: float
    ridge_flops_per_byte: float
    crossovers: tuple[Crossover, ...]
    derivations: tuple[Derivation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticalSize:
    """A size from which an operation is compute-bound.

    Attributes:
        letter: Which size.
        exact_size: The crossover; infinite where no size is large enough.
        rule_size: By the rule for small batches; NaN where there is none.
        resource: What the operation waits for below it.
    """

    letter: str
    exact_size: float
    rule_size: float
    resource: Resource


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptSize:
    """The roofline at one value of a swept size.

    Attributes:
        size: The value.
        intensity_flops_per_byte: There.
        lower_s: Least time.
        attained_flops_per_s: Most FLOPs a second.
        bound: What binds.
    """

    size: int
    intensity_flops_per_byte: float
    lower_s: float
    attained_flops_per_s: float
    bound: Bound


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationRoofline:
    """What bounds an operation.

    Attributes:
        question: What was asked.
        num_chips: Chips that share the operation.
        flops: Of one chip.
        exact_flops: Of a matmul, the sums counted to the last.
        read_bytes: Of all memories; NaN where the question does not tell reading from writing.
        written_bytes: Of all memories; NaN likewise.
        small_batch_intensity_flops_per_byte: While the weights are all the traffic; NaN without weights.
        peak_flops_per_s: Of the unit that computes; NaN where it is not known.
        compute_s: Time of the arithmetic.
        traffic: Every memory and link, in the order in which data comes.
        lower_s: Least time: everything overlaps.
        upper_s: Most time, at peak rates: nothing overlaps.
        bound: The slowest resource.
        critical: Sizes from which compute is, for all memories and links together.
        sweep: The same for every value of a swept size.
        notes: What was taken for granted, and what the numbers do not say.
        derivations: Where the numbers come from.
    """

    question: OperationQuestion
    num_chips: int
    flops: float
    exact_flops: float
    read_bytes: float
    written_bytes: float
    small_batch_intensity_flops_per_byte: float
    peak_flops_per_s: float
    compute_s: float
    traffic: tuple[Traffic, ...]
    lower_s: float
    upper_s: float
    bound: Bound
    critical: tuple[CriticalSize, ...]
    sweep: tuple[SweptSize, ...]
    notes: tuple[str, ...]
    derivations: tuple[Derivation, ...]

    @property
    def slowest(self) -> Traffic | None:
        """The memory or link that takes longest; None for an operation that moves nothing."""
        return max(self.traffic, key=lambda each: each.transfer_s, default=None)

    @property
    def link(self) -> Traffic | None:
        """The exchange of partial results; None on one chip."""
        return next((each for each in self.traffic if each.resource == "link"), None)

    @property
    def traffic_bytes(self) -> float:
        """Bytes of all memories together, links left out."""
        return sum(each.traffic_bytes for each in self.traffic if each.resource != "link")

    @property
    def transfer_s(self) -> float:
        """Time of the slowest memory or link."""
        return 0.0 if self.slowest is None else self.slowest.transfer_s

    @property
    def intensity_flops_per_byte(self) -> float:
        """FLOPs per byte of the slowest memory or link."""
        return inf if self.slowest is None else self.slowest.intensity_flops_per_byte

    @property
    def ridge_flops_per_byte(self) -> float:
        """The intensity from which the operation does not wait for it."""
        return nan if self.slowest is None else self.slowest.ridge_flops_per_byte

    @property
    def attained_flops_per_s(self) -> float:
        """The most FLOPs a second of one chip."""
        return self.flops / self.lower_s if self.lower_s else 0.0

    @property
    def bounds_ratio(self) -> float:
        """The most time over the least."""
        return self.upper_s / self.lower_s if self.lower_s else 1.0

    @property
    def largest_bounds_ratio(self) -> float:
        """What that can be at most: the number of resources."""
        return 1.0 + len(self.traffic)

    @property
    def bounds_agree(self) -> bool:
        """Whether most and least are no further apart than that."""
        return self.bounds_ratio <= self.largest_bounds_ratio

    @property
    def peak_fraction(self) -> float:
        """The most FLOPs a second over the peak."""
        return self.attained_flops_per_s / self.peak_flops_per_s

    @property
    def is_compute_bound(self) -> bool:
        """Whether arithmetic takes longest."""
        return self.bound == "compute"

    @property
    def limit(self) -> Limit:
        """What binds, as rooflines are spoken of."""
        match self.bound:
            case "compute" | "unknown":
                return self.bound
            case "link":
                return "communication"
            case "hbm" | "vmem" | "host":
                return "memory"
            case _:
                assert_never(self.bound)
