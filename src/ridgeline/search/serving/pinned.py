"""A server whose mesh, dtypes, batch and engine are given: what it measures, not what it could be.

Clients keep a number of requests at hand at once and send the next as soon as one is answered (a closed loop), as
benchmarks of servers do. In steady state as many prompts begin as replies end; who reads them, and how many tokens at a
time, is the engine's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, log2
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from ridgeline.cost.columns import MESH_AXES_OF
from ridgeline.cost.serving.collectives import gathers_tokens
from ridgeline.cost.serving.device import PhaseColumns, cache_bytes, cached_attentions, held_weight_bytes
from ridgeline.cost.serving.memory import engine_bytes, vocabulary_size
from ridgeline.cost.serving.step import host_s, serving_pass
from ridgeline.cost.work import larger, smaller
from ridgeline.errors import InfeasibleError, InputError
from ridgeline.search.serving.meshes import serving_meshes
from ridgeline.search.serving.offline import run_stretches, slot_stretches
from ridgeline.search.serving.plans import MOST_SEQUENCES, decode_memory, decode_pass
from ridgeline.search.serving.setting import serving_machine

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.cost.serving.efficiency import ServingEfficiency
    from ridgeline.cost.serving.machine import Pass, ServingMachine
    from ridgeline.cost.training.memory import MemoryColumns
    from ridgeline.cost.work import Number, Part
    from ridgeline.job.serving import ServingJob
    from ridgeline.search.serving.offline import Stretch

EngineName: TypeAlias = Literal["vllm", "sglang", "trtllm", "jetstream", "torch_xla"]
"""Engines that are known; `torch_xla` is a loop of decoding alone."""

ENGINES: Final[tuple[EngineName, ...]] = ("vllm", "sglang", "trtllm", "jetstream", "torch_xla")

Reading: TypeAlias = Literal["beside", "apart", "elsewhere"]
"""Prompts are read in passes that also decode, in passes of their own, or by other servers."""

PASS_TOKENS: Final = 8192
"""Tokens of a pass at most. Source: vLLM, `max_num_batched_tokens` on large accelerators; TensorRT-LLM,
`max_num_tokens`; SGLang, `chunked_prefill_size`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """How an engine is run.

    Attributes:
        name: Of the engine.
        reading: Who reads prompts.
        pass_tokens: Most tokens of a pass, of each rank that has sequences of its own.
        max_sequences: Most sequences that it decodes at once; None for as many as memory holds.
        memory_share: Part of a chip's memory that it takes; None for the usual.
        cache_share: Part of what weights and passes leave of that which its caches take.
        sampler_bytes: Memory that it sets aside to sample, for each logit of the most sequences of a rank.
        cache_room: Tokens of each sequence's cache that a pass reads, filled or not; None for those that are filled.
        prompts_apart: Whether a pass that reads takes one prompt, whatever the ranks.
        burst_share: Part of a run's requests that come at once, when it begins: those that clients keep at hand.
        num_requests: Requests of the whole run, all queued when it begins; None for no end.
        reserves_replies: Whether a sequence is given room for its whole reply when it begins; else as it grows.
        graph_sizes: Sequences for which passes that only decode are replayed, those between filled up; () for all.
        dispatches_ahead: Whether the host hands out passes ahead: it works beside the devices, not between passes.
        least_prompt_size: Tokens of the shortest program for prompts, each further one of twice as many, to which they
            are filled up; None where they are read as they are.
        takes_likeliest: Whether it takes the likeliest token instead of drawing one.
        replies_differ: Whether replies are spread, exponentially; else they are all as long as their mean.
        streams: Whether clients get each token as it comes; else a request's all at once.
        receive_passes: Passes of decoding after which it looks for requests that came.
    """

    name: EngineName
    reading: Reading = "beside"
    pass_tokens: int = PASS_TOKENS
    max_sequences: int | None = None
    memory_share: float | None = None
    cache_share: float = 1.0
    sampler_bytes: float = 0.0
    cache_room: int | None = None
    prompts_apart: bool = False
    burst_share: float = 0.0
    num_requests: int | None = None
    reserves_replies: bool = False
    graph_sizes: tuple[int, ...] = ()
    dispatches_ahead: bool = False
    least_prompt_size: int | None = None
    takes_likeliest: bool = False
    replies_differ: bool = False
    streams: bool = True
    receive_passes: int = 1


_READING: Final[Mapping[EngineName, Reading]] = {
    "vllm": "beside",
    "trtllm": "beside",
    "sglang": "apart",
    "jetstream": "apart",
    "torch_xla": "elsewhere",
}
"""Source: vLLM V1 and TensorRT-LLM batch prompts and replies together; SGLang's `enable_mixed_chunk` is off by
default; JetStream inserts a prompt between steps of decoding."""


