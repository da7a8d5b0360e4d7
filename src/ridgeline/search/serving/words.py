"""What an answer about serving rests on, and why there is none, in words."""

from __future__ import annotations

from math import exp
from statistics import NormalDist
from typing import TYPE_CHECKING, Final

import numpy as np

from ridgeline.cost.serving.memory import ENGINE_SHARE, engine_bytes, page_tokens
from ridgeline.cost.serving.steady import prefill_share
from ridgeline.job.job import TRANSPOSE_AXIS
from ridgeline.job.mesh import mesh_in_words
from ridgeline.job.traffic import EmpiricalLength, FixedLength, LognormalLength, UniformLength
from ridgeline.search.serving.candidates import ELABORATE_AXES
from ridgeline.search.serving.dtypes import dtypes_in_words, weights_in_words, width_bytes, with_dtypes
from ridgeline.search.serving.plans import MOST_PREFILL_SHARE, decode_memory, own_cache_bytes
from ridgeline.search.serving.tails import in_limits, limit_of
from ridgeline.units import format_bytes, format_count, format_fraction, format_seconds, format_things

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ridgeline.cost.serving.device import PhaseColumns
    from ridgeline.job.serving import ServingJob, ServingWorkload, Statistic
    from ridgeline.job.traffic import Length
    from ridgeline.search.engine.latency import Quantiles
    from ridgeline.search.serving.answer import ServingInterval, ServingPoint
    from ridgeline.search.serving.candidates import Candidates

_FIXED: Final = ("weights", "draft_weights", "shared_prefix")
"""Parts of memory that do not grow with the sequences at once."""

_NEARLY_FULL: Final = 0.97
"""Load from which a queue takes longer to settle than the 4,000 requests that are simulated take to come: times of
service 1/(1 − √load)², 4,400 here. Source: the relaxation time of the queue M/M/1 (Cohen, The Single Server Queue)."""


def assumptions(job: ServingJob, best: ServingPoint, interval: ServingInterval) -> tuple[str, ...]:
    """Assumptions of one answer, most consequential first."""
    return tuple(_assumptions(job, best, interval))


def _assumptions(job: ServingJob, best: ServingPoint, interval: ServingInterval) -> Iterator[str]:
    yield f"{requests_in_words(job.workload)}; {_served_in_words(job, best)}"
    yield from _interval(interval)
    load = _sampled_load(job.workload, best)
    if load > _NEARLY_FULL:
        yield (
            f"servers have {format_fraction(load)} of what they can do to do: so near full load times depend on which "
            "requests were drawn, and more of them would wait longer"
        )
    if job.calibration is not None:
        yield f"what servers reach, as {job.calibration.folder} states it, takes the place of what ships"
    if job.workload.prompt_lengths is not None and job.workload.generate_lengths is not None:
        yield "how long a prompt is says nothing about its reply"
    if job.workload.generate_len == 1:
        yield "prefill gives a reply's only token; decoding is counted as if it added one more"
    yield from _cached_and_drafted(job)
    yield from _stored_in_words(job, best)
    host_s = best.step.breakdown.overhead_s
    yield f"a pass costs {format_seconds(host_s)} beside what devices do: the host schedules and samples"
    yield (
        f"an engine takes {format_fraction(_memory_share(job))} of memory; every sequence has room for its whole "
        "context, in pages that are alike in all layers"
    )
    if best.plan.mode == "disaggregated" and not best.is_simulated:
        as_many = (
            "are as many as keep up, without spare" if job.plan.server_ratio is None else "are as many as is asked"
        )
        yield f"prefill servers {as_many}; sending the KV cache hides behind decoding"
    else:
        yield "prompts are read first come, first served"
    if _is_mixture(best):
        yield "tokens choose experts alike and independently"
    if TRANSPOSE_AXIS in {*best.plan.decode, *best.plan.prefill}:
        yield "tp_transpose splits the other side of matrices: MaxText can (tensor_transpose), vLLM cannot; pin a mesh"
    yield from job.model.notes


