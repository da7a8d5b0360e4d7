"""From a document of the right shape to a `Job` that makes sense: names resolved, numbers understood."""

from __future__ import annotations

from dataclasses import replace
from os.path import normpath
from pathlib import Path
from typing import TYPE_CHECKING

from ridgeline.errors import InputError
from ridgeline.job.adapters import parse_lora
from ridgeline.job.document import ServingDocument
from ridgeline.job.job import (
    AttentionKernel,
    ContextParallelism,
    Dtypes,
    ExpertKernel,
    Job,
    Optimizer,
    Pipeline,
    PlanRequest,
    Workload,
)
from ridgeline.job.machine import machine
from ridgeline.job.mesh import check_batch, check_mesh, parse_mesh, parse_placement
from ridgeline.job.model_path import path_from
from ridgeline.job.own_calibration import read_own_calibration
from ridgeline.job.precision import parse_quantization
from ridgeline.job.remat import parse_remat
from ridgeline.job.serving import ServingJob
from ridgeline.job.serving_assembly import Asked, check_one_slice, compiler_settings, parse_dtypes, serving_plan
from ridgeline.job.serving_workload import serving_workload
from ridgeline.model.zoo import inline_model, resolve_model
from ridgeline.units import parse_count, parse_whole

if TYPE_CHECKING:
    from ridgeline.hardware.slice import Slice
    from ridgeline.job.document import AnyDocument, PlanTable, WorkloadTable
    from ridgeline.job.job import Dtype, Quantization, Remat
    from ridgeline.job.origin import Origin
    from ridgeline.job.own_calibration import OwnCalibration
    from ridgeline.job.serving import AnyJob

_MOST_SEQUENCES = 1e9
_MOST_TOKENS_OF_A_SEQUENCE = 1e9
_MOST_TOKENS_OF_A_RUN = 1e18
_MOST_MICRO_STEPS = 1e6
_MOST_CHUNKS_OF_LOGITS = 1e6


def assembled(document: AnyDocument, origin: Origin, *, folder: str) -> AnyJob:
    """The job that a document describes.

    Args:
        document: Of the right shape.
        origin: Where its values were written, for error messages.
        folder: What a relative path of a model counts from.

    Raises:
        InputError: A name is unknown, a number out of range, or two values contradict each other.
    """
    table = None if isinstance(document.model, str) else document.model
    if isinstance(document.model, str):
        reference = path_from(document.model, folder)
        model = resolve_model(reference, where=origin.of("model"))
    else:
        model = inline_model(document.model, where=origin.of("model"))
        reference = model.name
    hardware = machine(document.hardware, origin)
    if isinstance(document, ServingDocument):
        check_one_slice(hardware, where=origin.of("hardware"))
        serving = serving_workload(document.workload, origin, folder=folder)
        asked = Asked(model=model, hardware=hardware, folder=folder)
        return ServingJob(
            model_reference=reference,
            model=model,
            hardware=hardware,
            workload=serving,
            plan=serving_plan(document.plan, serving.batch, asked, origin),
            model_table=table,
            calibration=_own_calibration(document.calibration, origin, folder=folder),
        )
    workload = _workload(document.workload, origin)
    plan = _plan(document.plan, hardware, origin)
    plan = replace(plan, lora=parse_lora(document.plan.lora, model, plan.optimizer, origin))
    check_mesh(plan.mesh, hardware, where=origin.of("plan.mesh"))
    if workload.global_batch is not None:
        is_in_tokens = document.workload.batch_tokens is not None
        check_batch(
            workload.global_batch,
            plan.mesh,
            gradient_accumulation=plan.gradient_accumulation or 1,
            where=origin.of("workload.batch_tokens" if is_in_tokens else "workload.global_batch"),
            where_accumulation=origin.of("plan.gradient_accumulation"),
        )
    return Job(
        model_reference=reference,
        model=model,
        hardware=hardware,
        workload=workload,
        plan=plan,
        model_table=table,
        calibration=_own_calibration(document.calibration, origin, folder=folder),
    )


def _own_calibration(path: str | None, origin: Origin, *, folder: str) -> OwnCalibration | None:
    """A folder that a job file names counts from the file, one that is named beside it from the current folder."""
    if path is None:
        return None
    start = "." if origin.gives("calibration") else folder
    return read_own_calibration(normpath(Path(start) / path) if path else path, where=origin.of("calibration"))


def _workload(table: WorkloadTable, origin: Origin) -> Workload:
    if table.kind != "train":
        raise InputError(
            "unknown kind of workload",
            where=origin.of("workload.kind"),
            value=table.kind,
            expected="train, serve",
            fix='use kind = "train", or kind = "serve"',
        )
    seq_len = parse_whole(
        table.seq_len, where=origin.of("workload.seq_len"), unit="tokens", most=_MOST_TOKENS_OF_A_SEQUENCE
    )
    tokens = table.tokens
    if tokens is not None:
        tokens = parse_whole(tokens, where=origin.of("workload.tokens"), unit="tokens", most=_MOST_TOKENS_OF_A_RUN)
    return Workload(
        seq_len=seq_len,
        global_batch=_global_batch(table, seq_len, origin),
        tokens=None if tokens is None else float(tokens),
    )


