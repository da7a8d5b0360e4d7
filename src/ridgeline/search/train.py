"""`train`: the best way to train a model on a slice, its rivals, and why the others were refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ridgeline.cost.laws.run import chip_s, num_steps, run_s, run_usd
from ridgeline.cost.training.memory import training_memory
from ridgeline.cost.training.step import training_step
from ridgeline.errors import InfeasibleError, InputError
from ridgeline.job.mesh import mesh_in_words
from ridgeline.search.answer import NoPlan, PlanEstimate, Rejected, RunEstimate, SearchStatistics, TrainAnswer
from ridgeline.search.assumptions import assumptions
from ridgeline.search.batch import batch_candidates, is_worth_it, smaller_batches
from ridgeline.search.choice import (
    Costs,
    fitting_rows,
    held_by_memory,
    least_of_each_mesh,
    refused_families,
    rivals,
    simplest_of_the_fastest,
    slower_because,
    unfit_families,
    wanted_in_words,
    wanted_ratios,
)
from ridgeline.search.decision import decide
from ridgeline.search.estimate import MFU_CONVENTION, TIGHT, estimate_row, mfu_peak_flops_per_s, step_flops
from ridgeline.search.explain import explain_plan, explain_run
from ridgeline.search.plans import PlanTable, legal_plans, searched_remats
from ridgeline.search.refine import leading, refined
from ridgeline.search.remat_answer import remat_answer
from ridgeline.search.setting import training_setting
from ridgeline.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from ridgeline.cost.columns import PlanColumns, TrainingSetting
    from ridgeline.job.job import Job

Progress: TypeAlias = Callable[[str, float], None]
"""Called with what is being done and the fraction done."""

BLOCK_ROWS = 8_192
"""Plans costed at once: their columns stay in cache, and below the size at which the allocator asks the system."""

MOST_REASONS = 3
"""Reasons named when no plan is legal."""

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Searched:
    """All plans at one batch size, costed."""

    setting: TrainingSetting
    table: PlanTable
    costs: Costs
    refused: Mapping[tuple[str, str], int]

    @property
    def fits(self) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        """Rows to choose from."""
        return fitting_rows(
            self.costs,
            usable_bytes=self.setting.usable_hbm_bytes,
            host_usable_bytes=self.setting.host_usable_bytes,
        )

    @property
    def tokens_per_s(self) -> float:
        """Of the fastest plan that fits; 0 when none does."""
        fastest_s = float(np.where(self.fits, self.costs.expected_s, np.inf).min(initial=np.inf))
        return self.setting.global_batch * self.setting.seq_len / fastest_s


def train(job: Job, *, progress: Progress | None = None) -> TrainAnswer:
    """The best plan for a job, five rivals, and the reasons for the rest.

    Args:
        job: The question; what its plan pins is held, the rest is searched.
        progress: Told how far the search is.

    Raises:
        InputError: The pinned mesh or batch contradicts the model or the slice.
        InfeasibleError: No legal plan fits in memory.
    """
    began_s = perf_counter()
    searched = _refined(job, _best_batch(job, progress or _quiet))
    fits = searched.fits
    if not fits.any():
        raise _nothing_fits(job, searched, began_s)
    table, costs, setting = searched.table, searched.costs, searched.setting
    best_row = simplest_of_the_fastest(table, costs, fits, tie_fraction=setting.efficiency.spread / 2)
    roomless_s, roomless_bytes = _fastest_without_room(searched)
    best = held_by_memory(
        estimate_row(job, setting, table, best_row),
        costs,
        fits,
        roomless_s=roomless_s,
        roomless_bytes=roomless_bytes,
    )
    alternatives = [estimate_row(job, setting, table, row) for row in rivals(table, costs, fits, best_row)]
    run, decision = _run(job, setting, best), decide(setting, table.row(best_row), best)
    return TrainAnswer(
        job=job,
        global_batch=setting.global_batch,
        best=best,
        alternatives=tuple(_with_reason(rival, best) for rival in alternatives),
        rejected=_rejected(searched),
        run=run,
        search=SearchStatistics(plans=len(table), seconds=perf_counter() - began_s, fitting=int(fits.sum())),
        remat=remat_answer(
            setting,
            table.row(best_row),
            best.plan.remat,
            searched_remats(replace(job, plan=replace(job.plan, remat=None))),
        ),
        decision=decision,
        mfu_convention=MFU_CONVENTION,
        assumptions=assumptions(job, setting, best),
        derivations=(
            *explain_plan(setting, table.row(best_row), best),
            *(crossover.derivation for crossover in decision.crossovers),
            *(() if run is None else explain_run(setting, best, run)),
        ),
    )


def _refined(job: Job, searched: _Searched) -> _Searched:
    """With the leading plans under custom policies as well, unless the job pins one."""
    if job.plan.remat is not None:
        return searched
    setting, table, costs, fits = searched.setting, searched.table, searched.costs, searched.fits
    if not fits.any():
        return searched
    chosen = simplest_of_the_fastest(table, costs, fits, tie_fraction=setting.efficiency.spread / 2)
    leaders = (*leading(table, costs, fits, chosen), *rivals(table, costs, fits, chosen))
    table, costs = refined(setting, table, costs, leaders)
    return replace(searched, table=table, costs=costs)


def _fastest_without_room(searched: _Searched) -> tuple[float, float]:
    """Step time and memory of the fastest plan that does not fit; infinite when every plan fits.

    Only the policy that recomputes least is timed: with room to spare no other is faster.
    """
    setting, table, costs = searched.setting, searched.table, searched.costs
    policies = [remat.policy for remat in table.remats]
    least = policies.index("none") if "none" in policies else 0
    moved = table.moments_on_host > table.moments_on_host.min()
    rows = np.flatnonzero(np.isinf(costs.expected_s) & (table.remat == least) & ~moved)
    fastest_s, needed_bytes = float("inf"), float("inf")
    for block, _ in _blocks(rows):
        times_s = np.broadcast_to(training_step(setting, table.columns(block)).expected_s, len(block))
        quickest = int(times_s.argmin())
        if times_s[quickest] < fastest_s:
            fastest_s, needed_bytes = float(times_s[quickest]), float(costs.total_bytes[block[quickest]])
    return fastest_s, needed_bytes


def cost_pinned(job: Job) -> PlanEstimate:
    """The plan a job pins, costed whether it fits or not; of what is left open, the fastest.

    Moments are on the device unless the job says otherwise.

    Args:
        job: The question, its batch given.

    Raises:
        InputError: No batch is given, or the pinned mesh or batch contradicts the model or the slice.
    """
    searched, fastest = _pinned(job)
    return estimate_row(job, searched.setting, searched.table, fastest)


def pinned_row(job: Job) -> tuple[TrainingSetting, PlanColumns]:
    """The same plan before it is costed: what its search shares, and its columns.

    Args:
        job: As for `cost_pinned`.

    Raises:
        InputError: As for `cost_pinned`.
    """
    searched, fastest = _pinned(job)
    return searched.setting, searched.table.row(fastest)


def _pinned(job: Job) -> tuple[_Searched, int]:
    """What a job leaves open, costed, and the fastest row."""
    if job.workload.global_batch is None:
        raise InputError(
            "no batch to cost a plan at",
            where="workload.global_batch",
            value=None,
            expected="sequences per step",
            fix="give global_batch",
        )
    searched = _search(job, job.workload.global_batch, _quiet, fit_or_not=True)
    return searched, int(searched.costs.expected_s.argmin())


def cost_plans(
    setting: TrainingSetting, table: PlanTable, progress: Progress, *, most_bytes: float = float("inf")
) -> Costs:
    """Memory of every row, and step time of those that need no more than `most_bytes`.

    A row that needs more has an infinite time: it cannot run. Few of a large search can: they fill blocks of their own.
    """
    total_bytes, host_bytes = np.empty(len(table)), np.empty(len(table))
    for rows, fraction in _blocks(np.arange(len(table))):
        memory = training_memory(setting, table.columns(rows))
        total_bytes[rows], host_bytes[rows] = memory.total_bytes, memory.host_bytes
        progress("sizing plans", fraction)
    expected_s = np.full(len(table), np.inf)
    for rows, fraction in _blocks(np.flatnonzero(total_bytes <= most_bytes)):
        expected_s[rows] = training_step(setting, table.columns(rows)).expected_s
        progress("costing plans", fraction)
    return Costs(expected_s=expected_s, total_bytes=total_bytes, host_bytes=host_bytes)


def _blocks(rows: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], float]]:
    """Rows, `BLOCK_ROWS` at a time, and the fraction that is done with them."""
    for start in range(0, len(rows), BLOCK_ROWS):
        block = rows[start : start + BLOCK_ROWS]
        yield block, (start + len(block)) / len(rows)


def _quiet(what: str, fraction: float) -> None:
    """No progress."""
    del what, fraction


def _best_batch(job: Job, progress: Progress) -> _Searched:
    """The search at the job's batch; without one, at the largest sensible one."""
    if job.workload.global_batch is not None:
        return _search(job, job.workload.global_batch, progress)
    first, *larger = batch_candidates(job)
    chosen = _search(job, first, progress)
    for batch in smaller_batches(first):
        if chosen.tokens_per_s > 0:
            break
        try:
            chosen = _search(job, batch, progress)
        except InputError:  # what is pinned needs more sequences
            break
    for batch in larger if chosen.setting.global_batch == first else ():
        searched = _search(job, batch, progress)
        if not is_worth_it(searched.tokens_per_s, half_tokens_per_s=chosen.tokens_per_s):
            break
        chosen = searched
    return chosen


