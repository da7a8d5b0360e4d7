"""What of a sharded array each device holds.

V  bytes of the array, once      N  devices of the mesh      shards  different blocks: ways of all axes in its layout
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isnan, prod
from typing import TYPE_CHECKING

from ridgeline.cost.explain import Derivation, derive
from ridgeline.job.sharding import Axes, ShardedArray, ways

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.cost.work import Number


def block_bytes(*, V_bytes: Number, num_shards: Number) -> Number:
    """Bytes of an array that one device holds.

    Formula: V_device = V / num_shards

    Source: Scaling Book, ch. 3: every dimension over the mesh axes that split it.

    >>> block_bytes(V_bytes=128 * 2048, num_shards=2 * 8)  # int8[128, 2048] as [I_XY, J], X = 2, Y = 8
    16384.0
    """
    return V_bytes / num_shards


def replication_factor(*, N: Number, num_shards: Number) -> Number:
    """Devices that hold the same block: the product of the mesh axes that an array does not use.

    Formula: copies = N / num_shards

    Source: Scaling Book, ch. 3.

    >>> replication_factor(N=4 * 8 * 2, num_shards=4)  # A[I_X, J] on X = 4, Y = 8, Z = 2
    16.0
    """
    return N / num_shards


def stored_bytes(*, V_bytes: Number, N: Number, num_shards: Number) -> Number:
    """Bytes of an array on all devices together.

    Formula: V_total = V · N / num_shards

    Source: Scaling Book, ch. 3.

    >>> stored_bytes(V_bytes=128 * 2048, N=2 * 8 * 2, num_shards=2 * 8)
    524288.0
    """
    return V_bytes * replication_factor(N=N, num_shards=num_shards)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayLayout:
    """An array on a mesh; what the question leaves open is NaN.

    Attributes:
        array: With its layout.
        shape: Elements along each dimension.
        local_shape: The same, of the block that one device holds.
        element_bytes: Of one element.
        array_bytes: The array once.
        device_bytes: What one device holds.
        total_bytes: What all devices hold together.
        num_shards: Different blocks.
        replication_factor: Devices that hold the same block.
        device_fraction: The block over the array.
        derivations: Where the numbers come from.
    """

    array: ShardedArray
    shape: tuple[float, ...]
    local_shape: tuple[float, ...]
    element_bytes: float
    array_bytes: float
    device_bytes: float
    total_bytes: float
    num_shards: float
    replication_factor: float
    device_fraction: float
    derivations: tuple[Derivation, ...]


def array_layout(
    array: ShardedArray, *, sizes: Mapping[str, float], mesh: Mapping[str, float], copies: int, element_bytes: float
) -> ArrayLayout:
    """How an array lies.

    Args:
        array: With its layout.
        sizes: Elements along each dimension.
        mesh: Devices along each axis.
        copies: Sets of devices of which each is such a mesh.
        element_bytes: Of one element.
    """
    shape = tuple(sizes[dim] for dim in array.dims)
    V_bytes = element_bytes * prod(shape)
    num_shards, N = array.shards(mesh), prod(mesh.values()) * copies
    device = derive(block_bytes, V_bytes=V_bytes, num_shards=num_shards)
    replicas = derive(replication_factor, N=N, num_shards=num_shards)
    total = derive(stored_bytes, V_bytes=V_bytes, N=N, num_shards=num_shards)
    return ArrayLayout(
        array=array,
        shape=shape,
        local_shape=tuple(local_size(size, axes, mesh) for size, axes in zip(shape, array.axes, strict=True)),
        element_bytes=element_bytes,
        array_bytes=V_bytes,
        device_bytes=device.value,
        total_bytes=total.value,
        num_shards=num_shards,
        replication_factor=replicas.value,
        device_fraction=1 / num_shards,
        derivations=(device, replicas, total),
    )


def local_size(size: float, axes: Axes, mesh: Mapping[str, float]) -> float:
    """Elements along a dimension of one device's block: whole where the axes divide it."""
    shards = ways(axes, mesh)
    return size / shards if isnan(size / shards) or size % shards else int(size // shards)


def uneven_dim(array: ShardedArray, *, sizes: Mapping[str, float], mesh: Mapping[str, float]) -> str | None:
    """The first dimension that its mesh axes do not divide; None if all are even, or open."""
    for dim, axes in array.layout.items():
        if sizes[dim] % ways(axes, mesh) > 0:
            return dim
    return None
