"""Memory against step time of one plan, policy by policy, and what each named value is worth to it."""

from __future__ import annotations

from dataclasses import replace
from math import nan
from typing import TYPE_CHECKING

import numpy as np

from ridgeline.cost.training.memory import training_memory
from ridgeline.cost.training.step import training_step
from ridgeline.job.remat import LAYER_INPUT
from ridgeline.search.answer import MOMENTS, KeptValue, RematAnswer, RematChoice
from ridgeline.search.custom_remat import PLACEMENTS, best_policies, codes_of, cost_policies, placeable_names
from ridgeline.search.estimate import verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ridgeline.cost.columns import PlanColumns, TrainingSetting
    from ridgeline.job.job import Remat
    from ridgeline.search.custom_remat import Policies

BEYOND = 2.0
"""How far beyond the usable memory the frontier is drawn: what more memory would buy."""

_REMAT, _DEVICE, _OFFLOAD = (PLACEMENTS.index(place) for place in ("remat", "device", "offload"))


def remat_answer(setting: TrainingSetting, plan: PlanColumns, chosen: Remat, presets: Sequence[Remat]) -> RematAnswer:
    """The frontier of a plan's custom policies, its presets, and the worth of each value under the chosen policy.

    Args:
        setting: What all plans share.
        plan: The plan; its own policy does not count, the place of its moments counts for presets and values.
        chosen: The policy it was given.
        presets: To be shown on the frontier.
    """
    names = placeable_names(setting.tree)
    found = best_policies(setting, plan, most_bytes=BEYOND * setting.usable_hbm_bytes)
    if (most_host_bytes := setting.host_usable_bytes) is not None:
        found = found.rows(np.flatnonzero(found.host_bytes <= most_host_bytes))
    listed = [preset for preset in presets if preset.policy not in {"none", "custom"}]
    codes = [codes_of(preset, names) for preset in listed]
    costed = cost_policies(setting, plan, names, np.concatenate(codes)) if codes else found.rows(np.array([], np.int64))
    return RematAnswer(
        frontier=tuple(_choice(setting, found, row, found.remat(row)) for row in _frontier(found)),
        presets=tuple(_choice(setting, costed, row, preset) for row, preset in enumerate(listed)),
        values=() if chosen.policy == "none" else (*_values(setting, plan, chosen, names), _moments(setting, plan)),
    )


def _frontier(policies: Policies) -> Iterator[int]:
    """The rows that are faster than all that need less memory."""
    best_s = np.inf
    for row in np.lexsort((policies.expected_s, policies.needed_bytes)).tolist():
        if policies.expected_s[row] < best_s:
            best_s = policies.expected_s[row]
            yield row


def _choice(setting: TrainingSetting, policies: Policies, row: int, remat: Remat) -> RematChoice:
    return RematChoice(
        remat=remat,
        optimizer_state="host" if policies.moments_on_host[row] else "device",
        expected_s=float(policies.expected_s[row]),
        needed_bytes=float(policies.needed_bytes[row]),
        host_bytes=float(policies.host_bytes[row]),
        verdict=verdict(float(policies.needed_bytes[row]), setting.usable_hbm_bytes),
    )


def _values(setting: TrainingSetting, plan: PlanColumns, chosen: Remat, names: tuple[str, ...]) -> Iterator[KeptValue]:
    """Each name by itself on the device, on the host and computed again, the others as they are."""
    codes = np.repeat(codes_of(chosen, names), 3 * len(names), axis=0)
    for column in range(len(names)):
        codes[3 * column : 3 * column + 3, column] = (_DEVICE, _REMAT, _OFFLOAD)
    tried = cost_policies(setting, plan, names, codes)
    for column, name in enumerate(names):
        device, again, host = range(3 * column, 3 * column + 3)
        yield KeptValue(
            name=name,
            placement=PLACEMENTS[int(codes_of(chosen, names)[0, column])],
            device_bytes=float(tried.needed_bytes[device] - tried.needed_bytes[host]),
            recompute_s=nan if name == LAYER_INPUT else float(tried.expected_s[again] - tried.expected_s[device]),
            offload_s=float(tried.expected_s[host] - tried.expected_s[device]) if setting.reaches_host else nan,
        )


def _moments(setting: TrainingSetting, plan: PlanColumns) -> KeptValue:
    """The optimizer's moments on the device and on the host, all else as it is."""
    here, there = (replace(plan, moments_on_host=place) for place in (0.0, 1.0))
    sizes = [training_memory(setting, columns) for columns in (here, there)]
    needed = [float(memory.total_bytes - memory.parts["logits_waiting"]) for memory in sizes]
    times_s = [float(training_step(setting, columns).expected_s) for columns in (here, there)]
    return KeptValue(
        name=MOMENTS,
        placement="offload" if plan.moments_on_host else "device",
        device_bytes=needed[0] - needed[1],
        recompute_s=nan,
        offload_s=times_s[1] - times_s[0],
    )
