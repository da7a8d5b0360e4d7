"""Kubernetes manifests of vLLM servers, on GPUs and on TPUs of GKE, the Service before each kind, and the router.

A server on one host is a pod of a Deployment. One on several is a group of a LeaderWorkerSet
(github.com/kubernetes-sigs/lws), which tells each pod its number and the first one's address.
"""

from __future__ import annotations

from shlex import quote
from textwrap import indent
from typing import TYPE_CHECKING, Final

from ridgeline.errors import InputError
from ridgeline.export.vllm_launch import (
    SIDE_CHANNEL,
    cluster_lines,
    hands_over,
    is_cluster,
    joined_words,
    worker_line,
)
from ridgeline.export.vllm_router import PORT, has_router, router_version, router_words
from ridgeline.hardware.topology import written

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ridgeline.export.vllm import VllmConfig
    from ridgeline.hardware.slice import Slice

_TPU_LABELS: Final[Mapping[str, str]] = {
    "v4": "tpu-v4-podslice",
    "v5e": "tpu-v5-lite-podslice",
    "v5p": "tpu-v5p-slice",
    "v6e": "tpu-v6e-slice",
    "tpu7x": "tpu7x",
}
"""Values of the node label `cloud.google.com/gke-tpu-accelerator`.
Source: docs.cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus, read 2026-11-30."""

_IMAGES: Final[Mapping[str, str]] = {
    "google": "vllm/vllm-tpu",
    "nvidia": "vllm/vllm-openai",
    "amd": "vllm/vllm-openai-rocm",
}
"""By who makes the chip; tags are `v` and the version. Source: vLLM, docs/deployment/docker.md."""

_RESOURCES: Final[Mapping[str, str]] = {"google": "google.com/tpu", "nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu"}
"""What Kubernetes counts them as."""

_SECURITY_OF_AMD: Final = """\
    securityContext:
      seccompProfile: {type: Unconfined}
      runAsGroup: 44
      capabilities: {add: [SYS_PTRACE]}
"""
"""Source: vLLM, docs/deployment/k8s.md, MI300X; 44 is the group `video`."""

_LEADER, _RANK = "$(LWS_LEADER_ADDRESS)", "$(LWS_WORKER_INDEX)"
"""What a LeaderWorkerSet puts into the environment of each pod."""

_DEPLOYMENT: Final = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {name}
spec:
  replicas: {replicas}
  selector:
    matchLabels: {{app: {name}}}
  template:
    metadata:
      labels: {{app: {name}}}
    spec:
{pod}"""

_GROUPS: Final = """\
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata:
  name: {name}{topology}
spec:
  replicas: {replicas}
  leaderWorkerTemplate:
    size: {hosts}
    restartPolicy: RecreateGroupOnPodRestart
    leaderTemplate:
      metadata:
        labels: {{app: {name}}}
      spec:
{pod}    workerTemplate:
      spec:
{worker}"""

_TOPOLOGY: Final = """
  annotations:
    leaderworkerset.sigs.k8s.io/exclusive-topology: cloud.google.com/gke-nodepool"""
"""A group is a slice: GKE makes each a node pool of its own."""

_SERVICE: Final = """\
apiVersion: v1
kind: Service
metadata:
  name: {name}
spec:
  selector: {{app: {name}}}
  ports:
    - port: 8000
"""

_POD: Final = """\
{selector}containers:
  - name: vllm
    image: {image}:v{version}
{security}{command}
    env:
      - name: HF_TOKEN
        valueFrom: {{secretKeyRef: {{name: hf-token, key: token, optional: true}}}}
{environment}{served}    resources:
      limits: {{{resource}: {chips}}}
    volumeMounts:
      - {{name: shared-memory, mountPath: /dev/shm}}
volumes:
  - name: shared-memory
    emptyDir: {{medium: Memory}}
"""

_ROUTER_IMAGE: Final = "python:3.12-slim"

_ROUTER: Final = """\
containers:
  - name: router
    image: {image}
    command: ["/bin/sh", "-ec"]
    args:
      - |
        pip install {requirement}
        exec {command}
    ports:
      - containerPort: {port}
    readinessProbe:
      httpGet: {{path: /health, port: {port}}}
      periodSeconds: 30
"""

_SERVED: Final = """\
    ports:
      - containerPort: 8000
    startupProbe:
      httpGet: {path: /health, port: 8000}
      periodSeconds: 30
      failureThreshold: 120
    readinessProbe:
      httpGet: {path: /health, port: 8000}