def _sampled_load(workload: ServingWorkload, best: ServingPoint) -> float:
    """Requests that are drawn at random over those that full servers can serve; 0 where none are drawn."""
    fleet, plan = best.fleet, best.plan
    if fleet is None or not best.is_simulated or workload.trace is not None:
        return 0.0
    decoding = fleet.requests_per_s / (fleet.servers * best.requests_per_s)
    if not fleet.prefill_servers:
        return decoding
    return max(decoding, fleet.requests_per_s * best.prefill_s / (plan.prefill_batch * fleet.prefill_servers))


def _interval(interval: ServingInterval) -> Iterator[str]:
    """How sure the estimates are, and what makes them less so."""
    token, first = ((high / low) ** 0.5 for low, high in (interval.tpot_s, interval.ttft_s))
    yield (
        f"intervals: times per token and tokens/s divided and multiplied by {token:.3g}, the time to the first token "
        f"by {first:.3g}, which holds eight of ten measured servers"
    )
    if interval.widened_by:
        yield f"the intervals are wider, as there is {'; '.join(interval.widened_by)}"


def _served_in_words(job: ServingJob, best: ServingPoint) -> str:
    """How times were found."""
    simulation = best.simulation
    if simulation is None and job.workload.rate is not None:
        return "in simulation no number of servers that was tried kept up: queueing is left out"
    if simulation is None:
        return "in steady state with full servers: times are means; --rate simulates their tails"
    if job.workload.trace is None:
        return f"at this rate {simulation.num_requests:,} requests that come independently were simulated"
    if simulation.num_requests < job.workload.trace.requests.count:
        return f"of these the busiest {simulation.num_requests:,} that follow each other were replayed"
    return "all were replayed"


def _stored_in_words(job: ServingJob, best: ServingPoint) -> Iterator[str]:
    """Whose precision that of the weights is: the published checkpoint's, or another's."""
    stored, taken = job.model.stored, best.plan.dtypes
    if stored is None:
        return
    published = weights_in_words(stored.weights, stored.experts)
    if with_dtypes(job, taken).is_as_published:
        chip = f"{job.hardware.chip.title} {_reads_in_words(job, best)}"
        yield f"{published}, as the checkpoint is published ({stored.source}); {chip}"
    else:
        held = weights_in_words(taken.weights, taken.experts)
        yield f"{held}, as asked; the published checkpoint has {published} ({stored.source})"


def _reads_in_words(job: ServingJob, best: ServingPoint) -> str:
    """What a chip does with weights that are stored narrow."""
    taken = best.plan.dtypes
    narrow = taken.experts or taken.weights
    if taken.compute not in {"bf16", "f32"}:
        return f"multiplies in {taken.compute}"
    has = "has no matmul in them" if narrow not in job.hardware.chip.peak_flops_per_s else "could multiply in them"
    return f"{has}; they are widened to {taken.compute} on their way to each matmul"


def _cached_and_drafted(job: ServingJob) -> Iterator[str]:
    """What of prompts is not read, and what of replies is drafted."""
    cache, speculation = job.workload.prefix_cache, job.plan.speculation
    if cache.hit_fraction:
        kept = "kept once for all sequences of a rank" if cache.shared else "of which every sequence has its own copy"
        yield f"of each prompt {format_fraction(cache.hit_fraction)} is in the prefix cache, {kept}"
    if speculation is not None:
        accepted = format_fraction(speculation.acceptance_fraction)
        drafter = speculation.draft_model or "what takes no time"
        yield (
            f"{drafter} drafts {format_things(speculation.draft_tokens, 'token')} a pass; of each, {accepted} are "
            "accepted where all before it were; drafts cost the host nothing"
        )
    if not cache.hit_fraction and speculation is None:
        yield "no prompt shares its beginning with another, and nothing is drafted ahead"


