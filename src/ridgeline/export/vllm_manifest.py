"""Kubernetes manifests of vLLM servers, on GPUs and on TPUs of GKE, and the Service before each kind of them.

A server on one host is a pod of a Deployment. One on several is a group of a LeaderWorkerSet
(github.com/kubernetes-sigs/lws), which tells each pod its number and the first one's address.
"""

from __future__ import annotations

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

_IMAGES: Final[Mapping[bool, str]] = {True: "vllm/vllm-tpu", False: "vllm/vllm-openai"}
"""By whether it is for TPUs; tags are `v` and the version."""

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
{command}
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
        InputError: GKE has no such TPU, or the GPU is not NVIDIA's.
    """
    first, _ = servers[0]
    _check_chip(first.server.hardware)
    notes = [f"# vLLM {first.version} on {first.server.hardware.name}."]
    notes.append("# A checkpoint that is not public needs a secret hf-token (key: token).")
    if len(servers) > 1:
        notes.append("# Before both kinds stands a router of yours: prompts to prefill first, then on to decode.")
    documents = [
        document
        for config, replicas in servers
        for document in _documents(config, _named(name, config), checkpoint, replicas)
    ]
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


def _pod(config: VllmConfig, checkpoint: str, *, is_first: bool) -> str:
    """What one host of a server runs."""
    server, is_tpu = config.server, config.server.is_tpu
    return _POD.format(
        selector=_selector(server.hardware) if is_tpu else "",
        image=_IMAGES[is_tpu],
        version=config.version,
        command=indent("\n".join(_command(config, checkpoint, is_first=is_first)), " " * 4),
        environment="".join(f"      {line}\n" for line in _environment(config)),
        served=_SERVED if is_first else "",
        resource="google.com/tpu" if is_tpu else "nvidia.com/gpu",
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


def _check_chip(hardware: Slice) -> None:
    if hardware.chip.torus is None and hardware.chip.vendor != "nvidia":
        fix = "write the command instead (--output FILE.sh)"
        raise InputError(
            "no manifest for this GPU yet",
            where="hardware",
            value=hardware.chip.name,
            expected="NVIDIA or TPU",
            fix=fix,
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
