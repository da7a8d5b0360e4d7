"""The best layouts of the arrays of a product: every one that fits memory, by the time of its best strategy.

During the product each mesh axis splits one dimension, or none; at rest it splits one dimension of each array, or none.
All of these are tried. What brings an operand from the one to the other depends on that operand alone, so each is
costed once, and of the layouts that reach a split only those that no other beats in time and memory are combined.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import nsmallest
from itertools import product as combinations
from typing import TYPE_CHECKING

from ridgeline.cost.layout import uneven_dim
from ridgeline.cost.resharding import reshard
from ridgeline.cost.sharded_matmul import strategy
from ridgeline.cost.strategy_cost import Setting, StrategyCost, communication_s, strategy_cost
from ridgeline.errors import InfeasibleError, InputError
from ridgeline.job.sharding import Product, ShardedArray
from ridgeline.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ridgeline.cost.resharding import Step

_MOST_AXES = 3
"""With four, a search takes seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutChoice:
    """Layouts of all arrays, with the fastest strategy for them.

    Attributes:
        product: The product with its arrays laid out.
        cost: Of the strategy.
        device_bytes: Of all arrays at rest, on one device.
    """

    product: Product
    cost: StrategyCost
    device_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutSearch:
    """What a search found.

    Attributes:
        best: The fastest layouts that fit, fastest first.
        unlimited: The fastest without a limit on memory.
        memory_bytes: The limit, of one device.
        count: Combinations that were costed.
    """

    best: tuple[LayoutChoice, ...]
    unlimited: LayoutChoice
    memory_bytes: float
    count: int
