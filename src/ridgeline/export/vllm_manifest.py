"""Kubernetes manifests of vLLM servers, on GPUs and on TPUs of GKE: a Deployment and the Service before it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ridgeline.errors import InputError
from ridgeline.export.vllm import serve_words
from ridgeline.hardware.topology import written

if TYPE_CHECKING:
    from collections.abc import Mapping

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

_MANIFEST: Final = """\
# vLLM {version} on {slice}. Needs a secret hf-token (key: token) where the checkpoint is not public.
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
{selector}      containers:
        - name: vllm
          image: {image}:v{version}
          command: ["vllm", "serve"]
          args:
{arguments}
          env:
            - name: HF_TOKEN
              valueFrom: {{secretKeyRef: {{name: hf-token, key: token, optional: true}}}}
          ports:
            - containerPort: 8000
          resources:
            limits: {{{resource}: {chips}}}
          startupProbe:
            httpGet: {{path: /health, port: 8000}}
            periodSeconds: 30
            failureThreshold: 120
          readinessProbe:
            httpGet: {{path: /health, port: 8000}}
          volumeMounts:
            - {{name: shared-memory, mountPath: /dev/shm}}
      volumes:
        - name: shared-memory
          emptyDir: {{medium: Memory}}
---
apiVersion: v1
kind: Service
metadata:
  name: {name}
spec:
  selector: {{app: {name}}}
  ports:
    - port: 8000
"""


def manifest_yaml(config: VllmConfig, hardware: Slice, *, name: str, checkpoint: str, replicas: int = 1) -> str:
    """The manifest.

    Args:
        config: What vLLM is told.
        hardware: The slice of one server, all on one host.
        name: Of the Deployment and of the Service.
        checkpoint: The model: its Hugging Face repository, or a folder.
        replicas: Servers.

    Raises:
        InputError: GKE has no such TPU, or the GPU is not NVIDIA's.
    """
    is_tpu = hardware.chip.torus is not None
    if not is_tpu and hardware.chip.vendor != "nvidia":
        fix = "write the command instead (--output FILE.sh)"
        raise InputError(
            "no manifest for this GPU yet",
            where="hardware",
            value=hardware.chip.name,
            expected="NVIDIA or TPU",
            fix=fix,
        )
    words = serve_words(config, checkpoint)[2:]
    return _MANIFEST.format(
        version=config.version,
        slice=hardware.name,
        name=_dns_name(name),
        replicas=replicas,
        selector=_selector(hardware) if is_tpu else "",
        image=_IMAGES[is_tpu],
        arguments="\n".join(f"            - {_quoted(word)}" for word in words),
        resource="google.com/tpu" if is_tpu else "nvidia.com/gpu",
        chips=hardware.num_devices // hardware.chip.devices_per_chip,
    )


def _selector(hardware: Slice) -> str:
    chip = hardware.chip.name
    if chip not in _TPU_LABELS:
        expected, fix = ", ".join(_TPU_LABELS), "choose another chip, or write the command (--output FILE.sh)"
        raise InputError("GKE has no node label of this TPU", where="hardware", value=chip, expected=expected, fix=fix)
    return (
        "      nodeSelector:\n"
        f"        cloud.google.com/gke-tpu-accelerator: {_TPU_LABELS[chip]}\n"
        f'        cloud.google.com/gke-tpu-topology: "{written(hardware.shape)}"\n'
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
