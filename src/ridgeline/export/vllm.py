"""A server of a serving job as vLLM is told it: the flags of `vllm serve`, and how much of a device it may take.

vLLM takes a part of a device's memory, `gpu_memory_utilization`, and gives its KV cache what weights leave of it. On a
GPU what a pass makes comes out of that part too; on a TPU it must find room beside it. Either way the engine starts
only if one sequence of the longest length fits in the cache, which is checked here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from shlex import quote
from typing import TYPE_CHECKING, Final

from ridgeline.errors import InfeasibleError, InputError
from ridgeline.export.vllm_parallelism import parallelism, refused
from ridgeline.export.vllm_version import vllm_version
from ridgeline.job.serving import MTP
from ridgeline.model.operations import Attention
from ridgeline.model.tree import model_tree
from ridgeline.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ridgeline.export.vllm_parallelism import VllmServer
    from ridgeline.export.vllm_version import Value
    from ridgeline.job.serving import ServingJob

MOST_UTILIZATION: Final = 0.95
"""Part of a device's memory that vLLM is given at most: the rest is for what it does not count itself."""

PASS_TOKENS_OF_GPU: Final = 8192
PASS_TOKENS_OF_TPU: Final = 2048
"""Tokens of a pass. Source: vLLM 0.32.0, defaults of `max_num_batched_tokens`: on GPUs of 70 GB and more (16,384 on the
largest), and on v6e for batches (1,024 in a server)."""

MOST_SEQUENCES: Final = 1024
"""Source: vLLM 0.32.0, the most that `max_num_seqs` is by default."""

_DTYPES: Final[Mapping[str, str]] = {"bf16": "bfloat16", "f32": "float32"}
_CACHES: Final[Mapping[str, str]] = {"bf16": "bfloat16", "fp8": "fp8"}
_CACHES_OF_GPU: Final[Mapping[str, str]] = {**_CACHES, "int8": "int8_per_token_head"}
_QUANTIZATIONS: Final[Mapping[tuple[str, str], str]] = {
    ("fp8", "fp8"): "fp8",
    ("int8", "bf16"): "int8_per_channel_weight_only",
}
"""By storage of the weights and dtype of the matmuls; both quantize a checkpoint in bf16 while it is loaded."""

_QUANTIZATIONS_OF_TPU: Final = frozenset({"fp8"})
"""Source: tpu-inference 0.32.0, `supported_quantization` of its platform."""

_CONNECTOR_OF_GPU: Final = "NixlConnector"
_CONNECTOR_OF_TPU: Final = "TPUConnector"
_CONNECTORS_OF_WINDOWS: Final = ("TPUConnectorHMA", "tpu_inference.distributed.tpu_connector_hma")
_MODULE_OF_TPU: Final = "tpu_inference.distributed.tpu_connector"
"""What moves KV caches from prefill to decode, and where it is defined; layers with windows have one of their own.
Source: vLLM and tpu-inference 0.32.0."""

