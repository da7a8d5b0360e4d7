"""A serving job handed to vLLM: the plan of `serve`, the memory of a device counted, and the flags of each server."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, prod
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
    stored_element_bytes,
    working_bytes,
)
from ridgeline.cost.training.held_weights import step_weights
from ridgeline.errors import InfeasibleError, InputError
from ridgeline.export.vllm import MOST_SEQUENCES, DeviceMemory, check_job, pass_tokens, vllm_config
from ridgeline.export.vllm_manifest import has_pairs
from ridgeline.export.vllm_parallelism import VllmServer, refused
from ridgeline.hardware.topology import parse_slice
from ridgeline.job.job import BYTES_OF
from ridgeline.job.mesh import FREE
from ridgeline.job.whole import whole_serving_job
from ridgeline.model.operations import ExpertMatmul, Recurrence
from ridgeline.model.tree import model_tree
from ridgeline.search.serve import serve

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Unpack

    from ridgeline.export.vllm import VllmConfig
    from ridgeline.export.vllm_parallelism import Role
    from ridgeline.hardware.slice import Slice
    from ridgeline.job.origin import Arguments
    from ridgeline.job.serving import ServingJob
    from ridgeline.model.operations import ModelTree, Operation
    from ridgeline.search.serving.answer import ServingPoint

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
        job: The question.
        point: The plan, and what it gives.
        servers: What vLLM is told of each kind of server: of one that does both, or of prefill and of decode.
        notes: What a reader should know of the plan.
    """

    job: ServingJob
    point: ServingPoint
    servers: tuple[VllmConfig, ...]
    notes: tuple[str, ...]

    @property
    def config(self) -> VllmConfig:
        """Of the server that decodes."""
        return self.servers[-1]

    def replicas(self, config: VllmConfig, *, servers: int | None = None) -> int:
        """How many of one kind.

        Args:
            config: Which kind.
            servers: Those that decode; None for as many as the job's rate asks for, or one.
        """
        fleet, plan = self.point.fleet, self.point.plan
        decode = servers or (1 if fleet is None else fleet.servers)
        if config.server.role != "prefill":
            return decode
        if servers is None and fleet is not None:
            return fleet.prefill_servers
        return max(ceil(decode * plan.prefill_server_ratio), 1)


def export_vllm(
    job: str | ServingJob, *, slices: Sequence[Slice] = (), to_manifest: bool = False, **arguments: Unpack[Arguments]
) -> VllmAnswer:
    """The best plan of a job that vLLM can be told.

    Args:
        job: A job, a job file (.toml), or a model: its name or its config.json. What its plan pins is held, the rest is
            searched as `serve` does.
        slices: Slices to choose from; none for the job's own.
        to_manifest: Whether a manifest is to be written: where it cannot have both kinds of servers, and the job leaves
            the mode open, the plan is of servers that do both.
        arguments: As for `serve`.

    Raises:
        InputError: vLLM has no word for a part of what the job pins, or for any plan that does as well.
        InfeasibleError: No plan fits or meets the limits, or the engine would not start.
    """
    asked = whole_serving_job(job, arguments)
    is_held = to_manifest and not has_pairs(asked.hardware) and len(asked.plan.modes) > 1
    if is_held:
        asked = replace(asked, plan=replace(asked.plan, mode="interleaved"))
    check_job(asked)
    _check_model(asked)
    first: InputError | InfeasibleError | None = None
    for point in _plans(asked, slices):
        chosen = _chosen(asked, point)
        try:
            found = [vllm_config(chosen, each, device_memory(chosen, each)) for each in _servers(chosen, point)]
        except (InputError, InfeasibleError) as error:
            first = first or error
        else:
            notes = [] if first is None else [f"not the best plan of all: {first.what}"]
            if is_held:
                notes.append("of servers that do both: no manifest of two kinds is known on this GPU")
            return VllmAnswer(job=chosen, point=point, servers=tuple(found), notes=tuple(notes))
    raise first or refused("any plan of this job", "job", asked.model_reference, fix="name the mesh with --mesh")


def _plans(job: ServingJob, slices: Sequence[Slice]) -> Iterator[ServingPoint]:
    """The best plan; then those of a search that is held to axes which vLLM has words for."""
    yield serve(job, slices=slices).best
    held = serve(_held(job), slices=slices)
    yield held.best
    yield from _others(job, held.frontier)


def _check_model(job: ServingJob) -> None:
    operations = list(_operations(model_tree(job.model)))
    if any(isinstance(operation, Recurrence) for operation in operations):
        fix = "write its flags by hand"
        raise refused("how much a linear-time layer keeps (not counted yet)", "model", job.model.name, fix=fix)
    experts = job.plan.decode.get("ep", 1)
    if experts > 1 and not any(isinstance(operation, ExpertMatmul) for operation in operations):
        raise refused("experts of a model without any", "plan.decode.ep", experts, fix="use dp")


def _held(job: ServingJob) -> ServingJob:
    """The question, its search held to a few axes where it pins no mesh."""
    operations = _operations(model_tree(job.model))
    axes = ["tp", *(["ep"] if any(isinstance(each, ExpertMatmul) for each in operations) else [])]
    if job.hardware.chip.torus is None:
        axes.append("dp")
    free, plan = dict.fromkeys(axes, FREE), job.plan
    return replace(job, plan=replace(plan, decode=plan.decode or free, prefill=plan.prefill or free))