_MOST_SEQUENCES: Final[Mapping[EngineName, int]] = {"trtllm": 2048, "vllm": 1024}
"""Source: TensorRT-LLM, `max_batch_size`; vLLM V1, `max_num_seqs` on large accelerators."""


_LEAST_PROMPT_SIZE: Final = 16
"""Source: JetStream, engine/token_utils.py, `prefill_lengths`. Its engines take the likeliest token unless they are
told otherwise: jetstream-pytorch, `_sampling`; MaxText, `decode_sampling_strategy`."""

PASSES_AHEAD: Final = 8
"""Passes that JetStream hands out before another thread has put the tokens of the first into words: for so long a reply
that has ended keeps its slot. Source: JetStream, core/orchestrator.py, `_detokenize_backlogs`."""


def engine_settings(name: EngineName) -> EngineSettings:
    """An engine as it runs when nothing more is said."""
    return EngineSettings(
        name=name,
        reading=_READING[name],
        prompts_apart=name == "jetstream",
        max_sequences=_MOST_SEQUENCES.get(name),
        reserves_replies=name in {"trtllm", "jetstream"},
        dispatches_ahead=name == "jetstream",
        takes_likeliest=name == "jetstream",
        least_prompt_size=_LEAST_PROMPT_SIZE if name == "jetstream" else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedServer:
    """A server made ready: its passes are built once, each trial of efficiencies only composes them.

    Attributes:
        machine: Model, dtypes, slice.
        settings: Of its engine.
        columns: Mesh and batch.
        decoding: A pass that only decodes.
        reading: A pass that reads prompts, with or without decoding.
        reading_share: Passes that read prompts for each one that decodes.
        num_prompt_passes: Passes that one prompt takes.
        run: Passes of a rank where all requests are queued at once; () for a steady state.
    """

    machine: ServingMachine
    settings: EngineSettings
    columns: PhaseColumns
    decoding: Pass
    reading: Pass
    reading_share: float
    num_prompt_passes: float
    run: tuple[Stretch, ...] = ()

    def with_efficiency(self, serving: ServingEfficiency) -> PinnedServer:
        """The same of other efficiencies; where nothing is sent, a sequence costs no more for a token."""
        if not self.settings.streams:
            serving = replace(serving, sequence_s=0.0)
        return replace(self, machine=replace(self.machine, serving=serving))

    @property
    def num_chips(self) -> int:
        """Chips of the server."""
        return self.machine.hardware.num_chips

    @property
    def rank_size(self) -> float:
        """Requests of a rank."""
        return float(self.columns.batch_size) / float(self.columns.rank_degree)

    @property
    def decode(self) -> Part:
        """The tree of a pass that only decodes."""
        return serving_pass(self.machine, self.decoding)

    @property
    def read(self) -> Part:
        """The tree of a pass that reads prompts."""
        return serving_pass(self.machine, self.reading)

    def times(self) -> ServerTimes:
        """What clients measure."""
        decode_s, reading_s = self._pass_s(self.decoding), self._pass_s(self.reading)
        share = self.reading_share
        match self.settings.reading:
            case "beside":
                token_s = decode_s + min(share, 1.0) * (reading_s - decode_s)
            case "apart" if self.settings.dispatches_ahead:
                token_s = larger(decode_s + share * reading_s, host_s(self.machine, self.decoding))
            case "apart":
                token_s = decode_s + share * reading_s
            case "elsewhere":
                token_s = decode_s
        busy = min(share, 1.0) if self.settings.reading == "beside" else share * reading_s / token_s
        busy = smaller(busy, MOST_BUSY)
        queued = busy / (2.0 * (1.0 - busy)) + self.settings.burst_share * (self.rank_size - 1.0) / 2.0
        unseen = (self.settings.receive_passes - 1) / 2.0
        first_s = self.machine.serving.first_s + (PIPELINED_PASSES + unseen) * token_s
        first_s = first_s + reading_s * self.num_prompt_passes * (1.0 + queued)
        tokens_per_s = self._run_tokens_per_s() if self.run else self.decoding.num_decoding / token_s
        return ServerTimes(ttft_s=first_s, tpot_s=token_s, output_tokens_per_s_per_chip=tokens_per_s / self.num_chips)

    def _pass_s(self, step: Pass) -> Number:
        """Time of a pass; of an engine that dispatches ahead, that of its devices alone."""
        whole_s = serving_pass(self.machine, step).expected_s
        return whole_s - host_s(self.machine, step) if self.settings.dispatches_ahead else whole_s

    def _run_of_slots_tokens_per_s(self, num_requests: int) -> Number:
        """Of such a run: passes compute all slots, taken or not; prompts are read between them."""
        setting = self.machine.setting
        slots, decode_s = float(self.columns.batch_size), self._pass_s(self.decoding)
        prompt_s = self.num_prompt_passes * self._pass_s(self.reading)
        total_s = min(slots, float(num_requests)) * prompt_s
        for stretch in self.run:
            waits_s = host_s(self.machine, replace(self.decoding, num_decoding=stretch.num_decoding))
            total_s = total_s + stretch.num_passes * larger(decode_s + stretch.num_prompts * prompt_s, waits_s)
        return num_requests * (setting.context_len - setting.prompt_len) / total_s

    def _run_tokens_per_s(self) -> Number:
        """Of a run from its first prompt to its last token, on all ranks."""
        if self.settings.replies_differ and self.settings.num_requests is not None:
            return self._run_of_slots_tokens_per_s(self.settings.num_requests)
        setting, ranks = self.machine.setting, self.columns.rank_degree
        total_s: Number = 0.0
        tokens = 0.0
        for stretch in self.run:
            step = replace(
                self.decoding,
                num_decoding=stretch.num_decoding * ranks,
                context_keys=stretch.context_tokens,
                prompt_tokens=stretch.num_prompts * setting.prompt_len * ranks,
                idle_rows=stretch.padded_size - stretch.num_decoding,
            )
            total_s = total_s + stretch.num_passes * serving_pass(self.machine, step).expected_s
            tokens += stretch.num_passes * (stretch.num_decoding + stretch.num_prompts)
        return tokens * ranks / total_s


MOST_BUSY: Final = 0.75
"""Share of time in which prompts are read, beyond which waiting grows no more: a closed loop holds requests back."""

PIPELINED_PASSES: Final = 2.0
"""Passes of decoding that a request waits for: half of the one under way, one scheduled ahead, the one whose token
comes out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTimes:
    """What clients measure of a server.

    Attributes:
        ttft_s: Mean time to the first token.
        tpot_s: Mean time per output token after it.
        output_tokens_per_s_per_chip: Of the server's own chips.
    """

    ttft_s: Number
    tpot_s: Number
    output_tokens_per_s_per_chip: Number


def pinned_server(job: ServingJob, settings: EngineSettings) -> PinnedServer:
    """Makes a job ready whose decode mesh is pinned; without a batch, as many sequences as the engine holds.

    Raises:
        InputError: The mesh is illegal, or open.
        InfeasibleError: The weights do not fit.
    """
    machine = serving_machine(job, job.hardware, engine=settings.name)
    machine = replace(machine, takes_likeliest=settings.takes_likeliest)
    meshes = serving_meshes(job.hardware, machine.setting.tree, job.plan.decode, "decode")
    if len(meshes.legal) != 1:
        reasons = "; ".join(f"{family}: {reason}" for family, reason in meshes.refused)
        raise InputError(
            f"no legal mesh ({reasons})" if reasons else "an open mesh",
            where="plan.decode",
            value=" ".join(f"{axis}={degree}" for axis, degree in job.plan.decode.items()),
            expected="a mesh that fills the slice",
            fix="pin every degree",
        )
    mesh = meshes.legal[0]
    ranks = mesh.batch_ways
    columns = PhaseColumns(
        degrees={axis: float(degree) for axis, degree in mesh.degrees.items()},
        batch_size=float(ranks),
        links=dict(mesh.links),
    )
    sequences = _sequences(job, settings, machine, columns, ranks)
    columns = replace(columns, batch_size=float(sequences))
    server = _with_passes(machine, settings, columns, sequences / ranks)
    if settings.cache_room is not None:
        _check_room(settings.cache_room, machine, server.columns)
    if settings.num_requests is None:
        return server
    if settings.replies_differ:
        tokens = machine.setting.context_len - machine.setting.prompt_len + PASSES_AHEAD
        run = slot_stretches(num_requests=settings.num_requests, slots=sequences, reply_tokens=tokens)
        return replace(server, run=run)
    run = run_stretches(
        num_requests=-(-settings.num_requests // ranks),
        most_sequences=max(sequences // ranks, 1),
        pass_tokens=settings.pass_tokens,
        prompt_tokens=machine.setting.prompt_len,
        reply_tokens=machine.setting.context_len - machine.setting.prompt_len,
        graph_sizes=settings.graph_sizes,
    )
    return replace(server, run=run)


def _check_room(cache_room: int, machine: ServingMachine, columns: PhaseColumns) -> None:
    """Refuses caches with room for so many tokens of each sequence that they do not fit in memory beside the weights.

    Raises:
        InfeasibleError: They do not.
    """
    caches: Number = held_weight_bytes(machine.setting, columns)
    for operation, count in cached_attentions(machine.setting.tree):
        held = cache_bytes(operation, machine.setting, columns, tokens=cache_room, num_sequences=columns.sequences_size)
        caches = caches + count * held
    chip = machine.hardware.chip
    if float(caches) > chip.hbm_bytes / chip.devices_per_chip:
        what = f"caches with room for {cache_room:,} tokens of each sequence do not fit in memory"
        raise InfeasibleError(what, reasons=[], fix="fewer sequences", answer=None)


def _sequences(
    job: ServingJob, settings: EngineSettings, machine: ServingMachine, columns: PhaseColumns, ranks: int
) -> int:
    """Sequences that decode at once: those asked for, as far as the engine has room for them."""
    memory = decode_memory(columns, machine, chunk_tokens=float(settings.pass_tokens))
    each = memory.parts["kv_cache"] + memory.parts["states"]
    chip = machine.hardware.chip
    usable = engine_bytes(machine)
    if settings.memory_share is not None:
        usable = min(settings.memory_share * chip.hbm_bytes, chip.usable_hbm_bytes) / chip.devices_per_chip
    lengths = machine.setting.lengths
    filled = 1.0 if settings.reserves_replies else lengths.context_tokens / lengths.mean_end_tokens
    left = usable - (float(memory.total_bytes) - float(each)) - _set_aside_bytes(settings, machine, memory, columns)
    room = int(settings.cache_share * left / float(each) / filled) * ranks
    asked = job.workload.batch
    if room < 1 and asked is None:
        raise InfeasibleError("the server does not fit in memory", reasons=[], fix="more chips", answer=None)
    most = min(settings.max_sequences or MOST_SEQUENCES, room if room >= 1 else MOST_SEQUENCES)
    return max(min(asked or MOST_SEQUENCES, most), 1)


def _set_aside_bytes(
    settings: EngineSettings, machine: ServingMachine, memory: MemoryColumns, columns: PhaseColumns
) -> float:
    """Memory of a device beside what its own tokens take: what samples, and what other ranks' tokens take in experts.

    Where ranks gather the tokens of all before their experts, these have room for each of them.
    """
    others = float(columns.degree(MESH_AXES_OF["experts"]) - 1.0) * float(gathers_tokens(machine, columns))
    of_others = others * float(memory.parts["layer_working_set"])
    if not settings.sampler_bytes or settings.max_sequences is None:
        return of_others
    sequences = settings.max_sequences / float(columns.rank_degree)
    return of_others + settings.sampler_bytes * sequences * float(vocabulary_size(machine.setting))


def _with_passes(
    machine: ServingMachine, settings: EngineSettings, columns: PhaseColumns, num_sequences: float
) -> PinnedServer:
    """The passes of a steady state: a reading pass takes the prompts that come during a pass, at least one."""
    setting, ranks = machine.setting, columns.batch_size / num_sequences
    prompt, reply = float(setting.prompt_len), float(setting.context_len - setting.prompt_len)
    is_beside = settings.reading == "beside"
    if is_beside:  # as many sequences as leave room in a pass for the prompts of those that follow them
        num_sequences = min(num_sequences, settings.pass_tokens / (1.0 + prompt / reply))
        columns = replace(columns, batch_size=num_sequences * ranks)
    budget = settings.pass_tokens - (num_sequences if is_beside else 0.0)
    tokens = min(budget, prompt * (1.0 if settings.prompts_apart else max(num_sequences / reply, 1.0)))
    share = num_sequences * prompt / (reply * tokens) * (ranks if settings.prompts_apart else 1.0)
    decoding = decode_pass(columns, machine)
    if settings.cache_room is not None:
        decoding = replace(decoding, context_keys=float(settings.cache_room))
    reading = replace(
        decoding,
        num_decoding=decoding.num_decoding if settings.reading == "beside" else 0.0,
        prompt_tokens=_filled_up(tokens, settings.least_prompt_size) * ranks,
    )
    return PinnedServer(
        machine=machine,
        settings=settings,
        columns=columns,
        decoding=decoding,
        reading=reading,
        reading_share=float(share),
        num_prompt_passes=max(prompt / tokens, 1.0),
    )


def _filled_up(tokens: float, least_size: int | None) -> float:
    """Tokens of the program that reads so many: the least, or twice, four times, … as many.

    >>> _filled_up(215.0, 16), _filled_up(215.0, None)
    (256.0, 215.0)
    """
    return tokens if least_size is None else least_size * 2.0 ** max(ceil(log2(tokens / least_size)), 0)