LOOKED_UP_WORDS: Final = 4
"""Longest run of words that is looked up in the prompt, for drafts that no model makes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemory:
    """Memory of one device, and what a server needs of it.

    Attributes:
        hbm_bytes: All of it.
        usable_bytes: What programs may allocate; what a TPU's runtime calls its limit.
        weights_bytes: Weights.
        pass_bytes: What the largest pass makes.
        sequence_bytes: KV cache of one sequence of the longest length, in whole pages.
    """

    hbm_bytes: float
    usable_bytes: float
    weights_bytes: float
    pass_bytes: float
    sequence_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmConfig:
    """What vLLM is told.

    Attributes:
        version: Of vLLM, whose flags these are.
        server: What it is to be.
        settings: Value by flag, without dashes; what is left out stays as vLLM has it.
        environment: Variables that its hosts are given.
        memory: Of a device.
        cache_bytes: What is left for the KV cache of a device.
        notes: What a reader should know.
    """

    version: str
    server: VllmServer
    settings: Mapping[str, Value]
    environment: Mapping[str, str]
    memory: DeviceMemory
    cache_bytes: float
    notes: tuple[str, ...] = field(default=())

    @property
    def num_sequences(self) -> int:
        """Sequences of the longest length for which a rank has room."""
        return int(self.cache_bytes / self.memory.sequence_bytes)

    @property
    def reserve(self) -> str:
        """What of a device vLLM is not given, and why."""
        part = float(self.settings["gpu_memory_utilization"])
        if part == MOST_UTILIZATION:
            return f"{1 - part:.0%}, for what vLLM does not count: its runtime, compiled programs, fragments"
        if self.server.is_tpu:
            return f"{1 - part:.0%}, for a pass makes {format_bytes(self.memory.pass_bytes)} beside what vLLM takes"
        return f"{1 - part:.0%}, of which programs may not allocate {format_bytes(self._unusable_bytes)}"

    @property
    def _unusable_bytes(self) -> float:
        return self.memory.hbm_bytes - self.memory.usable_bytes


def check_job(job: ServingJob) -> None:
    """Refuses what no plan changes: a context beyond the model's, and dtypes that vLLM has no words for.

    Raises:
        InputError: It names the first such thing.
    """
    _longest(job)
    if not job.plan.open_dtypes:
        _precision(job, is_tpu=job.hardware.chip.torus is not None)


def vllm_config(job: ServingJob, server: VllmServer, memory: DeviceMemory) -> VllmConfig:
    """The flags of a server.

    Raises:
        InputError: vLLM has no word for a part of it; the message names it.
        InfeasibleError: The engine would not start: weights and one sequence do not fit.
    """
    version, mesh = vllm_version(), parallelism(job, server)
    longest, precision = _longest(job), _precision(job, is_tpu=server.is_tpu)
    part, cache_bytes = _utilization(job, memory, is_tpu=server.is_tpu)
    if cache_bytes < memory.sequence_bytes:
        raise _would_not_start(job, memory, cache_bytes)
    room = int(cache_bytes / memory.sequence_bytes)
    sequences = max(1, min(room, MOST_SEQUENCES) if server.sequences is None else server.sequences)
    settings: dict[str, Value] = {
        **mesh.settings,
        "max_model_len": longest,
        "max_num_seqs": sequences,
        "max_num_batched_tokens": max(server.pass_tokens, sequences),
        "gpu_memory_utilization": part,
        **precision,
        **dict(_engine(job, server)),
    }
    version.check(settings)
    version.check_environment(mesh.environment)
    return VllmConfig(
        version=version.version,
        server=server,
        settings=settings,
        environment=mesh.environment,
        memory=memory,
        cache_bytes=cache_bytes,
        notes=(*mesh.notes, *_notes(job, settings, room)),
    )


def _notes(job: ServingJob, settings: Mapping[str, Value], room: int) -> Iterator[str]:
    """What a reader should know of these flags."""
    sequences, speculation = int(settings["max_num_seqs"]), job.plan.speculation
    if sequences > room:
        yield f"room for the whole context of {room:,} of {sequences:,} sequences a replica; others wait for pages"
    if "quantization" in settings:
        yield "quantization narrows a checkpoint in bf16; leave it out where the checkpoint is narrow itself"
    if job.model.stored is not None and job.is_as_published:
        yield f"weights are read as the checkpoint says that it holds them ({job.model.stored.source})"
    elif job.plan.dtypes.experts not in {None, job.plan.dtypes.weights} and "quantization" not in settings:
        yield f"experts are in {job.plan.dtypes.experts} where the checkpoint has them so; vLLM reads that from it"
    if speculation is not None and speculation.drafter is not None:
        yield f"{speculation.draft_model} drafts: put its repository, or its folder, in that place"


def pass_tokens(*, is_tpu: bool) -> int:
    """Tokens of one pass where no plan says."""
    return PASS_TOKENS_OF_TPU if is_tpu else PASS_TOKENS_OF_GPU


def serve_words(config: VllmConfig, checkpoint: str) -> tuple[str, ...]:
    """The words of the command that starts the server, not yet quoted.

    Args:
        config: What vLLM is told.
        checkpoint: The model: its Hugging Face repository, or a folder.
    """
    words = ["vllm", "serve", checkpoint]
    for key, value in config.settings.items():
        flag = key.replace("_", "-")
        match value:
            case True:
                words.append(f"--{flag}")
            case False:
                words.append(f"--no-{flag}")
            case _:
                words += [f"--{flag}", str(value)]
    return tuple(words)


def serve_line(config: VllmConfig, checkpoint: str) -> str:
    """The same, as a shell reads it, after the variables that it needs."""
    variables = [f"{name}={quote(value)}" for name, value in config.environment.items()]
    return " ".join([*variables, *map(quote, serve_words(config, checkpoint))])


def _engine(job: ServingJob, server: VllmServer) -> Iterator[tuple[str, Value]]:
    """Flags of what an engine does beside passes: pages, prefixes, drafts, handing caches over."""
    version, plan = vllm_version(), job.plan
    if plan.page_tokens is not None:
        yield "block_size", plan.page_tokens
    if job.workload.prefix_cache.hit_fraction:
        yield "enable_prefix_caching", True
    if plan.speculation is not None and server.role != "prefill":
        yield "speculative_config", version.speculation_text(_drafts(job))
    if server.role != "both":
        yield "kv_transfer_config", version.transfer_text(_transfer(job, server))


def _drafts(job: ServingJob) -> dict[str, Value]:
    speculation = job.plan.speculation
    if speculation is None:
        return {}
    drafts: dict[str, Value] = {"num_speculative_tokens": speculation.draft_tokens}
    if speculation.draft_model is None:
        return {"method": "ngram", **drafts, "prompt_lookup_max": LOOKED_UP_WORDS}
    if speculation.draft_model == MTP:
        return {"method": "mtp", **drafts}
    return {"method": "draft_model", "model": speculation.draft_model, **drafts}


def _transfer(job: ServingJob, server: VllmServer) -> dict[str, Value]:
    role = "kv_producer" if server.role == "prefill" else "kv_consumer"
    if not server.is_tpu:
        return {"kv_connector": _CONNECTOR_OF_GPU, "kv_role": role}
    name, module = _CONNECTORS_OF_WINDOWS if _has_windows(job) else (_CONNECTOR_OF_TPU, _MODULE_OF_TPU)
    return {"kv_connector": name, "kv_connector_module_path": module, "kv_role": role}


def _has_windows(job: ServingJob) -> bool:
    blocks = (block for layer in model_tree(job.model).layers for block in layer.blocks)
    return any(isinstance(each, Attention) and each.span.window for block in blocks for each in block.operations)


def _utilization(job: ServingJob, memory: DeviceMemory, *, is_tpu: bool) -> tuple[float, float]:
    """The part of a device's memory that vLLM is given, in whole hundredths, and what of it is left for the cache.

    The part is counted of what programs may allocate, as a TPU's runtime does; a GPU's driver says a little more.
    """
    said = MOST_UTILIZATION if job.plan.memory_utilization is None else job.plan.memory_utilization
    if is_tpu:
        part = min(said, _hundredths(1 - memory.pass_bytes / memory.usable_bytes))
        return part, part * memory.usable_bytes - memory.weights_bytes
    part = min(said, _hundredths(memory.usable_bytes / memory.hbm_bytes))
    return part, part * memory.usable_bytes - memory.weights_bytes - memory.pass_bytes


def _hundredths(part: float) -> float:
    """Rounded down."""
    return max(int(min(part, MOST_UTILIZATION) * 100), 1) / 100


def _would_not_start(job: ServingJob, memory: DeviceMemory, cache_bytes: float) -> InfeasibleError:
    context = job.workload.context_len
    longest = int(context * max(cache_bytes, 0.0) / memory.sequence_bytes)
    needs = f"{format_bytes(memory.weights_bytes)} of weights and {format_bytes(memory.pass_bytes)} of a pass"
    left = f"{format_bytes(max(cache_bytes, 0.0))} of {format_bytes(memory.usable_bytes)} usable on a device"
    reasons = (
        f"{needs} leave {left}",
        f"one sequence of {context:,} tokens needs {format_bytes(memory.sequence_bytes)}",
    )
    shorter = f"prompt and reply of at most {longest:,} tokens together, " if longest else ""
    fix = f"{shorter}narrower weights or cache, or a mesh with more tensor parallelism"
    return InfeasibleError("vLLM would not start", reasons=reasons, fix=fix)


def _longest(job: ServingJob) -> int:
    longest, limit = job.workload.context_len, job.model.context_length
    if limit and longest > limit:
        raise InputError(
            "longer than the model was made for: vLLM refuses it",
            where="workload.prompt_len + generate_len",
            value=longest,
            expected=f"{limit:,} tokens at most (max_position_embeddings)",
            fix="shorten the prompt or the reply",
        )
    return longest


def _precision(job: ServingJob, *, is_tpu: bool) -> dict[str, Value]:
    dtypes, caches = job.plan.dtypes, _CACHES if is_tpu else _CACHES_OF_GPU
    if dtypes.kv_cache not in caches:
        fix = f"use {' or '.join(caches)}"
        raise refused(f"a cache in {dtypes.kv_cache}", "plan.dtypes.kv_cache", dtypes.kv_cache, fix=fix)
    known_peaks = job.hardware.chip.peak_flops_per_s
    if dtypes.compute not in known_peaks:
        what = f"matmuls in {dtypes.compute} on {job.hardware.chip.name}, which has none"
        raise refused(what, "plan.dtypes.compute", dtypes.compute, fix="compute in bf16")
    settings: dict[str, Value] = {"dtype": "bfloat16", "kv_cache_dtype": caches[dtypes.kv_cache]}
    if job.is_as_published:  # the checkpoint says itself what it holds
        return settings
    if dtypes.weights == dtypes.compute and dtypes.weights in _DTYPES:
        narrows = dtypes.experts == "int8" and not is_tpu
        return settings | {"dtype": _DTYPES[dtypes.weights]} | ({"quantization": "experts_int8"} if narrows else {})
    kind = _QUANTIZATIONS.get((dtypes.weights, dtypes.compute))
    if (dtypes.weights, dtypes.compute) == ("fp8", "bf16") and "fp8" not in known_peaks and not is_tpu:
        kind = "fp8"  # without fp8 matmuls, vLLM widens such weights as it reads them
    if kind is None or (is_tpu and kind not in _QUANTIZATIONS_OF_TPU):
        value = f"{dtypes.weights} weights, {dtypes.compute} matmuls"
        known = "bf16 or fp8 for both" if is_tpu else "bf16 or fp8 for both, or int8 weights with bf16 matmuls"
        raise refused(value, "plan.dtypes", value, fix=f"use {known}")
    return settings | {"quantization": kind}
