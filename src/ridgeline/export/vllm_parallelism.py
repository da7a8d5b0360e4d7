"""How vLLM is told a mesh: its flags, what it reads from the environment, and what it has no word for.

| axis | on GPUs | on TPUs |
|---|---|---|
| `tp` | tensor_parallel_size | the same |
| `dp` | data_parallel_size | the same, on one host |
| `ep` | data_parallel_size with enable_expert_parallel | attention data parallelism inside tensor_parallel_size |
| `pp` | pipeline_parallel_size | the same |
| `cp` | prefill_context_parallel_size, of latent attention | the same, an even degree without `dp` |
| cache spread beyond heads | decode_context_parallel_size | the same |

Source: vLLM and tpu-inference 0.32.0: config/parallel.py, config/model.py, config/vllm.py and the NIXL connector;
layers/common/sharding.py and platforms/tpu_platform.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from ridgeline.cost.serving.device import cached_attentions
from ridgeline.errors import InputError
from ridgeline.export.vllm_version import vllm_version
from ridgeline.model.tree import model_tree

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.export.vllm_version import Value
    from ridgeline.hardware.slice import Slice
    from ridgeline.job.serving import Phase, ServingJob

Role: TypeAlias = Literal["both", "prefill", "decode"]
"""What a server does: read prompts and reply, or one of them."""

VLLM_AXES: Final[Mapping[Phase, tuple[str, ...]]] = {
    "decode": ("tp", "ep", "dp", "pp"),
    "prefill": ("tp", "ep", "dp", "pp", "cp"),
}
"""Mesh axes that vLLM has words for, by phase."""

TPU_CHIPS_OF_A_HOST: Final = 4
"""Chips of a host of a slice of several. Source: docs.cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus."""

NEW_DESIGN: Final[Mapping[str, str]] = {"NEW_MODEL_DESIGN": "1"}
"""What attention data parallelism and context parallelism on TPUs ask for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmServer:
    """One kind of server, as vLLM is to run it.

    Attributes:
        role: What it does.
        hardware: The slice of one.
        mesh: Its degrees, none left open.
        sequences: Sequences of each rank at once; None for as many as have room.
        pass_tokens: Tokens of one pass of a rank.
        is_spread: Whether devices beyond the key-value heads share out the cache instead of holding copies.
    """

    role: Role
    hardware: Slice
    mesh: Mapping[str, int]
    sequences: int | None
    pass_tokens: int
    is_spread: bool = False

    @property
    def is_tpu(self) -> bool:
        """Whether it runs on TPUs."""
        return self.hardware.chip.torus is not None

    @property
    def num_ranks(self) -> int:
        """Groups of devices that have a scheduler, and sequences, of their own."""
        return self.mesh.get("dp", 1) * self.mesh.get("ep", 1)

    @property
    def num_hosts(self) -> int:
        """Hosts of one server."""
        chips, host = self.hardware.num_chips, self.hardware.chip.chips_per_host
        if chips <= host:
            return 1
        return -(-chips // (min(host, TPU_CHIPS_OF_A_HOST) if self.is_tpu else host))

    @property
    def chips_of_a_host(self) -> int:
        """Chips of each of them that it takes."""
        return self.hardware.num_chips // self.num_hosts


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallelism:
    """What a mesh is in vLLM.

    Attributes:
        settings: Flags.
        environment: Variables that its hosts are given.
        notes: Where vLLM does a little else than the plan.
    """

    settings: Mapping[str, Value]
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    notes: tuple[str, ...] = ()


def parallelism(job: ServingJob, server: VllmServer) -> Parallelism:
    """The mesh of a server in vLLM's words.

    Raises:
        InputError: It has none for a part of it.
    """
    _check_axes(server)
    _check_heads(job, server)
    of_context = _context(job, server)
    found = _on_tpus(server) if server.is_tpu else _on_gpus(server)
    environment = dict(found.environment) | (dict(NEW_DESIGN) if server.is_tpu and of_context else {})
    return Parallelism(settings={**found.settings, **of_context}, environment=environment, notes=found.notes)


def refused(what: str, where: str, value: object, *, fix: str) -> InputError:
    """The error for what vLLM cannot be told."""
    return InputError(
        f"vLLM cannot be told {what}",
        where=where,
        value=value,
        expected=f"what vLLM {vllm_version().version} has a flag for",
        fix=fix,
    )


def _on_gpus(server: VllmServer) -> Parallelism:
    settings: dict[str, Value] = {"tensor_parallel_size": server.mesh.get("tp", 1)}
    if server.mesh.get("pp", 1) > 1:
        settings["pipeline_parallel_size"] = server.mesh["pp"]
    if server.num_ranks > 1:
        settings["data_parallel_size"] = server.num_ranks
    notes: tuple[str, ...] = ()
    if server.mesh.get("ep", 1) > 1:
        settings["enable_expert_parallel"] = True
        ways = server.num_ranks * server.mesh.get("tp", 1)
        notes = (f"vLLM places whole experts, on {ways} devices; the plan splits them {server.mesh['ep']} ways",)
        notes = notes if ways != server.mesh["ep"] else ()
    if server.num_hosts > 1:
        settings["nnodes"] = server.num_hosts
    return Parallelism(settings=settings, notes=notes)


def _on_tpus(server: VllmServer) -> Parallelism:
    mesh, experts = server.mesh, server.mesh.get("ep", 1)
    settings: dict[str, Value] = {"tensor_parallel_size": mesh.get("tp", 1) * experts}
    environment: dict[str, str] = {}
    if mesh.get("pp", 1) > 1:
        settings["pipeline_parallel_size"] = mesh["pp"]
    if mesh.get("dp", 1) > 1:
        settings["data_parallel_size"] = mesh["dp"]
    if experts > 1:
        settings["enable_expert_parallel"] = True
        strategy: dict[str, Value] = {"enable_dp_attention": True, "attn_dp_size": experts}
        settings["additional_config"] = vllm_version().sharding_text(strategy)
        environment |= NEW_DESIGN
    if server.num_hosts > 1:
        environment["TPU_MULTIHOST_BACKEND"] = "ray"
    return Parallelism(settings=settings, environment=environment)


def _context(job: ServingJob, server: VllmServer) -> dict[str, Value]:
    """Context parallelism: of prompts, and of the cache of sequences that decode."""
    settings: dict[str, Value] = {}
    has_latents = any(each.caches_latents for each, _ in cached_attentions(model_tree(job.model)))
    if (ways := server.mesh.get("cp", 1)) > 1:
        if server.role != "prefill":
            fix = "use it for servers that only read prompts, or use tp"
            raise refused("context parallelism of servers that decode", "plan.decode.cp", ways, fix=fix)
        if not server.is_tpu and not has_latents:
            fix = "use tp or dp"
            raise refused("context parallelism of this attention on GPUs", "plan.prefill.cp", ways, fix=fix)
        if server.is_tpu and (ways % 2 or server.mesh.get("dp", 1) > 1):
            raise refused(f"cp={ways} so on TPUs", "plan.prefill.cp", ways, fix="use an even degree, without dp")
        settings["prefill_context_parallel_size"] = ways
    if server.is_spread and (ways := _spread_ways(job, server)) > 1:
        if server.role != "both" and not server.is_tpu and not (has_latents and ways == server.mesh.get("tp", 1)):
            fix = "let devices hold copies, or servers do both"
            raise refused("a spread cache that is sent between GPUs", "plan.decode", dict(server.mesh), fix=fix)
        settings["decode_context_parallel_size"] = ways
    return settings


def _spread_ways(job: ServingJob, server: VllmServer) -> int:
    """Devices for each key-value head."""
    fewest = min(each.num_cached_heads for each, _ in cached_attentions(model_tree(job.model)))
    return max(server.mesh.get("tp", 1) // fewest, 1)


def _check_axes(server: VllmServer) -> None:
    phase: Phase = "prefill" if server.role == "prefill" else "decode"
    for axis, degree in server.mesh.items():
        if degree > 1 and axis not in VLLM_AXES["prefill"]:
            known = ", ".join(VLLM_AXES[phase])
            raise refused(f"the axis {axis} on {server.hardware.chip.name}", f"plan.{phase}", axis, fix=f"use {known}")
    if server.is_tpu and server.num_hosts > 1 and server.mesh.get("dp", 1) > 1:
        fix = "use smaller slices and more replicas, or ep and tp"
        raise refused("dp over several hosts of TPUs", f"plan.{phase}.dp", server.mesh["dp"], fix=fix)


def _check_heads(job: ServingJob, server: VllmServer) -> None:
    tensor = server.mesh.get("tp", 1)
    for attention, _ in cached_attentions(model_tree(job.model)):
        heads, cached = attention.num_heads, attention.num_cached_heads
        if heads % tensor or (cached % tensor and tensor % cached):
            fix = "use a degree that divides the query heads, and the key-value heads or a multiple of them"
            raise refused(f"{heads} heads, {cached} cached, over {tensor} devices", "plan.decode.tp", tensor, fix=fix)
