"""The devices of a program as a JAX mesh."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from ridgeline.errors import InputError
from ridgeline.job.job import DCN_AXES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jax.sharding import Mesh

    from ridgeline.program.layout import Layout


def cpu_mesh(layout: Layout) -> Mesh:
    """The first emulated devices of this process, in order.

    Raises:
        InputError: There are fewer than the mesh asks for.
    """
    import jax

    shape = layout.mesh_axes
    wanted, there = prod(shape.values()), jax.device_count("cpu")
    if there < wanted:
        raise InputError(
            "too few devices",
            where="plan.mesh",
            value=f"{there} devices",
            expected=f"{wanted}",
            fix=f"emulate them: XLA_FLAGS=--xla_force_host_platform_device_count={wanted}",
        )
    return mesh_in_order(layout, jax.devices("cpu")[:wanted])


def mesh_in_order(layout: Layout, devices: Sequence[Any]) -> Mesh:
    """Devices as they are numbered, the last axis fastest: GPUs of one host, and of one NVLink domain, are neighbours.

    Args:
        layout: Degrees; they multiply to the devices.
        devices: In the order of their numbers.
    """
    import numpy as np
    from jax.sharding import Mesh

    shape = layout.mesh_axes
    return Mesh(np.array(devices).reshape(tuple(shape.values())), tuple(shape))


def torus_mesh(layout: Layout, devices: Sequence[Any], *, num_slices: int) -> Mesh:
    """The devices of a topology, neighbours on the torus where JAX finds a way to make them so.

    Args:
        layout: Degrees; those of DCN axes multiply to the slices.
        devices: Of a topology description, all slices after one another.
        num_slices: Slices.
    """
    from jax.experimental import mesh_utils
    from jax.sharding import Mesh

    shape = layout.mesh_axes
    inside = tuple(1 if axis in DCN_AXES else degree for axis, degree in shape.items())
    if num_slices == 1:
        placed = mesh_utils.create_device_mesh(inside, devices, allow_split_physical_axes=True)
    else:
        across = tuple(degree if axis in DCN_AXES else 1 for axis, degree in shape.items())
        placed = mesh_utils.create_hybrid_device_mesh(inside, across, devices, allow_split_physical_axes=True)
    return Mesh(placed, tuple(shape))