def _search(job: Job, global_batch: int, progress: Progress, *, fit_or_not: bool = False) -> _Searched:
    """All plans at one batch size; those that cannot fit are costed only if asked for."""
    setting = training_setting(job, global_batch=global_batch)
    limits, meshes, table = legal_plans(job, setting)
    if len(table) == 0:
        if meshes.legal:
            raise _nothing_fed(job, global_batch, limits.chunks(job.hardware))
        raise _nothing_legal(job, global_batch, meshes.refused)
    most_bytes = float("inf") if fit_or_not else (1 + TIGHT) * setting.usable_hbm_bytes
    costs = cost_plans(setting, table, progress, most_bytes=most_bytes)
    if setting.places_moments and not fit_or_not:
        moved = table.rows(_worth_moving(setting, table, costs)).with_moments_on_host()
        table = table.followed_by(moved)
        costs = costs.followed_by(cost_plans(setting, moved, progress, most_bytes=most_bytes))
    return _Searched(setting=setting, table=table, costs=costs, refused=meshes.refused)


def _worth_moving(setting: TrainingSetting, table: PlanTable, costs: Costs) -> NDArray[np.int64]:
    """Rows that may fit with their moments on the host; and of each mesh the one that needs least, to say what lacks.

    A plan with room on the device is only slower so: nothing hides the transfer.
    """
    usable_bytes = setting.usable_hbm_bytes
    of_mesh, first = np.unique(table.mesh, return_index=True)
    moments_bytes = np.zeros(len(table.meshes))
    moments_bytes[of_mesh] = training_memory(setting, table.columns(first)).parts["optimizer"]
    left_bytes = costs.total_bytes - moments_bytes[table.mesh]
    is_wanted = left_bytes <= (1 + TIGHT) * usable_bytes
    is_wanted[least_of_each_mesh(table, costs.total_bytes)[of_mesh]] = True
    return np.flatnonzero(is_wanted & (costs.total_bytes > (1 - TIGHT) * usable_bytes))