def _global_batch(table: WorkloadTable, seq_len: int, origin: Origin) -> int | None:
    """Sequences per step, whether given so or in tokens."""
    where, where_tokens = origin.of("workload.global_batch"), origin.of("workload.batch_tokens")
    if table.batch_tokens is None:
        if table.global_batch is None:
            return None
        return parse_whole(table.global_batch, where=where, unit="sequences", most=_MOST_SEQUENCES)
    if table.global_batch is not None:
        raise InputError(
            "the batch is given twice",
            where=f"{where} and {where_tokens}",
            value=f"{table.global_batch} sequences, {table.batch_tokens} tokens",
            expected="either sequences (global_batch) or tokens (batch_tokens)",
            fix="leave one of them out",
        )
    tokens = parse_count(table.batch_tokens, where=where_tokens, unit="tokens")
    if tokens < seq_len or tokens % seq_len:
        raise InputError(
            "batch is not a whole number of sequences",
            where=where_tokens,
            value=table.batch_tokens,
            expected=f"a multiple of the sequence length, {seq_len} tokens",
            fix=f"use {max(round(tokens / seq_len), 1) * seq_len}",
        )
    return parse_whole(tokens / seq_len, where=where_tokens, unit="sequences", most=_MOST_SEQUENCES)


def _plan(table: PlanTable, hardware: Slice, origin: Origin) -> PlanRequest:
    attention, moe, context = table.attention, table.moe, table.context
    dtypes = Dtypes(**parse_dtypes(table.dtypes.model_dump(exclude_none=True), "plan.dtypes", origin))
    micro_steps = table.gradient_accumulation
    if micro_steps is not None:
        where = origin.of("plan.gradient_accumulation")
        micro_steps = parse_whole(micro_steps, where=where, unit="micro-steps", most=_MOST_MICRO_STEPS)
    return PlanRequest(
        mesh=parse_mesh(table.mesh, where=origin.of("plan.mesh")),
        gradient_accumulation=micro_steps,
        pipeline=Pipeline(**table.pipeline.model_dump()),
        dtypes=dtypes,
        quantization=_quantization(table, origin),
        remat=_remat(table, origin),
        optimizer=_optimizer(table, dtypes.weights, origin),
        vocab_tiling=parse_whole(
            table.vocab_tiling, where=origin.of("plan.vocab_tiling"), unit="chunks", most=_MOST_CHUNKS_OF_LOGITS
        ),
        moe_imbalance=moe.imbalance,
        placement=parse_placement(table.placement, hardware, where=lambda axis: origin.of(f"plan.placement.{axis}")),
        attention=AttentionKernel(**attention.model_dump()),
        experts=ExpertKernel(**moe.model_dump(exclude={"imbalance"})),
        context=ContextParallelism(**context.model_dump()),
        compiler=compiler_settings(table.compiler),
    )


def _quantization(table: PlanTable, origin: Origin) -> Quantization | None:
    if table.quantization is None:
        return None
    return parse_quantization(table.quantization.model_dump(exclude_none=True), where=origin.of("plan.quantization"))


def _remat(table: PlanTable, origin: Origin) -> Remat | None:
    if table.remat is None:
        return None
    where = origin.of("plan.remat")
    if "policy" not in table.remat:
        raise InputError(
            "missing policy",
            where=where,
            value=", ".join(table.remat) or "(empty)",
            expected="a policy",
            fix='add policy = "custom", or name a preset',
        )
    tensors = {name: place for name, place in table.remat.items() if name != "policy"}
    return parse_remat(table.remat["policy"], tensors, where=where)


def _optimizer(table: PlanTable, weights: Dtype, origin: Origin) -> Optimizer:
    """The optimizer; moments are as wide as the weights unless said otherwise, as in MaxText.

    Raises:
        InputError: Matrices are placed for iterations that the optimizer does not make.
    """
    optimizer = table.optimizer
    if optimizer.orthogonalize is not None and optimizer.kind not in {"muon", "muonh"}:
        raise InputError(
            f"{optimizer.kind} makes no matrix orthogonal",
            where=origin.of("plan.optimizer.orthogonalize"),
            value=optimizer.orthogonalize,
            expected="nothing, but for muon and muonh",
            fix='leave it out, or use kind = "muon"',
        )
    if optimizer.distributed and optimizer.orthogonalize in {"sharded", "replicated"}:
        raise InputError(
            "a distributed optimizer gives each replica whole matrices",
            where=origin.of("plan.optimizer.orthogonalize"),
            value=optimizer.orthogonalize,
            expected="whole",
            fix="leave it out, or leave out distributed",
        )
    widths: dict[str, Dtype] = {"mu_dtype": weights, "nu_dtype": weights}
    said = optimizer.model_dump(include=set(widths), exclude_none=True)
    widths |= parse_dtypes(said, "plan.optimizer", origin)
    return Optimizer(
        kind=optimizer.kind,
        state=optimizer.state,
        distributed=optimizer.distributed,
        sync_overlap=optimizer.sync_overlap,
        orthogonalize=optimizer.orthogonalize,
        **widths,
    )
