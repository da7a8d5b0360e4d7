"""A cluster of GPUs of our catalogue as XLA's GPU compiler wants it described.

It needs no GPU, but must be told what one is like (`gpu_targets.toml`), and how many stand together: what it calls a
slice is a domain of NVLink.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ridgeline.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ridgeline.hardware.slice import Slice

    Fields: TypeAlias = Mapping[str, Any]
    """Of a protocol buffer: numbers, texts, and fields within."""

_EVERY: Final = "every"
_ENUMERATED: Final = {"feature_extension"}
"""Fields whose value is a word of the schema, which stands without quotes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuTopology:
    """What `jax.experimental.topologies` is asked for.

    Attributes:
        target: One GPU, as the text of a protocol buffer.
        shape: NVLink domains, hosts of each, GPUs of a host: `8x1x8`.
        num_devices: JAX devices: one a GPU.
    """

    target: str
    shape: str
    num_devices: int


def gpu_topology(hardware: Slice) -> GpuTopology:
    """The topology of a cluster.

    Raises:
        InputError: The compiler's figures of that chip are not known here.

    >>> from ridgeline.hardware.topology import parse_slice
    >>> [gpu_topology(parse_slice(name)).shape for name in ("h100:4", "h100:64", "gb200:72")]
    ['1x1x4', '8x1x8', '1x18x4']
    """
    targets = _targets()
    name = hardware.chip.name
    if name not in targets:
        raise InputError(
            "the GPU compiler's figures of this chip are not known",
            where="--on",
            value=hardware.name,
            expected=f"one of {', '.join(targets)}",
            fix="choose one of those, or add --compiler cpu to see the program on emulated devices",
        )
    domains = next((axis.size for axis in hardware.axes if axis.name == "network"), 1)
    per_domain = hardware.num_devices // domains
    per_host = min(per_domain, hardware.chip.chips_per_host)
    return GpuTopology(
        target=_target(name, targets[name]),
        shape=f"{domains}x{per_domain // per_host}x{per_host}",
        num_devices=hardware.num_devices,
    )


def describe_gpus(topology: GpuTopology) -> Sequence[Any]:
    """The devices of a topology, as jaxlib describes them.

    Raises:
        InputError: The compiler refuses the description.
    """
    from jax.experimental import topologies

    try:
        described = topologies.get_topology_desc(
            platform="cuda", topology_name="", target_config=topology.target, topology=topology.shape
        )
    except Exception as error:  # the compiler's own errors have no class of their own
        raise InputError(
            f"the GPU compiler refuses the description: {error}",
            where="--on",
            value=topology.shape,
            expected="a cluster that the installed jax-cuda13-plugin knows",
            fix="choose another cluster, or another version of jax-cuda13-plugin",
        ) from error
    return described.devices


@cache
def _targets() -> Mapping[str, Fields]:
    """The fields of each chip, by its name in our catalogue."""
    text = (resources.files("ridgeline.compiler") / "gpu_targets.toml").read_text(encoding="utf-8")
    tables: dict[str, dict[str, Any]] = tomllib.loads(text)
    every = tables.pop(_EVERY)
    return {name: {**every, **table} for name, table in tables.items()}


def _target(name: str, fields: Fields) -> str:
    described = f"NVIDIA {name.upper()}"
    whole = {
        "gpu_device_info": {**fields, "name": described},
        "platform_name": "CUDA",
        "device_description_str": described,
    }
    return "\n".join(_written(whole))


def _written(fields: Fields) -> Iterator[str]:
    """The fields in the text format of protocol buffers."""
    for key, value in fields.items():
        if isinstance(value, dict):
            yield f"{key} {{ {' '.join(_written(value))} }}"
        elif isinstance(value, str) and key not in _ENUMERATED:
            yield f'{key}: "{value}"'
        else:
            yield f"{key}: {value}"
