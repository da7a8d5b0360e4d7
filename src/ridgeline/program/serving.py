"""Prefill and decode as our program is asked for them: a serving job in which nothing is left to choose, checked."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from math import gcd
from typing import TYPE_CHECKING, Final

from ridgeline.errors import InputError
from ridgeline.job.job import Dtypes, ExpertKernel, Remat
from ridgeline.job.mesh import FREE
from ridgeline.model.operations import Attention
from ridgeline.model.tree import model_tree
from ridgeline.program.layout import COPY_AXIS, Layout
from ridgeline.program.pipeline import Schedule
from ridgeline.program.request import check_model, refuse_the_first
from ridgeline.program.scans import declared_weights, layer_scans

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ridgeline.job.job import AttentionKernel, Dtype
    from ridgeline.job.serving import Phase, ServingJob
    from ridgeline.model.operations import ModelTree, Tensor
    from ridgeline.program.scans import LayerScan

SERVING_AXES: Final = ("dp", "cp", "ep", "tp")
"""Mesh axes that our serving programs know."""

_WHERE = "--program ours"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingProgram:
    """Prefill or decode of our decoder.

    Attributes:
        phase: Which of the two.
        tree: The operations and weights it consists of.
        scans: Its layers in order, as loops over stacked weights.
        layout: How the mesh splits them.
        global_batch: Sequences of a pass.
        prompt_len: Tokens of a prompt.
        context_len: Tokens that the KV cache has room for.
        dtypes: Of weights and of what is computed.
        kv_cache: Of the KV cache.
        attention: Kernel and tiles of prefill.
    """

    phase: Phase
    tree: ModelTree
    scans: tuple[LayerScan, ...]
    layout: Layout
    global_batch: int
    prompt_len: int
    context_len: int
    dtypes: Dtypes
    kv_cache: Dtype
    attention: AttentionKernel

    @property
    def seq_len(self) -> int:
        """Tokens of each sequence that a pass computes."""
        return self.prompt_len if self.phase == "prefill" else 1

    @property
    def micro_steps(self) -> int:
        """All sequences are computed at once."""
        return 1

    @property
    def remat(self) -> Remat:
        """There is no backward pass to keep anything for."""
        return Remat(policy="none")

    @property
    def pipeline(self) -> Schedule:
        """It has no stages."""
        return Schedule()

    @property
    def quantization(self) -> None:
        """Its matmuls are computed in the compute dtype."""
        return

    @property
    def experts(self) -> ExpertKernel:
        """The best that can run."""
        return ExpertKernel()

    @property
    def weights(self) -> Mapping[str, tuple[Tensor, int]]:
        """Every weight by its name, with how many layers stack theirs (0: outside the layers)."""
        return declared_weights(self.tree, self.scans)


def serving_program(job: ServingJob, phase: Phase) -> ServingProgram:
    """One phase of a serving job whose batch and mesh are given.

    Raises:
        InputError: Our program lacks a part of the model or of the plan, or the mesh does not divide a dimension;
            the message names it.
    """
    check_model(job.model)
    refuse_the_first(
        _unknown_parts(job, phase),
        expected=f"a plan without; of the axes {', '.join(SERVING_AXES)}",
        fix="change the plan; a checkpoint that is published narrow compiles with --weights-dtype bf16",
    )
    tree, plan = model_tree(job.model), job.plan
    batch = plan.prefill_batch if phase == "prefill" else job.workload.batch
    mesh = plan.mesh(phase)
    if batch is None or not mesh or FREE in mesh.values():
        raise _missing(phase, "batch" if batch is None else "mesh")
    program = ServingProgram(
        phase=phase,
        tree=tree,
        scans=layer_scans(job.model, tree),
        layout=Layout(
            degrees=with_copies(mesh, tree),
            is_stationary=True,
            is_one_token=phase == "decode",
            spreads_cache=phase == "decode" and plan.cache == "spread",
        ),
        global_batch=batch,
        prompt_len=job.workload.prompt_len,
        context_len=job.workload.context_len,
        dtypes=Dtypes(weights=plan.dtypes.weights, compute=plan.dtypes.compute, activations=plan.dtypes.compute),
        kv_cache=plan.dtypes.kv_cache,
        attention=plan.attention,
    )
    _check_sizes(program)
    return program


def with_copies(mesh: Mapping[str, int], tree: ModelTree) -> dict[str, int]:
    """The degrees of a server's mesh, `tp` split in two where it is larger than key-value heads can be.

    >>> from ridgeline.model.zoo import load_model
    >>> with_copies({"dp": 1, "tp": 16}, model_tree(load_model("llama3.1-8b")))  # 8 key-value heads
    {'tp': 8, 'kv_copy': 2}
    """
    degrees = {axis: degree for axis, degree in mesh.items() if degree > 1}
    heads = {operation.num_kv_heads for operation in attentions(tree)} - {1}
    ways = reduce(gcd, heads, degrees.get("tp", 1))
    if heads and ways < degrees.get("tp", 1):
        copies = degrees.pop("tp") // ways
        degrees |= {"tp": ways, COPY_AXIS: copies} if ways > 1 else {COPY_AXIS: copies}
    return degrees


def attentions(tree: ModelTree) -> Iterator[Attention]:
    """Every attention that is declared, once for each kind of layer."""
    for layer in tree.layers:
        for block in layer.blocks:
            for operation in block.operations:
                if isinstance(operation, Attention):
                    yield operation


def _check_sizes(program: ServingProgram) -> None:
    """Every weight, the prompt, the KV cache and the batch share out evenly."""
    layout, where = program.layout, f"plan.{program.phase}"
    layout.check_weights((tensor for tensor, _ in program.weights.values()), where=where)
    layout.check_size(program.seq_len, layout.stream[1], what="the prompt", where=where)
    layout.check_size(program.context_len, layout.slots, what="the context", where=where)
    for operation in attentions(program.tree):
        axes = layout.cache_batch(operation.num_cached_heads)
        layout.check_size(program.global_batch, axes, what="the batch", where=where)


def _unknown_parts(job: ServingJob, phase: Phase) -> Iterator[tuple[str, object]]:
    """What of a job our serving programs do not know: (what, which value)."""
    plan = job.plan
    for axis, degree in plan.mesh(phase).items():
        if axis not in SERVING_AXES and degree > 1:
            yield f"{axis} axis in {phase}", f"{axis}={degree}"
    for stored in (plan.dtypes.weights, plan.dtypes.experts):
        if stored not in {"bf16", "f32", None}:
            yield "narrow weights in serving", stored
    if plan.dtypes.compute not in {"bf16", "f32"}:
        yield "narrow matmuls in serving", plan.dtypes.compute


def _missing(phase: Phase, what: str) -> InputError:
    flag = f"--{phase}-mesh tp=8" if what == "mesh" else "--batch 16" if phase == "decode" else "--prefill-batch 1"
    return InputError(
        f"the {what} of {phase} is not given",
        where=_WHERE,
        value=None,
        expected="a job in which nothing is left to choose",
        fix=f"add {flag}",
    )
