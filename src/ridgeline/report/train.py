"""The answer to `ridgeline train`, as a screen and as JSON."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from ridgeline.cost.causes import HOST
from ridgeline.cost.work import shown_shares
from ridgeline.job.mesh import mesh_in_words
from ridgeline.job.notes import notes
from ridgeline.job.writing import job_tables
from ridgeline.report.blocks import Bar, Bars, Cell, Facts, Paragraphs, Report, Table, Tone
from ridgeline.report.decision import crossovers_table, decision_facts, decision_json
from ridgeline.report.derivations import derivations_json
from ridgeline.report.jsonable import Json, jsonable
from ridgeline.report.remat import remat_json, remat_table
from ridgeline.search.answer import NoPlan
from ridgeline.units import (
    format_bytes,
    format_count,
    format_fraction,
    format_seconds,
    format_things,
    format_usd,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ridgeline.cost.work import Part
    from ridgeline.errors import InfeasibleError
    from ridgeline.job.job import TokenExchange
    from ridgeline.search.answer import (
        Bound,
        MemoryEstimate,
        Plan,
        PlanEstimate,
        Rejected,
        RunEstimate,
        StepEstimate,
        TrainAnswer,
        Verdict,
    )

VERDICTS: Mapping[Verdict, tuple[str, Tone]] = {
    "fits": ("fits", "good"),
    "tight": ("tight", "warn"),
    "does_not_fit": ("does not fit", "bad"),
}
"""A verdict on memory in words, and its colour."""

BOUNDS: Mapping[Bound, str] = {
    "compute": "compute",
    "hbm": "HBM bandwidth",
    "ici": "the fast interconnect",
    "network": "the data-center network",
    "host": "the host link",
    "memory_capacity": "memory capacity",
}
"""What a step waits for, in words."""
_PHASES = {"forward": "forward", "recompute": "recomputation", "backward": "backward", "optimizer": "optimizer"}
_EXPOSED = "exposed communication"
_MOVED = {"ici": _EXPOSED, "network": _EXPOSED, "host": HOST}
_ORDER = {name: place for place, name in enumerate([*_PHASES.values(), _EXPOSED, HOST])}
_SHOWN_REJECTED = 6
_SHOWN_FAMILIES = 3


def train_report(answer: TrainAnswer) -> Report:
    """The screen."""
    job, best = answer.job, answer.best
    hardware, seq_len = job.hardware, job.workload.seq_len
    batch = f"{format_count(answer.global_batch)} × {format_things(seq_len, 'token')} a step"
    return Report(
        headline=f"{job.model.name} on {hardware.name}: {format_things(hardware.num_chips, 'chip')}, {batch}",
        pieces=(
            Facts(title="Best plan", rows=tuple(_best_rows(answer))),
            decision_facts(answer.decision),
            crossovers_table(answer.decision),
            _time_bars(best.step),
            _memory_bars(best.memory),
            *([remat_table(answer.remat)] if answer.remat.values else []),
            *([_alternatives(answer)] if answer.alternatives else []),
            *([_rejected(answer.rejected)] if answer.rejected else []),
            Paragraphs(title="What this rests on", lines=tuple(_assumptions(answer))),
        ),
    )


def train_json(answer: TrainAnswer) -> dict[str, Json]:
    """The object that `--json` prints."""
    run = answer.run
    return {
        "job": jsonable(job_tables(answer.job)),
        "global_batch": answer.global_batch,
        "best": _plan_json(answer.best),
        "alternatives": [_plan_json(plan) for plan in answer.alternatives],
        "rejected": jsonable(answer.rejected),
        "run": None if run is None else jsonable(run),
        "search": jsonable(answer.search),
        "remat": remat_json(answer.remat),
        "decision": decision_json(answer.decision),
        "mfu_convention": answer.mfu_convention,
        "assumptions": [*answer.assumptions, *notes(answer.job, answer.best.plan.mesh)],
        "derivations": derivations_json(answer.derivations),
    }


def no_plan_json(error: InfeasibleError) -> dict[str, Json]:
    """The object that `--json` prints when no plan fits: the same keys, and why there is no best plan."""
    found: dict[str, Json] = {
        "best": None,
        "alternatives": [],
        "run": None,
        "reason": error.what,
        "reasons": list(error.reasons),
        "fix": error.fix,
    }
    if isinstance(error.answer, NoPlan):
        answer = error.answer
        found |= {
            "job": jsonable(job_tables(answer.job)),
            "global_batch": answer.global_batch,
            "closest": _plan_json(answer.closest),
            "rejected": jsonable(answer.rejected),
            "search": jsonable(answer.search),
        }
    return found


def time_shares_s(part: Part) -> dict[str, float]:
    """Seconds of a step by what they go to; together they are the whole step.

    Computation counts under its phase. Of communication, and of transfers to and from the host, counts what nothing
    hides.
    """
    shares: defaultdict[str, float] = defaultdict(float)
    for name, duration_s in _spent(part, 1.0):
        shares[name] += duration_s
    return dict(shares)


def _spent(part: Part, share: float) -> Iterator[tuple[str, float]]:
    match part.composition:
        case "sequence":
            for child in part.children:
                yield from _spent(child, share)
        case "overlap":
            yield from _spent(part.children[0], share)
            for child, shown in shown_shares(part):
                yield from _spent(child, share * shown)
        case "leaf":
            name = _MOVED.get(part.resource) or _PHASES.get(part.phase, part.name)
            yield name, share * float(part.expected_s)


_EXCHANGED: Final[Mapping[TokenExchange, str]] = {
    "all_to_all": "copies of tokens are sent to them by all-to-all",
    "send_once": "copies of tokens are sent to them, over the network once to each domain of fast links",
    "all_gather": "all tokens are gathered to them, and partial results summed (MaxText's ring of experts)",
}


def _best_rows(answer: TrainAnswer) -> Iterator[tuple[str, Cell]]:
    best, job = answer.best, answer.job
    plan, step, memory = best.plan, best.step, best.memory
    word, tone = VERDICTS[memory.verdict]
    yield "mesh", Cell(text=mesh_in_words(plan.mesh), tone="strong")
    if plan.placement:
        yield "placed on", Cell(text=", ".join(f"{axis} on {physical}" for axis, physical in plan.placement.items()))
    if feeding := _feeding(plan):
        yield "batch in", Cell(text=feeding)
    if plan.expert_exchange is not None:
        yield "experts", Cell(text=_EXCHANGED[plan.expert_exchange])
    yield "remat", Cell(text=remat_in_words(plan))
    yield "precision", Cell(text=_precision(plan))
    interval = f"({format_seconds(step.low_s)} to {format_seconds(step.high_s)})"
    yield "step", Cell(text=f"{format_seconds(step.expected_s)} {interval}", tone="strong")
    yield "roofline", Cell(text=f"{format_seconds(step.roofline_s)}; no run of this plan can be faster")
    yield "MFU", Cell(text=_mfu(answer))
    yield "throughput", Cell(text=f"{format_count(best.tokens_per_s_per_chip)} tokens/s per chip")
    yield "waits for", Cell(text=f"{BOUNDS[best.bound]}: {best.bound_reason}")
    usage = f"{format_bytes(memory.total_bytes)} of {format_bytes(memory.usable_bytes)} usable per device"
    yield "memory", Cell(text=f"{word}: {usage}", tone=tone)
    if answer.run is not None and job.workload.tokens is not None:
        step_tokens = answer.global_batch * job.workload.seq_len
        run = _run(answer.run, step_tokens=step_tokens)
        yield f"run of {format_count(job.workload.tokens)}", Cell(text=run, tone="strong")


def _mfu(answer: TrainAnswer) -> str:
    """The fraction with what it is of, and why, where it is more than the whole."""
    best, peaks = answer.best, answer.job.hardware.chip.peak_flops_per_s
    peak = "bf16" if "bf16" in peaks else best.plan.dtypes.compute
    of_peak = f"{format_fraction(best.mfu)} of the {peak} peak ({answer.mfu_convention} FLOPs)"
    if not best.mfu > 1:
        return of_peak
    recipe = best.plan.quantization
    if recipe is not None and recipe.kind in peaks:
        return f"{of_peak}; above 100% because {recipe.kind} matmuls are faster than that peak"
    return f"{of_peak}; above 100% because it counts FLOPs that are not computed"


def _run(run: RunEstimate, *, step_tokens: int) -> str:
    if run.steps < 1:
        return f"less than one step, which is {format_things(step_tokens, 'token')}"
    length = f"{format_seconds(run.duration_s)}, {format_things(run.steps, 'step')}, "
    hours = format_things(run.chip_hours, "chip-hour")
    cost = "no public price" if run.cost_usd is None else f"{format_usd(run.cost_usd)} ({run.price_source})"
    return f"{length}{hours}, {cost}"


def _feeding(plan: Plan) -> str:
    """How a step's batch is cut in time; "" when it goes through at once."""
    words = [
        f"{count} {noun}"
        for count, noun in (
            (plan.gradient_accumulation, "micro-steps"),
            (plan.microbatches, "microbatches"),
            (plan.repeats, "circular repeats"),
        )
        if count > 1
    ]
    if plan.gather_once:
        words.append("weights gathered once a step")
    return ", ".join(words)


