"""A slice of our catalogue as the TPU compiler wants it described.

The compiler takes any block of chips for a mesh, and legal sizes for granted: which axes wrap around and which shapes
exist comes from our catalogue.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ridgeline.errors import InputError
from ridgeline.hardware.topology import wraparound, written

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.hardware.slice import Slice

_DIMENSIONS: Final = 3
_HOST_BOUNDS: Final = (2, 2, 1)
_CONFIGURATIONS: Final[Mapping[str, str]] = {"v4": "megacore"}
"""How the cores of a chip are used, where the compiler's own choice is not one JAX device as our catalogue has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AbstractTopology:
    """What `jax.experimental.topologies` is asked for.

    Attributes:
        name: `v5e:2x2`, `tpu7x:4x4x4`.
        wrap: Of each of three axes, whether it closes into a ring.
        host_bounds: Chips of one host along each of three axes.
        num_slices: Slices, joined by DCN.
        num_devices: JAX devices of all slices together, by our catalogue.
        configuration: How the cores of a chip are used; "" for the compiler's own choice.
    """

    name: str
    wrap: tuple[bool, ...]
    host_bounds: tuple[int, ...]
    num_slices: int
    num_devices: int
    configuration: str = ""


def abstract_topology(hardware: Slice) -> AbstractTopology:
    """The topology of a slice.

    Raises:
        InputError: It is no TPU slice.

    >>> from ridgeline.hardware.topology import parse_slice
    >>> pod = abstract_topology(parse_slice("v5e:8x16"))
    >>> pod.name, pod.wrap, pod.num_devices
    ('v5e:8x16', (False, True, False), 128)
    """
    torus = hardware.chip.torus
    if torus is None:
        raise InputError(
            "the TPU compiler knows TPUs alone",
            where="--on",
            value=hardware.name,
            expected="a TPU slice",
            fix="choose a TPU slice, or leave --compiler out",
        )
    shape = (*hardware.shape, 1)[:_DIMENSIONS]
    wrap = (*wraparound(torus, hardware.shape), False)[:_DIMENSIONS]
    return AbstractTopology(
        name=f"{hardware.chip.name}:{written(hardware.shape)}",
        wrap=wrap,
        host_bounds=tuple(min(pair) for pair in zip(_HOST_BOUNDS, shape, strict=True)),
        num_slices=hardware.num_slices,
        num_devices=hardware.num_devices,
        configuration=_CONFIGURATIONS.get(hardware.chip.name, ""),
    )


def describe_devices(topology: AbstractTopology) -> list[Any]:
    """The devices of a topology, all slices after one another; needs libtpu.

    Raises:
        InputError: The compiler does not know the topology, or counts other devices than our catalogue.
    """
    from jax.experimental import topologies

    asked: dict[str, Any] = {"wrap": list(topology.wrap), "chips_per_host_bounds": list(topology.host_bounds)}
    if topology.num_slices > 1:
        asked["num_slices"] = topology.num_slices
    if topology.configuration:
        asked["chip_config_name"] = topology.configuration
    try:
        devices = topologies.get_topology_desc(platform="tpu", topology_name=topology.name, **asked).devices
    except Exception as error:  # the compiler's own errors have no class of their own
        raise _unknown(topology, str(error)) from error
    if len(devices) != topology.num_devices:
        raise _unknown(topology, f"it has {len(devices)} devices there, {topology.num_devices} in our catalogue")
    return devices


def _unknown(topology: AbstractTopology, reason: str) -> InputError:
    return InputError(
        f"the compiler knows no such slice: {reason}",
        where="--on",
        value=topology.name,
        expected="a slice that the installed libtpu knows",
        fix="choose another slice, or another version of libtpu",
    )