def requests_in_words(workload: ServingWorkload) -> str:
    """How long requests are, and where they come from."""
    if workload.trace is not None:
        requests = workload.trace.requests
        prompts, replies = float(requests.prompt_tokens.mean()), float(requests.output_tokens.mean())
        lengths = f"prompts of {format_things(round(prompts), 'token')}, replies of {format_count(round(replies))}"
        return f"{format_things(requests.count, 'request')} of {workload.trace.file}, {lengths} on average"
    prompts, replies = workload.prompts, workload.replies
    if isinstance(prompts, FixedLength) and isinstance(replies, FixedLength):
        unit = "token" if replies.tokens == 1 else "tokens"
        return f"prompts of {prompts.tokens:,} and replies of {replies.tokens:,} {unit}, all alike"
    return f"prompts of {length_in_words(prompts)}; replies of {length_in_words(replies)}"


def length_in_words(length: Length) -> str:
    """How long prompts or replies are.

    >>> length_in_words(FixedLength(tokens=1024)), length_in_words(UniformLength(least_tokens=10, most_tokens=2000))
    ('1,024 tokens', '10 to 2,000 tokens')
    >>> length_in_words(LognormalLength(mean_tokens=1000.0, sigma=1.0, most_tokens=8000))
    '618 tokens (half are below, 9 of 10 below 2,226, all up to 8,000)'
    """
    match length:
        case FixedLength(tokens=tokens):
            return format_things(tokens, "token")
        case UniformLength(least_tokens=least, most_tokens=most):
            return f"{least:,} to {format_things(most, 'token')}"
        case LognormalLength(median_tokens=median, sigma=sigma, longest_tokens=longest):
            high = median * exp(sigma * NormalDist().inv_cdf(0.9))
            if sigma == 0:
                return format_things(round(median), "token")
            most = f"9 of 10 below {high:,.0f}, all up to {longest:,}" if high < longest else f"all up to {longest:,}"
            return f"{format_things(round(median), 'token')} (half are below, {most})"
        case EmpiricalLength(tokens=tokens, file=file):
            mean = format_things(round(sum(tokens) / len(tokens)), "token")
            return f"{mean} on average, as in {file}" if file else f"{mean} on average"


def _is_mixture(best: ServingPoint) -> bool:
    return any("experts/" in path for path, _ in best.step.parts.walk())


def serving_notes(job: ServingJob, best: ServingPoint) -> tuple[str, ...]:
    """What of the question a reader should think about again."""
    found: list[str] = []
    longest, context = job.model.context_length, job.workload.context_len
    if 0 < longest < context:
        found.append(
            f"workload.prompt_len and workload.generate_len make {context:,} tokens together, more than the "
            f"{longest:,} that {job.model.name} was made for."
        )
    dtypes, chip = best.plan.dtypes, job.hardware.chip
    if dtypes != job.plan.dtypes:
        found.append(f"Left open, {dtypes_in_words(dtypes)} is cheapest; what that costs in quality is not estimated.")
    if dtypes.compute not in chip.peak_flops_per_s:
        found.append(f"{chip.title} has no native {dtypes.compute} matmul: operands are upcast to bf16.")
    if dtypes.kv_cache == "fp4" and "fp4" not in chip.peak_flops_per_s:
        found.append(f"{chip.title} has no fp4: no engine that is known keeps a KV cache in it there.")
    return tuple(found)


def beaten_reason(workload: ServingWorkload, best: ServingPoint, frontier: Sequence[ServingPoint]) -> str:
    """Why the plan that is taken is not on the frontier; "" where it is."""
    yields, user = best.fleet_tokens_per_s_per_chip, best.user_tokens_per_s
    beating = [
        point
        for point in frontier
        if point.fleet_tokens_per_s_per_chip >= yields and point.user_tokens_per_s >= user and point is not best
    ]
    if best in frontier or not beating:
        return ""
    other = beating[0]
    where = f"batch {other.plan.batch}, {mesh_in_words(other.plan.decode)} on {other.plan.slice}, beats it in both"
    if not all(in_limits(workload, other.ttft, other.tpot)):
        reason = "is beyond the limits"
    elif not ELABORATE_AXES.isdisjoint({*other.plan.decode, *other.plan.prefill}):
        reason = "needs tp_transpose or pp for as few chips"
    elif width_bytes(other.plan.dtypes) < width_bytes(best.plan.dtypes):
        reason = "is narrower in precision for as few chips"
    else:
        is_earlier = best.ttft.mean_s < other.ttft.mean_s
        has = "its first tokens earlier" if is_earlier else "more places to spare"
        reason = f"within a tie, and the chosen plan has {has}"
    return f"the chosen plan is not among these: {where}, but {reason}"


