"""What our program is asked to be: a job in which nothing is left to choose, checked part by part."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from ridgeline.errors import InputError
from ridgeline.model.accounting import operations
from ridgeline.model.operations import Attention
from ridgeline.model.spec import AttentionSpec, LayerSpec, MlaSpec
from ridgeline.model.tree import model_tree
from ridgeline.program.layout import PROGRAM_AXES, Layout
from ridgeline.program.scans import declared_weights, layer_scans

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ridgeline.job.job import AttentionKernel, Dtypes, ExpertKernel, Job, Optimizer, Remat
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
    refuse_the_first(_unknown_plan_parts(job), expected=f"a plan without; of the axes {', '.join(PROGRAM_AXES)}")
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
    )
    _check_sizes(program)
    return program


def check_model(model: ModelSpec) -> None:
    """Refuses a model of which our program lacks a part.

    Raises:
        InputError: It names the part.
    """
    refuse_the_first(_unknown_model_parts(model), expected="a decoder of attention to earlier tokens, MLPs and experts")


def refuse_the_first(unknown: Iterator[tuple[str, object]], *, expected: str) -> None:
    """Refuses a job of which our program lacks something: (what, which value)."""
    for what, value in unknown:
        raise InputError(
            f"our program has no {what} yet",
            where=_WHERE,
            value="yes" if value is True else value,
            expected=expected,
            fix="ask `ridgeline train` for the estimate of this job",
        )


def _check_sizes(program: TrainingProgram) -> None:
    """Every weight, the sequence and the batch share out evenly."""
    layout, where = program.layout, "plan.mesh"
    layout.check_weights((tensor for tensor, _ in program.weights.values()), where=where)
    layout.check_size(program.seq_len, layout.stream[1], what="the sequence", where=where)
    for path, operation, _ in operations(program.tree):
        if isinstance(operation, Attention) and operation.num_kv_heads > 1:  # a fused projection is all heads together
            layout.check_size(operation.num_kv_heads, layout.tensor, what=f"the key-value heads of {path}", where=where)
    ways = program.micro_steps * prod(layout.degrees[axis] for axis in layout.batch)
    if program.global_batch % ways:
        raise InputError(
            "the batch is not divisible by the mesh and the micro-steps",
            where="workload.global_batch",
            value=program.global_batch,
            expected=f"a multiple of {ways}",
            fix=f"use {ways * max(program.global_batch // ways, 1)}",
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


def _unknown_plan_parts(job: Job) -> Iterator[tuple[str, object]]:
    """What of a plan our program does not know: (what, which value)."""
    plan = job.plan
    for axis, degree in plan.mesh.items():
        if axis not in PROGRAM_AXES and degree > 1:
            yield f"{axis} axis", f"{axis}={degree}"
    for name, value in (
        ("quantization", plan.quantization.kind if plan.quantization else ""),
        ("vocabulary tiling", plan.vocab_tiling if plan.vocab_tiling > 1 else ""),
    ):
        if value:
            yield name, value


def _missing(what: str) -> InputError:
    return InputError(
        f"{what} is not given",
        where=_WHERE,
        value=None,
        expected="a job in which nothing is left to choose",
        fix="let `ridgeline train --save FILE` choose, and compile FILE",
    )
