"""The best custom remat policies of one plan: of every named value, whether to keep, offload or compute it again.

Names are decided one after another, both with the optimizer's moments on the device and with them on the host, if that
is open. After each name, a set of decisions is dropped when another is no worse in time, device memory and host memory,
whatever is decided later: what is left are the best of all 2 · 3ⁿ choices.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ridgeline.cost.training.layer import named_activations
from ridgeline.cost.training.memory import training_memory
from ridgeline.cost.training.step import training_step
from ridgeline.job.job import Remat
from ridgeline.job.remat import CUSTOM_NAMES, LAYER_INPUT, placement_columns, placements

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ridgeline.cost.columns import PlanColumns, TrainingSetting
    from ridgeline.cost.work import Number
    from ridgeline.job.job import Placement
    from ridgeline.model.operations import ModelTree

PLACEMENTS: tuple[Placement, ...] = ("remat", "device", "offload")
"""What a code in `Policies.codes` means."""

MOST_POLICIES = 3_000
"""Undominated sets of decisions that are carried on; of more, those are kept that differ by memory most evenly."""

_RESOLUTION = 1e-6
"""Relative difference below which two times, or two sizes, are the same number."""

_LEAST = 1e-30
"""Keeps a column of zeros from being divided by zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """Custom policies of one plan, a row each.

    Attributes:
        names: Checkpoint names that the model has, in the order of the columns of `codes`.
        codes: [policies, names], an index into `PLACEMENTS` each.
        moments_on_host: 1 where the optimizer's moments live on the host.
        expected_s: Step time.
        total_bytes: Memory of a device.
        needed_bytes: The same without what waits where there is room.
        host_bytes: Offloaded, per device.
    """

    names: tuple[str, ...]
    codes: NDArray[np.int8]
    moments_on_host: NDArray[np.float64]
    expected_s: NDArray[np.float64]
    total_bytes: NDArray[np.float64]
    needed_bytes: NDArray[np.float64]
    host_bytes: NDArray[np.float64]

    def __len__(self) -> int:
        """Rows."""
        return len(self.codes)

    def remat(self, row: int) -> Remat:
        """A row as a job says it; what is computed again needs no word."""
        placed = zip(self.names, self.codes[row].tolist(), strict=True)
        tensors: dict[str, Placement] = {name: PLACEMENTS[code] for name, code in placed if PLACEMENTS[code] != "remat"}
        return Remat(policy="custom", tensors=tensors)

    def rows(self, index: NDArray[np.int64]) -> Policies:
        """Some of them."""
        return replace(
            self,
            codes=self.codes[index],
            moments_on_host=self.moments_on_host[index],
            expected_s=self.expected_s[index],
            total_bytes=self.total_bytes[index],
            needed_bytes=self.needed_bytes[index],
            host_bytes=self.host_bytes[index],
        )


def best_policies(setting: TrainingSetting, plan: PlanColumns, *, most_bytes: float) -> Policies:
    """Every custom policy of a plan that no other beats in time, device memory and host memory alike.

    Args:
        setting: What all plans share; it says whether the host can be used, and whether the moments' place is open.
        plan: One plan; its own policy does not count.
        most_bytes: Device memory above which a policy is of no interest.
    """
    names, places = placeable_names(setting.tree), (0.0, 1.0) if setting.places_moments else (plan.moments_on_host,)
    undecided = np.array([[PLACEMENTS.index("device"), *(0 for _ in names[1:])]] * len(places), dtype=np.int8)
    found = cost_policies(setting, plan, names, undecided, moments_on_host=np.array(places))
    for column, name in enumerate(names):
        choices = [
            code
            for code, place in enumerate(PLACEMENTS)
            if (place != "offload" or setting.reaches_host) and (name, place) != (LAYER_INPUT, "remat")
        ]
        decided = np.repeat(found.codes, len(choices), axis=0)
        decided[:, column] = np.tile(choices, len(found))
        moments_on_host = np.repeat(found.moments_on_host, len(choices))
        costed = cost_policies(setting, plan, names, decided, moments_on_host=moments_on_host)
        # Nothing that is decided later needs less memory than this.
        fits = costed.rows(np.flatnonzero(costed.needed_bytes <= most_bytes))
        # Apart by the moments' place: their transfer takes from the host's memory, but hides behind nothing.
        found = _undominated(fits, apart=True)
    return _undominated(found, apart=False)


