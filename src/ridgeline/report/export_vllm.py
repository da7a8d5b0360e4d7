"""`ridgeline export JOB --to vllm`: what vLLM is told, as a screen, as a file's text and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ridgeline.export.vllm import serve_line
from ridgeline.export.vllm_launch import script_lines
from ridgeline.export.vllm_manifest import has_pairs, manifest_yaml
from ridgeline.export.vllm_router import has_router, router_version
from ridgeline.job.mesh import mesh_in_words
from ridgeline.job.writing import job_tables
from ridgeline.report.blocks import Cell, Facts, Paragraphs, Report, Table
from ridgeline.report.jsonable import jsonable
from ridgeline.units import format_bytes, format_seconds, format_things

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ridgeline.export.vllm import VllmConfig
    from ridgeline.report.blocks import Piece
    from ridgeline.report.jsonable import Json
    from ridgeline.study.export_vllm import VllmAnswer

_UNSAID: Final = "CHECKPOINT"
"""What stands for the weights where they are not said."""

_TITLES: Final = {"both": "Server", "prefill": "Prefill server", "decode": "Decode server"}

_ROUTER: Final = (
    "clients ask a router of yours, which sends each prompt to a prefill server and what that returns as "
    "kv_transfer_params on to a decode server"
)


def vllm_report(answer: VllmAnswer, *, checkpoint: str | None, replicas: int | None = None) -> Report:
    """The screen: the plan, and of each kind of server its memory, its flags and its command."""
    notes = tuple(Cell(text=note) for note in _notes(answer))
    of_servers = (piece for config in answer.servers for piece in _pieces(answer, config, checkpoint, replicas))
    return Report(
        headline=f"{answer.job.model.name} on {answer.job.hardware.name} for vLLM {answer.config.version}",
        pieces=(
            Facts(title="Plan", rows=tuple(_plan_rows(answer))),
            *of_servers,
            *((Paragraphs(title="Notes", lines=notes),) if notes else ()),
        ),
    )


def vllm_json(answer: VllmAnswer, *, checkpoint: str | None, replicas: int | None = None) -> dict[str, Json]:
    """The same for programs; of two kinds of servers, what decodes stands above too."""
    servers: list[Json] = [
        {
            "role": config.server.role,
            "mesh": jsonable(config.server.mesh),
            "replicas": answer.replicas(config, servers=replicas),
            "hosts": config.server.num_hosts,
            **_server_json(config, checkpoint),
        }
        for config in answer.servers
    ]
    return {
        "job": jsonable(job_tables(answer.job)),
        "to": "vllm",
        "version": answer.config.version,
        "mode": answer.point.plan.mode,
        **_server_json(answer.config, checkpoint),
        "servers": servers,
        "router": router_version().requirement if has_router(answer.servers) else None,
        "notes": jsonable(tuple(_notes(answer))),
    }


def script_text(answer: VllmAnswer, *, checkpoint: str) -> str:
    """A shell script that starts a server on its host, or on one of its hosts."""
    return "\n".join(script_lines(answer.servers, checkpoint)) + "\n"


def manifest_text(answer: VllmAnswer, *, checkpoint: str, replicas: int | None) -> str:
    """A Kubernetes manifest of all servers."""
    servers = [(config, answer.replicas(config, servers=replicas)) for config in answer.servers]
    return manifest_yaml(servers, name=answer.job.model.name, checkpoint=checkpoint)


def _server_json(config: VllmConfig, checkpoint: str | None) -> dict[str, Json]:
    memory = config.memory
    return {
        "settings": jsonable(config.settings),
        "environment": jsonable(config.environment),
        "command": serve_line(config, checkpoint or _UNSAID),
        "memory": {
            "usable_bytes": memory.usable_bytes,
            "weights_bytes": memory.weights_bytes,
            "pass_bytes": memory.pass_bytes,
            "cache_bytes": config.cache_bytes,
            "sequence_bytes": memory.sequence_bytes,
        },
        "sequences": config.num_sequences,
    }


def _notes(answer: VllmAnswer) -> Iterator[str]:
    told = [note for config in answer.servers for note in config.notes]
    yield from (*answer.notes, *dict.fromkeys(told))
    if has_router(answer.servers):
        starts = "a script and a manifest start" if has_pairs(answer.job.hardware) else "a script starts"
        yield (
            f"clients ask vLLM's router ({router_version().requirement}), which sends each prompt to a prefill server, "
            f"then on to a decode server; {starts} it too"
        )
    elif len(answer.servers) > 1:
        yield _ROUTER


def _plan_rows(answer: VllmAnswer) -> Iterator[tuple[str, Cell]]:
    point = answer.point
    batch = format_things(point.plan.batch, "sequence")
    if point.plan.mode == "interleaved":
        ranks = answer.config.server.num_ranks
        each = f", on each of {ranks} ranks" if ranks > 1 else ""
        how = f"interleaved: {point.plan.prefill_chunk:,} tokens of prompts{each} beside {batch}"
    else:
        how = f"disaggregated: {point.plan.prefill_server_ratio:.2f} prefill servers for each that decodes {batch}"
    yield "mode", Cell(text=how)
    yield "first token", Cell(text=f"{format_seconds(point.ttft.mean_s)}, by the equation")
    yield "per token", Cell(text=f"{format_seconds(point.tpot.mean_s)}, by the equation")


def _pieces(answer: VllmAnswer, config: VllmConfig, checkpoint: str | None, replicas: int | None) -> Iterator[Piece]:
    title = _TITLES[config.server.role]
    yield Facts(title=title, rows=tuple(_rows(answer, config, replicas)))
    yield Table(
        title="Flags (the rest as vLLM has them)",
        columns=("flag", "value"),
        rows=tuple((Cell(text=key), Cell(text=_text(value))) for key, value in config.settings.items()),
    )
    yield Paragraphs(title="Command", lines=(Cell(text=serve_line(config, checkpoint or _UNSAID)),))


def _rows(answer: VllmAnswer, config: VllmConfig, replicas: int | None) -> Iterator[tuple[str, Cell]]:
    memory, server = config.memory, config.server
    yield "mesh", Cell(text=mesh_in_words(server.mesh), tone="strong")
    hosts = "" if server.num_hosts == 1 else f", each on {server.num_hosts} hosts"
    yield "servers", Cell(text=f"{answer.replicas(config, servers=replicas)}{hosts}")
    yield "weights", Cell(text=f"{format_bytes(memory.weights_bytes)} of {format_bytes(memory.usable_bytes)} usable")
    yield "a pass", Cell(text=format_bytes(memory.pass_bytes))
    each = format_bytes(memory.sequence_bytes)
    room = f"{config.num_sequences:,} sequences of {answer.job.workload.context_len:,} tokens, {each} each"
    yield "KV cache", Cell(text=f"{format_bytes(config.cache_bytes)} on a device: {room}")
    yield "reserve", Cell(text=config.reserve)


def _text(value: str | float) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
