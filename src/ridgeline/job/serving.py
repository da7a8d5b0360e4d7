"""The question of a serving lead: a model, a machine, prompts and replies, and how each phase is split.

Serving has two programs. *Prefill* reads a whole prompt and writes its keys and values into the KV cache; *decode*
reads the cache and adds one token to every sequence. Each has a mesh of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from ridgeline.job.job import AttentionKernel, Compiler, Dtype, Job
from ridgeline.job.traffic import FixedLength
from ridgeline.model.spec import INT4_GROUP_SIZE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.hardware.slice import Slice
    from ridgeline.job.own_calibration import OwnCalibration
    from ridgeline.job.traffic import Length, Trace
    from ridgeline.model.spec import ModelSpec

CacheSplit: TypeAlias = Literal["heads", "spread"]
"""Devices beyond the key-value heads hold copies of their cache, or share out sequences and tokens."""

Phase: TypeAlias = Literal["prefill", "decode"]
"""The two programs of a server."""

Statistic: TypeAlias = Literal["mean", "p50", "p90", "p99"]
"""What a limit on times is a limit of: their mean, or what 50, 90 or 99 of 100 requests stay below."""

Mode: TypeAlias = Literal["interleaved", "disaggregated"]
"""Prompts are read by the servers that decode, a piece with every pass, or by servers of their own."""

ExpertSplit: TypeAlias = Literal["width", "whole"]
"""On devices of tensor parallelism each expert lies over all, split by its width, or whole on one of them."""

MTP: Final = "mtp"
"""The draft model that is the model's own heads for further tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixCache:
    """What of prompts the KV cache holds already when they come.

    Attributes:
        hit_fraction: Part of the tokens of prompts; the last token of each is computed all the same.
        shared: Whether that part is the same for all requests (a system prompt), so that a server keeps it once;
            else each sequence is given room for its own.
    """

    hit_fraction: float = 0.0
    shared: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingWorkload:
    """What is to be served.

    Attributes:
        prompt_len: Tokens of a prompt; of the longest where they differ.
        generate_len: Tokens of a reply; of the longest where they differ.
        prompt_lengths: How prompts differ; None where all are alike, or those of the trace.
        generate_lengths: The same of replies.
        trace: Requests as they came, each with its lengths; None where they come at random.
        batch: Sequences that are decoded at once; None lets the planner choose.
        rate: Requests a second, of a trace its mean; None when not asked.
        ttft_s: Longest time to the first token; None for no limit.
        ttft_of: Of which requests that is a limit.
        tpot_s: Longest time per output token; None for no limit.
        tpot_of: Of which requests that is a limit.
        prefix_cache: What of prompts is cached already.
    """

    prompt_len: int
    generate_len: int
    prompt_lengths: Length | None = None
    generate_lengths: Length | None = None
    trace: Trace | None = None
    batch: int | None = None
    rate: float | None = None
    ttft_s: float | None = None
    ttft_of: Statistic = "mean"
    tpot_s: float | None = None
    tpot_of: Statistic = "mean"
    prefix_cache: PrefixCache = field(default_factory=PrefixCache)
    kind: Literal["serve"] = "serve"

    @property
    def context_len(self) -> int:
        """Tokens of the longest sequence at its end: what its KV cache must have room for."""
        if self.trace is not None:
            requests = self.trace.requests
            return int((requests.prompt_tokens + requests.output_tokens).max())
        return self.prompt_len + self.generate_len

    @property
    def prompts(self) -> Length:
        """How long prompts are."""
        return self.prompt_lengths or FixedLength(tokens=self.prompt_len)

    @property
    def replies(self) -> Length:
        """How long replies are."""
        return self.generate_lengths or FixedLength(tokens=self.generate_len)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingDtypes:
    """Storage of weights and of the KV cache, and the precision of matmuls and activations.

    Attributes:
        weights: Of matrices; beside narrow floats, engines leave the embedding and the head in bf16.
        kv_cache: Of keys and values.
        compute: What matmuls are computed in; none is narrower than its weights.
        experts: Of the weights of experts and of the MLPs beside them, where a checkpoint narrows these alone; None for
            as the others.

    What a job leaves out is as the model's checkpoint is published (`ModelSpec.stored`).
    """

    weights: Dtype = "bf16"
    kv_cache: Dtype = "bf16"
    compute: Dtype = "bf16"
    experts: Dtype | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """Tokens that are drafted ahead, and verified by the next pass of decoding.

    Attributes:
        draft_tokens: Drafted a pass and sequence.
        acceptance_fraction: Chance that a drafted token is accepted where all before it were.
        draft_model: What drafts: `MTP`, or a model as the user wrote it; None for what costs nothing, as looking up
            words of the prompt does.
        drafter: The model that `draft_model` names; None for `MTP`, and where nothing is computed.
    """

    draft_tokens: int
    acceptance_fraction: float
    draft_model: str | None = None
    drafter: ModelSpec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingPlan:
    """What the user pins; the rest is chosen.

    Attributes:
        prefill: Degree by axis of the prefill mesh; empty leaves it to the planner.
        decode: The same of the decode mesh.
        mode: Who reads prompts; None leaves it to the planner.
        server_ratio: Prefill servers and decode servers of a disaggregated fleet, in lowest terms; None for as many as
            keep up with each other.
        prefill_batch: Prompts that are read at once; None for one on each part of the batch axes.
        prefill_chunk: Tokens of prompts in a pass of an interleaved server, on each rank (devices with sequences of
            their own); None leaves it to the planner.
        memory_utilization: Part of a device's memory that the engine takes; None for what engines take by default.
        page_tokens: Tokens of a page of the KV cache; None for the engine's own.
        cache: How decode splits the KV cache beyond its heads; None leaves it to the planner.
        speculation: What is drafted ahead; None for nothing.
        expert_split: How experts lie on devices of tensor parallelism.
        dtypes: Precisions.
        open_dtypes: Which of them (`weights`, `kv_cache`, `compute`) may be narrower than `dtypes` says.
        attention: Kernel and tiles of prefill's attention.
        compiler: What the compiler is told.
    """

    prefill: Mapping[str, int] = field(default_factory=dict[str, int])
    decode: Mapping[str, int] = field(default_factory=dict[str, int])
    mode: Mode | None = None
    server_ratio: tuple[int, int] | None = None
    prefill_batch: int | None = None
    prefill_chunk: int | None = None
    memory_utilization: float | None = None
    page_tokens: int | None = None
    cache: CacheSplit | None = None
    speculation: Speculation | None = None
    expert_split: ExpertSplit = "width"
    dtypes: ServingDtypes = field(default_factory=ServingDtypes)
    open_dtypes: tuple[str, ...] = ()
    attention: AttentionKernel = field(default_factory=AttentionKernel)
    compiler: Compiler = field(default_factory=Compiler)

    @property
    def modes(self) -> tuple[Mode, ...]:
        """Kinds of servers that what is pinned leaves open."""
        if self.mode is not None:
            return (self.mode,)
        of_readers = self.server_ratio is not None or self.prefill_batch is not None
        if of_readers or (self.prefill and self.decode and self.prefill != self.decode):
            return ("disaggregated",)
        return ("interleaved",) if self.prefill_chunk is not None else ("interleaved", "disaggregated")

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
        calibration: The user's own, over what ships; None without.
    """

    model_reference: str
    model: ModelSpec
    hardware: Slice
    workload: ServingWorkload
    plan: ServingPlan = field(default_factory=ServingPlan)
    model_table: Mapping[str, object] | None = None
    calibration: OwnCalibration | None = None

    @property
    def is_as_published(self) -> bool:
        """Whether weights are stored as in the model's checkpoint, which is known to be narrow."""
        stored, taken = self.model.stored, self.plan.dtypes
        return stored is not None and (taken.weights, taken.experts) == (stored.weights, stored.experts)

    @property
    def int4_group_size(self) -> int:
        """Weights of int4 that share a scale: as the checkpoint says, else as most have it."""
        stored = self.model.stored
        return stored.group_size if stored is not None and self.is_as_published else INT4_GROUP_SIZE


AnyJob: TypeAlias = Job | ServingJob
"""Every kind of job: of training, and of serving."""
