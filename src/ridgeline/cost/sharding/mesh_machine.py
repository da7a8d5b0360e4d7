"""What the devices of a mesh can do, and how they are joined along its axes.

C  peak FLOP/s of a device      W  bytes/s of one link, one way      W_ici = 2·W  both links of a ring axis
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from math import inf, nan, prod
from typing import TYPE_CHECKING, TypeAlias

from ridgeline.cost.collectives import Link, all_gather_limit_s
from ridgeline.cost.placement import TORUS_AXES, describe, link_rate_bytes_per_s, place, stages_of
from ridgeline.cost.wiring import Lane, Stage, link_over, torus_stage
from ridgeline.errors import InputError
from ridgeline.units import format_count

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ridgeline.hardware.slice import PhysicalAxis, Slice
    from ridgeline.job.matmul_question import StatedRates

Group: TypeAlias = frozenset[str]
"""Mesh axes over which a collective runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshMachine:
    """The devices of a mesh.

    Attributes:
        mesh: Devices along each axis; NaN where the question leaves it open.
        copies: Sets of devices beside those of the mesh, which repeat its work; 1 for none.
        name: Of the slice; "" where rates were stated.
        placement: The physical axes under each mesh axis, in words.
        peak_flops_per_s: Of a device; NaN when not known.
        hbm_bytes_per_s: Of a device; infinite where memory is left out.
        link_bytes_per_s: The rate that loads of fast links refer to; NaN when not known.
        network_bytes_per_s: The same, of the network.
        stages: The kinds of wire between the devices of every group.
    """

    mesh: Mapping[str, float]
    copies: int
    name: str
    placement: Mapping[str, str]
    peak_flops_per_s: float
    hbm_bytes_per_s: float
    link_bytes_per_s: float
    network_bytes_per_s: float
    stages: Mapping[Group, tuple[Stage, ...]]

    @property
    def num_devices(self) -> float:
        """All devices, copies included."""
        return prod(self.mesh.values()) * self.copies

    def links(self, *, approximate: bool = False) -> Mapping[Group, Link]:
        """How each group is wired; approximate as the book has it, (N − 1)/N of a ring taken as 1."""
        exact = {
            group: link_over(stages, link_bytes_per_s=self.link_bytes_per_s) for group, stages in self.stages.items()
        }
        if not approximate:
            return exact
        return {
            group: replace(link, gather_load=max(link.gather_load, *map(_ring_load, self.stages[group]), 0.0))
            for group, link in exact.items()
        }


def machine_on(hardware: Slice, mesh: Mapping[str, int], dtype: str, rates: StatedRates, *, where: str) -> MeshMachine:
    """A mesh on a slice: the axis written first chooses its physical axes first.

    A mesh of fewer devices than the slice has is repeated over it. A dtype without a rate of its own runs at bf16's.

    Raises:
        InputError: The mesh does not divide the slice, or cannot lie on its axes.
    """
    axes = tuple(_physical_axes(hardware, rates))
    devices, available = prod(mesh.values()), hardware.num_devices
    placed = place(mesh, axes, order=mesh) if available % devices == 0 else None
    if placed is None:
        raise _mismatch(mesh, hardware, where)
    chip = hardware.chip
    peaks = chip.peak_flops_per_s
    return MeshMachine(
        mesh=dict(mesh),
        copies=available // devices,
        name=hardware.name,
        placement={axis: describe(pieces) for axis, pieces in placed.items()},
        peak_flops_per_s=rates.get("peak_flops_per_s", peaks.get(dtype, peaks["bf16"]) / chip.devices_per_chip),
        hbm_bytes_per_s=rates.get("hbm_bytes_per_s", chip.hbm_bytes_per_s / chip.devices_per_chip),
        link_bytes_per_s=_link_rate_bytes_per_s(rates, published_bytes_per_s=link_rate_bytes_per_s(hardware)),
        network_bytes_per_s=chip.network_bytes_per_s,
        stages={
            group: stages_of(
                [piece for axis in mesh if axis in group for piece in placed.get(axis, ())],
                sharers=chip.devices_per_chip,
                wiring=rates.get("wiring"),
            )
            for group in _groups(mesh)
        },
    )


def machine_of_rates(mesh: Mapping[str, float], rates: StatedRates) -> MeshMachine:
    """A mesh of which the question states what it knows: each axis is a torus axis of its own."""
    wiring = rates.get("wiring", "ring")
    lanes = {
        axis: Lane(size=size, wiring=wiring, hop_s=rates.get("hop_s", 0.0)) for axis, size in mesh.items() if size != 1
    }
    link_bytes_per_s = _link_rate_bytes_per_s(rates, published_bytes_per_s=nan)
    groups = {group: [lanes[axis] for axis in mesh if axis in group and axis in lanes] for group in _groups(mesh)}
    return MeshMachine(
        mesh=dict(mesh),
        copies=1,
        name="",
        placement={},
        peak_flops_per_s=rates.get("peak_flops_per_s", nan),
        hbm_bytes_per_s=rates.get("hbm_bytes_per_s", inf),
        link_bytes_per_s=link_bytes_per_s,
        network_bytes_per_s=inf,
        stages={
            group: (torus_stage(joined, bytes_per_s=link_bytes_per_s),) if joined else ()
            for group, joined in groups.items()
        },
    )


def _ring_load(stage: Stage) -> float:
    """Bytes over the busiest link of a long ring, per gathered byte; 0 for what is no ring."""
    if not any(lane.wiring == "ring" for lane in stage.lanes):
        return 0.0
    return float(all_gather_limit_s(V_bytes=stage.share, n=stage.links, W_bytes_per_s=1.0))


def _groups(mesh: Mapping[str, float]) -> Iterator[Group]:
    """Every set of mesh axes."""
    for count in range(1, len(mesh) + 1):
        yield from map(frozenset, combinations(mesh, count))


def _physical_axes(hardware: Slice, rates: StatedRates) -> Iterator[PhysicalAxis]:
    """The wiring inside a slice and across slices, with what the question states of its links."""
    for axis in hardware.axes if hardware.dcn is None else (*hardware.axes, hardware.dcn):
        if axis.name in TORUS_AXES:
            rate_bytes_per_s = _link_rate_bytes_per_s(rates, published_bytes_per_s=axis.bytes_per_s)
            yield replace(axis, bytes_per_s=rate_bytes_per_s, latency_s=rates.get("hop_s", axis.latency_s))
        else:
            yield axis


def _link_rate_bytes_per_s(rates: StatedRates, *, published_bytes_per_s: float) -> float:
    if "axis_bytes_per_s" in rates:
        return rates["axis_bytes_per_s"] / 2
    return rates.get("link_bytes_per_s", published_bytes_per_s)


def _mismatch(mesh: Mapping[str, int], hardware: Slice, where: str) -> InputError:
    devices, available = prod(mesh.values()), hardware.num_devices
    written = ",".join(f"{axis}={size}" for axis, size in mesh.items())
    if available % devices:
        return InputError(
            "mesh does not match the slice",
            where=where,
            value=f"{written}, product {format_count(devices)}",
            expected=f"a product that is or divides {available}: {hardware.name} has {available} devices",
            fix=f"choose sizes whose product is {available}, or another slice",
        )
    axes = ", ".join(f"{axis.name} {axis.size}" for axis in _physical_axes(hardware, {}))
    return InputError(
        "mesh cannot lie on the slice",
        where=where,
        value=written,
        expected=f"sizes that are products of factors of the axes of {hardware.name}: {axes}",
        fix="choose other sizes, or write the axes in another order: the first chooses first",
    )
