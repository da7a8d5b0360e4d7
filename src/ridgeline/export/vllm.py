"""A serving job as vLLM is told it: the flags of `vllm serve`, and how much of a device's memory it may take.

vLLM takes a part of a device's memory, `gpu_memory_utilization`, and gives its KV cache what weights leave of it. On a
GPU what a pass makes comes out of that part too; on a TPU it must find room beside it. Either way the engine starts
only if one sequence of the longest length fits in the cache, which is checked here.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from shlex import quote
from typing import TYPE_CHECKING, Final

from ridgeline.cost.serving.device import cached_attentions
from ridgeline.errors import InfeasibleError, InputError
from ridgeline.export.vllm_version import vllm_version
from ridgeline.model.tree import model_tree
from ridgeline.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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
_QUANTIZATIONS: Final[Mapping[tuple[str, str], str]] = {
    ("fp8", "fp8"): "fp8",
    ("int8", "bf16"): "int8_per_channel_weight_only",
}
"""By storage of the weights and dtype of the matmuls; both quantize a checkpoint in bf16 while it is loaded."""

_QUANTIZATIONS_OF_TPU: Final = frozenset({"fp8"})
"""Source: tpu-inference 0.32.0, `supported_quantization` of its platform."""


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
        settings: Value by flag, without dashes; what is left out stays as vLLM has it.
        memory: Of a device.
        cache_bytes: What is left for the KV cache of a device.
        notes: What a reader should know.
    """

    version: str
    settings: Mapping[str, Value]
    memory: DeviceMemory
    cache_bytes: float
    notes: tuple[str, ...]

    @property
    def num_sequences(self) -> int:
        """Sequences of the longest length for which a device, and so its group, has room."""
        return int(self.cache_bytes / self.memory.sequence_bytes)