def _nothing_legal(job: Job, global_batch: int, refused: Mapping[tuple[str, str], int]) -> InputError:
    """No mesh is legal: the batch, or what is pinned, contradicts the model or the slice."""
    pinned = " ".join(f"{axis}={degree}" for axis, degree in job.plan.mesh.items())
    of_family: dict[str, str] = {}
    for (family, reason), _ in sorted(refused.items(), key=lambda item: -item[1]):
        of_family.setdefault(family, reason)
    reasons = [f"{family}: {reason}" for family, reason in of_family.items()][:MOST_REASONS]
    return InputError(
        f"no legal plan ({'; '.join(reasons)})",
        where="plan.mesh" if pinned else "workload.global_batch",
        value=pinned or global_batch,
        expected="degrees that divide the model's heads, widths, layers and experts, and the batch",
        fix="change the degrees named above" if pinned else "choose a batch, or a slice, with more divisors in common",
    )


def _nothing_fed(job: Job, global_batch: int, layers: int) -> InputError:
    """There are meshes, but none can be fed with what is pinned of micro-steps, microbatches and repeats."""
    plan = job.plan
    pinned = {
        **plan.mesh,
        "gradient_accumulation": plan.gradient_accumulation,
        "microbatches": plan.pipeline.microbatches,
        "repeats": plan.pipeline.repeats,
    }
    return InputError(
        "no legal plan: the batch cannot be fed to a mesh so",
        where="plan",
        value=" ".join(f"{name}={number}" for name, number in pinned.items() if number is not None),
        expected=f"of the {global_batch} sequences, split over dp, fsdp and ep, a whole number in each micro-step or "
        f"microbatch; microbatches in multiples of the stages, and no more stages × repeats than {layers} layers",
        fix="leave some of them to the planner, or choose another batch",
    )


