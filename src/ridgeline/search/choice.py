"""Which plan to recommend, which rivals to show, and what makes each of them slower."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ridgeline.cost.causes import time_by_cause
from ridgeline.search.answer import Rejected
from ridgeline.search.estimate import TIGHT
from ridgeline.units import format_bytes, format_fraction, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from ridgeline.search.answer import PlanEstimate
    from ridgeline.search.plans import PlanTable

MOST_ALTERNATIVES = 5
"""Rivals shown."""

COMPLEXITY: Mapping[str, float] = {
    "fsdp_transpose": 0.5,
    "tp": 1.0,
    "tp_sequence": 1.0,
    "cp": 1.0,
    "ep": 1.0,
    "pp": 1.5,
    "dcn_fsdp": 0.5,
    "dcn_pp": 1.5,
}
"""What a parallel axis costs in simplicity when plans tie; 0 if not named.

Splitting the batch (dp, fsdp, dp across slices) is where everyone starts. The other axes split what one sequence
computes and are taken up when they pay; a pipeline also needs microbatches and a schedule; fsdp across slices
puts the slow network on every layer's path."""

BOTH_BATCH_AXES = 0.5
"""What dp and fsdp together cost over either alone."""

EQUAL_TIE = 1e-3
"""Relative difference below which equally simple plans are told apart by their micro-steps, the fewer the better."""

MOMENTS_TIE = 0.02
"""Time that a plan with the optimizer's moments on the host must save to be preferred to one without."""

MEMORY_BOUND = 0.10
"""Time that a plan which does not fit must save for memory capacity to be what binds."""

MOST_CAUSES = 2
"""Causes named for each rival."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What every row of a search costs.

    Attributes:
        expected_s: Step time.
        total_bytes: Peak memory of a device.
        host_bytes: Offloaded, per device.
    """

    expected_s: NDArray[np.float64]
    total_bytes: NDArray[np.float64]
    host_bytes: NDArray[np.float64]

    def followed_by(self, other: Costs) -> Costs:
        """These, and behind them those of other rows."""
        return Costs(
            expected_s=np.concatenate([self.expected_s, other.expected_s]),
            total_bytes=np.concatenate([self.total_bytes, other.total_bytes]),
            host_bytes=np.concatenate([self.host_bytes, other.host_bytes]),
        )


def fitting_rows(costs: Costs, *, usable_bytes: float, host_usable_bytes: float | None) -> NDArray[np.bool_]:
    """Rows below the tight band; if there are none, those up to the limit; if none, those in the band above it."""
    room_on_host = True if host_usable_bytes is None else costs.host_bytes <= host_usable_bytes
    known = np.isfinite(costs.expected_s) & room_on_host
    rows = known & (costs.total_bytes <= (1 - TIGHT) * usable_bytes)
    for limit_bytes in (usable_bytes, (1 + TIGHT) * usable_bytes):
        if bool(rows.any()):
            break
        rows = known & (costs.total_bytes <= limit_bytes)
    return rows


def simplest_of_the_fastest(table: PlanTable, costs: Costs, fits: NDArray[np.bool_], *, tie_fraction: float) -> int:
    """The recommended row: of the plans as fast as the estimate can tell, the one closest to plain data parallelism.

    Args:
        table: The plans.
        costs: Their costs.
        fits: Rows to choose from; at least one.
        tie_fraction: Relative difference of two estimates below which they are a tie.
    """
    expected_s = np.where(fits, costs.expected_s, np.inf)
    tied = expected_s <= expected_s.min() * (1 + tie_fraction)
    burden = np.array([complexity(mesh.parallel_axes) for mesh in table.meshes])[table.mesh]
    least = np.where(tied, burden, np.inf).min()
    preferred_s = to_prefer_s(expected_s, moments_on_host=table.moments_on_host)
    preferred_s = np.where(tied & (burden == least), preferred_s, np.inf)
    equal = preferred_s <= preferred_s.min() * (1 + EQUAL_TIE)
    fewest = np.where(equal, table.accumulation, np.inf).min()
    return int(np.where(equal & (table.accumulation == fewest), preferred_s, np.inf).argmin())


def to_prefer_s(expected_s: NDArray[np.float64], *, moments_on_host: NDArray[np.float64]) -> NDArray[np.float64]:
    """Step times to choose by: those of plans with moments on the host a little longer than they are.

    >>> to_prefer_s(np.array([10.0, 9.0]), moments_on_host=np.array([0.0, 1.0])).tolist()
    [10.0, 9.18]
    """
    return expected_s * (1 + MOMENTS_TIE * moments_on_host)