def vllm_config(job: ServingJob, memory: DeviceMemory) -> VllmConfig:
    """The flags of a job whose decode mesh is whole.

    Raises:
        InputError: vLLM has no word for a part of the job; the message names it.
        InfeasibleError: The engine would not start: weights and one sequence do not fit.
    """
    version, is_tpu = vllm_version(), job.hardware.chip.torus is not None
    mesh, longest, precision = _parallelism(job), _longest(job), _precision(job, is_tpu=is_tpu)
    utilization, cache_bytes = _utilization(memory, is_tpu=is_tpu)
    if cache_bytes < memory.sequence_bytes:
        raise _would_not_start(job, memory, cache_bytes)
    room = int(cache_bytes / memory.sequence_bytes)
    asked = job.workload.batch
    ways = batch_ways(job)
    sequences = max(1, min(room, MOST_SEQUENCES) if asked is None else asked // ways)
    settings: dict[str, Value] = {
        **mesh,
        "max_model_len": longest,
        "max_num_seqs": sequences,
        "max_num_batched_tokens": max(pass_tokens(job), sequences),
        "gpu_memory_utilization": utilization,
        **precision,
    }
    version.check(settings)
    return VllmConfig(
        version=version.version,
        settings=settings,
        memory=memory,
        cache_bytes=cache_bytes,
        notes=tuple(_notes(settings, room)),
    )


def _notes(settings: Mapping[str, Value], room: int) -> Iterator[str]:
    """What a reader should know of these flags."""
    sequences = int(settings["max_num_seqs"])
    if sequences > room:
        yield f"room for the whole context of {room:,} of {sequences:,} sequences a replica; others wait for pages"
    if "quantization" in settings:
        yield "quantization narrows a checkpoint in bf16; leave it out where the checkpoint is narrow itself"


def pass_tokens(job: ServingJob) -> int:
    """Tokens of one pass."""
    return PASS_TOKENS_OF_GPU if job.hardware.chip.torus is None else PASS_TOKENS_OF_TPU


def batch_ways(job: ServingJob) -> int:
    """Groups of devices that each have sequences of their own."""
    return prod(job.plan.decode.get(axis, 1) for axis in ("dp", "ep"))


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
    """The same, as a shell reads it."""
    return " ".join(map(quote, serve_words(config, checkpoint)))


def _utilization(memory: DeviceMemory, *, is_tpu: bool) -> tuple[float, float]:
    """The part of a device's memory that vLLM is given, in whole hundredths, and what of it is left for the cache.

    The part is counted of what programs may allocate, as a TPU's runtime does; a GPU's driver says a little more.
    """
    if is_tpu:
        part = _hundredths(1 - memory.pass_bytes / memory.usable_bytes)
        return part, part * memory.usable_bytes - memory.weights_bytes
    part = _hundredths(memory.usable_bytes / memory.hbm_bytes)
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


def _parallelism(job: ServingJob) -> dict[str, Value]:
    mesh, is_tpu = job.plan.decode, job.hardware.chip.torus is not None
    if job.plan.prefill and dict(job.plan.prefill) != dict(mesh):
        fix = "give one mesh: --mesh, or two jobs, one for each kind of server"
        raise refused("two meshes in one server", "plan.prefill", dict(job.plan.prefill), fix=fix)
    for axis, degree in mesh.items():
        if degree > 1 and axis not in ({"tp"} if is_tpu else {"tp", "dp", "ep"}):
            known = "tp alone; for more sequences, more replicas" if is_tpu else "tp, dp and ep"
            raise refused(f"the axis {axis} on {job.hardware.chip.name}", "plan.decode", axis, fix=f"use {known}")
    tensor, hosts = mesh.get("tp", 1), job.hardware.num_devices / job.hardware.chip.devices_per_chip
    if hosts > job.hardware.chip.chips_per_host:
        limit = job.hardware.chip.chips_per_host
        fix = f"use {limit} chips at most, and more replicas"
        raise refused("a server of several hosts (not written yet)", "hardware", job.hardware.name, fix=fix)
    for attention, _ in cached_attentions(model_tree(job.model)):
        heads, cached = attention.num_heads, attention.num_cached_heads
        if heads % tensor or (cached % tensor and tensor % cached):
            fix = "use a degree that divides the query heads, and the key-value heads or a multiple of them"
            raise refused(f"{heads} heads, {cached} cached, over {tensor} devices", "plan.decode.tp", tensor, fix=fix)
    settings: dict[str, Value] = {"tensor_parallel_size": tensor}
    if batch_ways(job) > 1:
        settings["data_parallel_size"] = batch_ways(job)
    if mesh.get("ep", 1) > 1:
        settings["enable_expert_parallel"] = True
    return settings


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
    dtypes = job.plan.dtypes
    if dtypes.kv_cache not in _CACHES:
        raise refused(f"a cache in {dtypes.kv_cache}", "plan.dtypes.kv_cache", dtypes.kv_cache, fix="use bf16 or fp8")
    known_peaks = job.hardware.chip.peak_flops_per_s
    if dtypes.compute not in known_peaks:
        what = f"matmuls in {dtypes.compute} on {job.hardware.chip.name}, which has none"
        raise refused(what, "plan.dtypes.compute", dtypes.compute, fix="compute in bf16")
    settings: dict[str, Value] = {"dtype": "bfloat16", "kv_cache_dtype": _CACHES[dtypes.kv_cache]}
    if dtypes.weights == dtypes.compute and dtypes.weights in _DTYPES:
        return settings | {"dtype": _DTYPES[dtypes.weights]}
    kind = _QUANTIZATIONS.get((dtypes.weights, dtypes.compute))
    if (dtypes.weights, dtypes.compute) == ("fp8", "bf16") and "fp8" not in known_peaks and not is_tpu:
        kind = "fp8"  # without fp8 matmuls, vLLM widens such weights as it reads them
    if kind is None or (is_tpu and kind not in _QUANTIZATIONS_OF_TPU):
        value = f"{dtypes.weights} weights, {dtypes.compute} matmuls"
        known = "bf16 or fp8 for both" if is_tpu else "bf16 or fp8 for both, or int8 weights with bf16 matmuls"
        raise refused(value, "plan.dtypes", value, fix=f"use {known}")
    return settings | {"quantization": kind}


def refused(what: str, where: str, value: object, *, fix: str) -> InputError:
    """The error for what vLLM cannot be told."""
    return InputError(
        f"vLLM cannot be told {what}",
        where=where,
        value=value,
        expected=f"what vLLM {vllm_version().version} has a flag for",
        fix=fix,
    )
