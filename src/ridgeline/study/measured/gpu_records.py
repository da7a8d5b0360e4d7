"""Published GPU training runs as measured cases: rows of Megatron-Bridge, llm-foundry, torchtitan and papers.

A row names a model, GPUs, a batch, degrees and a precision, and what was measured. It rarely says what is recomputed
and never how the optimizer's state is split; `gpu_settings.py` says what is taken for granted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING, Final, cast

from ridgeline.errors import InputError
from ridgeline.job.job import Job
from ridgeline.job.reading import job_of_tables
from ridgeline.model.flop_convention import CONVENTIONS, training_flops_per_token
from ridgeline.model.spec import MoeSpec
from ridgeline.model.tree import model_tree
from ridgeline.model.zoo import load_model
from ridgeline.study.measured.bridge_recipes import bridge_recipe, recipe_choices
from ridgeline.study.measured.case import MeasuredCase
from ridgeline.study.measured.gpu_settings import (
    Choice,
    attention_of,
    collective_matmul_of,
    context_strategy_of,
    exchange_of,
    exchange_overlap_of,
    expert_tensor_ways,
    fused_rotary_of,
    gradients_dtype,
    has_distributed_optimizer,
    is_fully_sharded,
    is_zero_3_of_2021,
    launch_of,
    machine_of,
    mtp_depth_of,
    names_of_model,
    recipe_of,
    remat_of,
    sync_overlap_of,
    turns_of,
    ways_of,
)
from ridgeline.study.measured.records import number, record_id, records_of, skipped, text, unusable, whole
from ridgeline.units import parse_flops_per_s

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.model.spec import ModelSpec
    from ridgeline.study.measured.case import Skipped
    from ridgeline.study.measured.gpu_settings import Machine
    from ridgeline.study.measured.measurement import Metric, SourceOfMeasured
    from ridgeline.study.measured.records import Record

_MILLI, _PERCENT = 1e-3, 1e-2
_TIMES = (("step_time_s", 1.0), ("iter_time_s", 1.0), ("iter_time_ms", _MILLI), ("step_time_ms", _MILLI))
_GPUS_PER_NODE = 8
_RATES = ("tokens_per_s_per_gpu", "tokens_per_s_per_chip")
_GPT = re.compile(r"(gpt-?\d|megatron|turing)", re.IGNORECASE)
_HEAD_DIM: Final = 128
_LORA: Final[Mapping[str, object]] = {"rank": 16, "alpha": 32.0, "targets": ["query", "key", "value"]}
"""Adapters of NVIDIA's recipes, beside the projections of attention's inputs.
Source: Megatron-Bridge, perf_recipes/llama (`dim = 16`, `target_modules = ["linear_qkv"]`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Degrees:
    """How a row splits its run.

    Attributes:
        mesh: By axis of a job's mesh.
        replicas: Ways in which the batch is split.
        assumed: What was taken for granted.
    """

    mesh: Mapping[str, int]
    replicas: int
    assumed: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """What a row states of the run's speed."""

    metric: Metric
    value: float
    source: SourceOfMeasured
    assumed: tuple[str, ...] = ()


def read_gpu_records(document: object, where: str) -> tuple[list[MeasuredCase], list[Skipped]]:
    """The cases of a document of GPU rows, and the rows that are not used, with the reason.

    Args:
        document: Parsed JSON: an object with `records`, or a list of rows.
        where: Where it stands, for rows without an id.
    """
    cases: list[MeasuredCase] = []
    left_out: list[Skipped] = []
    for index, record in enumerate(records_of(document)):
        name = record_id(record, where, index)
        try:
            if not isinstance(record, dict):
                raise unusable("not an object", record, key="record")
            cases.append(_case(cast("Record", record), name))
        except InputError as error:
            left_out.append(skipped(name, error))
    return cases, left_out


def _case(record: Record, name: str) -> MeasuredCase:
    if record.get("kind") not in ("train", "time", None):
        raise unusable("states no time of a step", record["kind"], key="kind")
    phase = text(record, "phase")
    gpus, seq_len = _needed(record, "gpus"), _needed(record, "seq_len")
    machine, degrees = machine_of(record, gpus=gpus), _degrees(record, gpus)
    micro_batch, steps, assumed_feed = _feed(record, degrees)
    model, num_layers, changed = _model(record)
    choices = _choices(record, machine, degrees, model=model, num_layers=num_layers)
    tables: dict[str, object] = {
        "version": 1,
        "model": model,
        "hardware": machine.table,
        "workload": {"seq_len": seq_len, "global_batch": degrees.replicas * micro_batch * steps},
        "plan": _plan(record, degrees, steps, choices),
    }
    job = _job(tables, name)
    measured = _measured(record, job)
    chosen = (choice.assumed for choice in choices.values())
    assumed = (*machine.assumed, *degrees.assumed, assumed_feed, *changed, *chosen, *measured.assumed)
    return MeasuredCase(
        id=name,
        job=job,
        metric=measured.metric,
        measured=measured.value,
        source_of_measured=measured.source,
        source=" ".join(filter(None, (text(record, key) for key in ("source", "source_path", "framework")))),
        assumed=tuple(phrase for phrase in assumed if phrase),
        alternatives=_alternatives(tables, job, choices, name),
        not_stated="; ".join(_not_said(record, phase)),
    )


def _choices(
    record: Record, machine: Machine, degrees: _Degrees, *, model: str | Mapping[str, object], num_layers: int
) -> dict[str, Choice]:
    """What of a plan a row states, its recipe settles, or is taken for granted."""
    choices = {
        "recipe": recipe_of(record),
        "remat": remat_of(record),
        "turns": turns_of(record, stages=degrees.mesh["pp"], num_layers=num_layers),
        "launch": launch_of(record, domain=machine.domain),
        "attention": attention_of(record),
    }
    turns, launch = choices["turns"], choices["launch"]
    choices["exchange"] = Choice(value=exchange_of(record, domain=machine.domain))
    choices["overlap"] = exchange_overlap_of(record, launch=launch, turns=turns, domain=machine.domain)
    choices["fp8"] = choices["fused"] = choices["stash"] = Choice(value=None)
    named = model if isinstance(model, str) else text(model, "base")
    recipe = bridge_recipe(record, model=named, chip=machine.chip)
    settled = {} if recipe is None else recipe_choices(recipe)
    if record.get("activation_checkpointing", record.get("recompute")) is not None:
        settled.pop("remat", None)
    return choices | settled


def _needed(record: Record, key: str) -> int:
    found = whole(record, key)
    if found is None:
        raise unusable(f"{key} not stated", None, key=key)
    return found


def _degrees(record: Record, gpus: int) -> _Degrees:
    """The mesh of a row.

    Experts are split over GPUs that share the batch; their other ways lie over tensor parallelism, where the same GPUs
    hold as much of the experts.
    """
    tp, pp, cp, ep = (ways_of(record, key) or 1 for key in ("tp", "pp", "cp", "ep"))
    together, assumed = whole(record, "model_parallel_size"), list[str]()
    if together is not None and whole(record, "tp") is None:
        tp = gcd(together, _GPUS_PER_NODE)
        pp = together // tp
        assumed.append(f"{together} model-parallel ways: tp {tp} inside a node, pp {pp}")
    replicas, rest = divmod(gpus, tp * pp * cp)
    beside = gcd(ep, tp // gcd(tp, expert_tensor_ways(record, tp=tp)))
    if rest or replicas == 0:
        raise unusable(f"{gpus} GPUs are not a multiple of tp·pp·cp", tp * pp * cp, key="gpus")
    experts = gcd(ep // beside, replicas)
    if experts != ep:
        assumed.append(f"experts split {experts} ways over the batch, {ep // experts} beside")
    fsdp = 1
    if is_fully_sharded(record):
        fsdp = gcd(whole(record, "fsdp") or replicas, replicas // experts)
    mesh = {"dp": replicas // experts // fsdp, "fsdp": fsdp, "tp": tp, "cp": cp, "ep": experts, "pp": pp}
    return _Degrees(mesh=mesh, replicas=replicas, assumed=tuple(assumed))


def _feed(record: Record, degrees: _Degrees) -> tuple[int, int, str]:
    """Sequences of a microbatch, and microbatches of a step on each replica; what was taken for granted."""
    micro_batch, assumed = whole(record, "mbs"), ""
    steps = whole(record, "num_microbatches") or whole(record, "ga")
    batch = whole(record, "gbs")
    each = whole(record, "batch_per_dp") if batch is None else None
    if batch is None and each is not None:
        batch = each * degrees.replicas
    if micro_batch is None:
        of_steps = batch // degrees.replicas // steps if batch is not None and steps is not None else None
        micro_batch, assumed = of_steps or 1, "" if of_steps else "one sequence a microbatch"
    if batch is None:
        if steps is None:
            steps, assumed = 1, assumed or "one microbatch a step"
        return micro_batch, steps, assumed
    steps, rest = divmod(batch, degrees.replicas * micro_batch)
    if rest or steps == 0:
        raise unusable("the batch is no multiple of what the replicas take at once", batch, key="gbs")
    return micro_batch, steps, assumed


def _model(record: Record) -> tuple[str | Mapping[str, object], int, tuple[str, ...]]:
    """`model` of a job file: a zoo name, or what differs from it; its layers; what was assumed."""
    said = text(record, "model")
    if not said:
        raise unusable("model not stated", None, key="model")
    error: InputError | None = None
    owners = (text(record, "framework"), text(record, "source"))
    for name in (name for owner in owners for name in names_of_model(said, owner)):
        try:
            spec = load_model(name)
        except InputError as unknown:
            error = unknown
            continue
        changes, assumed = _changes(record, spec)
        if "parallel transformer block" in text(record, "note"):
            changes |= {"parallel": True, "pre_norms": 1}
        num_layers = whole(record, "layers") or spec.num_layers
        return ({"base": spec.name, "name": spec.name, **changes} if changes else spec.name), num_layers, assumed
    table = _of_dimensions(record, said)
    if table is None:
        raise unusable("unknown model", said, key="model") from error
    return table, cast("int", table["num_layers"]), ("model by its stated dimensions, in the rest as Megatron's GPT",)


def _of_dimensions(record: Record, said: str) -> dict[str, object] | None:
    """`model` of a job file for a GPT that is not in the zoo; None where the row does not state its dimensions."""
    embed_dim, num_layers = whole(record, "hidden"), whole(record, "layers") or whole(record, "num_blocks")
    if embed_dim is None or num_layers is None or not _GPT.match(said):
        return None
    num_heads = whole(record, "heads") or whole(record, "attn_heads") or max(embed_dim // _HEAD_DIM, 1)
    head_dim, rest = divmod(embed_dim, num_heads)
    if rest:
        raise unusable("heads that do not divide the width", num_heads, key="heads")
    vocab_size = whole(record, "vocab")
    return {
        "base": "megatron-core-70b" if text(record, "framework").startswith("Megatron-Core") else "megatron-18b",
        "name": said,
        "embed_dim": embed_dim,
        "num_layers": num_layers,
        "max_position_embeddings": _needed(record, "seq_len"),
        "attention": {"num_heads": num_heads, "num_kv_heads": num_heads, "head_dim": head_dim},
        "mlp": {"mlp_dim": whole(record, "feedforward") or 4 * embed_dim},
        **({} if vocab_size is None else {"vocab_size": vocab_size}),
    }


def _changes(record: Record, spec: ModelSpec) -> tuple[dict[str, object], tuple[str, ...]]:
    """What of a run's model is not the zoo's: layers left out, further tokens predicted; and what was assumed."""
    layers = whole(record, "layers")
    if layers is None:
        depth = mtp_depth_of(record, spec.mtp_layers)
        return ({"mtp_depth": depth}, (f"multi-token prediction, depth {depth}",)) if depth else ({}, ())
    if layers == spec.num_layers:
        return {}, ()
    has_experts = [isinstance(layer.mlp, MoeSpec) for layer, count in spec.layers for _ in range(count)]
    if any(has_experts) and not any(has_experts[:2]):
        return {"num_layers": layers, "leading": ["dense"]}, ("of a model cut short one layer is dense",)
    return {"num_layers": layers}, ()


def _plan(record: Record, degrees: _Degrees, steps: int, choices: Mapping[str, Choice]) -> dict[str, object]:
    mesh = degrees.mesh
    plan: dict[str, object] = {
        "mesh": dict(mesh),
        "dtypes": {"weights": "f32", "compute": "bf16", "gradients": gradients_dtype(record), "activations": "bf16"},
        "optimizer": {
            "distributed": mesh["fsdp"] == 1 and has_distributed_optimizer(record),
            "sync_overlap": sync_overlap_of(record),
        },
        **({"lora": dict(_LORA)} if _is_lora(record) else {}),
        "gradient_accumulation": steps,
        "remat": choices["remat"].value,
        "compiler": {
            "kernel_launch": choices["launch"].value,
            "collective_matmul": collective_matmul_of(record),
        },
        **_quantization(choices["recipe"].value),
        "attention": {
            "kernel": choices["attention"].value,
            "fused_rotary": fused_rotary_of(record),
            "fp8": choices["fp8"].value,
        },
        "moe": {
            "exchange": choices["exchange"].value,
            "exchange_overlap": choices["overlap"].value,
            "fused": choices["fused"].value,
            "paged_stash": choices["stash"].value,
        },
    }
    if mesh["pp"] > 1:
        pipeline = {"microbatches": steps, "repeats": choices["turns"].value}
        plan |= {"gradient_accumulation": 1, "pipeline": pipeline}
    if mesh["cp"] > 1:
        plan["context"] = {"strategy": context_strategy_of(record), "load_balance": True}
    return plan


def _is_lora(record: Record) -> bool:
    return "lora" in text(record, "phase").lower()


def _quantization(recipe: object) -> dict[str, object]:
    return {} if recipe is None else {"quantization": recipe}


def _job(tables: Mapping[str, object], name: str) -> Job:
    """The job of tables; they are copied, for reading writes out their short forms."""
    plan = cast("Mapping[str, object]", tables["plan"])
    job = job_of_tables({**tables, "plan": dict(plan)}, file=name)
    if not isinstance(job, Job):
        raise unusable("not a training run", job.workload.kind, key="kind")
    return job


def _alternatives(tables: Mapping[str, object], job: Job, choices: Mapping[str, Choice], name: str) -> tuple[Job, ...]:
    """The job under the other readings of what the row leaves open, one at a time."""
    plan = cast("Mapping[str, object]", tables["plan"])
    changes: list[Mapping[str, object]] = [{"remat": policy} for policy in choices["remat"].others]
    changes += [_quantization(recipe) for recipe in choices["recipe"].others]
    compiler = cast("Mapping[str, object]", plan["compiler"])
    changes += [{"compiler": {**compiler, "kernel_launch": launch}} for launch in choices["launch"].others]
    moe = cast("Mapping[str, object]", plan["moe"])
    changes += [{"moe": {**moe, "exchange_overlap": overlap}} for overlap in choices["overlap"].others]
    for turns in choices["turns"].others:
        changes.append({"pipeline": {**cast("Mapping[str, object]", plan["pipeline"]), "repeats": turns}})
    others = [_job({**tables, "plan": {**plan, **change}}, name) for change in changes]
    return tuple(other for other in others if other != job)


def _measured(record: Record, job: Job) -> _Measured:
    """What the row states of the run's speed, the most direct first."""
    for key, unit in _TIMES:
        if (value := number(record, key)) is not None:
            return _Measured(metric="step_time_s", value=value * unit, source="direct")
    for key in _RATES:
        if (value := number(record, key)) is not None:
            return _Measured(
                metric="tokens_per_s_per_chip",
                value=value,
                source="derived" if "derived" in text(record, "note") else "direct",
            )
    if (value := number(record, "tokens_per_s")) is not None:
        return _Measured(metric="tokens_per_s_per_chip", value=value / job.hardware.num_chips, source="direct")
    return _measured_in_flops(record, job)


def _measured_in_flops(record: Record, job: Job) -> _Measured:
    """Throughput from a rate of FLOPs, by the count of whoever published it."""
    peak_flops_per_s = job.hardware.chip.peak_flops_per_s["bf16"]
    for key, name in (
        ("model_tflops_per_s_per_gpu", "megatron"),
        ("achieved_tflops_per_s_per_gpu", "megatron_hardware"),
        ("mfu_pct", "megatron"),
    ):
        if (value := number(record, key)) is not None:
            in_percent = key.endswith("_pct")
            rate_flops_per_s = (
                value * _PERCENT * peak_flops_per_s if in_percent else parse_flops_per_s(f"{value}TFLOP/s", where=key)
            )
            per_token = training_flops_per_token(
                model_tree(job.model), seq_len=job.workload.seq_len, convention=CONVENTIONS[name]
            )
            return _Measured(
                metric="tokens_per_s_per_chip",
                value=rate_flops_per_s / per_token,
                source="derived",
                assumed=(f"{key} counts FLOPs as {name}",),
            )
    raise unusable("states no time and no rate", None, key="tokens_per_s_per_gpu")


def _not_said(record: Record, phase: str) -> tuple[str, ...]:
    found = ["packed sequences that do not see each other"] if phase.upper() in {"SFT", "LORA"} else []
    note = text(record, "note")
    if "parallel transformer block" in note:
        found.append("sliding windows")
    if "tokendrop" in text(record, "model"):
        found.append("tokens beyond an expert's capacity are dropped")
    if is_zero_3_of_2021(record):
        found.append("gathers of ZeRO-3 of 2021, parameter by parameter")
    if "known issue" in note:
        found.append("a regression that its source owns up to")
    return tuple(found)
