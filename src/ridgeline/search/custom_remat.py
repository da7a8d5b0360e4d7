"""The best custom remat policies of one plan: of every named value, whether to keep, offload or compute it again.

Names are decided one after another. After each, a set of decisions is dropped when another is no worse in time,
device memory and host memory, whatever is decided later: what is left are the best of all 3ⁿ policies.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ridgeline.cost.layer import named_activations
from ridgeline.cost.memory import training_memory
from ridgeline.cost.training import training_step
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
        expected_s: Step time.
        total_bytes: Memory of a device.
        needed_bytes: The same without what waits where there is room.
        host_bytes: Offloaded, per device.
    """

    names: tuple[str, ...]
    codes: NDArray[np.int8]
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
            expected_s=self.expected_s[index],
            total_bytes=self.total_bytes[index],
            needed_bytes=self.needed_bytes[index],
            host_bytes=self.host_bytes[index],
        )


def best_policies(setting: TrainingSetting, plan: PlanColumns, *, offloads: bool, most_bytes: float) -> Policies:
    """Every custom policy of a plan that no other beats in time, device memory and host memory alike.

    Args:
        setting: What all plans share.
        plan: One plan; its own policy does not count.
        offloads: Whether the host can be used.
        most_bytes: Device memory above which a policy is of no interest.
    """
    names = placeable_names(setting.tree)
    undecided = np.array([[PLACEMENTS.index("device"), *(0 for _ in names[1:])]], dtype=np.int8)
    found = cost_policies(setting, plan, names, undecided)
    for column, name in enumerate(names):
        choices = [
            code
            for code, place in enumerate(PLACEMENTS)
            if (place != "offload" or offloads) and (name, place) != (LAYER_INPUT, "remat")
        ]
        decided = np.repeat(found.codes, len(choices), axis=0)
        decided[:, column] = np.tile(choices, len(found))
        costed = cost_policies(setting, plan, names, decided)
        # Nothing that is decided later needs less memory than this.
        found = _undominated(costed.rows(np.flatnonzero(costed.needed_bytes <= most_bytes)))
        if len(found) == 0:
            break
    return found


def placeable_names(tree: ModelTree) -> tuple[str, ...]:
    """The checkpoint names that a custom policy may place and the model has, the layer's input first."""
    there = {activation.name for layer in tree.layers for activation in named_activations(layer)}
    return (LAYER_INPUT, *(name for name in CUSTOM_NAMES if name in there and name != LAYER_INPUT))


def cost_policies(
    setting: TrainingSetting, plan: PlanColumns, names: tuple[str, ...], codes: NDArray[np.int8]
) -> Policies:
    """The same plan under many policies.

    Args:
        setting: What all plans share.
        plan: One plan.
        names: Checkpoint names; all others are computed again.
        codes: [policies, names], an index into `PLACEMENTS` each.
    """
    on_device, on_host = (
        {name: (codes[:, column] == PLACEMENTS.index(place)).astype(np.float64) for column, name in enumerate(names)}
        for place in ("device", "offload")
    )
    saved, offloaded = placement_columns(on_device, on_host)
    columns = replace(plan, saved={**saved, "*": 0.0}, offloaded=offloaded)
    memory = training_memory(setting, columns)

    def column(values: Number) -> NDArray[np.float64]:
        return np.broadcast_to(np.asarray(values, dtype=np.float64), len(codes))

    return Policies(
        names=names,
        codes=codes,
        expected_s=column(training_step(setting, columns).expected_s),
        total_bytes=column(memory.total_bytes),
        needed_bytes=column(memory.total_bytes - memory.parts["logits_waiting"]),
        host_bytes=column(memory.host_bytes),
    )


def codes_of(remat: Remat, names: tuple[str, ...]) -> NDArray[np.int8]:
    """A policy, preset or custom, as one row of codes."""
    placed = placements(remat)
    return np.array([[PLACEMENTS.index(placed[name]) for name in names]], dtype=np.int8)


def _undominated(policies: Policies) -> Policies:
    """Those that no other beats or equals in all three; of equal ones the first."""
    amounts = np.stack([policies.expected_s, policies.needed_bytes, policies.host_bytes], axis=1)
    scale = np.maximum(amounts.max(axis=0, initial=0.0), _LEAST) * _RESOLUTION
    ranks = np.array(np.rint(amounts / scale), dtype=np.int64)
    order = np.lexsort((ranks[:, 2], ranks[:, 1], ranks[:, 0]))
    front: NDArray[np.int64] = np.empty((0, 3), dtype=np.int64)
    kept: list[int] = []
    for row in order.tolist():
        if not np.any(np.all(front <= ranks[row], axis=1)):
            kept.append(row)
            front = np.vstack((front, ranks[row : row + 1]))
    index = np.array(kept, dtype=np.int64)
    if len(index) > MOST_POLICIES:
        by_memory = index[np.argsort(policies.needed_bytes[index], kind="stable")]
        index = by_memory[np.linspace(0, len(index) - 1, MOST_POLICIES).astype(np.int64)]
    return policies.rows(index)
