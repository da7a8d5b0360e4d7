"""How the hosts of a server start together: what each of them runs, as a shell script has it.

Several hosts of GPUs are processes of one engine (`--nnodes`), all but the first without an API. Several hosts of TPUs
are a Ray cluster, on whose first host vLLM is started once all have joined.
"""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, Final

from ridgeline.export.vllm import serve_words
from ridgeline.export.vllm_router import has_router, router_version, router_words
from ridgeline.export.vllm_version import vllm_version

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ridgeline.export.vllm import VllmConfig

RAY_PORT: Final = 6379
SIDE_CHANNEL: Final = "VLLM_NIXL_SIDE_CHANNEL_HOST"
"""The address under which a server of GPUs hands over caches. Source: vLLM 0.32.0, vllm/envs.py."""

_JOINED: Final = "import ray; ray.init(log_to_driver=False); print(sum(n['Alive'] for n in ray.nodes()))"


def is_cluster(config: VllmConfig) -> bool:
    """Whether its hosts are a Ray cluster."""
    return config.server.is_tpu and config.server.num_hosts > 1


def hands_over(config: VllmConfig) -> bool:
    """Whether it takes or gives caches over the network under an address of its own."""
    return config.server.role != "both" and not config.server.is_tpu


def joined_words(config: VllmConfig, checkpoint: str, *, rank: str, leader: str, is_first: bool) -> tuple[str, ...]:
    """The command of one host of GPUs.

    Args:
        config: What vLLM is told.
        checkpoint: The model.
        rank: Of the host, or a variable that holds it.
        leader: Address of the first host, or a variable that holds it.
        is_first: Whether it is that one.
    """
    words = serve_words(config, checkpoint)
    if config.server.num_hosts == 1:
        return words
    vllm_version().check({"node_rank": 0, "master_addr": leader, "headless": not is_first})
    return (*words, "--node-rank", rank, "--master-addr", leader, *(() if is_first else ("--headless",)))


def cluster_lines(config: VllmConfig, checkpoint: str) -> tuple[str, ...]:
    """What the first host of a Ray cluster runs: it waits for the others, then serves."""
    waits = f'until [ "$(python3 -c "{_JOINED}" | tail -n 1)" = {config.server.num_hosts} ]; do sleep 5; done'
    return f"ray start --head --port={RAY_PORT}", waits, f"exec {_line(serve_words(config, checkpoint))}"


def worker_line(leader: str) -> str:
    """What the other hosts run."""
    return f'exec ray start --address="{leader}:{RAY_PORT}" --block'


def script_lines(configs: Sequence[VllmConfig], checkpoint: str) -> Iterator[str]:
    """A shell script that starts a server on one of its hosts; it is told which kind, where there are two."""
    yield "#!/bin/sh"
    yield f"# For vLLM {configs[0].version}, on {configs[0].server.hardware.name}."
    if any(config.server.num_hosts > 1 for config in configs):
        yield "# Run it on every host of a server, with its number in NODE_RANK, the first's address in MASTER_ADDR."
    if len(configs) == 1:
        yield from _host_lines(configs[0], checkpoint)
        return
    kinds = "|".join((*(config.server.role for config in configs), *(("router",) if has_router(configs) else ())))
    yield f"# Run it as `sh FILE {kinds}`."
    yield 'case "$1" in'
    for config in configs:
        yield f"{config.server.role})"
        yield from (f"  {line}" for line in _host_lines(config, checkpoint))
        yield "  ;;"
    if has_router(configs):
        yield from _router_lines()
    yield f'*) echo "usage: $0 {kinds}" >&2; exit 2 ;;'
    yield "esac"


def _router_lines() -> Iterator[str]:
    """The router's part: URLs of its servers stand in the environment, apart by blanks."""
    yield "router)"
    yield f"  # Needs {router_version().requirement}, and the URLs of the servers in PREFILL and DECODE,"
    yield "  # as in PREFILL='http://a:8000 http://b:8000'."
    yield "  set --"
    yield '  for url in ${PREFILL:?}; do set -- "$@" --prefill "$url"; done'
    yield '  for url in ${DECODE:?}; do set -- "$@" --decode "$url"; done'
    yield f'  exec {_line(router_words(prefill=(), decode=()))} "$@"'
    yield "  ;;"


def _host_lines(config: VllmConfig, checkpoint: str) -> Iterator[str]:
    for name, value in config.environment.items():
        yield f"export {name}={quote(value)}"
    if hands_over(config):
        yield f"export {SIDE_CHANNEL}=\"$(hostname -I | cut -d ' ' -f 1)\""
    if is_cluster(config):
        yield f'[ "$NODE_RANK" = 0 ] || {worker_line("$MASTER_ADDR")}'
        yield from cluster_lines(config, checkpoint)
        return
    for is_first in (False, True) if config.server.num_hosts > 1 else (True,):
        words = joined_words(config, checkpoint, rank="$NODE_RANK", leader="$MASTER_ADDR", is_first=is_first)
        condition = "" if is_first else '[ "$NODE_RANK" = 0 ] || '
        yield f"{condition}exec {_line(words)}"


def _line(words: Sequence[str]) -> str:
    """Words as a shell reads them; a variable is one of its own."""
    return " ".join(f'"{word}"' if word.startswith("$") else quote(word) for word in words)