def nothing_fits_reasons(job: ServingJob, found: Candidates) -> list[str]:
    """What the plans of a slice lack: of the mesh that splits weights most, what one sequence, or the batch, needs."""
    machine = found.table.machine
    usable, share = format_bytes(engine_bytes(machine)), format_fraction(_memory_share(job))
    reasons = [f"an engine has {usable} on a device of {machine.hardware.name}, {share} of it"]
    closest, lengths, size = found.closest, machine.setting.lengths, page_tokens(machine)
    if closest is not None:
        memory = decode_memory(closest, machine, chunk_tokens=0.0)
        parts = ", ".join(
            f"{name.replace('_', ' ')} {format_bytes(float(part))}" for name, part in memory.parts.items() if part
        )
        mesh = mesh_in_words({axis: int(degree) for axis, degree in closest.degrees.items()})
        batch = format_things(int(closest.batch_size), "sequence")
        needs = "needs" if int(closest.batch_size) == 1 else "need"
        total_bytes, tokens = float(memory.total_bytes), lengths.paged_tokens(size)
        reasons.append(
            f"the least that {batch} of {lengths.mean_end_tokens:,.0f} tokens {needs} is {format_bytes(total_bytes)} "
            f"({mesh}: {parts}; pages of {size} tokens)"
        )
        fixed_bytes = sum(float(memory.parts[name]) for name in _FIXED)
        of_each_bytes = (total_bytes - fixed_bytes) / float(closest.batch_size)
        room = int((engine_bytes(machine) - fixed_bytes) / of_each_bytes)
        if total_bytes > engine_bytes(machine) and room > 0:
            reasons.append(f"{mesh} has room for {format_things(room, 'sequence')}")
        if total_bytes <= engine_bytes(machine) and tokens < job.workload.context_len:
            longest_bytes = float(own_cache_bytes(memory) / closest.batch_size) * job.workload.context_len / tokens
            longest = f"the longest, of {job.workload.context_len:,} tokens, needs {format_bytes(longest_bytes)}"
            reasons.append(f"{longest} of cache alone")
        reasons.extend(_chunk_reasons(job, found, closest))
    return reasons


def _chunk_reasons(job: ServingJob, found: Candidates, closest: PhaseColumns) -> Iterator[str]:
    """Whether the piece of prompts that is asked for is what does not fit."""
    chunk, machine = job.plan.prefill_chunk, found.table.machine
    if chunk is None:
        return
    alone, beside = (decode_memory(closest, machine, chunk_tokens=float(tokens)).parts for tokens in (0, chunk))
    grown = {name: float(part) for name, part in beside.items() if float(part) > float(alone[name])}
    parts = ", ".join(f"{name.replace('_', ' ')} {format_bytes(part)}" for name, part in grown.items())
    if grown:
        read = f"a pass that reads {format_things(chunk, 'token')} of prompts beside"
        yield f"{read} needs {parts}: lower --prefill-chunk"


def reads_too_slowly_reasons(job: ServingJob, found: Candidates) -> list[str]:
    """Why plans that fit are none: prompts come faster than passes beside decoding read them, or no reader fits."""
    table, lengths = found.table, found.table.machine.setting.lengths
    beside = table.rows(table.chunk_tokens > 0)
    if not len(beside):
        what, mended = "prompts", ""
        if job.plan.prefill_batch is not None:
            what, mended = f"{format_things(job.plan.prefill_batch, 'prompt')} at once", ": lower --prefill-batch"
        return [f"no server that only reads has room for {what} of {lengths.prompt_tokens:,.0f} tokens{mended}"]
    needed = prefill_share(
        B=beside.batch_size / beside.batch_ways,
        P=lengths.mean_read_tokens,
        G=table.machine.reply_pass_count,
        chunk_tokens=beside.chunk_tokens,
    )
    least = int(np.asarray(needed).argmin())
    batch, chunk = int(beside.batch_size[least]), int(beside.chunk_tokens[least])
    ranks = int(np.broadcast_to(beside.batch_ways, beside.batch_size.shape)[least])
    where = f" on each of {ranks} ranks" if ranks > 1 else ""
    read = f"{format_things(chunk, 'token')} of prompts beside a pass{where}"
    reason = (
        f"prompts come faster than passes read them: {format_things(batch, 'sequence')} with replies of "
        f"{lengths.reply_tokens:,.0f} tokens, and {read}, take "
        f"{np.asarray(needed)[least]:.3g} passes with prompts for each pass; at most {MOST_PREFILL_SHARE:g} is allowed"
    )
    return [reason]