def remat_in_words(plan: Plan) -> str:
    """`full`, or `custom (context device, …)`."""
    tensors = ", ".join(f"{name} {place}" for name, place in plan.remat.tensors.items())
    return f"{plan.remat.policy} ({tensors})" if tensors else plan.remat.policy


def _precision(plan: Plan) -> str:
    dtypes, optimizer = plan.dtypes, plan.optimizer
    words = [f"weights {dtypes.weights}", f"compute {dtypes.compute}", f"gradients {dtypes.gradients}"]
    place = " on the host" if optimizer.state == "host" else ""
    moments = f"{optimizer.mu_dtype} and {optimizer.nu_dtype}"
    if optimizer.kind == "adafactor":
        moments = optimizer.nu_dtype
    rule = "" if optimizer.kind == "adamw" else f"{optimizer.kind}, "
    words.append(f"{rule}moments {moments}{place}")
    if plan.quantization is not None:
        words.append(f"{plan.quantization.kind} matmuls")
    if plan.lora is not None:
        words.append(f"adapters of rank {plan.lora.rank} on {', '.join(plan.lora.targets)}; all else frozen")
    return ", ".join(words)


def _time_bars(step: StepEstimate) -> Bars:
    shares = sorted(time_shares_s(step.parts).items(), key=lambda share: _ORDER.get(share[0], len(_ORDER)))
    return Bars(
        title=f"Time of a step: {format_seconds(step.expected_s)}",
        bars=tuple(
            Bar(
                label=name,
                value=share_s,
                text=f"{format_seconds(share_s)}  {format_fraction(share_s / step.expected_s):>6}",
                tone="warn" if name == _EXPOSED else "plain",
            )
            for name, share_s in shares
            if share_s != 0
        ),
    )