"""


def manifest_yaml(servers: Sequence[tuple[VllmConfig, int]], *, name: str, checkpoint: str) -> str:
    """The manifest.

    Args:
        servers: What vLLM is told of each kind of server, and how many there are to be.
        name: Of what is deployed, and of the Services; each kind adds its own where there are two.
        checkpoint: The model: its Hugging Face repository, or a folder.

    Raises:
        InputError: GKE has no such TPU, or nothing is known of two kinds of servers on such a GPU.
    """
    first, _ = servers[0]
    _check_kinds([config for config, _ in servers])
    notes = [f"# vLLM {first.version} on {first.server.hardware.name}."]
    notes.append("# A checkpoint that is not public needs a secret hf-token (key: token).")
    routed = has_router(config for config, _ in servers)
    if routed:
        notes.append("# Clients ask the router: it sends prompts to prefill first, then on to decode.")
    elif len(servers) > 1:
        notes.append("# Before both kinds stands a router of yours: prompts to prefill first, then on to decode.")
    documents = [
        document
        for config, replicas in servers
        for document in _documents(config, _named(name, config), checkpoint, replicas)
    ]
    if routed:
        documents += _router_documents(_dns_name(name))
    return "\n".join(notes) + "\n" + "---\n".join(documents)


def _named(name: str, config: VllmConfig) -> str:
    role = config.server.role
    return _dns_name(name) if role == "both" else f"{_dns_name(name)}-{role}"


def _documents(config: VllmConfig, name: str, checkpoint: str, replicas: int) -> Iterator[str]:
    hosts, is_tpu = config.server.num_hosts, config.server.is_tpu
    leader = _pod(config, checkpoint, is_first=True)
    if hosts == 1:
        yield _DEPLOYMENT.format(name=name, replicas=replicas, pod=indent(leader, " " * 6))
    else:
        worker = _pod(config, checkpoint, is_first=False)
        yield _GROUPS.format(
            name=name,
            topology=_TOPOLOGY if is_tpu else "",
            replicas=replicas,
            hosts=hosts,
            pod=indent(leader, " " * 8),
            worker=indent(worker, " " * 8),
        )
    yield _SERVICE.format(name=name)


def _router_documents(name: str) -> list[str]:
    """The router, and the Service that clients ask; it finds servers by the Services before them."""
    words = router_words(prefill=[f"http://{name}-prefill:8000"], decode=[f"http://{name}-decode:8000"])
    pod = _ROUTER.format(
        image=_ROUTER_IMAGE, requirement=router_version().requirement, command=" ".join(map(quote, words)), port=PORT
    )
    router = f"{name}-router"
    return [_DEPLOYMENT.format(name=router, replicas=1, pod=indent(pod, " " * 6)), _SERVICE.format(name=router)]


def _pod(config: VllmConfig, checkpoint: str, *, is_first: bool) -> str:
    """What one host of a server runs."""
    server, vendor = config.server, config.server.hardware.chip.vendor
    return _POD.format(
        selector=_selector(server.hardware) if server.is_tpu else "",
        image=_IMAGES[vendor],
        security=_SECURITY_OF_AMD if vendor == "amd" else "",
        version=config.version,
        command=indent("\n".join(_command(config, checkpoint, is_first=is_first)), " " * 4),
        environment="".join(f"      {line}\n" for line in _environment(config)),
        served=_SERVED if is_first else "",
        resource=_RESOURCES[vendor],
        chips=server.chips_of_a_host,
    )


def _command(config: VllmConfig, checkpoint: str, *, is_first: bool) -> Iterator[str]:
    if is_cluster(config):
        lines = cluster_lines(config, checkpoint) if is_first else (worker_line("$LWS_LEADER_ADDRESS"),)
        yield 'command: ["/bin/sh", "-ec"]'
        yield "args:"
        yield "  - |"
        yield from (f"    {line}" for line in lines)
        return
    rank = "0" if is_first else _RANK
    words = joined_words(config, checkpoint, rank=rank, leader=_LEADER, is_first=is_first)
    yield 'command: ["vllm", "serve"]'
    yield "args:"
    yield from (f"  - {_quoted(word)}" for word in words[2:])


def _environment(config: VllmConfig) -> Iterator[str]:
    for name, value in config.environment.items():
        yield f"- {{name: {name}, value: {_quoted(value)}}}"
    if hands_over(config):
        yield f"- {{name: {SIDE_CHANNEL}, valueFrom: {{fieldRef: {{fieldPath: status.podIP}}}}}}"


def has_pairs(hardware: Slice) -> bool:
    """Whether a manifest may hold servers that read beside others that decode: vLLM's image hands caches on."""
    return hardware.chip.vendor != "amd"


def _check_kinds(configs: Sequence[VllmConfig]) -> None:
    if not has_pairs(configs[0].server.hardware) and len(configs) > 1:
        raise InputError(
            "no manifest of two kinds of servers on this GPU: whether vLLM's image for it has NIXL is not known",
            where="plan.mode",
            value="disaggregated",
            expected="servers that do both",
            fix="ask for --mode interleaved, or write the command (--output FILE.sh)",
        )


def _selector(hardware: Slice) -> str:
    chip = hardware.chip.name
    if chip not in _TPU_LABELS:
        expected, fix = ", ".join(_TPU_LABELS), "choose another chip, or write the command (--output FILE.sh)"
        raise InputError("GKE has no node label of this TPU", where="hardware", value=chip, expected=expected, fix=fix)
    return (
        "nodeSelector:\n"
        f"  cloud.google.com/gke-tpu-accelerator: {_TPU_LABELS[chip]}\n"
        f'  cloud.google.com/gke-tpu-topology: "{written(hardware.shape)}"\n'
    )


def _dns_name(name: str) -> str:
    """A name that Kubernetes takes.

    >>> _dns_name("Llama3.1_70B")
    'llama3-1-70b'
    """
    letters = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in name.lower())
    return letters.strip("-")[:50].strip("-") or "model"


def _quoted(word: str) -> str:
    """A word as YAML text, whatever it looks like."""
    return "'" + word.replace("'", "''") + "'"
