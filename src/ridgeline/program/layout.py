"""How a mesh splits the arrays of our program: from logical axes to mesh axes, nothing else.

weights       stored split over every axis of `MESH_AXES_OF`; gathered over all but the tensor axes where they are
              used, one layer at a time; experts stay on the devices of their ep axis
intermediates batch over the batch axes, sequence over cp, heads, MLP width and vocabulary over the tensor axes
the stream    between blocks the tensor axes split the sequence instead, so that norms are shared out too

A server's weights lie as they are used, split over tensor and expert axes alone. Where it has more devices along the
tensor axes than a layer has key-value heads, each head has copies: those devices lie along an axis of their own, over
which everything but key-value heads is split.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Final

from ridgeline.cost.columns import MESH_AXES_OF, STAGE_AXES, TENSOR_AXES
from ridgeline.errors import InputError
from ridgeline.job.job import BATCH_AXES, DCN_AXES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ridgeline.job.sharding import Axes
    from ridgeline.model.operations import Activation, Tensor

PROGRAM_AXES: Final = (
    *("dcn_dp", "dcn_fsdp", "dcn_pp", "pp", "dp"),
    *("fsdp", "fsdp_transpose", "cp", "ep", "tp", "tp_sequence"),
)
"""Mesh axes that our program knows, outermost first: what speaks most lies closest."""

COPY_AXIS: Final = "kv_copy"
"""The axis along which devices hold copies of the same key-value heads: a part of the `tp` that a job asks for."""

_ORDER: Final = (*PROGRAM_AXES, COPY_AXIS)
_SPLIT_TENSOR_AXES: Final = (*TENSOR_AXES, COPY_AXIS)
_KV_HEADS: Final = "kv_heads"
_EXPERTS: Final = "experts"

_SEQUENCE_AXES: Final = ("cp",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The degrees of a mesh, and what follows from them for each array.

    Attributes:
        degrees: Of each axis that is larger than 1.
        is_stationary: Weights lie as they are used; none is gathered.
        is_one_token: A pass computes one token of each sequence, which no axis splits.
        spreads_cache: Devices beyond the key-value heads share out the sequences of a cache instead of holding copies.
        experts_on_fsdp: The fsdp axis stores experts whole, some on each device, instead of a part of each.
        is_outside: Of arrays outside the layers, whose sequences the stages of a pipeline share out too.
    """

    degrees: Mapping[str, int]
    is_stationary: bool = False
    is_one_token: bool = False
    spreads_cache: bool = False
    experts_on_fsdp: bool = False
    is_outside: bool = False

    @property
    def mesh_axes(self) -> Mapping[str, int]:
        """The axes of the JAX mesh, outermost first; one of a single device when nothing is split."""
        return {axis: self.degrees[axis] for axis in _ORDER if axis in self.degrees} or {"fsdp": 1}

    @property
    def axes_of_a_slice(self) -> Mapping[str, int]:
        """The same without the axes across slices: what a compiled text, which is of one slice, knows."""
        return {axis: degree for axis, degree in self.mesh_axes.items() if axis not in DCN_AXES}

    @property
    def batch(self) -> Axes:
        """Mesh axes that split the batch."""
        return (self.stages if self.is_outside else ()) + self._present(BATCH_AXES)

    @property
    def stages(self) -> Axes:
        """Mesh axes along which the stages of a pipeline lie."""
        return self._present(STAGE_AXES)

    @property
    def outside(self) -> Layout:
        """The layout of embedding and head."""
        return replace(self, is_outside=True)

    @property
    def sequence(self) -> Axes:
        """Mesh axes that split the sequence inside a block."""
        return () if self.is_one_token else self.slots

    @property
    def slots(self) -> Axes:
        """Mesh axes that split the tokens of a KV cache."""
        return self._present(_SEQUENCE_AXES)

    @property
    def tensor(self) -> Axes:
        """Mesh axes that split heads, MLP width and vocabulary."""
        return self._present(_SPLIT_TENSOR_AXES)

    @property
    def num_kv_copies(self) -> int:
        """Devices that hold the same key-value heads, where each device has its own part of everything else."""
        return self.degrees.get(COPY_AXIS, 1)

    def kv_heads(self, count: int) -> Axes:
        """Mesh axes that split `count` key-value heads; a single one is on every device."""
        return self._tensor_axes("kv_heads", count)

    def cache_batch(self, count: int) -> Axes:
        """Mesh axes that split the sequences of a cache with `count` key-value heads."""
        heads = self.kv_heads(count)
        return self.batch + (tuple(axis for axis in self.tensor if axis not in heads) if self.spreads_cache else ())

    @property
    def stream(self) -> tuple[Axes, ...]:
        """Of the residual stream, [batch, sequence, embed]."""
        return self.batch, () if self.is_one_token else self.sequence + self.tensor, ()

    def intermediate(self, activation: Activation) -> tuple[Axes, ...]:
        """Of an intermediate, [batch, sequence, *features]; the output of a block is laid out as the stream."""
        if activation.axes == ("embed",):
            return self.stream
        features = zip(activation.axes, activation.shape, strict=True)
        return self.batch, self.sequence, *(self._tensor_axes(axis, size) for axis, size in features)

    def stored(self, tensor: Tensor) -> tuple[Axes, ...]:
        """Of a weight at rest: a mesh axis that two dimensions ask for goes to the first."""
        used: set[str] = set()
        found: list[Axes] = []
        for logical, size in zip(tensor.axes, tensor.shape, strict=True):
            wanted = self._wanted(logical) if size > 1 else ()
            axes = tuple(axis for axis in wanted if axis not in used)
            used.update(axes)
            found.append(axes)
        return tuple(found)

    def gathered(self, tensor: Tensor) -> tuple[Axes, ...]:
        """Of a weight while it is used: split over the tensor axes alone, and experts over theirs."""
        stored = zip(tensor.axes, self.stored(tensor), strict=True)
        return tuple(tuple(axis for axis in axes if axis in _kept(logical)) for logical, axes in stored)

    def ways(self, axes: Iterable[str]) -> int:
        """Into how many parts several axes split what they split."""
        return prod(self.degrees.get(axis, 1) for axis in axes)

    def check_weights(self, tensors: Iterable[Tensor], *, where: str) -> None:
        """Refuses a mesh that does not divide every weight.

        Args:
            tensors: All weights.
            where: Where the mesh was written, for error messages.
        """
        for tensor in tensors:
            for logical, size, axes in zip(tensor.axes, tensor.shape, self.stored(tensor), strict=True):
                self.check_size(size, axes, what=f"{logical} of {tensor.name}", where=where)

    def check_size(self, size: int, axes: Axes, *, what: str, where: str) -> None:
        """Refuses axes that do not divide a dimension into equal parts."""
        ways = prod(self.degrees[axis] for axis in axes)
        if size % ways:
            split = " × ".join(f"{axis}={self.degrees[axis]}" for axis in axes)
            raise InputError(
                f"{what} is not divisible by the mesh",
                where=where,
                value=f"{size} over {split}",
                expected=f"a multiple of {ways}",
                fix=f"lower the degree of {' or '.join(axes)}",
            )

    def _present(self, axes: Iterable[str]) -> Axes:
        wanted = set(axes)
        return tuple(axis for axis in _ORDER if axis in wanted and axis in self.degrees)

    def _wanted(self, logical: str) -> Axes:
        """Mesh axes that split a logical axis of a weight at rest.

        Those over which it stays split come first, so that what a device gathers is one piece of it.
        """
        axes = set(MESH_AXES_OF.get(logical, ()))
        if logical == _EXPERTS and self.experts_on_fsdp:
            axes.add("fsdp")
        if TENSOR_AXES[0] in axes and logical != _KV_HEADS:
            axes.add(COPY_AXIS)
        kept = self._present(axes & _kept(logical))
        return kept if self.is_stationary else kept + self._present(axes - _kept(logical))

    def _tensor_axes(self, logical: str, size: int) -> Axes:
        if size == 1 or TENSOR_AXES[0] not in MESH_AXES_OF.get(logical, ()):
            return ()
        return tuple(axis for axis in self.tensor if axis != COPY_AXIS) if logical == _KV_HEADS else self.tensor


def _kept(logical: str) -> set[str]:
    """Mesh axes over which a dimension of a weight is still split where it is used."""
    return {*_SPLIT_TENSOR_AXES, "ep"} if logical == _EXPERTS else set(_SPLIT_TENSOR_AXES)