def _memory_share(job: ServingJob) -> float:
    """Part of memory that the engine takes."""
    return ENGINE_SHARE if job.plan.memory_utilization is None else job.plan.memory_utilization


def queued_reasons(job: ServingJob, closest: ServingPoint) -> list[str]:
    """What the plan that comes closest does to requests, with as many servers as were tried."""
    workload, plan = job.workload, closest.plan
    fleet = "" if closest.fleet is None else f" on {format_things(closest.fleet.chips, 'chip')}"
    found: list[str] = []
    is_first_held, is_token_held = in_limits(workload, closest.ttft, closest.tpot)
    if workload.ttft_s is not None and not is_first_held:
        met = f"{workload.ttft_of} of the time to the first token is {_limited(closest.ttft, workload.ttft_of)}{fleet}"
        found.append(f"{met}; {format_seconds(workload.ttft_s)} is asked for")
    if workload.tpot_s is not None and not is_token_held:
        met = f"{workload.tpot_of} of the time per output token is {_limited(closest.tpot, workload.tpot_of)}{fleet}"
        found.append(f"{met}; {format_seconds(workload.tpot_s)} is asked for")
    where = f"{plan.mode}, {mesh_in_words(plan.decode)} on {plan.slice}, batch {plan.batch}"
    return [*found, f"so with the plan that comes closest ({where}); more servers do not mend it"]


def _limited(times: Quantiles, of: Statistic) -> str:
    return format_seconds(limit_of(times, of))


def too_slow_reasons(
    job: ServingJob, quickest_first: ServingPoint, quickest_token: ServingPoint, closest: ServingPoint
) -> list[str]:
    """The best attainable of each limit that no plan meets, and what binds it; of all, where each is met alone."""
    workload = job.workload
    is_first_met = workload.ttft_s is None or quickest_first.ttft.mean_s <= workload.ttft_s
    is_token_met = workload.tpot_s is None or quickest_token.tpot.mean_s <= workload.tpot_s
    is_each_met = is_first_met and is_token_met
    reasons = ["each limit is met alone, but not both together"] if is_each_met else []
    if workload.ttft_s is not None and (is_each_met or not is_first_met):
        plan = quickest_first.plan
        reasons.append(
            f"the shortest time to the first token is {format_seconds(quickest_first.ttft.mean_s)} "
            f"({plan.mode}, prefill {mesh_in_words(plan.prefill)} on {plan.slice}); "
            f"{format_seconds(workload.ttft_s)} is asked for"
        )
    if workload.tpot_s is not None and (is_each_met or not is_token_met):
        plan = quickest_token.plan
        reasons.append(
            f"the shortest time per output token is {format_seconds(quickest_token.tpot.mean_s)} "
            f"({mesh_in_words(plan.decode)} on {plan.slice}, batch {plan.batch}), where "
            f"{quickest_token.bound_reason}; {format_seconds(workload.tpot_s)} is asked for"
        )
    is_both = None not in {workload.ttft_s, workload.tpot_s}
    what = "the closest plan to both has" if is_both else "so near comes a plan with"
    when = "" if workload.rate is None else "with servers to spare, "
    plan = closest.plan
    reasons.append(
        f"{what} {format_seconds(closest.ttft.mean_s)} to the first token and "
        f"{format_seconds(closest.tpot.mean_s)} per token "
        f"({when}{plan.mode}, {mesh_in_words(plan.decode)}, batch {plan.batch})"
    )
    return reasons
