"""The best layouts of the arrays of a product: every one that fits memory, by the time of its best strategy.

During the product each mesh axis splits one dimension, or none; at rest it splits one dimension of each array, or none.
All of these are tried. What brings an array from the one to the other depends on that array alone, so each is costed
once, and of the ways to reach a split only those that no other beats in both time and memory are combined.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import product as combinations
from typing import TYPE_CHECKING, Literal, TypeAlias

from ridgeline.cost.sharding.layout import uneven_dim
from ridgeline.cost.sharding.resharding import collectives_of, reshard
from ridgeline.cost.sharding.sharded_matmul import strategy
from ridgeline.cost.sharding.strategy_cost import math_s, step_cost, strategy_cost, traffic_s
from ridgeline.errors import InfeasibleError, InputError
from ridgeline.job.sharding import Product, ShardedArray
from ridgeline.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ridgeline.cost.sharding.strategy_cost import Setting, StrategyCost

Split: TypeAlias = "Mapping[str, str | None]"
"""The dimension that each mesh axis splits during the product."""

_MOST_AXES = 3
"""With four, a search would take seconds."""


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
        best: The fastest layouts that fit, fastest first; of those that cost the same in all respects, one.
        unlimited: The fastest without a limit on memory.
        memory_bytes: The limit, of one device.
        count: Layouts with strategies that were compared.
    """

    best: tuple[LayoutChoice, ...]
    unlimited: LayoutChoice
    memory_bytes: float
    count: int


