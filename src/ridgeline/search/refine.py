"""From presets to the best custom policy: the plans that a search would choose among, each with the policy made for it.

A search over all meshes knows the presets alone. The few plans that lead it are costed again under every custom
policy, and with the optimizer's moments in either place if that is open; where the best of these is faster by more than
`POLICY_TIE`, the plan is listed with it too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ridgeline.search.choice import Costs, fastest_first, first_of_each, to_prefer_s
from ridgeline.search.custom_remat import PLACEMENTS, best_policies
from ridgeline.search.estimate import TIGHT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from ridgeline.cost.columns import TrainingSetting
    from ridgeline.search.custom_remat import Policies
    from ridgeline.search.plans import PlanTable

MOST_PLANS = 8
"""Ways to feed the chosen mesh, other meshes of its axes, and other meshes, that are refined."""

POLICY_TIE = 0.01
"""Time that a custom policy must save on a plan to be preferred to a preset."""

_EQUAL = 1e-3
"""Relative difference of step times below which the policy that places fewer values is taken."""


def refined(
    setting: TrainingSetting, table: PlanTable, costs: Costs, leaders: Iterable[int]
) -> tuple[PlanTable, Costs]:
    """The plans of a search and, behind them, the leading ones under the custom policies made for them.

    Args:
        setting: What all plans share.
        table: The plans.
        costs: Their costs.
        leaders: Rows to refine.
    """
    rows: list[int] = []
    found: list[Policies] = []
    to_beat_s = to_prefer_s(costs.expected_s, moments_on_host=table.moments_on_host)
    for row in _fastest_under_any_policy(table, to_beat_s, leaders):
        policies = custom_policies(setting, table, row)
        if len(policies) and _time_to_prefer_s(policies)[0] < (1 - POLICY_TIE) * to_beat_s[row]:
            rows.append(row)
            found.append(policies.rows(np.array([0])))
    if not rows:
        return table, costs
    custom = table.rows(np.array(rows)).with_policies(
        [policies.remat(0) for policies in found],
        moments_on_host=np.concatenate([policies.moments_on_host for policies in found]),
    )
    longer = Costs(
        expected_s=np.concatenate([policies.expected_s for policies in found]),
        total_bytes=np.concatenate([policies.total_bytes for policies in found]),
        host_bytes=np.concatenate([policies.host_bytes for policies in found]),
    )
    return table.followed_by(custom), costs.followed_by(longer)


def _fastest_under_any_policy(table: PlanTable, to_beat_s: NDArray[np.float64], rows: Iterable[int]) -> list[int]:
    """Of rows that differ by what they keep alone the fastest: they have the same custom policies."""
    fastest: dict[tuple[float, ...], int] = {}
    for row in dict.fromkeys(rows):
        plan = (int(table.mesh[row]), *(float(feed[row]) for feed in _feeds(table)))
        if plan not in fastest or to_beat_s[row] < to_beat_s[fastest[plan]]:
            fastest[plan] = row
    return list(fastest.values())


def _feeds(table: PlanTable) -> tuple[NDArray[np.float64], ...]:
    """How the batch is cut in time, by row."""
    return table.accumulation, table.microbatches, table.repeats, table.gather_once


def _time_to_prefer_s(policies: Policies) -> NDArray[np.float64]:
    return to_prefer_s(policies.expected_s, moments_on_host=policies.moments_on_host)


def leading(table: PlanTable, costs: Costs, fits: NDArray[np.bool_], chosen: int) -> list[int]:
    """The rows to refine: of the chosen mesh every way to feed it, of the fastest other meshes the fastest row.

    Meshes of the chosen one's axes have places of their own: they are as simple, so any of them may yet win.
    """
    order = fastest_first(costs.expected_s, fits)
    ours = order[table.mesh[order] == table.mesh[chosen]]
    _, feeds = np.unique(np.stack([feed[ours] for feed in _feeds(table)], axis=1), axis=0, return_inverse=True)
    axes = table.meshes[int(table.mesh[chosen])].parallel_axes
    alike = order[np.array([mesh.parallel_axes == axes for mesh in table.meshes])[table.mesh[order]]]
    found = [(feeds, ours), (table.mesh[alike], alike), (table.mesh[order], order)]
    return [row for kinds, rows in found for row in first_of_each(kinds, rows)[:MOST_PLANS]]


def custom_policies(setting: TrainingSetting, table: PlanTable, row: int) -> Policies:
    """The undominated custom policies of a plan that fit, fastest first; of equally fast ones the plainest first."""
    policies = best_policies(setting, table.row(row), most_bytes=(1 - TIGHT) * setting.usable_hbm_bytes)
    if (most_host_bytes := setting.host_usable_bytes) is not None:
        policies = policies.rows(np.flatnonzero(policies.host_bytes <= most_host_bytes))
    if len(policies) == 0:
        return policies
    placed = (policies.codes != PLACEMENTS.index("remat")).sum(axis=1)
    times_s = _time_to_prefer_s(policies)
    steps = np.floor(np.log(times_s / times_s.min()) / _EQUAL)
    return policies.rows(np.lexsort((times_s, placed, steps)))
