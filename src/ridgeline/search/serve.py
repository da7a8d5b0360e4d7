"""The best way to serve a model: every plan of every slice in steady state, and the one to take."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, Final

import numpy as np

from ridgeline.errors import InfeasibleError, InputError
from ridgeline.job.mesh import mesh_in_words
from ridgeline.search.answer import Rejected, SearchStatistics
from ridgeline.search.serving.answer import DtypeGain, NoServingPlan, ServeAnswer
from ridgeline.search.serving.candidates import ELABORATE_AXES, candidates, unbeaten
from ridgeline.search.serving.dtypes import (
    dtypes_in_words,
    narrower_dtypes,
    no_wider,
    searched_dtypes,
    width_bytes,
    with_dtypes,
)
from ridgeline.search.serving.estimate import serving_point
from ridgeline.search.serving.explain import explain_serving
from ridgeline.search.serving.interval import serving_interval
from ridgeline.search.serving.laws import decode_laws
from ridgeline.search.serving.meshes import serving_meshes
from ridgeline.search.serving.ranking import (
    FEW_POINTS,
    MOST_POINTS,
    TIE_FRACTION,
    Searched,
    frontier_rows,
    in_time,
    meets,
    quickest_of_the_cheapest,
    ranked_plans,
    short_list,
)
from ridgeline.search.serving.setting import serving_machine
from ridgeline.search.serving.tails import Trial, in_limits, with_tails
from ridgeline.search.serving.words import (
    assumptions,
    beaten_reason,
    nothing_fits_reasons,
    queued_reasons,
    reads_too_slowly_reasons,
    serving_notes,
    too_slow_reasons,
)
from ridgeline.units import format_seconds, format_things

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from ridgeline.hardware.slice import Slice
    from ridgeline.job.serving import ServingDtypes, ServingJob, ServingWorkload
    from ridgeline.search.serving.answer import ServingPoint
    from ridgeline.search.serving.candidates import Candidates
    from ridgeline.search.serving.meshes import ServingMeshes
    from ridgeline.search.serving.ranking import Ranked

    Progress = Callable[[str, float], None]

MOST_TRIED: Final = 6
"""Plans that are simulated even if they would, at the best, need no fewer chips than one that holds the limits."""

FEW_TRIED: Final = 2
"""Plans that are simulated with each narrower precision."""


def serve(
    job: ServingJob, *, slices: Sequence[Slice] = (), progress: Progress = lambda _what, _fraction: None
) -> ServeAnswer:
    """The cheapest plan that meets the limits of a job, and the frontier of all.

    Args:
        job: The question; what its plan pins is held, the rest is searched.
        slices: Slices to choose from; none for the job's own.
        progress: Told how far the search is.

    Raises:
        InputError: The pinned meshes or the batch contradict the model or the slice, or the chip is not calibrated.
        InfeasibleError: No plan fits in memory, or none meets the limits.
    """
    began_s = perf_counter()
    asked = tuple(slices) or (job.hardware,)
    searched = list(_searches(job, asked, progress))
    ranked = ranked_plans(job, searched)
    rejected = (*_late(job.workload, ranked), *_rejected(searched))
    statistics = SearchStatistics(
        plans=sum(each.found.costed for each in searched),
        seconds=perf_counter() - began_s,
        fitting=sum(len(each.found.table) for each in searched),
    )
    if len(ranked.index) == 0:
        raise _nothing_fits(job, asked, searched, rejected, statistics)
    allowed = meets(job.workload, ranked)
    if not allowed.any():
        raise _too_slow(job, asked, searched, ranked, rejected, statistics)
    chosen, best = _best(job, searched, ranked, allowed, is_final=True)
    if not _holds(job.workload, best) and (best.is_simulated or _is_late(job.workload, best)):
        raise _queued(job, best, rejected, statistics)
    found, index = _candidate(searched, ranked, chosen)
    price = next(iter(job.hardware.chip.prices), None)
    interval = serving_interval(job, best)
    frontier = tuple(_frontier_points(job, searched, ranked, best))
    return ServeAnswer(
        job=job,
        best=best,
        interval=interval,
        frontier=frontier,
        frontier_note=beaten_reason(job.workload, best, frontier),
        rejected=rejected,
        narrower=tuple(_gains(job, asked, best)),
        laws=decode_laws(found, index),
        slices=asked,
        search=statistics,
        assumptions=assumptions(job, best, interval),
        notes=serving_notes(job, best),
        price_source="" if price is None else price.in_words,
        derivations=tuple(explain_serving(job, found, index, best)),
    )


def _searches(job: ServingJob, slices: Sequence[Slice], progress: Progress) -> Iterator[Searched]:
    """Every slice with every precision that the job says or leaves open."""
    asked = [(with_dtypes(job, dtypes), hardware) for dtypes in searched_dtypes(job) for hardware in slices]
    for number, (question, hardware) in enumerate(asked, start=1):
        yield _search(question, hardware)
        progress("costing plans", number / len(asked))


def _search(job: ServingJob, hardware: Slice) -> Searched:
    machine, plan = serving_machine(job, hardware), job.plan
    decode = serving_meshes(hardware, machine.setting.tree, plan.decode or plan.prefill, "decode")
    prefill = serving_meshes(hardware, machine.setting.tree, plan.prefill, "prefill")
    for meshes, key in ((decode, "decode"), (prefill, "prefill")):
        if not meshes.legal:
            raise _no_mesh(meshes, f"plan.{key}", plan.decode or plan.prefill)
    return Searched(
        hardware=hardware,
        found=candidates(job, machine, decode.legal, prefill.legal),
        refused={**decode.refused, **prefill.refused},
    )


def _gains(job: ServingJob, slices: Sequence[Slice], best: ServingPoint) -> Iterator[DtypeGain]:
    """Narrower precisions, each with its best plan, where it saves more than all that are nowhere narrower."""
    spent, found = _spent(best), [(best.plan.dtypes, 0.0)]
    compared = searched_dtypes(job)
    for dtypes in narrower_dtypes(job, best.plan.dtypes):
        if dtypes in compared:
            continue
        point = _best_with(job, dtypes, slices)
        if point is None:
            continue
        saving = 1.0 - _spent(point) / spent
        if saving > TIE_FRACTION + max(least for wider, least in found if no_wider(dtypes, wider)):
            found.append((dtypes, saving))
            yield DtypeGain(point=point, saving_fraction=saving)


def _narrower_reasons(job: ServingJob, slices: Sequence[Slice]) -> Iterator[str]:
    """The widest of the narrower precisions that would do, where none that was searched does."""
    for dtypes in narrower_dtypes(job, searched_dtypes(job)[-1]):
        point = _best_with(job, dtypes, slices)
        if point is not None:
            plan = point.plan
            where = f"{mesh_in_words(plan.decode)} on {plan.slice}, {format_things(plan.batch, 'sequence')} at once"
            yield f"with {dtypes_in_words(dtypes)} it can: {where}; what that costs in quality is not estimated"
            return


def _spent(point: ServingPoint) -> float:
    """Chips, of the fleet for a rate, or for a token a second: of one kind, at one price."""
    return 1.0 / point.tokens_per_s_per_chip if point.fleet is None else float(point.fleet.chips)


def _best_with(job: ServingJob, dtypes: ServingDtypes, slices: Sequence[Slice]) -> ServingPoint | None:
    """The best plan with other precisions; None where none meets the limits."""
    question = with_dtypes(job, dtypes)
    searched = [_search(question, hardware) for hardware in slices]
    ranked = ranked_plans(job, searched)
    allowed = meets(job.workload, ranked)
    if not allowed.any():
        return None
    _, point = _best(question, searched, ranked, allowed, is_final=False)
    is_held = _holds(job.workload, point) if point.is_simulated else not _is_late(job.workload, point)
    return point if is_held else None


def _best(
    job: ServingJob, searched: Sequence[Searched], ranked: Ranked, allowed: NDArray[np.bool_], *, is_final: bool
) -> tuple[int, ServingPoint]:
    """The plan to take, and its row: at a rate, of a short list that which needs fewest chips once requests queue."""
    chosen = quickest_of_the_cheapest(ranked, allowed)
    if job.workload.rate is None:
        return chosen, _point(job, searched, ranked, chosen)
    rows = list(dict.fromkeys((chosen, *short_list(job.workload, ranked))))
    row, point = _fewest_chips(job, searched, ranked, rows if is_final else rows[:FEW_TRIED])
    return row, _met(job, searched, ranked, row, began=point) if is_final else point


def _fewest_chips(
    job: ServingJob, searched: Sequence[Searched], ranked: Ranked, rows: Sequence[int]
) -> tuple[int, ServingPoint]:
    """Of some rows the plan to take, as requests meet it; none is left out that could need fewer chips."""
    best, most = (rows[0], _met(job, searched, ranked, rows[0])), inf
    for place, row in enumerate(rows):
        if _holds(job.workload, best[1]):
            most = _spent(best[1])
        if place == 0 or ranked.least_usd[row] > most or (place >= MOST_TRIED and ranked.least_usd[row] >= most):
            continue
        tried = (row, _met(job, searched, ranked, row, most_chips=most))
        best = min(best, tried, key=lambda each: _toll(job.workload, each[1]))
    return best


def _met(
    job: ServingJob,
    searched: Sequence[Searched],
    ranked: Ranked,
    row: int,
    *,
    most_chips: float = inf,
    began: ServingPoint | None = None,
) -> ServingPoint:
    """The plan of a row with servers enough for the limits, as requests meet it.

    Args:
        job: The question.
        searched: The slices.
        ranked: Their plans.
        row: Which.
        most_chips: Beyond which no servers are added.
        began: The same, as few requests met it; None where few are to meet it now.
    """
    found, index, point = *_candidate(searched, ranked, row), _point(job, searched, ranked, row)
    fleet = None if began is None else began.fleet
    trial = Trial(
        is_limited=True,
        is_final=began is not None,
        most_chips=most_chips,
        sufficed=None if fleet is None else (fleet.servers, fleet.prefill_servers),
    )
    return with_tails(job, found, index, point, trial)


def _holds(workload: ServingWorkload, point: ServingPoint) -> bool:
    """Whether requests that were served one by one are within the limits."""
    return point.is_simulated and all(in_limits(workload, point.ttft, point.tpot))


def _is_late(workload: ServingWorkload, point: ServingPoint) -> bool:
    """Whether the means of a plan are beyond the limits, whatever these are limits of."""
    limits = ((workload.ttft_s, point.ttft.mean_s), (workload.tpot_s, point.tpot.mean_s))
    return any(limit_s is not None and time_s > limit_s for limit_s, time_s in limits)


def _candidate(searched: Sequence[Searched], ranked: Ranked, row: int) -> tuple[Candidates, int]:
    """The candidates of a slice, and which of them a row is."""
    return searched[int(ranked.of[row])].found, int(ranked.index[row])


def _toll(workload: ServingWorkload, point: ServingPoint) -> tuple[bool, float, float, bool, float]:
    """What decides between plans that were simulated.

    The limits, then chips, then precision, then plain layouts, then the time of a request.
    """
    plan, request_s = point.plan, point.ttft.mean_s + workload.generate_len * point.tpot.mean_s
    is_elaborate = not ELABORATE_AXES.isdisjoint({*plan.decode, *plan.prefill})
    return not _holds(workload, point), _spent(point), -width_bytes(plan.dtypes), is_elaborate, request_s


def _frontier_points(
    job: ServingJob, searched: Sequence[Searched], ranked: Ranked, best: ServingPoint
) -> Iterator[ServingPoint]:
    """The frontier in full, the plan that is taken among it where none beats that; at a rate, of simulated fleets."""
    allowed = in_time(job.workload, ranked)
    rows = frontier_rows(ranked, allowed, most=FEW_POINTS if best.is_simulated else MOST_POINTS)
    points = [_point(job, searched, ranked, row) for row in rows]
    if best.is_simulated:
        trial = Trial(is_limited=False)
        tried = [
            with_tails(job, *_candidate(searched, ranked, row), point, trial)
            for row, point in zip(rows, points, strict=True)
        ]
        points = [point for point in tried if point.is_simulated]
    points = [best, *(point for point in points if (point.plan, point.fleet) != (best.plan, best.fleet))]
    chips = np.array([-point.fleet_tokens_per_s_per_chip for point in points])
    yield from (points[place] for place in unbeaten((chips, np.array([point.tpot.mean_s for point in points]))))


def _point(job: ServingJob, searched: Sequence[Searched], ranked: Ranked, row: int) -> ServingPoint:
    found, index = _candidate(searched, ranked, row)
    return serving_point(found, index, requests_per_s=job.workload.rate)


def _least_point(job: ServingJob, searched: Sequence[Searched], ranked: Ranked, row: int) -> ServingPoint:
    """A plan with the times that its limits are judged by before requests are simulated."""
    point = _point(job, searched, ranked, row)
    ttft = replace(point.ttft, mean_s=float(ranked.least_ttft_s[row]))
    return replace(point, ttft=ttft, tpot=replace(point.tpot, mean_s=float(ranked.least_tpot_s[row])))


def _late(workload: ServingWorkload, ranked: Ranked) -> Iterator[Rejected]:
    """Plans that fit, and whose means are beyond the limits: at a rate, even with servers to spare."""
    when = "on average" if workload.rate is None else "even where no request waits"
    for what, limit_s, times_s in (
        ("their first token takes", workload.ttft_s, ranked.least_ttft_s),
        ("a token takes them", workload.tpot_s, ranked.least_tpot_s),
    ):
        late = 0 if limit_s is None else int((times_s > limit_s).sum())
        if limit_s is not None and late:
            reason = f"{what} longer than {format_seconds(limit_s)} {when}"
            yield Rejected(family=f"{late:,} of {len(times_s):,} ways to read and decode", reason=reason, plans=late)


def _rejected(searched: Sequence[Searched]) -> Iterator[Rejected]:
    for each in searched:
        unfit = each.found.costed - len(each.found.table) - len(each.found.readers)
        if unfit:
            reason = "they need more memory than an engine has there"
            yield Rejected(family=f"{unfit:,} plans on {each.hardware.name}", reason=reason, plans=unfit)
    seen: set[tuple[str, str]] = set()
    for each in searched:
        for family, reason in each.refused:
            if (family, reason) not in seen:
                seen.add((family, reason))
                yield Rejected(family=family, reason=reason)


def _no_mesh(meshes: ServingMeshes, where: str, pinned: Mapping[str, int]) -> InputError:
    reasons = "; ".join(f"{family}: {reason}" for family, reason in meshes.refused)
    return InputError(
        f"no legal mesh ({reasons})" if reasons else "no legal mesh",
        where=where,
        value=" ".join(f"{axis}={degree}" for axis, degree in pinned.items()),
        expected="tp, ep, dp and, of prefill, cp, that divide the model's heads, widths and experts",
        fix="change the degrees named above, or leave the mesh out",
    )


def _nothing_fits(
    job: ServingJob,
    slices: Sequence[Slice],
    searched: Sequence[Searched],
    rejected: tuple[Rejected, ...],
    statistics: SearchStatistics,
) -> InfeasibleError:
    largest = max(reversed(searched), key=lambda each: each.hardware.num_chips)  # the narrowest of the largest
    on = " or ".join(dict.fromkeys((searched[0].hardware.name, largest.hardware.name)))
    if len(largest.found.table):
        reasons = reads_too_slowly_reasons(job, largest.found)
        fix = "read more tokens of prompts beside a pass, decode fewer sequences at once, or leave the mode open"
    else:
        reasons = [*nothing_fits_reasons(job, largest.found), *_narrower_reasons(job, slices)]
        fix = "use more chips, narrower weights or KV cache, shorter contexts, or a smaller batch"
    return InfeasibleError(
        f"{job.model_reference} cannot be served so on {on}",
        reasons=reasons,
        fix=fix,
        answer=NoServingPlan(job=job, quickest=None, rejected=rejected, search=statistics),
    )


def _queued(
    job: ServingJob, closest: ServingPoint, rejected: tuple[Rejected, ...], statistics: SearchStatistics
) -> InfeasibleError:
    """Limits that the means of some plans meet, but no plan that was simulated."""
    return InfeasibleError(
        f"no plan of {job.model_reference} meets the limits once requests queue",
        reasons=queued_reasons(job, closest),
        fix="allow more time, use more or faster chips for a server, narrower weights, or limit the mean",
        answer=NoServingPlan(job=job, quickest=closest, rejected=rejected, search=statistics),
    )


def _too_slow(
    job: ServingJob,
    slices: Sequence[Slice],
    searched: Sequence[Searched],
    ranked: Ranked,
    rejected: tuple[Rejected, ...],
    statistics: SearchStatistics,
) -> InfeasibleError:
    """Limits that no plan meets: the best attainable of each, and what binds it."""
    workload = job.workload
    first = ranked.least_ttft_s / (workload.ttft_s or np.inf)
    token = ranked.least_tpot_s / (workload.tpot_s or np.inf)
    closest, quickest_first, quickest_token = (
        _least_point(job, searched, ranked, int(times.argmin()))
        for times in (np.maximum(first, token), ranked.least_ttft_s, ranked.least_tpot_s)
    )
    return InfeasibleError(
        f"no plan of {job.model_reference} meets the limits",
        reasons=[
            *too_slow_reasons(job, quickest_first, quickest_token, closest),
            *_narrower_reasons(job, slices),
        ],
        fix="allow more time, use more or faster chips, or narrower weights",
        answer=NoServingPlan(job=job, quickest=closest, rejected=rejected, search=statistics),
    )
