"""What an answer about serving rests on, and why there is none, in words."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

from ridgeline.cost.serving.memory import ENGINE_SHARE, engine_bytes, page_tokens
from ridgeline.cost.serving.step import PASS_OVERHEAD_S
from ridgeline.job.mesh import mesh_in_words
from ridgeline.search.serving_dtypes import dtypes_in_words
from ridgeline.search.serving_plans import decode_memory
from ridgeline.search.serving_tails import NUM_REQUESTS
from ridgeline.units import format_bytes, format_fraction, format_seconds, format_things

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ridgeline.job.serving import ServingJob
    from ridgeline.search.serving_answer import ServingPoint
    from ridgeline.search.serving_candidates import Candidates


def assumptions(job: ServingJob, best: ServingPoint) -> tuple[str, ...]:
    """Assumptions of one answer, most consequential first."""
    return tuple(_assumptions(job, best))


def _assumptions(job: ServingJob, best: ServingPoint) -> Iterator[str]:
    prompt, reply = job.workload.prompt_len, job.workload.generate_len
    lengths = f"prompts of {prompt:,} and replies of {reply:,} tokens, all alike"
    if isfinite(best.ttft.p99_s):
        yield f"{lengths}; at this rate {NUM_REQUESTS:,} requests that come independently were simulated"
    elif job.workload.rate is not None:
        yield f"{lengths}; in simulation no number of servers that was tried held the limits: queueing is left out"
    else:
        yield f"{lengths}, in steady state with full servers: times are means; --rate simulates their tails"
    yield f"a pass costs {format_seconds(PASS_OVERHEAD_S)} beside what devices do: the host schedules and samples"
    yield (
        f"an engine takes {format_fraction(ENGINE_SHARE)} of memory; every sequence has room for its whole context, "
        "in pages that are alike in all layers"
    )
    if best.plan.mode == "disaggregated":
        yield "prefill servers are as many as keep up, without spare; sending the KV cache hides behind decoding"
    else:
        yield "prompts arrive independently of each other, and are read first come, first served"
    yield (
        "tokens choose experts alike and independently"
        if "ep" in best.plan.decode or _is_mixture(best)
        else ("no prompt shares its beginning with another, and nothing is drafted ahead")
    )
    yield from job.model.notes


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
    return tuple(found)


def nothing_fits_reasons(job: ServingJob, found: Candidates) -> list[str]:
    """What the plans of a slice lack: of the mesh that splits weights most, what one sequence, or the batch, needs."""
    machine = found.table.machine
    usable = format_bytes(engine_bytes(machine))
    reasons = [f"an engine has {usable} on a device of {machine.hardware.name}, {format_fraction(ENGINE_SHARE)} of it"]
    closest = found.closest
    if closest is not None:
        memory = decode_memory(closest, machine, chunk_tokens=0.0)
        parts = ", ".join(
            f"{name.replace('_', ' ')} {format_bytes(float(part))}" for name, part in memory.parts.items() if part
        )
        mesh = mesh_in_words({axis: int(degree) for axis, degree in closest.degrees.items()})
        batch = format_things(int(closest.batch_size), "sequence")
        reasons.append(
            f"the least that {batch} of {job.workload.context_len:,} tokens need is "
            f"{format_bytes(float(memory.total_bytes))} ({mesh}: {parts}; pages of {page_tokens(machine)} tokens)"
        )
    return reasons


def too_slow_reasons(
    job: ServingJob, quickest_first: ServingPoint, quickest_token: ServingPoint, closest: ServingPoint
) -> list[str]:
    """The best attainable of each limit, and what binds it."""
    workload = job.workload
    reasons: list[str] = []
    if workload.ttft_s is not None:
        plan = quickest_first.plan
        reasons.append(
            f"the shortest time to the first token is {format_seconds(quickest_first.ttft.mean_s)} "
            f"({plan.mode}, prefill {mesh_in_words(plan.prefill)} on {plan.slice}); "
            f"{format_seconds(workload.ttft_s)} is asked for"
        )
    if workload.tpot_s is not None:
        plan = quickest_token.plan
        reasons.append(
            f"the shortest time per output token is {format_seconds(quickest_token.tpot.mean_s)} "
            f"({mesh_in_words(plan.decode)} on {plan.slice}, batch {plan.batch}), where "
            f"{quickest_token.bound_reason}; {format_seconds(workload.tpot_s)} is asked for"
        )
    reasons.append(
        f"the closest plan to both has {format_seconds(closest.ttft.mean_s)} and {format_seconds(closest.tpot.mean_s)} "
        f"({closest.plan.mode}, {mesh_in_words(closest.plan.decode)}, batch {closest.plan.batch})"
    )
    return reasons
