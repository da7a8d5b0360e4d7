"""Which meshes a phase of serving can have: weights stay where they are, so that only few axes are of use.

`tp` splits one side of every matrix and `tp_transpose` the other, `ep` the experts and with them the sequences, `dp`
the sequences alone (whole copies of what is not split by the others), `cp` the tokens of prompts, `pp` the layers.
Key-value heads may have copies.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from ridgeline.cost.columns import MESH_AXES_OF, TENSOR_AXES
from ridgeline.cost.placement import NETWORKS, links_of, place
from ridgeline.cost.serving.collectives import SERVING_GROUPS
from ridgeline.cost.serving.device import TRANSPOSED
from ridgeline.cost.training.held_weights import step_weights
from ridgeline.job.job import ICI_AXES, RANK_AXES, TRANSPOSE_AXIS
from ridgeline.job.mesh import FREE
from ridgeline.model.accounting import operations
from ridgeline.model.operations import Recurrence
from ridgeline.search.meshes import divisors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ridgeline.cost.collectives import Link
    from ridgeline.cost.placement import Piece
    from ridgeline.hardware.slice import Slice
    from ridgeline.job.serving import Phase
    from ridgeline.model.operations import ModelTree

SEARCHED_AXES: Mapping[Phase, tuple[str, ...]] = {
    "prefill": ("pp", "ep", "tp", TRANSPOSE_AXIS, "cp", "dp"),
    "decode": ("pp", "ep", "tp", TRANSPOSE_AXIS, "dp"),
}
"""Axes that are searched when no mesh is pinned; the last takes what is left."""

PLACEMENT_ORDER = ("tp", "tp_sequence", TRANSPOSE_AXIS, "ep", "cp", "dp", "pp")
"""Who chooses wiring first: tensor parallelism speaks most, stages of a pipeline least."""

LEAST_TRANSPOSED_WAYS = 16
"""Ways of tensor parallelism, both sides together, from which splitting the other side too is searched: with fewer,
what it saves in bytes is less than what its collectives take in hops."""

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
        """Devices, or groups of them, that have sequences of their own: ranks."""
        return prod(self.degrees.get(axis, 1) for axis in RANK_AXES)

    @property
    def least_batch(self) -> int:
        """Sequences that every device has its part of: one for each rank, and for each that shares out a rank's."""
        return self.batch_ways * self.degrees.get(TRANSPOSE_AXIS, 1)

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
    fixed, boxes = _fixed(pinned), prod(axis.size for axis in hardware.axes if axis.name in NETWORKS)
    useless = {*(() if sizes.experts else ("ep",)), *(() if boxes > 1 else ("pp",))}
    if hardware.chip.torus is None:  # no engine of GPUs has it
        useless.add(TRANSPOSE_AXIS)
    free = [axis for axis in SEARCHED_AXES[phase] if axis not in fixed and (axis not in useless or axis in pinned)]
    legal: list[ServingMesh] = []
    for degrees in _filled(fixed, free, hardware.devices_per_slice):
        if not pinned and not _is_promising(degrees, boxes):
            continue
        reason = next((why for axis, degree in degrees.items() if (why := _refusal(axis, degree, sizes))), "")
        if reason:
            refused[reason.partition(": ")[0], reason.partition(": ")[2]] += 1
            continue
        pieces = place(degrees, hardware.axes, order=PLACEMENT_ORDER)
        if pieces is None:
            refused["meshes that do not lie on the torus", "a degree does not map onto physical axes"] += 1
            continue
        links = links_of(pieces, degrees, hardware, groups=SERVING_GROUPS)
        legal.append(ServingMesh(degrees=degrees, pieces=pieces, links=links))
    return ServingMeshes(legal=tuple(legal), refused=refused)


def _fixed(pinned: Mapping[str, int]) -> dict[str, int]:
    """The degrees that a mesh leaves no choice about: once one axis is named, those not named are 1."""
    if not pinned:
        return {}
    return {axis: pinned.get(axis, 1) for axis in (*ICI_AXES, TRANSPOSE_AXIS) if pinned.get(axis) != FREE}


def _is_promising(degrees: Mapping[str, int], boxes: int) -> bool:
    """Whether a mesh is worth costing: stages are whole boxes, and the other side of matrices is split less."""
    other, tensor = degrees.get(TRANSPOSE_AXIS, 1), degrees.get("tp", 1)
    return boxes % degrees.get("pp", 1) == 0 and (other == 1 or LEAST_TRANSPOSED_WAYS // other <= tensor >= other)


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
    """What each axis has to share out: both sides of matrices, heads that stay whole, experts, layers."""

    widths: tuple[int, ...]
    heads: tuple[int, ...]
    others: tuple[int, ...]
    kv_heads: tuple[int, ...]
    experts: int
    layers: int


def _split_sizes(tree: ModelTree) -> _SplitSizes:
    widths: set[int] = set()
    others: set[int] = set()
    kv_heads: set[int] = set()
    experts = 0
    for tensor, _, _ in step_weights(tree):
        named = zip(tensor.axes, tensor.shape, strict=True)
        others.update([size for axis, size in named if axis in TRANSPOSED][:1])
        for axis, size in zip(tensor.axes, tensor.shape, strict=True):
            if axis == "experts":
                experts = max(experts, size)
            elif axis == "kv_heads":
                kv_heads.add(size)
            elif size > 1 and TENSOR_AXES[0] in MESH_AXES_OF.get(axis, ()):
                widths.add(size)
    return _SplitSizes(
        widths=tuple(sorted(widths)),
        heads=tuple(sorted({heads for op in _recurrences(tree) for heads in op.whole_heads})),
        others=tuple(sorted(others)),
        kv_heads=tuple(sorted(kv_heads)),
        experts=experts,
        layers=sum(layer.count for layer in tree.layers),
    )


def _recurrences(tree: ModelTree) -> Iterator[Recurrence]:
    return (operation for _, operation, _ in operations(tree) if isinstance(operation, Recurrence))


def _refusal(axis: str, degree: int, sizes: _SplitSizes) -> str:
    """Why an axis cannot have a degree, as `family: reason`; "" when it can."""
    match axis:
        case "tp" | "tp_sequence":
            uneven = next((size for size in sizes.widths if size % degree), None)
            if uneven is not None:
                return f"{axis}={degree}: {uneven} elements of a matrix cannot be split {degree} ways"
            apart = next((heads for heads in sizes.heads if heads % degree), None)
            if apart is not None:
                return f"{axis}={degree}: {apart} heads of linear attention do not go into {degree} ways"
            odd = next((heads for heads in sizes.kv_heads if heads % degree and degree % heads), None)
            return "" if odd is None else f"{axis}={degree}: {odd} key-value heads do not go into {degree} ways"
        case "tp_transpose":
            odd = next((size for size in sizes.others if size % degree), None)
            return "" if odd is None else f"{axis}={degree}: {odd} elements of a matrix cannot be split {degree} ways"
        case "pp":
            is_even = sizes.layers % degree == 0
            return "" if is_even else f"{axis}={degree}: {sizes.layers} layers are no whole number for each stage"
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