def _memory_bars(memory: MemoryEstimate) -> Bars:
    word, tone = VERDICTS[memory.verdict]
    parts = [
        Bar(label=name.replace("_", " "), value=size_bytes, text=format_bytes(size_bytes))
        for name, size_bytes in memory.parts.items()
        if size_bytes != 0
    ]
    total = Bar(label="total", value=memory.total_bytes, text=format_bytes(memory.total_bytes), tone=tone)
    largest = ", ".join(f"{name} {format_bytes(size_bytes)}" for name, size_bytes in memory.largest)
    host = f" Host: {format_bytes(memory.host_bytes)} a host." if memory.host_bytes else ""
    return Bars(
        title=f"Memory of a device: {word} ({format_bytes(memory.usable_bytes)} usable)",
        bars=(*parts, total),
        full=memory.usable_bytes,
        note=(f"Largest: {largest}." if largest else "") + host,
    )


def _alternatives(answer: TrainAnswer) -> Table:
    return Table(
        title="Alternatives",
        columns=("mesh", "passes", "remat", "step", "memory", "beside the best"),
        right=frozenset({1, 3, 4}),
        rows=tuple(
            (
                Cell(text=mesh_in_words(other.plan.mesh)),
                Cell(text=format_count(other.plan.gradient_accumulation * other.plan.microbatches)),
                Cell(text=_kept(other.plan)),
                Cell(text=format_seconds(other.step.expected_s)),
                Cell(text=format_bytes(other.memory.total_bytes), tone=VERDICTS[other.memory.verdict][1]),
                Cell(text=other.slower_because),
            )
            for other in answer.alternatives
        ),
        note="passes: micro-steps, or microbatches of a pipeline, in one step",
    )