def _chosen(job: ServingJob, point: ServingPoint) -> ServingJob:
    """The question with the slice, the precision and the mesh of a plan."""
    plan = replace(job.plan, dtypes=point.plan.dtypes, decode=dict(point.plan.decode), prefill=dict(point.plan.prefill))
    return replace(job, hardware=parse_slice(point.plan.slice, where="on"), plan=plan)


def _others(job: ServingJob, frontier: tuple[ServingPoint, ...]) -> Iterator[ServingPoint]:
    """Plans that meet the limits too, the cheapest first."""
    workload = job.workload
    for point in frontier:
        in_time = workload.ttft_s is None or point.ttft.mean_s <= workload.ttft_s
        if in_time and (workload.tpot_s is None or point.tpot.mean_s <= workload.tpot_s):
            yield point


def _servers(job: ServingJob, point: ServingPoint) -> Iterator[VllmServer]:
    """The servers of a plan, those that decode last."""
    plan, default = point.plan, pass_tokens(is_tpu=job.hardware.chip.torus is not None)
    decoding = max(plan.batch // _ranks(plan.decode), 1)
    is_spread = plan.cache == "spread"

    def server(role: Role, mesh: Mapping[str, int], sequences: int, tokens: int) -> VllmServer:
        spread = is_spread and role != "prefill"
        return VllmServer(
            role=role, hardware=job.hardware, mesh=mesh, sequences=sequences, pass_tokens=tokens, is_spread=spread
        )

    if plan.mode == "interleaved":
        yield server("both", plan.decode, decoding, plan.prefill_chunk + decoding)
        return
    reading = max(plan.prefill_batch // _ranks(plan.prefill), 1)
    yield server("prefill", plan.prefill, reading, reading * job.workload.prompt_len)
    yield server("decode", plan.decode, decoding, max(default, decoding))


def _ranks(mesh: Mapping[str, int]) -> int:
    return prod(mesh.get(axis, 1) for axis in ("dp", "ep"))


def device_memory(job: ServingJob, server: VllmServer) -> DeviceMemory:
    """What a device has, and what weights, a pass and one sequence take of it."""
    chip, tree = job.hardware.chip, model_tree(job.model)
    setting = ServingSetting(
        tree=tree,
        dtypes=replace(job.plan.dtypes, compute=_ACTIVATION),
        context_len=job.workload.context_len,
        prompt_len=job.workload.prompt_len,
        row_elements=LANES if server.is_tpu else 1,
        int4_group_size=job.int4_group_size,
        keeps_wide_vocabulary=job.is_as_published,
    )
    columns = PhaseColumns(
        degrees=server.mesh, batch_size=float(server.num_ranks), cache_spread_share=float(server.is_spread)
    )
    sequences = MOST_SEQUENCES if server.sequences is None else server.sequences
    vocabulary = max(tensor.size // tensor.shape[-1] for tensor, _, _ in step_weights(tree) if "vocab" in tensor.axes)
    logits = last_logits_bytes(B=sequences, V=vocabulary, Y=columns.tensor, b_a=BYTES_OF["f32"])
    passed = working_bytes(setting, columns, rows=float(server.pass_tokens) / server.mesh.get("cp", 1))
    hbm_bytes = chip.hbm_bytes / chip.devices_per_chip
    return DeviceMemory(
        hbm_bytes=hbm_bytes,
        usable_bytes=min(hbm_bytes, chip.usable_hbm_bytes / chip.devices_per_chip),
        weights_bytes=float(held_weight_bytes(setting, columns)) + _wide_vocabulary_bytes(setting, columns),
        pass_bytes=float(passed) + float(logits),
        sequence_bytes=_sequence_bytes(job, server, setting, columns),
    )


def _wide_vocabulary_bytes(setting: ServingSetting, columns: PhaseColumns) -> float:
    """What the table and the head take more than narrow weights are counted: they are not quantized."""
    return sum(
        max(BYTES_OF[_ACTIVATION] - stored_element_bytes(setting, tensor.axes), 0.0)
        * tensor.size
        * count
        / float(split_shards(tensor.axes, tensor.shape, columns))
        for tensor, count, _ in step_weights(setting.tree)
        if "vocab" in tensor.axes
    )


def _sequence_bytes(job: ServingJob, server: VllmServer, setting: ServingSetting, columns: PhaseColumns) -> float:
    """KV cache of one sequence; a layer with a window keeps that and what one pass adds.

    Source: vLLM 0.32.0, `max_memory_usage_bytes` of its cache specifications.
    """
    total = 0.0
    for attention, count in cached_attentions(setting.tree):
        page = _PAGE_TOKENS_OF_LATENTS if attention.caches_latents and server.is_tpu else _PAGE_TOKENS
        page = job.plan.page_tokens or page
        window = attention.span.window
        tokens = setting.context_len
        if window:
            tokens = min(window - 1 + server.pass_tokens, tokens)
        pages = ceil(tokens / page) + (1 if window else 0)
        total += count * float(cache_bytes(attention, setting, columns, tokens=pages * page, num_sequences=1))
    return total / float(columns.stages)


def _operations(tree: ModelTree) -> list[Operation]:
    return [operation for layer in tree.layers for block in layer.blocks for operation in block.operations]
