"""What our program is asked to be: a job in which nothing is left to choose, checked part by part."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, prod
from typing import TYPE_CHECKING

from ridgeline.cost.columns import STAGE_AXES
from ridgeline.errors import InputError
from ridgeline.model.accounting import operations
from ridgeline.model.operations import Attention
from ridgeline.model.spec import AttentionSpec, LayerSpec, MlaSpec, MoeSpec
from ridgeline.model.tree import model_tree
from ridgeline.program.layout import PROGRAM_AXES, Layout
from ridgeline.program.pipeline import Schedule
from ridgeline.program.quantization import unknown_choices
from ridgeline.program.scans import declared_weights, layer_scans

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ridgeline.job.job import (
        AttentionKernel,
        Dtypes,
        ExpertKernel,
        Job,
        Optimizer,
        PlanRequest,
        Quantization,
        Remat,
    )
    from ridgeline.model.operations import ModelTree, Tensor
    from ridgeline.model.spec import ModelSpec
    from ridgeline.program.scans import LayerScan

_WHERE = "--program ours"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingProgram:
    """A training step of our decoder.

    Attributes:
        tree: The operations and weights it consists of.
        scans: Its layers in order, as loops over stacked weights.
        layout: How the mesh splits them.
        global_batch: Sequences per step.
        seq_len: Tokens per sequence.
        micro_steps: Passes whose gradients are added up in one step.
        remat: What the forward pass keeps for the backward pass.
        dtypes: Precisions.
        optimizer: Widths of its moments.
        attention: Kernel and tiles.
        experts: Kernel and dispatch of experts.
        pipeline: How microbatches pass through the stages; one of each where there are none.
        quantization: A recipe for matmuls in low precision, or None.
        vocab_tiling: Parts of the tokens whose logits exist one after another.
    """

    tree: ModelTree
    scans: tuple[LayerScan, ...]
    layout: Layout
    global_batch: int
    seq_len: int
    micro_steps: int
    remat: Remat
    dtypes: Dtypes
    optimizer: Optimizer
    attention: AttentionKernel
    experts: ExpertKernel
    pipeline: Schedule
    quantization: Quantization | None
    vocab_tiling: int

    @property
    def weights(self) -> Mapping[str, tuple[Tensor, int]]:
        """Every weight by its name, with how many layers stack theirs (0: outside the layers)."""
        return declared_weights(self.tree, self.scans)


def training_program(job: Job) -> TrainingProgram:
    """The program of a job whose batch, mesh, micro-steps and remat policy are given.

    Raises:
        InputError: Our program lacks a part of the model or of the plan, or the mesh does not divide a dimension;
            the message names it.
    """
    plan, batch, remat = job.plan, job.workload.global_batch, job.plan.remat
    if batch is None or remat is None:
        raise _missing("the batch" if batch is None else "the remat policy")
    check_model(job.model)
    refuse_the_first(_unknown_axes(plan), expected=f"a mesh of the axes {', '.join(PROGRAM_AXES)}")
    refuse_the_first(_unknown_plan_parts(plan), expected="a plan without it")
    refuse_the_first(
        _quantized_experts(job),
        expected="no quantization, or a model without experts",
        fix="leave plan.quantization out, or let MaxText compile the job (--program maxtext)",
    )
    tree = model_tree(job.model)
    program = TrainingProgram(
        tree=tree,
        scans=layer_scans(job.model, tree),
        layout=Layout(
            degrees={axis: degree for axis, degree in plan.mesh.items() if degree > 1},
            experts_on_fsdp=bool(plan.experts.shard_experts_on_fsdp),
        ),
        global_batch=batch,
        seq_len=job.workload.seq_len,
        micro_steps=plan.gradient_accumulation or 1,
        remat=remat,
        dtypes=plan.dtypes,
        optimizer=plan.optimizer,
        attention=plan.attention,
        experts=plan.experts,
        pipeline=_schedule(plan),
        quantization=plan.quantization,
        vocab_tiling=plan.vocab_tiling,
    )
    _check_sizes(program)
    return program


def check_model(model: ModelSpec) -> None:
    """Refuses a model of which our program lacks a part.

    Raises:
        InputError: It names the part.
    """
    refuse_the_first(_unknown_model_parts(model), expected="a decoder of attention to earlier tokens, MLPs and experts")


def refuse_the_first(
    unknown: Iterator[tuple[str, object]],
    *,
    expected: str,
    fix: str = "ask `ridgeline train` for the estimate of this job",
) -> None:
    """Refuses a job of which our program lacks something: (what, which value)."""
    for what, value in unknown:
        raise InputError(
            f"our program has no {what} yet",
            where=_WHERE,
            value="yes" if value is True else value,
            expected=expected,
            fix=fix,
        )


def _check_sizes(program: TrainingProgram) -> None:
    """Every weight, the sequence and the batch share out evenly."""
    layout, where = program.layout, "plan.mesh"
    layout.check_weights((tensor for tensor, _ in program.weights.values()), where=where)
    layout.check_size(program.seq_len, layout.stream[1], what="the sequence", where=where)
    for path, operation, _ in operations(program.tree):
        if isinstance(operation, Attention) and operation.num_kv_heads > 1:  # a fused projection is all heads together
            layout.check_size(operation.num_kv_heads, layout.tensor, what=f"the key-value heads of {path}", where=where)
    _check_pipeline(program)
    tokens = program.seq_len // layout.ways(layout.stream[1])
    if tokens % program.vocab_tiling:
        raise InputError(
            "the vocabulary's tiles do not divide the tokens of a sequence on a device",
            where="plan.vocab_tiling",
            value=program.vocab_tiling,
            expected=f"a divisor of {tokens}",
            fix=f"use {gcd(tokens, program.vocab_tiling)}",
        )
    ways = program.micro_steps * program.pipeline.num_microbatches * layout.ways(layout.batch)
    if program.global_batch % ways:
        raise InputError(
            "the batch is not divisible by the mesh and the micro-steps",
            where="workload.global_batch",
            value=program.global_batch,
            expected=f"a multiple of {ways}",
            fix=f"use {ways * max(program.global_batch // ways, 1)}",
        )


def _check_pipeline(program: TrainingProgram) -> None:
    """Every stage has as many layers, and as many microbatches enter through it."""
    schedule = program.pipeline
    if schedule.num_stages == 1:
        return
    if len(program.scans) != 1:
        mixed = "pipeline over a mix of different layers", f"{len(program.scans)} loops"
        refuse_the_first(iter([mixed]), expected="equal layers, or a pattern of them that repeats")
    stages = " × ".join(f"{axis}={program.layout.degrees[axis]}" for axis in program.layout.stages)
    rounds, ways = sum(scan.count for scan in program.scans), schedule.num_stages * schedule.num_repeats
    if rounds % ways:
        raise InputError(
            "the layers are not divisible by the stages",
            where="plan.pipeline",
            value=f"{rounds} over {stages}, {schedule.num_repeats} repeats",
            expected=f"a multiple of {ways}",
            fix="lower the degree of pp or the repeats",
        )
    if schedule.num_microbatches % schedule.num_stages:
        raise InputError(
            "the microbatches are not divisible by the stages",
            where="plan.pipeline.microbatches",
            value=f"{schedule.num_microbatches} over {stages}",
            expected=f"a multiple of {schedule.num_stages}",
            fix=f"use {schedule.num_stages * max(schedule.num_microbatches // schedule.num_stages, 1)}",
        )


def _unknown_model_parts(model: ModelSpec) -> Iterator[tuple[str, object]]:
    """What of a model our program does not know: (what, which value)."""
    for layer in dict.fromkeys(layer for layer, _ in model.layers):
        match layer.mixer:
            case AttentionSpec():
                yield from _unknown_attention_parts(layer.mixer)
            case MlaSpec():
                yield from _unknown_latent_attention_parts(layer.mixer)
            case None:
                pass
            case _:
                yield "such sequence mixer", type(layer.mixer).__name__.removesuffix("Spec")
        yield from _unknown_layer_parts(layer)
    for name, value in (
        ("tied table with further rows", model.tied_embeddings and model.embedding_rows),
        ("per-layer inputs", model.per_layer_vocab_size),
        ("multi-token prediction", model.mtp_depth),
    ):
        if value:
            yield name, value


def _unknown_attention_parts(attention: AttentionSpec) -> Iterator[tuple[str, object]]:
    for name, value in (
        ("attention to later tokens", attention.span.kind == "full"),
        ("keys of another layer", not attention.own_kv),
        ("cross-attention", attention.cross),
        ("sparse attention", attention.indexer is not None),
    ):
        if value:
            yield name, value


def _unknown_latent_attention_parts(attention: MlaSpec) -> Iterator[tuple[str, object]]:
    if attention.indexer is not None or attention.selected_keys:
        yield "sparse attention", f"{attention.selected_keys} keys of a query" if attention.selected_keys else True


def _unknown_layer_parts(layer: LayerSpec) -> Iterator[tuple[str, object]]:
    for name, value in (
        ("second sequence mixer", layer.beside is not None),
        ("per-layer inputs", layer.per_layer_dim),
        ("AltUp streams", layer.altup_streams),
        ("Laurel residual", layer.laurel_rank),
        ("hyper-connections", layer.hyper_streams),
        ("extra scales", layer.extra_scales),
    ):
        if value:
            yield name, value


def _unknown_axes(plan: PlanRequest) -> Iterator[tuple[str, object]]:
    """Axes of the mesh that our program does not know: (which, its degree)."""
    for axis, degree in plan.mesh.items():
        if axis not in PROGRAM_AXES and degree > 1:
            yield f"{axis} axis", f"{axis}={degree}"


def _unknown_plan_parts(plan: PlanRequest) -> Iterator[tuple[str, object]]:
    """What of the rest of a plan our program does not know: (what, which value)."""
    asked = plan.context.strategy or "all_gather"
    dispatch = plan.experts.dispatch or "dropless"
    kernels = ("dense",) if dispatch == "capacity" else ("gmm", "ragged_dot")
    for name, value in (
        (f"{dispatch} dispatch with the kernel {plan.experts.kernel}", plan.experts.kernel not in {None, *kernels}),
        ("tokens gathered for their experts", plan.experts.exchange == "all_gather"),
        ("tokens that travel beside another microbatch", plan.experts.exchange_overlap),
        ("experts whose gated unit is made in their products", plan.experts.fused),
        ("pages for what experts keep", plan.experts.paged_stash),
        ("attention in fp8", plan.attention.fp8),
        ("weights gathered once a step", plan.pipeline.gather_once),
        (f"the optimizer {plan.optimizer.kind}", plan.optimizer.kind if plan.optimizer.kind != "adamw" else ""),
        ("a distributed optimizer", plan.optimizer.distributed),
        ("adapters beside frozen weights", "" if plan.lora is None else f"rank {plan.lora.rank}"),
        ("context parallelism by another strategy than all_gather", asked if asked != "all_gather" else ""),
        ("reordering of tokens for context parallelism", plan.mesh.get("cp", 1) > 1 and plan.context.load_balance),
    ):
        if value:
            yield name, value
    if plan.quantization is not None:
        if plan.quantization.kind == "fp4":
            yield "fp4 quantization", plan.quantization.kind
        yield from unknown_choices(plan.quantization)


def _quantized_experts(job: Job) -> Iterator[tuple[str, object]]:
    """Experts that a recipe would take: (what, which recipe)."""
    if job.plan.quantization is not None and any(isinstance(layer.mlp, MoeSpec) for layer, _ in job.model.layers):
        yield "quantization of experts", job.plan.quantization.kind


def _schedule(plan: PlanRequest) -> Schedule:
    """The pipeline of a plan; with one microbatch a stage and one pass where it says no more."""
    num_stages = prod(plan.mesh.get(axis, 1) for axis in STAGE_AXES)
    return Schedule(
        num_stages=num_stages,
        num_microbatches=(plan.pipeline.microbatches or num_stages) if num_stages > 1 else 1,
        num_repeats=(plan.pipeline.repeats or 1) if num_stages > 1 else 1,
    )


def _missing(what: str) -> InputError:
    return InputError(
        f"{what} is not given",
        where=_WHERE,
        value=None,
        expected="a job in which nothing is left to choose",
        fix="let `ridgeline train --save FILE` choose, and compile FILE",
    )