def complexity(parallel_axes: tuple[str, ...]) -> float:
    """How far a mesh is from plain data parallelism.

    >>> [complexity(axes) for axes in [("fsdp",), ("dp", "fsdp"), ("cp",), ("fsdp", "cp"), ("fsdp", "pp")]]
    [0.0, 0.5, 1.0, 1.0, 1.5]
    """
    both = BOTH_BATCH_AXES if {"dp", "fsdp"} <= set(parallel_axes) else 0.0
    return both + sum(COMPLEXITY.get(axis, 0.0) for axis in parallel_axes)


def held_by_memory(
    best: PlanEstimate, costs: Costs, fits: NDArray[np.bool_], *, roomless_s: float, roomless_bytes: float
) -> PlanEstimate:
    """The best plan, bound by memory capacity if what does not fit is that much faster than all that fits.

    Args:
        best: The recommended plan.
        costs: Of every row.
        fits: Rows that fit.
        roomless_s: The fastest step time among plans that do not fit.
        roomless_bytes: What that plan needs on a device.
    """
    fastest_s = float(costs.expected_s[fits].min())
    if roomless_s > fastest_s * (1 - MEMORY_BOUND):
        return best
    faster, needed = format_fraction(1 - roomless_s / fastest_s), format_bytes(roomless_bytes)
    held = f"a plan that takes {faster} less needs {needed} of {format_bytes(best.memory.usable_bytes)} a device"
    reason = f"{held}; of this one {best.bound_reason}"
    return replace(best, bound="memory_capacity", bound_reason=reason, held=best.bound)


def rivals(table: PlanTable, costs: Costs, fits: NDArray[np.bool_], best: int) -> list[int]:
    """The rows to show beside the best, fastest first.

    For every axis the best does without, the fastest plan that adds it alone ("why not tp?"); then the best's
    mesh under other remat policies, or with its moments elsewhere; then other sets of axes.
    """
    sets = [_kind(mesh.parallel_axes) for mesh in table.meshes]
    chosen, policy = sets[int(table.mesh[best])], _policy(table, best)
    order = fastest_first(costs.expected_s, fits)
    numbers = {axes: number for number, axes in enumerate(dict.fromkeys(sets))}
    by_axis: dict[str, int] = {}
    by_axes: list[int] = []
    for row in first_of_each(np.array([numbers[axes] for axes in sets])[table.mesh[order]], order):
        added = [axis for axis in sets[int(table.mesh[row])] if axis not in chosen]
        if len(added) == 1 and added[0] not in by_axis:
            by_axis[added[0]] = row
        elif sets[int(table.mesh[row])] != chosen:
            by_axes.append(row)
    ours = order[table.mesh[order] == table.mesh[best]]
    kept = 2 * table.remat[ours] + table.moments_on_host[ours].astype(np.int64)
    by_policy = [row for row in first_of_each(kept, ours) if _policy(table, row) != policy]
    found = list(dict.fromkeys([*by_axis.values(), *by_policy, *by_axes]))[:MOST_ALTERNATIVES]
    return sorted(found, key=lambda row: costs.expected_s[row])


