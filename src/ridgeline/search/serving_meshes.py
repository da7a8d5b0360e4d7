"""Which meshes a phase of serving can have: weights stay where they are, so that only few axes are of use.

`tp` splits every matrix, `ep` the experts and with them the sequences, `dp` the sequences alone (whole copies of what
is not split by the others), `cp` the tokens of prompts. Key-value heads may have copies.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from ridgeline.cost.columns import MESH_AXES_OF, TENSOR_AXES
from ridgeline.cost.placement import links_of, place
from ridgeline.cost.training.step import step_weights
from ridgeline.job.job import BATCH_AXES
from ridgeline.job.mesh import pinned_degrees
from ridgeline.search.meshes import divisors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ridgeline.cost.collectives import Link
    from ridgeline.cost.placement import Piece
    from ridgeline.hardware.slice import Slice
    from ridgeline.job.serving import Phase
    from ridgeline.model.operations import ModelTree

SEARCHED_AXES: Mapping[Phase, tuple[str, ...]] = {"prefill": ("ep", "tp", "cp", "dp"), "decode": ("ep", "tp", "dp")}
"""Axes that are searched when no mesh is pinned; the last takes what is left."""

MOST_CONTEXT_WAYS = 16
"""Ways in which the tokens of a prompt are split, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingMesh:
    """A legal mesh of a phase.

    Attributes:
        degrees: Every axis that is above 1 to its degree.
        pieces: Where each of them lies.
        links: Wiring of every group.
    """

    degrees: Mapping[str, int]
    pieces: Mapping[str, tuple[Piece, ...]]
    links: Mapping[str, Link]

    @property
    def batch_ways(self) -> int:
        """Devices, or groups of them, that have sequences of their own."""
        return prod(self.degrees.get(axis, 1) for axis in BATCH_AXES)

    @property
    def tensor_ways(self) -> int:
        """Ways in which matrices are split."""
        return prod(self.degrees.get(axis, 1) for axis in TENSOR_AXES)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingMeshes:
    """The legal meshes of a phase, and the refusals met on the way: (family, reason) to how often."""

    legal: tuple[ServingMesh, ...]
    refused: Mapping[tuple[str, str], int]


def serving_meshes(hardware: Slice, tree: ModelTree, pinned: Mapping[str, int], phase: Phase) -> ServingMeshes:
    """Every legal mesh of a phase on a slice, the pinned degrees held."""
    refused: Counter[tuple[str, str]] = Counter()
    sizes = _split_sizes(tree)
    fixed = pinned_degrees(pinned)
    absent = () if sizes.experts else ("ep",)
    free = [axis for axis in SEARCHED_AXES[phase] if axis not in fixed and axis not in absent]
    legal: list[ServingMesh] = []
    for degrees in _filled(fixed, free, hardware.devices_per_slice):
        reason = next((why for axis, degree in degrees.items() if (why := _refusal(axis, degree, sizes))), "")
        if reason:
            refused[reason.partition(": ")[0], reason.partition(": ")[2]] += 1
            continue
        pieces = place(degrees, hardware.axes)
        if pieces is None:
            refused["meshes that do not lie on the torus", "a degree does not map onto physical axes"] += 1
            continue
        legal.append(ServingMesh(degrees=degrees, pieces=pieces, links=links_of(pieces, degrees, hardware)))
    return ServingMeshes(legal=tuple(legal), refused=refused)


def _filled(fixed: Mapping[str, int], free: list[str], devices: int) -> Iterator[dict[str, int]]:
    """Degrees whose product is the devices of the slice; those of 1 are left out."""
    room, rest = divmod(devices, prod(fixed.values()))
    if rest:
        return
    for degrees in _grown(free, room):
        yield {axis: degree for axis, degree in {**fixed, **degrees}.items() if degree > 1}


def _grown(axes: list[str], room: int) -> Iterator[dict[str, int]]:
    if not axes:
        if room == 1:
            yield {}
        return
    axis, *others = axes
    for degree in divisors(room) if others else (room,):
        for degrees in _grown(others, room // degree):
            yield {axis: degree, **degrees}


@dataclass(frozen=True, slots=True, kw_only=True)
class _SplitSizes:
    """What tensor parallelism and expert parallelism have to share out."""

    widths: tuple[int, ...]
    kv_heads: tuple[int, ...]
    experts: int


def _split_sizes(tree: ModelTree) -> _SplitSizes:
    widths: set[int] = set()
    kv_heads: set[int] = set()
    experts = 0
    for tensor, _, _ in step_weights(tree):
        for axis, size in zip(tensor.axes, tensor.shape, strict=True):
            if axis == "experts":
                experts = max(experts, size)
            elif axis == "kv_heads":
                kv_heads.add(size)
            elif size > 1 and TENSOR_AXES[0] in MESH_AXES_OF.get(axis, ()):
                widths.add(size)
    return _SplitSizes(widths=tuple(sorted(widths)), kv_heads=tuple(sorted(kv_heads)), experts=experts)


def _refusal(axis: str, degree: int, sizes: _SplitSizes) -> str:
    """Why an axis cannot have a degree, as `family: reason`; "" when it can."""
    match axis:
        case "tp" | "tp_sequence":
            uneven = next((size for size in sizes.widths if size % degree), None)
            if uneven is not None:
                return f"{axis}={degree}: {uneven} elements of a matrix cannot be split {degree} ways"
            odd = next((heads for heads in sizes.kv_heads if heads % degree and degree % heads), None)
            return "" if odd is None else f"{axis}={degree}: {odd} key-value heads do not go into {degree} ways"
        case "ep" if sizes.experts == 0:
            return f"ep={degree}: the model has no experts"
        case "ep" if sizes.experts % degree:
            return f"ep={degree}: {sizes.experts} experts cannot be split {degree} ways"
        case "cp" if degree > MOST_CONTEXT_WAYS:
            return f"cp={degree}: prompts are split {MOST_CONTEXT_WAYS} ways at most"
        case "dp" | "ep" | "cp":
            return ""
        case _:
            return f"{axis}={degree}: weights are stationary in serving"
