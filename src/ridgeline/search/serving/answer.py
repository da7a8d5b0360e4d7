"""The answer to a serving question: the best plan, the frontier, and why the others were refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.cost.explain import Derivation
    from ridgeline.cost.work import Part
    from ridgeline.hardware.slice import Slice
    from ridgeline.job.serving import CacheSplit, Mode, ServingDtypes, ServingJob
    from ridgeline.search.answer import MemoryEstimate, Rejected, SearchStatistics
    from ridgeline.search.engine.latency import Quantiles

ServingBound: TypeAlias = Literal["hbm", "compute", "ici", "network", "overhead"]
"""What a pass of decoding mainly waits for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingChoice:
    """A complete plan of serving.

    Attributes:
        slice: Of one server.
        mode: Who reads prompts.
        decode: Mesh that decodes.
        prefill: Mesh that reads prompts; of interleaved servers the same.
        batch: Sequences that a server decodes at once.
        prefill_batch: Prompts that a prefill server reads at once; 0 for interleaved servers.
        prefill_chunk: Tokens of prompts in a pass of an interleaved server, on each rank; 0 for disaggregated ones.
        prefill_server_ratio: Prefill servers for each server that decodes; 0 for interleaved servers.
        cache: How the cache is split beyond its heads.
        dtypes: Precisions.
    """

    slice: str
    mode: Mode
    decode: Mapping[str, int]
    prefill: Mapping[str, int]
    batch: int
    prefill_batch: int
    prefill_chunk: int
    prefill_server_ratio: float
    cache: CacheSplit
    dtypes: ServingDtypes


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown:
    """Where the time of a pass of decoding goes; reading and arithmetic run beside each other, the rest does not.

    Attributes:
        weights_s: Reading weights.
        kv_cache_s: Reading the KV cache, and states.
        flops_s: Arithmetic, alone.
        collectives_s: Waiting for other devices.
        overhead_s: Waiting for the host.
        other_s: All else: norms, sampling, gaps, what does not run beside anything.
    """

    weights_s: float
    kv_cache_s: float
    flops_s: float
    collectives_s: float
    overhead_s: float
    other_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PassEstimate:
    """Time of one pass: bound, estimate, tree."""

    roofline_s: float
    expected_s: float
    parts: Part
    breakdown: Breakdown


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Servers for a rate of requests.

    Attributes:
        requests_per_s: Rate that they serve.
        servers: That decode, or do both.
        prefill_servers: That only read prompts.
        chips: Of all.
        usd_per_hour: Of all; None without a public price.
        usd_per_million_output_tokens: Of all, over what the rate asks for, however full they are.
    """

    requests_per_s: float
    servers: int
    prefill_servers: int
    chips: int
    usd_per_hour: float | None
    usd_per_million_output_tokens: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """What became of requests, served one by one.

    Attributes:
        num_requests: Simulated.
        is_trace: Whether they came as a trace says, or at random.
        queueing: From arrival to the start of prefill.
        requests_per_s: Served by all servers.
        output_tokens_per_s: Served by all servers.
        utilization: Part of the time in which servers work.
        num_preemptions_per_request: How often a sequence loses its pages and is read anew.
    """

    num_requests: int
    is_trace: bool
    queueing: Quantiles
    requests_per_s: float
    output_tokens_per_s: float
    utilization: float
    num_preemptions_per_request: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingPoint:
    """A plan and what it gives.

    Attributes:
        plan: The plan.
        ttft: Time to the first token; tails are not numbers where only means are known.
        tpot: Time per output token.
        tokens_per_s_per_chip: Output tokens of full servers, all chips counted, those that only read prompts too.
        tokens_per_s_per_user: Of one request on full servers.
        requests_per_s: Of one server and its share of prefill servers.
        reply_tokens: Of a reply, mean.
        max_concurrency: Sequences that the paged cache of a server has room for.
        ideal_concurrency: The same to the byte.
        memory: Of a device of a server that decodes.
        ideal_cache_bytes: KV cache of a device to the byte.
        step: A pass that only decodes.
        prefill_s: Of disaggregated servers, a pass that reads prompts; of interleaved ones, a pass that does both.
        cost_per_million_output_tokens_usd: Of all chips, over output tokens; None without a public price.
        input_usd: Of a million tokens of prompts, by what reading them adds.
        output_usd: Of a million tokens of replies, by the rest.
        bound: What a pass mainly waits for.
        bound_reason: That in words, with numbers.
        fleet: Servers for the job's rate; None where it has none.
        simulation: What requests meet on the fleet; None where only the steady state is known.
    """

    plan: ServingChoice
    ttft: Quantiles
    tpot: Quantiles
    tokens_per_s_per_chip: float
    tokens_per_s_per_user: float
    requests_per_s: float
    reply_tokens: float
    max_concurrency: int
    ideal_concurrency: int
    memory: MemoryEstimate
    ideal_cache_bytes: float
    step: PassEstimate
    prefill_s: float
    cost_per_million_output_tokens_usd: float | None
    input_usd: float | None
    output_usd: float | None
    bound: ServingBound
    bound_reason: str
    fleet: Fleet | None
    simulation: Simulation | None = None

    @property
    def user_tokens_per_s(self) -> float:
        """Output tokens that one request is given in a second: as it was simulated, else of full servers."""
        return 1.0 / self.tpot.mean_s

    @property
    def fleet_tokens_per_s_per_chip(self) -> float:
        """Output tokens that a rate asks of each chip of its fleet; without a rate, what full servers yield."""
        if self.fleet is None:
            return self.tokens_per_s_per_chip
        return self.fleet.requests_per_s * self.reply_tokens / self.fleet.chips

    @property
    def is_simulated(self) -> bool:
        """Whether times are of requests that were served one by one."""
        return self.simulation is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeLaws:
    """What laws say of the best plan's slice, without a search.

    Attributes:
        critical_batch_size: Sequences from which a matmul of decoding is bound by arithmetic.
        context_crossover_tokens: Context at which reading caches takes as long as reading weights, at the plan's batch.
        tensor_compute_degree: Most ways of tensor parallelism while links keep up with arithmetic; None off a torus.
        tensor_memory_degree: The same while links keep up with reading weights, at the plan's batch.
    """

    critical_batch_size: float
    context_crossover_tokens: float
    tensor_compute_degree: float | None
    tensor_memory_degree: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DtypeGain:
    """What narrower precisions would bring, quality aside.

    Attributes:
        point: The best plan with them.
        saving_fraction: Part of the best plan's cost that they save: of the chips for the job's rate, or of each token.
    """

    point: ServingPoint
    saving_fraction: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingInterval:
    """What eight of ten measured servers lie between.

    Attributes:
        ttft_s: Lower and upper end of the mean time to the first token.
        tpot_s: Of the mean time per output token.
        tokens_per_s_per_chip: Of output tokens per second and chip.
        widened_by: Why it is wider than it could be: what few measured servers had, or none.
    """

    ttft_s: tuple[float, float]
    tpot_s: tuple[float, float]
    tokens_per_s_per_chip: tuple[float, float]
    widened_by: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeAnswer:
    """What `ridgeline serve` answers.

    Attributes:
        job: The question.
        best: The cheapest plan that meets the limits.
        interval: Around its times and its throughput.
        frontier: Plans that no other beats in both tokens/s per chip and tokens/s per user, the cheapest first; at a
            rate, on fleets that serve it.
        frontier_note: Why the best plan is not among them; "" where it is.
        rejected: Families that were refused, and why.
        narrower: What narrower precisions than the best plan's would bring, each where it saves more than wider ones.
        laws: Of the best plan.
        slices: That were searched.
        search: Plans and seconds.
        assumptions: What the numbers rest on.
        notes: What a reader should know about the question.
        price_source: Of the chip-hour; "" without a public price.
        derivations: Where the best plan's numbers come from.
    """

    job: ServingJob
    best: ServingPoint
    interval: ServingInterval
    frontier: tuple[ServingPoint, ...]
    frontier_note: str
    rejected: tuple[Rejected, ...]
    narrower: tuple[DtypeGain, ...]
    laws: DecodeLaws
    slices: tuple[Slice, ...]
    search: SearchStatistics
    assumptions: tuple[str, ...]
    notes: tuple[str, ...]
    price_source: str
    derivations: tuple[Derivation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoServingPlan:
    """No plan meets the limits, or none fits.

    Attributes:
        job: The question.
        quickest: The plan that comes closest; None where none fits in memory.
        rejected: Families that were refused, and why.
        search: Plans and seconds.
    """

    job: ServingJob
    quickest: ServingPoint | None
    rejected: tuple[Rejected, ...]
    search: SearchStatistics