def fastest_first(expected_s: NDArray[np.float64], fits: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The rows that fit, in the order of their step times."""
    rows = np.flatnonzero(fits)
    return rows[np.argsort(expected_s[rows], kind="stable")]


def first_of_each(kinds: NDArray[np.int64], rows: NDArray[np.int64]) -> list[int]:
    """Of some rows the first of each kind, in the order they stand in; kinds are small numbers from 0 on.

    >>> first_of_each(np.array([3, 0, 3, 0]), np.array([40, 30, 20, 10]))
    [40, 30]
    """
    places = np.arange(len(rows))
    first = np.zeros(kinds.max(initial=0) + 1, dtype=np.int64)
    first[kinds[::-1]] = places[::-1]  # the last to be written stays
    return rows[first[kinds] == places].tolist()


def slower_because(rival: PlanEstimate, best: PlanEstimate) -> str:
    """The largest causes that cost a rival more time than the best, in words."""
    ours, theirs = time_by_cause(best.step.parts), time_by_cause(rival.step.parts)
    more = {cause: theirs.get(cause, 0.0) - ours.get(cause, 0.0) for cause in {*ours, *theirs}}
    gap_s = rival.step.expected_s - best.step.expected_s
    if gap_s < 0:
        faster = format_fraction(-gap_s / best.step.expected_s)
        return f"{faster} faster on paper, less than the estimate resolves; {_extra(rival, best)}"
    causes = sorted(more.items(), key=lambda item: -item[1])[:MOST_CAUSES]
    named = [f"{cause} +{format_seconds(time_s)}" for cause, time_s in causes if time_s > gap_s * 0.05]
    return ", ".join(named) or "nothing: it costs the same and is less simple"


def unfit_families(
    table: PlanTable, costs: Costs, *, usable_bytes: float, host_usable_bytes: float | None
) -> Iterator[Rejected]:
    """Sets of parallel axes of which no plan fits, with the least memory any of them needs; simplest first."""
    ratios = wanted_ratios(costs, usable_bytes=usable_bytes, host_usable_bytes=host_usable_bytes)
    least = least_of_each_mesh(table, ratios)
    plans = np.bincount(table.mesh, minlength=len(table.meshes))
    found: dict[tuple[str, ...], tuple[float, int, int]] = {}
    for index, mesh in enumerate(table.meshes):
        ratio, row, count = found.get(mesh.parallel_axes, (np.inf, 0, 0))
        own = float(ratios[least[index]]) if plans[index] else np.inf
        best = (own, int(least[index])) if own < ratio else (ratio, row)
        found[mesh.parallel_axes] = *best, count + int(plans[index])
    for axes, (ratio, row, count) in sorted(found.items(), key=lambda item: (len(item[0]), item[1])):
        if count == 0:
            yield Rejected(family=_family(axes), reason="no microbatch count divides the batch", plans=0)
        elif ratio > 1:
            needed = wanted_in_words(
                float(costs.total_bytes[row]),
                float(costs.host_bytes[row]),
                usable_bytes=usable_bytes,
                host_usable_bytes=host_usable_bytes,
            )
            yield Rejected(family=_family(axes), reason=f"needs at least {needed}", plans=count)


def least_of_each_mesh(table: PlanTable, amounts: NDArray[np.float64]) -> NDArray[np.int64]:
    """Of the rows of each mesh the one with the least of something; 0 for a mesh without rows."""
    falling = np.argsort(-amounts, kind="stable")
    least = np.zeros(len(table.meshes), dtype=np.int64)
    least[table.mesh[falling]] = falling  # the last to be written stays
    return least


def wanted_ratios(costs: Costs, *, usable_bytes: float, host_usable_bytes: float | None) -> NDArray[np.float64]:
    """What each row needs over what there is; 1 where it fits, and more by what it lacks of its device and its host."""
    of_device = np.maximum(costs.total_bytes / ((1 + TIGHT) * usable_bytes), 1.0)
    if host_usable_bytes is None:
        return of_device
    return of_device + np.maximum(costs.host_bytes / host_usable_bytes, 1.0) - 1.0


def wanted_in_words(
    needed_bytes: float, host_bytes: float, *, usable_bytes: float, host_usable_bytes: float | None
) -> str:
    """What a plan that does not fit needs of what is shorter.

    >>> wanted_in_words(90 * 2**30, 2**38, usable_bytes=95 * 2**30, host_usable_bytes=2**37)
    '256 GiB of 128 GiB of host memory a device'
    """
    if host_usable_bytes is None or needed_bytes / usable_bytes > host_bytes / host_usable_bytes:
        return f"{format_bytes(needed_bytes)} of {format_bytes(usable_bytes)} a device"
    return f"{format_bytes(host_bytes)} of {format_bytes(host_usable_bytes)} of host memory a device"


def refused_families(refused: Mapping[tuple[str, str], int]) -> Iterator[Rejected]:
    """Degrees that no plan could have, with the rule they break."""
    for (family, reason), times in refused.items():
        yield Rejected(family=family, reason=reason, plans=times)


def _policy(table: PlanTable, row: int) -> tuple[str, bool]:
    """What a row keeps where: its remat policy, and whether its moments are on the host."""
    return table.remat_of(row).policy, bool(table.moments_on_host[row])


def _kind(axes: tuple[str, ...]) -> tuple[str, ...]:
    """The axes with both kinds of tensor parallelism called one: they cost the same."""
    return tuple("tp" if axis == "tp_sequence" else axis for axis in axes)


def _family(axes: tuple[str, ...]) -> str:
    if not axes:
        return "no parallelism"
    return f"{axes[0]} only" if len(axes) == 1 else " + ".join(axes)


def _extra(rival: PlanEstimate, best: PlanEstimate) -> str:
    """What a faster rival has that the simpler best does without."""
    axes = [axis for axis in rival.plan.mesh if axis not in best.plan.mesh]
    parts = [f"needs {' and '.join(axes)}"] if axes else []
    if rival.plan.gradient_accumulation > best.plan.gradient_accumulation:
        parts.append(f"{rival.plan.gradient_accumulation} micro-steps")
    return ", ".join(parts) or "less simple"
