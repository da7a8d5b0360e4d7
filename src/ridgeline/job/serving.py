"""The question of a serving lead: a model, a machine, prompts and replies, and how each phase is split.

Serving has two programs. *Prefill* reads a whole prompt and writes its keys and values into the KV cache; *decode*
reads the cache and adds one token to every sequence. Each has a mesh of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from ridgeline.job.job import AttentionKernel, Compiler, Dtype, Job

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.hardware.slice import Slice
    from ridgeline.model.spec import ModelSpec

Phase: TypeAlias = Literal["prefill", "decode"]
"""The two programs of a server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingWorkload:
    """What is to be served.

    Attributes:
        prompt_len: Tokens of a prompt.
        generate_len: Tokens of a reply.
        batch: Sequences that are decoded at once; None lets the planner choose.
        rate: Requests a second; None when not asked.
        ttft_s: Longest time to the first token; None for no limit.
        tpot_s: Longest time per output token; None for no limit.
    """

    prompt_len: int
    generate_len: int
    batch: int | None = None
    rate: float | None = None
    ttft_s: float | None = None
    tpot_s: float | None = None
    kind: Literal["serve"] = "serve"

    @property
    def context_len(self) -> int:
        """Tokens of a sequence at its end: what its KV cache must have room for."""
        return self.prompt_len + self.generate_len


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingDtypes:
    """Storage of weights and of the KV cache, and the precision of matmuls and activations.

    Attributes:
        weights: Of matrices; beside narrow floats, engines leave the embedding and the head in bf16.
        kv_cache: Of keys and values.
        compute: What matmuls are computed in; none is narrower than its weights.
        experts: Of the weights of experts, where a checkpoint narrows these alone; None for as the others.
    """

    weights: Dtype = "bf16"
    kv_cache: Dtype = "bf16"
    compute: Dtype = "bf16"
    experts: Dtype | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingPlan:
    """What the user pins; the rest is chosen.

    Attributes:
        prefill: Degree by axis of the prefill mesh; empty leaves it to the planner.
        decode: The same of the decode mesh.
        prefill_batch: Prompts that are read at once; None for one on each part of the batch axes.
        dtypes: Precisions.
        attention: Kernel and tiles of prefill's attention.
        compiler: What the compiler is told.
    """

    prefill: Mapping[str, int] = field(default_factory=dict[str, int])
    decode: Mapping[str, int] = field(default_factory=dict[str, int])
    prefill_batch: int | None = None
    dtypes: ServingDtypes = field(default_factory=ServingDtypes)
    attention: AttentionKernel = field(default_factory=AttentionKernel)
    compiler: Compiler = field(default_factory=Compiler)

    def mesh(self, phase: Phase) -> Mapping[str, int]:
        """The degrees that are pinned of a phase."""
        return self.prefill if phase == "prefill" else self.decode


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingJob:
    """A whole question about serving.

    Attributes:
        model_reference: What the user wrote: a zoo name or a path; of an inline table, the name in it.
        model: The decoder it means.
        hardware: The slice of one server.
        workload: What to serve.
        plan: What is pinned.
        model_table: The inline table that describes the model; None where it has a name or a path.
    """

    model_reference: str
    model: ModelSpec
    hardware: Slice
    workload: ServingWorkload
    plan: ServingPlan = field(default_factory=ServingPlan)
    model_table: Mapping[str, object] | None = None


AnyJob: TypeAlias = Job | ServingJob
"""Every kind of job: of training, and of serving."""
