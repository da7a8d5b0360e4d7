"""A serving job handed to vLLM: its mesh made whole, the memory of a device counted, and the flags."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, gcd
from typing import TYPE_CHECKING, Final

from ridgeline.cost.serving.device import (
    LANES,
    PhaseColumns,
    ServingSetting,
    cache_bytes,
    cached_attentions,
    held_weight_bytes,
    last_logits_bytes,
    split_shards,
    working_bytes,
)
from ridgeline.cost.training.step import step_weights
from ridgeline.export.vllm import MOST_SEQUENCES, DeviceMemory, batch_ways, pass_tokens, refused, vllm_config
from ridgeline.job.job import BYTES_OF
from ridgeline.model.operations import ExpertMatmul, Recurrence
from ridgeline.model.tree import model_tree

if TYPE_CHECKING:
    from ridgeline.export.vllm import VllmConfig
    from ridgeline.job.serving import ServingJob
    from ridgeline.model.operations import ModelTree, Operation

_PAGE_TOKENS: Final = 256
"""Tokens of the largest page that vLLM chooses by itself, but for latents on TPUs. Source: tpu-inference 0.32.0."""

_PAGE_TOKENS_OF_LATENTS: Final = 1024
"""Tokens of a page of latents on TPUs. Source: tpu-inference 0.32.0."""

_ACTIVATION: Final = "bf16"
"""What engines keep activations in, also between narrow matmuls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmAnswer:
    """What `ridgeline export JOB --to vllm` answers.

    Attributes:
        job: The question, with nothing left to choose.
        config: What vLLM is told.
    """

    job: ServingJob
    config: VllmConfig


def export_vllm(job: ServingJob) -> VllmAnswer:
    """A job as vLLM is told it; a decode mesh that it leaves open is tensor parallelism as far as heads allow.

    Raises:
        InputError: vLLM has no word for a part of it.
        InfeasibleError: The engine would not start.
    """
    tree = model_tree(job.model)
    mesh = dict(job.plan.decode or job.plan.prefill) or _tensor_mesh(job, tree)
    whole = replace(job, plan=replace(job.plan, decode=mesh))
    found = list(_operations(tree))
    if any(isinstance(operation, Recurrence) for operation in found):
        fix = "write its flags by hand"
        raise refused("how much a linear-time layer keeps (not counted yet)", "model", job.model.name, fix=fix)
    if mesh.get("ep", 1) > 1 and not any(isinstance(operation, ExpertMatmul) for operation in found):
        raise refused("experts of a model without any", "plan.decode.ep", mesh["ep"], fix="use dp")
    return VllmAnswer(job=whole, config=vllm_config(whole, device_memory(whole)))


def device_memory(job: ServingJob) -> DeviceMemory:
    """What a device has, and what weights, a pass and one sequence take of it."""
    chip, tree = job.hardware.chip, model_tree(job.model)
    setting = ServingSetting(
        tree=tree,
        dtypes=replace(job.plan.dtypes, compute=_ACTIVATION),
        context_len=job.workload.context_len,
        prompt_len=job.workload.prompt_len,
        row_elements=LANES if chip.torus is not None else 1,
    )
    columns = PhaseColumns(degrees=job.plan.decode, batch_size=float(batch_ways(job)))
    sequences = MOST_SEQUENCES if job.workload.batch is None else job.workload.batch // batch_ways(job)
    vocabulary = max(tensor.size // tensor.shape[-1] for tensor, _, _ in step_weights(tree) if "vocab" in tensor.axes)
    logits = last_logits_bytes(B=sequences, V=vocabulary, Y=columns.tensor, b_a=BYTES_OF["f32"])
    passed = working_bytes(setting, columns, rows=float(pass_tokens(job)))
    hbm_bytes = chip.hbm_bytes / chip.devices_per_chip
    return DeviceMemory(
        hbm_bytes=hbm_bytes,
        usable_bytes=min(hbm_bytes, chip.usable_hbm_bytes / chip.devices_per_chip),
        weights_bytes=float(held_weight_bytes(setting, columns)) + _wide_vocabulary_bytes(setting, columns),
        pass_bytes=float(passed) + float(logits),
        sequence_bytes=_sequence_bytes(job, setting, columns),
    )


def _wide_vocabulary_bytes(setting: ServingSetting, columns: PhaseColumns) -> float:
    """What the table and the head take more than narrow weights do: they are not quantized."""
    more = max(BYTES_OF[_ACTIVATION] - BYTES_OF[setting.dtypes.weights], 0.0)
    return sum(
        more * tensor.size * count / float(split_shards(tensor.axes, tensor.shape, columns))
        for tensor, count, _ in step_weights(setting.tree)
        if "vocab" in tensor.axes
    )


def _sequence_bytes(job: ServingJob, setting: ServingSetting, columns: PhaseColumns) -> float:
    """KV cache of one sequence; a layer with a window keeps that and what one pass adds.

    Source: vLLM 0.32.0, `max_memory_usage_bytes` of its cache specifications.
    """
    is_tpu, total = job.hardware.chip.torus is not None, 0.0
    for attention, count in cached_attentions(setting.tree):
        page = _PAGE_TOKENS_OF_LATENTS if attention.caches_latents and is_tpu else _PAGE_TOKENS
        window = attention.span.window
        tokens = setting.context_len
        if window:
            tokens = min(window - 1 + pass_tokens(job), tokens)
        pages = ceil(tokens / page) + (1 if window else 0)
        total += count * float(cache_bytes(attention, setting, columns, tokens=pages * page, num_sequences=1))
    return total


def _tensor_mesh(job: ServingJob, tree: ModelTree) -> dict[str, int]:
    """Tensor parallelism as far as query heads share out; on GPUs the rest are further groups."""
    devices = job.hardware.num_devices
    heads = [attention.num_heads for attention, _ in cached_attentions(tree)]
    tensor = gcd(devices, *heads)
    if tensor < devices and job.hardware.chip.torus is not None:
        fix = f"use a slice of {tensor} devices, and more replicas"
        raise refused(f"{devices} devices for {heads[0]} query heads", "hardware", job.hardware.name, fix=fix)
    return {"tp": tensor, **({"dp": devices // tensor} if tensor < devices else {})}


def _operations(tree: ModelTree) -> list[Operation]:
    return [operation for layer in tree.layers for block in layer.blocks for operation in block.operations]
