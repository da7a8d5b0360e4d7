"""Which meshes are legal: degrees that multiply to the devices, divide what they split and lie on the wiring.

Rules are checked as a mesh grows, axis by axis, so that an illegal degree ends its whole branch; each
refusal is counted under its family with its reason.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import TYPE_CHECKING

from ridgeline.cost.columns import TENSOR_AXES
from ridgeline.cost.placement import NO_PINS, groups_of, links_of, place
from ridgeline.cost.training.pipeline import most_stages
from ridgeline.job.job import BATCH_AXES, DCN_AXES, ICI_AXES
from ridgeline.model.operations import Attention, ExpertMatmul, Matmul, Recurrence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ridgeline.cost.collectives import Link
    from ridgeline.cost.placement import Piece
    from ridgeline.hardware.slice import Slice
    from ridgeline.model.operations import ModelTree

SEARCHED_AXES = ("ep", "tp_sequence", "tp", "cp", "pp", "dp", "fsdp")
"""Axes that are searched when they are not pinned, the most constrained first; fsdp takes what is left.

`tp` and `tp_sequence` split the same dimensions at the same cost: where both are free, only `tp` is searched. So do
`fsdp` and `fsdp_transpose`, which is searched only where a mesh leaves it open by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mesh:
    """A legal mesh on a slice.

    Attributes:
        degrees: Every axis to its degree.
        pieces: Where each axis above 1 lies.
        links: Wiring of every group.
    """

    degrees: Mapping[str, int]
    pieces: Mapping[str, tuple[Piece, ...]]
    links: Mapping[str, Link]

    @property
    def parallel_axes(self) -> tuple[str, ...]:
        """Axes above 1."""
        return tuple(axis for axis, degree in self.degrees.items() if degree > 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a model and a workload allow each axis to divide.

    Attributes:
        heads: Query heads of every attention layer.
        linear_heads: Heads of keys and of values of linear attention.
        kv_heads: Key-value heads of every attention layer that has more than one; a single one is replicated.
        widths: MLP and expert widths.
        experts: Routed experts; 0 for a dense model.
        layers: Decoder layers.
        equal_layers: Layers, or patterns of unlike ones, that equal stages can share out.
        seq_len: Tokens per sequence.
        global_batch: Sequences per step.
    """

    heads: tuple[int, ...]
    linear_heads: tuple[int, ...]
    kv_heads: tuple[int, ...]
    widths: tuple[int, ...]
    experts: int
    layers: int
    equal_layers: int
    seq_len: int
    global_batch: int

    def refusal(self, axis: str, degree: int, *, uneven_stages: bool) -> str:
        """Why an axis cannot have a degree; "" when it can."""
        if degree == 1:
            return ""
        match axis:
            case "tp" | "tp_sequence":
                return self._tensor_refusal(degree)
            case "ep" if self.experts == 0:
                return "the model has no experts"
            case "ep":
                return _indivisible(f"{self.experts} experts", self.experts, degree)
            case "cp":
                return _indivisible(f"half of {self.seq_len} tokens", self.seq_len, 2 * degree)
            case "pp" | "dcn_pp":
                most = self.layers if uneven_stages else self.equal_layers
                equal = "" if most == self.layers else "equal "
                return f"{most} {equal}layers are fewer than {degree} stages" if degree > most else ""
            case _:
                return ""

    def chunks(self, hardware: Slice) -> int:
        """Stages, each repeat counted, that the layers can be cut into."""
        return self.layers if hardware.chip.vendor != "google" else self.equal_layers

    def _tensor_refusal(self, degree: int) -> str:
        named = [
            ("query heads", self.heads),
            ("heads of linear attention", self.linear_heads),
            ("key-value heads", self.kv_heads),
            ("MLP width", self.widths),
        ]
        for what, sizes in named:
            for size in sizes:
                if size % degree:
                    return _indivisible(f"{what} {size}", size, degree)
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meshes:
    """The legal meshes, and the refusals met on the way.

    Attributes:
        legal: Every legal mesh.
        refused: (family, reason) to how often it was met.
    """

    legal: tuple[Mesh, ...]
    refused: Mapping[tuple[str, str], int]


def limits_of(tree: ModelTree, *, seq_len: int, global_batch: int) -> Limits:
    """What the model's shapes and the workload allow."""
    operations = [op for layer in tree.layers for block in layer.blocks for op in block.operations]
    attention = [op for op in operations if isinstance(op, Attention)]
    linear = {heads for op in operations if isinstance(op, Recurrence) for heads in op.whole_heads}
    split = ("mlp", "mlp_moe")
    widths = {
        size
        for op in operations
        if isinstance(op, Matmul | ExpertMatmul)
        for axis, size in zip(op.weight.axes, op.weight.shape, strict=True)
        if axis in split
    }
    return Limits(
        heads=tuple(sorted({op.num_heads for op in attention})),
        linear_heads=tuple(sorted(linear)),
        kv_heads=tuple(sorted({op.num_kv_heads for op in attention if op.num_kv_heads > 1})),
        widths=tuple(sorted(widths)),
        experts=max((op.weight.shape[0] for op in operations if isinstance(op, ExpertMatmul)), default=0),
        layers=most_stages(tree, uneven=True),
        equal_layers=most_stages(tree, uneven=False),
        seq_len=seq_len,
        global_batch=global_batch,
    )


def legal_meshes(
    hardware: Slice,
    limits: Limits,
    pinned: Mapping[str, int],
    *,
    placement: Mapping[str, str] = NO_PINS,
    distributed: bool = False,
) -> Meshes:
    """Every legal mesh of a slice, the pinned degrees held.

    Args:
        hardware: The slice.
        limits: What the model and the workload allow.
        pinned: Degrees that are held.
        placement: Physical axes that are held, by logical axis.
        distributed: Weights are whole on every replica (`Optimizer.distributed`).
    """
    refused: Counter[tuple[str, str]] = Counter()
    legal: list[Mesh] = []
    inside = list(_inside_slice(hardware, limits, pinned, refused, placement))
    for across in _across_slices(hardware, limits, pinned, refused):
        for degrees, pieces in inside:
            whole = {**dict.fromkeys(ICI_AXES, 1), **degrees, **across}
            reason = _batch_refusal(whole, limits)
            if reason:
                refused["data-parallel ways", reason] += 1
                continue
            legal.append(
                Mesh(
                    degrees=whole,
                    pieces=pieces,
                    links=links_of(pieces, whole, hardware, groups=groups_of(distributed=distributed)),
                )
            )
    return Meshes(legal=tuple(legal), refused=refused)


@cache
def divisors(number: int) -> tuple[int, ...]:
    """Divisors in order.

    >>> divisors(12)
    (1, 2, 3, 4, 6, 12)
    """
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return tuple(sorted({*small, *(number // d for d in small)}))


def _inside_slice(
    hardware: Slice,
    limits: Limits,
    pinned: Mapping[str, int],
    refused: Counter[tuple[str, str]],
    placement: Mapping[str, str],
) -> Iterator[tuple[dict[str, int], dict[str, tuple[Piece, ...]]]]:
    """Degrees inside a slice, with their placement."""
    uneven = hardware.chip.vendor != "google"
    fixed = {axis: pinned[axis] for axis in ICI_AXES if axis in pinned}
    only = "tp" if "tp" not in pinned else "tp_sequence"
    searched = ("fsdp_transpose", *SEARCHED_AXES) if fixed else SEARCHED_AXES
    free = [axis for axis in searched if axis not in pinned and (axis == only or axis not in TENSOR_AXES)]
    for axis, degree in fixed.items():
        reason = limits.refusal(axis, degree, uneven_stages=uneven)
        if reason:
            refused[f"{axis}={degree}", reason] += 1
            return
    room, rest = divmod(hardware.devices_per_slice, prod(fixed.values()))
    if rest:
        return
    for degrees in _grow(free, room, limits, refused, uneven=uneven):
        both = {**fixed, **degrees}
        if both.get("tp", 1) > 1 and both.get("tp_sequence", 1) > 1:
            refused["tp with tp_sequence", "both split the same dimensions: use one"] += 1
            continue
        pieces = place(both, hardware.axes, pins=placement)
        if pieces is None:
            where = "those given" if placement else "physical axes"
            refused["meshes that do not lie on the torus", f"a degree does not map onto {where}"] += 1
            continue
        yield both, pieces


def _grow(
    axes: list[str], room: int, limits: Limits, refused: Counter[tuple[str, str]], *, uneven: bool
) -> Iterator[dict[str, int]]:
    """Degrees of `axes` whose product is exactly `room`."""
    if not axes:
        if room == 1:
            yield {}
        return
    axis, *others = axes
    for degree in divisors(room) if others else (room,):
        reason = limits.refusal(axis, degree, uneven_stages=uneven)
        if reason:
            refused[f"{axis}={degree}", reason] += 1
            continue
        for degrees in _grow(others, room // degree, limits, refused, uneven=uneven):
            yield {axis: degree, **degrees}


def _across_slices(
    hardware: Slice, limits: Limits, pinned: Mapping[str, int], refused: Counter[tuple[str, str]]
) -> Iterator[dict[str, int]]:
    """Degrees across slices; a single slice has one way."""
    for data in divisors(hardware.num_slices):
        for stages in divisors(hardware.num_slices // data):
            across = {"dcn_dp": data, "dcn_fsdp": hardware.num_slices // data // stages, "dcn_pp": stages}
            if any(pinned.get(axis, across[axis]) != across[axis] for axis in DCN_AXES):
                continue
            reason = limits.refusal("dcn_pp", stages, uneven_stages=False)
            if reason:
                refused[f"dcn_pp={stages}", reason] += 1
                continue
            yield across


def _batch_refusal(degrees: Mapping[str, int], limits: Limits) -> str:
    """Why the batch does not split that many ways; "" when it does."""
    ways = prod(degrees[axis] for axis in BATCH_AXES)
    if limits.global_batch % ways == 0:
        return ""
    if ways > limits.global_batch:
        return f"{ways} ways over dp, fsdp and ep exceed the {limits.global_batch} sequences of the batch"
    return _indivisible(f"a batch of {limits.global_batch}", limits.global_batch, ways)


def _indivisible(what: str, size: int, degree: int) -> str:
    return "" if size % degree == 0 else f"{what} cannot be split {degree} ways"
