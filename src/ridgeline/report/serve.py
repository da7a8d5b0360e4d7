"""The answer to `ridgeline serve`, as a screen, as JSON, and its frontier as a chart."""

from __future__ import annotations

from math import isfinite, prod
from typing import TYPE_CHECKING, Final

from ridgeline.job.job import RANK_AXES
from ridgeline.job.mesh import mesh_in_words
from ridgeline.job.serving_assembly import ANY
from ridgeline.job.writing import job_tables
from ridgeline.report.blocks import Bar, Bars, Cell, Facts, Paragraphs, Report, Table
from ridgeline.report.derivations import derivations_json
from ridgeline.report.jsonable import Json, jsonable
from ridgeline.report.serving_frontier import BREAKDOWN, frontier_table, slice_cell
from ridgeline.report.train import VERDICTS, part_json
from ridgeline.search.serving.answer import NoServingPlan
from ridgeline.search.serving.dtypes import dtypes_in_words
from ridgeline.search.serving.words import requests_in_words
from ridgeline.units import (
    format_bytes,
    format_count,
    format_fraction,
    format_request_rate,
    format_seconds,
    format_things,
    format_usd,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ridgeline.errors import InfeasibleError
    from ridgeline.search.engine.latency import Quantiles
    from ridgeline.search.serving.answer import (
        DecodeLaws,
        DtypeGain,
        Fleet,
        ServeAnswer,
        ServingBound,
        ServingChoice,
        ServingInterval,
        ServingPoint,
        Simulation,
    )

_BOUNDS: Final[Mapping[ServingBound, str]] = {
    "hbm": "HBM bandwidth",
    "compute": "compute",
    "ici": "the fast interconnect",
    "network": "the data-center network",
    "overhead": "the host",
}
_SHOWN_REJECTED: Final = 6


def serve_report(answer: ServeAnswer) -> Report:
    """The screen."""
    job, best = answer.job, answer.best
    on = job.hardware.name if len(answer.slices) == 1 else f"{job.hardware.chip.name}, {len(answer.slices)} slices"
    return Report(
        headline=f"{job.model.name} served on {on}: {requests_in_words(job.workload)}",
        pieces=(
            Facts(title="Best plan", rows=tuple(_best_rows(answer))),
            Facts(title="Laws", rows=tuple(_law_rows(answer.laws))),
            _time_bars(best),
            _memory_bars(best),
            frontier_table(answer),
            *([_narrower(answer)] if answer.narrower else []),
            *([_rejected(answer)] if answer.rejected else []),
            Paragraphs(title="What this rests on", lines=tuple(_assumptions(answer))),
        ),
    )


def serve_json(answer: ServeAnswer) -> dict[str, Json]:
    """The object that `--json` prints."""
    best = _point_json(answer.best)
    best["step"] = _step_json(answer.best)
    return {
        "job": jsonable(job_tables(answer.job)),
        "best": best,
        "interval": _interval_json(answer.interval),
        "frontier": [_point_json(point) | {"is_best": point is answer.best} for point in answer.frontier],
        "frontier_note": answer.frontier_note,
        "rejected": jsonable(answer.rejected),
        "narrower": [{"saving_fraction": each.saving_fraction} | _point_json(each.point) for each in answer.narrower],
        "laws": jsonable(answer.laws),
        "slices": [hardware.name for hardware in answer.slices],
        "search": jsonable(answer.search),
        "assumptions": [*answer.notes, *answer.assumptions],
        "price_source": answer.price_source,
        "derivations": derivations_json(answer.derivations),
    }


def no_serving_plan_json(error: InfeasibleError) -> dict[str, Json]:
    """The object that `--json` prints when no plan will do: the same keys, and why there is no best plan."""
    found: dict[str, Json] = {
        "best": None,
        "frontier": [],
        "reason": error.what,
        "reasons": list(error.reasons),
        "fix": error.fix,
    }
    if isinstance(error.answer, NoServingPlan):
        answer = error.answer
        found |= {
            "job": jsonable(job_tables(answer.job)),
            "closest": None if answer.quickest is None else _point_json(answer.quickest),
            "rejected": jsonable(answer.rejected),
            "search": jsonable(answer.search),
        }
    return found


def _best_rows(answer: ServeAnswer) -> Iterator[tuple[str, Cell]]:
    best, plan = answer.best, answer.best.plan
    memory = best.memory
    if len(answer.slices) > 1:
        yield "slice", Cell(text=plan.slice, tone="strong")
    yield "mode", Cell(text=_mode(plan), tone="strong")
    yield "decode", Cell(text=f"{mesh_in_words(plan.decode)}; {format_things(plan.batch, 'sequence')} at once")
    yield "prefill", Cell(text=_prefill(best))
    if plan.cache == "spread":
        yield "KV cache", Cell(text="shared out beyond its heads: sequences first, then the tokens of one")
    yield "precision", Cell(text=dtypes_in_words(plan.dtypes))
    yield "first token", Cell(text=_times(best.ttft, answer.interval.ttft_s))
    yield "per token", Cell(text=_times(best.tpot, answer.interval.tpot_s), tone="strong")
    yield from _limit_row(answer)
    yield from _simulated_rows(best)
    step = best.step
    bound = (
        f"{format_seconds(step.expected_s)}; no pass of this plan can be faster than {format_seconds(step.roofline_s)}"
    )
    yield "pass", Cell(text=bound)
    yield "throughput", Cell(text=_throughput(answer), tone="strong")
    yield "waits for", Cell(text=f"{_BOUNDS[best.bound]}: {best.bound_reason}")
    word, tone = VERDICTS[memory.verdict]
    usage = f"{format_bytes(memory.total_bytes)} of {format_bytes(memory.usable_bytes)} that an engine has per device"
    yield "memory", Cell(text=f"{word}: {usage}", tone=tone)
    yield "concurrency", Cell(text=_concurrency(best))
    yield "cost", Cell(text=_cost(answer))
    if best.fleet is not None:
        yield format_request_rate(best.fleet.requests_per_s), Cell(text=_fleet(best.fleet), tone="strong")
        at_rate = format_count(best.fleet_tokens_per_s_per_chip)
        yield "", Cell(text=f"{at_rate} tokens/s per chip, {format_count(best.user_tokens_per_s)} per user")


def _throughput(answer: ServeAnswer) -> str:
    """What full servers yield, and the ends of its interval."""
    best = answer.best
    low, high = (format_count(end) for end in answer.interval.tokens_per_s_per_chip)
    each = f"{format_count(best.tokens_per_s_per_chip)} tokens/s per chip ({low} to {high})"
    full = "" if best.fleet is None else ", of full servers"
    return f"{each}, {format_count(best.tokens_per_s_per_user)} per user{full}"


def _limit_row(answer: ServeAnswer) -> Iterator[tuple[str, Cell]]:
    """What was asked for, in the units that were understood."""
    asked = answer.job.workload
    first, token = ("first token", asked.ttft_s, asked.ttft_of), ("each further one", asked.tpot_s, asked.tpot_of)
    both = [(what, limit_s, of) for what, limit_s, of in (first, token) if limit_s is not None]
    limits = [f"{what} within {format_seconds(limit_s)} ({of})" for what, limit_s, of in both]
    if limits:
        yield "limits", Cell(text=", ".join(limits))


def _simulated_rows(best: ServingPoint) -> Iterator[tuple[str, Cell]]:
    """What requests met that were served one by one."""
    simulation = best.simulation
    if simulation is None:
        return
    yield "queueing", Cell(text=_times(simulation.queueing))
    rates = f"{format_request_rate(simulation.requests_per_s)}, {format_count(simulation.output_tokens_per_s)} tokens/s"
    busy = f"passes run {format_fraction(simulation.utilization)} of the time, full or not"
    again = simulation.num_preemptions_per_request
    preempted = f"; {again:.2g} times a request loses its pages and is read anew" if again else ""
    yield "served", Cell(text=f"{rates}; {busy}{preempted}")


def _times(times: Quantiles, interval: tuple[float, float] | None = None) -> str:
    """The mean (and its interval), and where known, what half, nine of ten and 99 of 100 requests stay below."""
    between = "" if interval is None else f"; {' to '.join(map(format_seconds, interval))}"
    mean = f"{format_seconds(times.mean_s)} (mean{between})"
    if not isfinite(times.p99_s):
        return mean
    tails = {"p50": times.p50_s, "p90": times.p90_s, "p99": times.p99_s}
    return f"{mean}; " + ", ".join(f"{name} {format_seconds(value)}" for name, value in tails.items())


def _mode(plan: ServingChoice) -> str:
    if plan.mode == "interleaved":
        ranks = prod(plan.decode.get(axis, 1) for axis in RANK_AXES)
        each = f", on each of {ranks} ranks" if ranks > 1 else ""
        read = format_things(plan.prefill_chunk, "token")
        return f"interleaved: passes read up to {read} of prompts beside decoding{each}"
    return f"disaggregated: {plan.prefill_server_ratio:.2f} prefill servers for each decode server"


def _prefill(best: ServingPoint) -> str:
    plan = best.plan
    if plan.mode == "interleaved":
        return f"{mesh_in_words(plan.prefill)}; a pass that reads a piece takes {format_seconds(best.prefill_s)}"
    prompts = format_things(plan.prefill_batch, "prompt")
    return f"{mesh_in_words(plan.prefill)}; {prompts} at once in {format_seconds(best.prefill_s)}"


def _concurrency(best: ServingPoint) -> str:
    ideal = f"{format_count(best.ideal_concurrency)} to the byte"
    return f"room for {format_things(best.max_concurrency, 'sequence')} in pages of one size, {ideal}"


def _cost(answer: ServeAnswer) -> str:
    best = answer.best
    whole, prompts, replies = best.cost_per_million_output_tokens_usd, best.input_usd, best.output_usd
    if whole is None or prompts is None or replies is None:
        return "no public price"
    apart = f"{format_usd(prompts)} input and {format_usd(replies)} output, apart"
    full = "" if best.fleet is None else " of full servers"
    return f"{format_usd(whole)} a million output tokens{full}, prompts included; {apart} ({answer.price_source})"


def _fleet(fleet: Fleet) -> str:
    servers = format_things(fleet.servers, "server")
    if fleet.prefill_servers:
        servers = f"{fleet.servers} decode and {format_things(fleet.prefill_servers, 'prefill server')}"
    hourly, million = fleet.usd_per_hour, fleet.usd_per_million_output_tokens
    price = ""
    if hourly is not None and million is not None:
        price = f", {format_usd(hourly)} an hour: {format_usd(million)} a million output tokens"
    return f"{servers}, {format_things(fleet.chips, 'chip')}{price}"


def _law_rows(laws: DecodeLaws) -> Iterator[tuple[str, Cell]]:
    yield (
        "critical batch",
        Cell(text=f"{format_things(round(laws.critical_batch_size), 'sequence')}; from there matmuls compute"),
    )
    crossover = (
        f"{format_things(round(laws.context_crossover_tokens), 'token')}; from there caches take longer than weights"
    )
    yield "context crossover", Cell(text=crossover)
    if laws.tensor_compute_degree is not None and laws.tensor_memory_degree is not None:
        while_reading = f"{laws.tensor_memory_degree:.3g} while weights are read"
        ways = f"{laws.tensor_compute_degree:.3g} ways while matmuls compute, {while_reading}"
        yield "tensor parallelism", Cell(text=f"at most {ways}")


def _time_bars(best: ServingPoint) -> Bars:
    step = best.step
    parts = {name: float(getattr(step.breakdown, key)) for key, name in BREAKDOWN.items()}
    return Bars(
        title=f"Time of a pass of decoding: {format_seconds(step.expected_s)}",
        bars=tuple(
            Bar(
                label=name,
                value=part_s,
                text=f"{format_seconds(part_s)}  {format_fraction(part_s / step.expected_s):>6}",
                tone="warn" if name == "collectives" else "plain",
            )
            for name, part_s in parts.items()
            if part_s > 0
        ),
        note=f"Arithmetic takes {format_seconds(step.breakdown.flops_s)}, beside the reading of weights and cache.",
    )


def _memory_bars(best: ServingPoint) -> Bars:
    memory = best.memory
    word, tone = VERDICTS[memory.verdict]
    parts = [
        Bar(label=name.replace("_", " "), value=part, text=format_bytes(part))
        for name, part in memory.parts.items()
        if part > 0
    ]
    return Bars(
        title=f"Memory of a device: {word} ({format_bytes(memory.usable_bytes)} for the engine)",
        bars=(*parts, Bar(label="total", value=memory.total_bytes, text=format_bytes(memory.total_bytes), tone=tone)),
        full=memory.usable_bytes,
        note=f"KV cache to the byte: {format_bytes(best.ideal_cache_bytes)}.",
    )


def _narrower(answer: ServeAnswer) -> Table:
    """Narrower precisions, which the answer does not take of itself."""
    has_rate = answer.best.fleet is not None
    named = ("weights", "KV cache", "compute")
    return Table(
        title="Narrower precision, quality aside",
        columns=(
            *named,
            *("saves", "chips" if has_rate else "$/M output", "tok/s per chip", "tok/s per user", "batch"),
            *(("slice",) if len(answer.slices) > 1 else ()),
            "servers",
        ),
        right=frozenset({3, 4, 5, 6, 7}),
        rows=tuple(_narrower_row(each, several=len(answer.slices) > 1) for each in answer.narrower),
        note=f"not taken unless asked for: --weights-dtype, --kv-cache-dtype, --compute-dtype; {ANY!r} leaves one open",
    )


def _narrower_row(gain: DtypeGain, *, several: bool) -> tuple[Cell, ...]:
    point, plan, dtypes = gain.point, gain.point.plan, gain.point.plan.dtypes
    usd = point.cost_per_million_output_tokens_usd
    cost = "unknown" if usd is None else format_usd(usd)
    return (
        Cell(text=dtypes.weights if dtypes.experts is None else f"{dtypes.weights}, experts {dtypes.experts}"),
        Cell(text=dtypes.kv_cache),
        Cell(text=dtypes.compute),
        Cell(text=format_fraction(gain.saving_fraction), tone="strong"),
        Cell(text=cost if point.fleet is None else format_count(point.fleet.chips)),
        Cell(text=format_count(point.tokens_per_s_per_chip)),
        Cell(text=format_count(point.tokens_per_s_per_user)),
        Cell(text=format_count(plan.batch)),
        *([slice_cell(plan)] if several else []),
        Cell(text=mesh_in_words(plan.decode)),
    )


def _rejected(answer: ServeAnswer) -> Table:
    hidden = len(answer.rejected) - _SHOWN_REJECTED
    return Table(
        title="Refused",
        columns=("plans", "because"),
        rows=tuple(
            (Cell(text=each.family), Cell(text=each.reason, tone="dim")) for each in answer.rejected[:_SHOWN_REJECTED]
        ),
        note=f"and {hidden} more; --json lists them all" if hidden > 0 else "",
    )


def _assumptions(answer: ServeAnswer) -> Iterator[Cell]:
    for note in answer.notes:
        yield Cell(text=note, tone="warn")
    for assumption in answer.assumptions:
        yield Cell(text=assumption, tone="dim")
    search = answer.search
    plans = f"{format_things(search.plans, 'plan')} costed in {format_seconds(search.seconds)}"
    yield Cell(text=f"{plans}; {format_count(search.fitting)} fit.", tone="dim")


def _quantiles_json(times: Quantiles) -> dict[str, Json]:
    found = {"mean": times.mean_s, "p50": times.p50_s, "p90": times.p90_s, "p99": times.p99_s}
    return {name: jsonable(value) for name, value in found.items()}


def _interval_json(interval: ServingInterval) -> dict[str, Json]:
    ends = {key: getattr(interval, key) for key in ("ttft_s", "tpot_s", "tokens_per_s_per_chip")}
    return {
        **{key: {"low": jsonable(low), "high": jsonable(high)} for key, (low, high) in ends.items()},
        "widened_by": list(interval.widened_by),
    }


def _point_json(point: ServingPoint) -> dict[str, Json]:
    memory = point.memory
    return {
        "plan": jsonable(point.plan),
        "ttft_s": _quantiles_json(point.ttft),
        "tpot_s": _quantiles_json(point.tpot),
        "tokens_per_s_per_chip": point.tokens_per_s_per_chip,
        "tokens_per_s_per_user": point.tokens_per_s_per_user,
        "at_rate": _at_rate_json(point),
        "requests_per_s": point.requests_per_s,
        "max_concurrency": point.max_concurrency,
        "ideal_concurrency": point.ideal_concurrency,
        "memory": {
            "verdict": memory.verdict,
            "total_bytes": memory.total_bytes,
            "usable_bytes": memory.usable_bytes,
            "ideal_kv_cache_bytes": point.ideal_cache_bytes,
            "parts": {f"{name}_bytes": jsonable(part) for name, part in memory.parts.items()},
        },
        "cost_per_million_output_tokens_usd": point.cost_per_million_output_tokens_usd,
        "cost_per_million_tokens_usd": {"input": point.input_usd, "output": point.output_usd},
        "bound": point.bound,
        "bound_reason": point.bound_reason,
        "decode_s": point.step.expected_s,
        "decode_roofline_s": point.step.roofline_s,
        "breakdown": jsonable(point.step.breakdown),
        "prefill_s": point.prefill_s,
        "fleet": jsonable(point.fleet),
        "simulation": _simulation_json(point.simulation),
    }


def _at_rate_json(point: ServingPoint) -> Json:
    """What the fleet does at the job's rate, where that was simulated; the point's own rates are of full servers."""
    if not point.is_simulated:
        return None
    return {
        "tokens_per_s_per_chip": point.fleet_tokens_per_s_per_chip,
        "tokens_per_s_per_user": point.user_tokens_per_s,
    }


def _simulation_json(simulation: Simulation | None) -> Json:
    if simulation is None:
        return None
    return {
        "num_requests": simulation.num_requests,
        "is_trace": simulation.is_trace,
        "queueing_s": _quantiles_json(simulation.queueing),
        "requests_per_s": simulation.requests_per_s,
        "output_tokens_per_s": simulation.output_tokens_per_s,
        "utilization": simulation.utilization,
        "num_preemptions_per_request": simulation.num_preemptions_per_request,
    }


def _step_json(point: ServingPoint) -> dict[str, Json]:
    return {
        "roofline_s": point.step.roofline_s,
        "expected_s": point.step.expected_s,
        "parts": part_json(point.step.parts),
    }