def placeable_names(tree: ModelTree) -> tuple[str, ...]:
    """The checkpoint names that a custom policy may place and the model has, the layer's input first."""
    there = {activation.name for layer in tree.layers for activation in named_activations(layer)}
    return (LAYER_INPUT, *(name for name in CUSTOM_NAMES if name in there and name != LAYER_INPUT))


def cost_policies(
    setting: TrainingSetting,
    plan: PlanColumns,
    names: tuple[str, ...],
    codes: NDArray[np.int8],
    *,
    moments_on_host: NDArray[np.float64] | None = None,
) -> Policies:
    """The same plan under many policies.

    Args:
        setting: What all plans share.
        plan: One plan.
        names: Checkpoint names; all others are computed again.
        codes: [policies, names], an index into `PLACEMENTS` each.
        moments_on_host: 1 where the moments live on the host; None where they are as the plan has them.
    """
    moments = np.full(len(codes), plan.moments_on_host) if moments_on_host is None else moments_on_host
    on_device, on_host = (
        {name: (codes[:, column] == PLACEMENTS.index(place)).astype(np.float64) for column, name in enumerate(names)}
        for place in ("device", "offload")
    )
    saved, offloaded = placement_columns(on_device, on_host)
    columns = replace(plan, saved={**saved, "*": 0.0}, offloaded=offloaded, moments_on_host=moments)
    memory = training_memory(setting, columns)

    def column(values: Number) -> NDArray[np.float64]:
        return np.broadcast_to(np.asarray(values, dtype=np.float64), len(codes))

    return Policies(
        names=names,
        codes=codes,
        moments_on_host=moments,
        expected_s=column(training_step(setting, columns).expected_s),
        total_bytes=column(memory.total_bytes),
        needed_bytes=column(memory.total_bytes - memory.parts["logits_waiting"]),
        host_bytes=column(memory.host_bytes),
    )


def codes_of(remat: Remat, names: tuple[str, ...]) -> NDArray[np.int8]:
    """A policy, preset or custom, as one row of codes."""
    placed = placements(remat)
    return np.array([[PLACEMENTS.index(placed[name]) for name in names]], dtype=np.int8)


def _undominated(policies: Policies, *, apart: bool) -> Policies:
    """Those that no other beats or equals in all three; of equal ones the first.

    Args:
        policies: Any.
        apart: Whether those with their moments in different places are not compared.
    """
    amounts = np.stack([policies.expected_s, policies.needed_bytes, policies.host_bytes], axis=1)
    scale = np.maximum(amounts.max(axis=0, initial=0.0), _LEAST) * _RESOLUTION
    ranks = np.array(np.rint(amounts / scale), dtype=np.int64)
    order = np.lexsort((ranks[:, 2], ranks[:, 1], ranks[:, 0]))
    places = (policies.moments_on_host * apart)[order].tolist()
    fronts: defaultdict[float, list[tuple[int, int]]] = defaultdict(list)
    sizes = zip(ranks[order, 1].tolist(), ranks[order, 2].tolist(), strict=True)
    enters = [_enters(fronts[place], size) for place, size in zip(places, sizes, strict=True)]
    index = order[np.flatnonzero(enters)]
    if len(index) > MOST_POLICIES:
        by_memory = index[np.argsort(policies.needed_bytes[index], kind="stable")]
        index = by_memory[np.linspace(0, len(index) - 1, MOST_POLICIES).astype(np.int64)]
    return policies.rows(index)


def _enters(front: list[tuple[int, int]], size: tuple[int, int]) -> bool:
    """Whether no pair of a front is as small in both numbers; if so, it takes the place of those that are larger."""
    place = bisect_right(front, size)
    if place and front[place - 1][1] <= size[1]:
        return False
    end = place
    while end < len(front) and front[end][1] >= size[1]:
        end += 1
    front[place:end] = [size]
    return True