def _kept(plan: Plan) -> str:
    """The remat policy, and that the moments are on the host."""
    return f"{plan.remat.policy}, moments on the host" if plan.optimizer.state == "host" else plan.remat.policy


def _rejected(rejected: tuple[Rejected, ...]) -> Table:
    """Refused families, those with the same reason on one line."""
    families: defaultdict[str, list[str]] = defaultdict(list)
    for family in rejected:
        families[family.reason].append(family.family)
    rows = [(Cell(text=_listed(names)), Cell(text=reason, tone="dim")) for reason, names in families.items()]
    hidden = len(rows) - _SHOWN_REJECTED
    return Table(
        title="Refused",
        columns=("plans", "because"),
        rows=tuple(rows[:_SHOWN_REJECTED]),
        note=f"and {hidden} more; --json lists them all" if hidden > 0 else "",
    )


def _listed(names: Sequence[str]) -> str:
    hidden = len(names) - _SHOWN_FAMILIES
    return ", ".join(names) if hidden <= 1 else f"{', '.join(names[:_SHOWN_FAMILIES])} and {hidden} more"


def _assumptions(answer: TrainAnswer) -> Iterator[Cell]:
    for note in notes(answer.job, answer.best.plan.mesh):
        yield Cell(text=note, tone="warn")
    for assumption in answer.assumptions:
        yield Cell(text=assumption, tone="dim")
    search = answer.search
    plans = f"{format_things(search.plans, 'plan')} costed in {format_seconds(search.seconds)}"
    fit = f"{format_count(search.fitting)} {'fits' if search.fitting == 1 else 'fit'}"
    yield Cell(text=f"{plans}; {fit}.", tone="dim")


def _plan_json(estimate: PlanEstimate) -> dict[str, Json]:
    step, memory = estimate.step, estimate.memory
    return {
        "plan": jsonable(estimate.plan),
        "step": {
            "roofline_s": jsonable(step.roofline_s),
            "expected_s": jsonable(step.expected_s),
            "low_s": jsonable(step.low_s),
            "high_s": jsonable(step.high_s),
            "widened_by": list(step.widened_by),
            "parts": part_json(step.parts),
        },
        "memory": {
            "verdict": memory.verdict,
            "total_bytes": jsonable(memory.total_bytes),
            "usable_bytes": jsonable(memory.usable_bytes),
            "parts": {f"{name}_bytes": jsonable(size_bytes) for name, size_bytes in memory.parts.items()},
            "largest": [{"name": name, "bytes": jsonable(size_bytes)} for name, size_bytes in memory.largest],
            "host_bytes": jsonable(memory.host_bytes),
            "host_usable_bytes": jsonable(memory.host_usable_bytes),
        },
        "bound": estimate.bound,
        "bound_reason": estimate.bound_reason,
        "mfu": jsonable(estimate.mfu),
        "tokens_per_s_per_chip": jsonable(estimate.tokens_per_s_per_chip),
        "slower_because": estimate.slower_because,
    }


def part_json(part: Part) -> dict[str, Json]:
    """A part with its children; work is keyed `bf16_flops`, `hbm_bytes`, `link_bytes`, …"""
    work: dict[str, Json] = {}
    for resource, amount in part.work.amounts.items():
        flops_of = resource.removeprefix("flops.")
        work[f"{flops_of}_flops" if flops_of != resource else f"{resource}_bytes"] = jsonable(amount)
    found: dict[str, Json] = {
        "name": part.name,
        "phase": part.phase,
        "expected_s": jsonable(part.expected_s),
        "resource": part.resource or None,
        "composition": part.composition,
        "work": work,
    }
    if part.children:
        found["children"] = [part_json(child) for child in part.children]
    return found