def best_layouts(
    product: Product, setting: Setting, sizes: Mapping[str, float], *, memory_bytes: float, count: int
) -> LayoutSearch:
    """The fastest layouts of the arrays that are free; the others stay as they are.

    Args:
        product: Its arrays, free or not.
        setting: Their machine.
        sizes: Elements along each dimension.
        memory_bytes: What the arrays may take of a device, gathered copies and results included.
        count: How many layouts to return.

    Raises:
        InputError: More mesh axes than a search takes.
        InfeasibleError: No layout fits.
    """
    axes = [axis for axis, size in setting.machine.mesh.items() if size > 1]
    if len(axes) > _MOST_AXES:
        raise InputError(
            "too many mesh axes to search",
            where="mesh",
            value=", ".join(axes),
            expected=f"at most {_MOST_AXES} of more than one device",
            fix="join some of them into one, or write the layouts down",
        )
    found = sorted(_candidates(product, setting, sizes, axes), key=lambda each: each.rank)
    fitting = [each for each in found if each.peak_bytes <= memory_bytes]
    if not fitting:
        least = min(found, key=lambda each: each.peak_bytes)
        raise InfeasibleError(
            "no layout fits",
            reasons=[f"{least.product} takes least: {format_bytes(least.peak_bytes)} of a device"],
            fix=f"allow more than {format_bytes(memory_bytes)}, or use more devices",
        )
    distinct = {each.rank: each for each in reversed(fitting)}
    best = sorted(distinct.values(), key=lambda each: each.rank)[:count]
    return LayoutSearch(
        best=tuple(_choice(each, setting, sizes) for each in best),
        unlimited=_choice(found[0], setting, sizes),
        memory_bytes=memory_bytes,
        count=len(found),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """How one array comes from its layout to the product's, or from the product's to its own.

    Attributes:
        array: At rest.
        time_s: Of the collectives.
        rest_bytes: Of the array, on one device.
        working_bytes: Of what lies beside it on the way.
    """

    array: ShardedArray
    time_s: float
    rest_bytes: float
    working_bytes: float

    def beats(self, other: _Way) -> bool:
        """Whether it is at least as good in time and in memory."""
        return (
            self.time_s <= other.time_s
            and self.rest_bytes <= other.rest_bytes
            and self.working_bytes <= other.working_bytes
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """Layouts with a strategy.

    Attributes:
        product: With every layout.
        split: During the product.
        time_s: Of the strategy, everything overlapped.
        communication_s: Of its collectives.
        rest_bytes: Of all arrays, on one device.
        peak_bytes: The same, with gathered copies and results.
    """

    product: Product
    split: Split
    time_s: float
    communication_s: float
    rest_bytes: float
    peak_bytes: float

    @property
    def rank(self) -> tuple[float, ...]:
        """What it is compared by, without the noise of rounding."""
        figures = (self.time_s, self.communication_s, self.rest_bytes, self.peak_bytes)
        return tuple(float(f"{figure:.9g}") for figure in figures)


def _candidates(
    product: Product, setting: Setting, sizes: Mapping[str, float], axes: Sequence[str]
) -> Iterator[_Candidate]:
    left, right, output = (list(_layouts(array, axes, setting, sizes)) for array in product.arrays)

    @cache
    def brought(which: Literal["left", "right"], target: ShardedArray) -> list[_Way]:
        lying = {"left": left, "right": right}[which]
        return _unbeaten([_operand(array, target, setting, sizes) for array in lying])

    for dims in combinations((*product.dims, None), repeat=len(axes)):
        split = dict(zip(axes, dims, strict=True))
        way = strategy(_replicated(product), split)
        if way is None or any(_is_uneven(array, setting, sizes) for array in (way.left, way.right)):
            continue
        local_s = max(math_s(way, setting, sizes), traffic_s(way, setting, sizes))
        result_bytes = setting.block_bytes(way.result, sizes)
        taken = _unbeaten([_result(array, way.result, setting, sizes) for array in output])
        for a, b, c in combinations(brought("left", way.left), brought("right", way.right), taken):
            communicating_s = a.time_s + b.time_s + c.time_s
            operands_bytes = a.rest_bytes + b.rest_bytes
            multiplying_bytes = a.working_bytes + b.working_bytes + result_bytes
            yield _Candidate(
                product=Product(left=a.array, right=b.array, output=c.array),
                split=split,
                time_s=max(local_s, communicating_s),
                communication_s=communicating_s,
                rest_bytes=operands_bytes + c.rest_bytes,
                peak_bytes=operands_bytes + max(multiplying_bytes, c.working_bytes),
            )


def _layouts(
    array: ShardedArray, axes: Sequence[str], setting: Setting, sizes: Mapping[str, float]
) -> Iterator[ShardedArray]:
    """Every even layout of an array that is free; its own, if it is not."""
    if not array.is_free:
        yield array
        return
    for dims in combinations((*array.dims, None), repeat=len(axes)):
        split = dict(zip(axes, dims, strict=True))
        laid_out = array.laid_out({dim: tuple(axis for axis in axes if split[axis] == dim) for dim in array.dims})
        if not _is_uneven(laid_out, setting, sizes):
            yield laid_out


def _operand(lying: ShardedArray, multiplied: ShardedArray, setting: Setting, sizes: Mapping[str, float]) -> _Way:
    """The way of an operand to the product; it stays, and its gathered copy lies beside it."""
    steps = collectives_of(reshard(lying, multiplied))
    return _Way(
        array=lying,
        time_s=sum(step_cost(step, setting, sizes).time_s for step in steps),
        rest_bytes=setting.block_bytes(lying, sizes),
        working_bytes=setting.block_bytes(multiplied, sizes) if steps else 0.0,
    )


def _result(lying: ShardedArray, multiplied: ShardedArray, setting: Setting, sizes: Mapping[str, float]) -> _Way:
    """The way of the result to its rest; at every step it lies there twice, before and after."""
    steps = reshard(multiplied, lying)
    twice = (setting.block_bytes(step.before, sizes) + setting.block_bytes(step.after, sizes) for step in steps)
    return _Way(
        array=lying,
        time_s=sum(step_cost(step, setting, sizes).time_s for step in collectives_of(steps)),
        rest_bytes=setting.block_bytes(lying, sizes),
        working_bytes=max(twice, default=0.0),
    )


def _unbeaten(ways: Sequence[_Way]) -> list[_Way]:
    """Ways that no other beats; of equal ones the first."""
    kept: list[_Way] = []
    for way in sorted(ways, key=lambda each: (each.time_s, each.rest_bytes, each.working_bytes)):
        if not any(other.beats(way) for other in kept):
            kept.append(way)
    return kept


def _choice(candidate: _Candidate, setting: Setting, sizes: Mapping[str, float]) -> LayoutChoice:
    product = candidate.product
    way = strategy(product, candidate.split)
    if way is None:
        raise RuntimeError(f"{product} cannot be computed by {candidate.split}")
    return LayoutChoice(
        product=product,
        cost=strategy_cost(1, way, setting, sizes),
        device_bytes=sum(setting.block_bytes(array, sizes) for array in product.arrays),
    )


def _replicated(product: Product) -> Product:
    """The product with nothing split, so that a split alone decides how it is computed."""
    left, right, output = (array.laid_out({}) for array in product.arrays)
    return Product(left=left, right=right, output=output)


def _is_uneven(array: ShardedArray, setting: Setting, sizes: Mapping[str, float]) -> bool:
    return uneven_dim(array, sizes=sizes, mesh=setting.machine.mesh) is not None