def _nothing_fits(job: Job, searched: _Searched, began_s: float) -> InfeasibleError:
    """Every plan needs more memory than there is."""
    costs, setting = searched.costs, searched.setting
    usable_bytes, host_usable_bytes = setting.usable_hbm_bytes, setting.host_usable_bytes
    least = int(wanted_ratios(costs, usable_bytes=usable_bytes, host_usable_bytes=host_usable_bytes).argmin())
    closest = estimate_row(job, setting, searched.table, least)
    needed = wanted_in_words(
        closest.memory.total_bytes,
        float(costs.host_bytes[least]),
        usable_bytes=usable_bytes,
        host_usable_bytes=host_usable_bytes,
    )
    largest = ", ".join(f"{name} {format_bytes(size)}" for name, size in closest.memory.largest[:3])
    mesh = mesh_in_words(closest.plan.mesh)
    plans = "the only plan there is" if len(searched.table) == 1 else f"any of {len(searched.table):,} plans"
    wide = {job.plan.optimizer.mu_dtype, job.plan.optimizer.nu_dtype} - {"bf16"}
    ways = (
        "more chips",
        "shorter sequences",
        *(("a smaller batch", "or bf16 optimizer state") if wide else ("or a smaller batch",)),
    )
    return InfeasibleError(
        f"{job.model_reference} does not fit on {job.hardware.name} under {plans}",
        reasons=[
            f"the least any plan needs is {needed} ({mesh}, remat {closest.plan.remat.policy})",
            f"its largest tensors: {largest}",
        ],
        fix=f"use {', '.join(ways)}",
        answer=NoPlan(
            job=job,
            global_batch=setting.global_batch,
            closest=closest,
            rejected=_rejected(searched),
            search=SearchStatistics(plans=len(searched.table), seconds=perf_counter() - began_s, fitting=0),
        ),
    )


def _with_reason(rival: PlanEstimate, best: PlanEstimate) -> PlanEstimate:
    return replace(rival, slower_because=slower_because(rival, best))


def _rejected(searched: _Searched) -> tuple[Rejected, ...]:
    setting = searched.setting
    return (
        *unfit_families(
            searched.table,
            searched.costs,
            usable_bytes=setting.usable_hbm_bytes,
            host_usable_bytes=setting.host_usable_bytes,
        ),
        *refused_families(searched.refused),
    )


def _run(job: Job, setting: TrainingSetting, best: PlanEstimate) -> RunEstimate | None:
    """Duration and price of the whole run, if its length is given."""
    if job.workload.tokens is None:
        return None
    steps = num_steps(run_tokens=job.workload.tokens, batch_tokens=setting.global_batch * setting.seq_len)
    duration_s = run_s(
        run_flops=steps * step_flops(setting),
        num_chips=job.hardware.num_chips,
        C_flops_per_s=mfu_peak_flops_per_s(setting),
        mfu=best.mfu,
    )
    spent_s = float(chip_s(num_chips=job.hardware.num_chips, run_s=duration_s))
    price = next(iter(job.hardware.chip.prices), None)
    return RunEstimate(
        steps=steps,
        duration_s=float(duration_s),
        chip_hours=spent_s / HOUR_S,
        cost_usd=None if price is None else run_usd(chip_s=spent_s, usd_per_chip_hour=price.usd_per_chip_hour),
        price_source="" if price is None else price.in_words,
    )
