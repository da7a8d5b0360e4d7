"""The best way to serve a model: every plan of every slice in steady state, and the one to take."""

from __future__ import annotations

from dataclasses import dataclass
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
from ridgeline.search.serving.setting import serving_machine
from ridgeline.search.serving.tails import in_limits, with_tails
from ridgeline.search.serving.words import (
    assumptions,
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

    Progress = Callable[[str, float], None]

TIE_FRACTION: Final = 0.02
"""Plans whose cost differs by less are equally cheap; of those the quickest is taken."""

SHORT_LIST: Final = 8
"""Plans that are simulated before one is taken."""

ROOM_TO_QUEUE: Final = 0.7
"""Part of the limits that half of them keep within in steady state, so that queues have the rest."""

MOST_POINTS: Final = 24
"""Points of the frontier that are worked out in full, evenly over it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Searched:
    """The plans of one slice."""

    hardware: Slice
    found: Candidates
    refused: Mapping[tuple[str, str], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ranked:
    """Candidates of all slices behind each other.

    Attributes:
        of: Which slice, by row.
        index: Row of its candidates.
        usd: Cost that is compared: of the whole fleet for a rate, or of a token.
        ttft_s: Mean time to the first token.
        tpot_s: Mean time per output token.
        tokens_per_s_per_chip: Output tokens per second and chip.
        width_bytes: How wide precisions are.
        is_elaborate: Whether both sides of matrices are split, which few engines can, or layers into stages.
        is_tight: Whether at the job's rate requests often find all places taken.
    """

    of: NDArray[np.int64]
    index: NDArray[np.int64]
    usd: NDArray[np.float64]
    ttft_s: NDArray[np.float64]
    tpot_s: NDArray[np.float64]
    tokens_per_s_per_chip: NDArray[np.float64]
    width_bytes: NDArray[np.float64]
    is_elaborate: NDArray[np.bool_]
    is_tight: NDArray[np.bool_]


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
    ranked = _ranked(job, searched)
    rejected = (*_late(job.workload, ranked), *_rejected(searched))
    statistics = SearchStatistics(
        plans=sum(each.found.costed for each in searched),
        seconds=perf_counter() - began_s,
        fitting=sum(len(each.found.table) for each in searched),
    )
    if len(ranked.index) == 0:
        raise _nothing_fits(job, asked, searched, rejected, statistics)
    meets = _meets(job.workload, ranked)
    if not meets.any():
        raise _too_slow(job, asked, searched, ranked, rejected, statistics)
    chosen, best = _best(job, searched, ranked, meets, is_final=True)
    if best.is_simulated and not all(in_limits(job.workload, best.ttft, best.tpot)):
        raise _queued(job, best, rejected, statistics)
    found, index = searched[int(ranked.of[chosen])].found, int(ranked.index[chosen])
    price = next(iter(job.hardware.chip.prices), None)
    interval = serving_interval(job, best)
    return ServeAnswer(
        job=job,
        best=best,
        interval=interval,
        frontier=tuple(_frontier_points(job, searched, ranked)),
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


def _searches(job: ServingJob, slices: Sequence[Slice], progress: Progress) -> Iterator[_Searched]:
    """Every slice with every precision that the job says or leaves open."""
    asked = [(with_dtypes(job, dtypes), hardware) for dtypes in searched_dtypes(job) for hardware in slices]
    for number, (question, hardware) in enumerate(asked, start=1):
        yield _search(question, hardware)
        progress("costing plans", number / len(asked))


def _search(job: ServingJob, hardware: Slice) -> _Searched:
    machine, plan = serving_machine(job, hardware), job.plan
    decode = serving_meshes(hardware, machine.setting.tree, plan.decode or plan.prefill, "decode")
    prefill = serving_meshes(hardware, machine.setting.tree, plan.prefill, "prefill")
    for meshes, key in ((decode, "decode"), (prefill, "prefill")):
        if not meshes.legal:
            raise _no_mesh(meshes, f"plan.{key}", plan.decode or plan.prefill)
    return _Searched(
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
    ranked = _ranked(job, searched)
    meets = _meets(job.workload, ranked)
    if not meets.any():
        return None
    _, point = _best(question, searched, ranked, meets, is_final=False)
    return point if not point.is_simulated or all(in_limits(job.workload, point.ttft, point.tpot)) else None


def _best(
    job: ServingJob, searched: Sequence[_Searched], ranked: _Ranked, meets: NDArray[np.bool_], *, is_final: bool
) -> tuple[int, ServingPoint]:
    """The plan to take, and its row: at a rate, of a short list that which needs fewest chips once requests queue."""
    chosen = _quickest_of_the_cheapest(ranked, meets)
    if job.workload.rate is None:
        return chosen, _point(job, searched, ranked, chosen)
    rows = list(dict.fromkeys((chosen, *_short_list(job.workload, searched, ranked)[: None if is_final else 1])))
    tried = [(row, _met(job, searched, ranked, row, is_final=False)) for row in rows]
    row, point = min(tried, key=lambda each: _toll(job.workload, each[1]))
    return row, _met(job, searched, ranked, row, is_final=True) if is_final else point


def _met(job: ServingJob, searched: Sequence[_Searched], ranked: _Ranked, row: int, *, is_final: bool) -> ServingPoint:
    """The plan of a row with servers enough for the limits, as requests meet it."""
    found, index = searched[int(ranked.of[row])].found, int(ranked.index[row])
    return with_tails(job, found, index, _point(job, searched, ranked, row), is_limited=True, is_final=is_final)


def _toll(workload: ServingWorkload, point: ServingPoint) -> tuple[bool, float, float, bool, float]:
    """What decides between plans that were simulated.

    The limits, then chips, then precision, then plain layouts, then the time of a request.
    """
    holds = point.is_simulated and all(in_limits(workload, point.ttft, point.tpot))
    plan, request_s = point.plan, point.ttft.mean_s + workload.generate_len * point.tpot.mean_s
    is_elaborate = not ELABORATE_AXES.isdisjoint({*plan.decode, *plan.prefill})
    return not holds, _spent(point), -width_bytes(plan.dtypes), is_elaborate, request_s


def _short_list(workload: ServingWorkload, searched: Sequence[_Searched], ranked: _Ranked) -> list[int]:
    """Plans to simulate: of each mode and mesh the cheapest within the limits, and the cheapest with room to queue."""
    found: list[int] = []
    for share in (1.0, ROOM_TO_QUEUE):
        rows = np.flatnonzero(_meets(workload, ranked, share=share))
        last_to_first = (ranked.ttft_s, ranked.tpot_s, ranked.is_tight, -ranked.width_bytes, ranked.usd)
        rows = rows[np.lexsort([key[rows] for key in last_to_first])]
        families: dict[tuple[int, ...], int] = {}
        for row in rows:
            each, index = searched[int(ranked.of[row])].found, int(ranked.index[row])
            families.setdefault((int(ranked.of[row]), *each.meshes_of(index)), int(row))
            if len(families) == SHORT_LIST // 2:
                break
        found.extend(families.values())
    return found


def _ranked(job: ServingJob, searched: Sequence[_Searched]) -> _Ranked:
    def joined(columns: list[NDArray[np.float64]]) -> NDArray[np.float64]:
        return np.concatenate([np.asarray(column, dtype=np.float64) for column in columns])

    counts = [len(each.found) for each in searched]
    return _Ranked(
        of=np.repeat(np.arange(len(searched)), counts),
        index=np.concatenate([np.arange(count) for count in counts]),
        usd=joined([_usd(job, each) for each in searched]),
        ttft_s=joined([each.found.ttft_s for each in searched]),
        tpot_s=joined([each.found.tpot_s for each in searched]),
        tokens_per_s_per_chip=joined([each.found.tokens_per_s_per_chip for each in searched]),
        width_bytes=np.repeat([width_bytes(each.found.table.machine.setting.dtypes) for each in searched], counts),
        is_elaborate=np.concatenate([each.found.is_elaborate for each in searched]),
        is_tight=np.concatenate([each.found.is_tight(job.workload.rate) for each in searched]),
    )


def _usd(job: ServingJob, searched: _Searched) -> NDArray[np.float64]:
    """Chips of the fleet for the job's rate, or chips over what they yield: all of one kind, at one price."""
    found, rate = searched.found, job.workload.rate
    if rate is None:
        return 1.0 / found.tokens_per_s_per_chip
    return found.fleet_chips(rate)


def _meets(workload: ServingWorkload, ranked: _Ranked, *, share: float = 1.0) -> NDArray[np.bool_]:
    """Plans whose means are within a share of the limits, whatever these are limits of."""
    first = np.inf if workload.ttft_s is None else workload.ttft_s * share
    token = np.inf if workload.tpot_s is None else workload.tpot_s * share
    return (ranked.ttft_s <= first) & (ranked.tpot_s <= token)


def _frontier_points(job: ServingJob, searched: Sequence[_Searched], ranked: _Ranked) -> Iterator[ServingPoint]:
    """The frontier in full; at a rate, simulated."""
    for row in _frontier(ranked, _in_time(job.workload, ranked)):
        found, index = searched[int(ranked.of[row])].found, int(ranked.index[row])
        point = _point(job, searched, ranked, row)
        yield with_tails(job, found, index, point, is_limited=False, is_final=False)


def _in_time(workload: ServingWorkload, ranked: _Ranked) -> NDArray[np.bool_]:
    """Rows whose first token is out in time, whatever the rest takes: what the frontier is drawn from."""
    return ranked.ttft_s <= (np.inf if workload.ttft_s is None else workload.ttft_s)


def _quickest_of_the_cheapest(ranked: _Ranked, meets: NDArray[np.bool_]) -> int:
    """Of the plans within a tie of the cheapest one.

    The widest in precision; of these plain layouts; of these such as have places to spare; of these the
    quickest per token, then to the first.
    """
    rows = np.flatnonzero(meets)
    cheap = rows[ranked.usd[rows] <= ranked.usd[rows].min() * (1.0 + TIE_FRACTION)]
    last_to_first = (ranked.ttft_s, ranked.tpot_s, ranked.is_tight, ranked.is_elaborate, -ranked.width_bytes)
    return int(cheap[np.lexsort([key[cheap] for key in last_to_first])[0]])


def _frontier(ranked: _Ranked, meets: NDArray[np.bool_]) -> list[int]:
    """Rows that no other beats in tokens/s per chip and per user, the cheapest first; of many some.

    Among plans that yield as much to within a tie, and are no slower, the one that is first with its first token.
    """
    allowed = np.flatnonzero(meets)
    rows = allowed[unbeaten((-ranked.tokens_per_s_per_chip[allowed], ranked.tpot_s[allowed]))]
    if len(rows) > MOST_POINTS:
        rows = rows[np.unique(np.linspace(0, len(rows) - 1, MOST_POINTS).round().astype(np.int64))]
    found: dict[int, None] = {}
    for row in rows:
        alike = (ranked.tokens_per_s_per_chip >= ranked.tokens_per_s_per_chip[row] * (1.0 - TIE_FRACTION)) & (
            ranked.tpot_s <= ranked.tpot_s[row]
        )
        found[int(allowed[np.where(alike[allowed], ranked.ttft_s[allowed], np.inf).argmin()])] = None
    chosen = np.array(list(found))
    return [int(row) for row in chosen[unbeaten((-ranked.tokens_per_s_per_chip[chosen], ranked.tpot_s[chosen]))]]


def _point(job: ServingJob, searched: Sequence[_Searched], ranked: _Ranked, row: int) -> ServingPoint:
    found = searched[int(ranked.of[row])].found
    return serving_point(found, int(ranked.index[row]), requests_per_s=job.workload.rate)


def _late(workload: ServingWorkload, ranked: _Ranked) -> Iterator[Rejected]:
    """Plans that fit, and whose means are beyond the limits."""
    for what, limit_s, times_s in (
        ("their first token takes", workload.ttft_s, ranked.ttft_s),
        ("a token takes them", workload.tpot_s, ranked.tpot_s),
    ):
        late = 0 if limit_s is None else int((times_s > limit_s).sum())
        if limit_s is not None and late:
            reason = f"{what} longer than {format_seconds(limit_s)} on average"
            yield Rejected(family=f"{late:,} of {len(times_s):,} that fit", reason=reason, plans=late)


def _rejected(searched: Sequence[_Searched]) -> Iterator[Rejected]:
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
    searched: Sequence[_Searched],
    rejected: tuple[Rejected, ...],
    statistics: SearchStatistics,
) -> InfeasibleError:
    largest = max(reversed(searched), key=lambda each: each.hardware.num_chips)  # the narrowest of the largest
    on = " or ".join(dict.fromkeys((searched[0].hardware.name, largest.hardware.name)))
    if len(largest.found.table):
        reasons = reads_too_slowly_reasons(largest.found)
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
    searched: Sequence[_Searched],
    ranked: _Ranked,
    rejected: tuple[Rejected, ...],
    statistics: SearchStatistics,
) -> InfeasibleError:
    """Limits that no plan meets: the best attainable of each, and what binds it."""
    workload = job.workload
    first = ranked.ttft_s / (workload.ttft_s or np.inf)
    token = ranked.tpot_s / (workload.tpot_s or np.inf)
    closest = _point(job, searched, ranked, int(np.maximum(first, token).argmin()))
    quickest_first = _point(job, searched, ranked, int(ranked.ttft_s.argmin()))
    quickest_token = _point(job, searched, ranked, int(ranked.tpot_s.argmin()))
    return InfeasibleError(
        f"no plan of {job.model_reference} meets the limits",
        reasons=[
            *too_slow_reasons(job, quickest_first, quickest_token, closest),
            *_narrower_reasons(job, slices),
        ],
        fix="allow more time, use more or faster chips, or narrower weights",
        answer=NoServingPlan(job=job, quickest=closest, rejected=rejected, search=statistics),
    )
