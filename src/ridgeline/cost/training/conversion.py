"""What a low-precision recipe does beside its products: it looks for scales, rounds weights, and adds up blocks.

As XLA compiles qwix for TPUs (libtpu of jax 0.12.0.1; three products of one input, and 4,096-cubes, on TPU7x):

    inputs      several products of one input (query, key, value) share its scale and its rounding: both are done once,
                though each product asks for them. Rounding is part of what makes the input; looking for a dynamic scale
                is a pass of its own before it
    gradients   of an output: its two products scale it differently, and one pass finds both scales
    weights     a gathered weight is read and rounded before each pass of its layer; it is looked at for a dynamic scale
                while still sharded, which takes next to nothing
    blocks      with scales of sub-channels each block's partial sums are scaled and added on the vector unit, and what
                was rounded forward is rounded again backward, along the dimension then summed over

On GPUs a pass of its own narrows each operand, along rows and along columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import nan
from typing import TYPE_CHECKING, Final

from ridgeline.cost.columns import gathered_shards
from ridgeline.cost.product import is_quantized, product_demand
from ridgeline.cost.training.leaves import traffic_part
from ridgeline.cost.training.quantization_pass import (
    NARROW_BYTES,
    SCALE_BYTES,
    SUB_CHANNEL_SIZE,
    narrowing_bytes,
    num_copies,
    num_looks,
    partial_sums_flops,
    rounding_pass_bytes,
    scale_pass_bytes,
)
from ridgeline.cost.work import NOTHING, Number, Part
from ridgeline.model.operations import ExpertMatmul, Matmul

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ridgeline.cost.columns import PlanColumns, TrainingSetting
    from ridgeline.cost.product import ProductDemand
    from ridgeline.cost.work import Phase
    from ridgeline.job.job import Quantization
    from ridgeline.model.operations import Block

_SHARED_AXES: Final = frozenset({"embed", "embed_moe", "q_lora", "kv_lora"})
"""Contracted axes of which a block has one array: its normed stream, experts' copies of it, a latent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """What converting for one product takes.

    Attributes:
        forward: Of what it reads, before its forward pass, and again before its backward pass where anything is
            recomputed: its gradients read the same rounded.
        sums: Of its output, as often as that is computed.
        backward: Before its gradients, and of what they are.
    """

    forward: tuple[Part, ...]
    sums: tuple[Part, ...]
    backward: tuple[Part, ...]


UNCONVERTED: Final = Conversion(forward=(), sums=(), backward=())


def conversions(block: Block, *, rows: Number, setting: TrainingSetting, columns: PlanColumns) -> dict[str, Conversion]:
    """By path of the block's operations, what the recipe does beside each product it takes.

    Args:
        block: The residual branch.
        rows: Tokens of this device (before tensor parallelism).
        setting: The job with its recipe.
        columns: The plans.
    """
    found: dict[str, Conversion] = {}
    read: set[tuple[type, tuple[str, ...]]] = set()
    for op in block.operations:
        recipe = setting.quantization
        if recipe is None or not isinstance(op, Matmul | ExpertMatmul) or not is_quantized(op, recipe):
            continue
        demand = product_demand(op, rows=rows, setting=setting, columns=columns)
        product = _Product(op=op, demand=demand, recipe=recipe, setting=setting, columns=columns)
        source = type(op), _contracted_axes(op)
        is_narrowed = source in read or product.reads_unit
        found[op.path] = Conversion(
            forward=(*(() if is_narrowed else product.of_input()), *product.of_weight("forward")),
            sums=tuple(product.partial_sums("forward")),
            backward=() if product.makes_unit else tuple(product.of_gradients()),
        )
        if _SHARED_AXES.intersection(source[1]):
            read.add(source)
    return found


def _contracted_axes(op: Matmul | ExpertMatmul) -> tuple[str, ...]:
    return op.weight.axes[1:2] if isinstance(op, ExpertMatmul) else op.weight.axes[: op.num_contracted]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Product:
    """A product that a recipe takes, on one device and for one microbatch."""

    op: Matmul | ExpertMatmul
    demand: ProductDemand
    recipe: Quantization
    setting: TrainingSetting
    columns: PlanColumns

    @property
    def in_blocks(self) -> bool:
        return self.recipe.granularity == "sub_channel"

    @property
    def narrows_apart(self) -> bool:
        return self.setting.hardware.chip.switch is not None

    @property
    def reads_unit(self) -> bool:
        """It reads what a fused kernel of its experts has made and narrowed."""
        return self._is_fused and self.op.weight.axes[-1] == "embed_moe"

    @property
    def makes_unit(self) -> bool:
        """Its output's gradient comes narrowed out of the fused kernel."""
        return self._is_fused and self.op.weight.axes[-1] != "embed_moe"

    @property
    def _is_fused(self) -> bool:
        return self.setting.fuses_experts and isinstance(self.op, ExpertMatmul)

    def of_input(self) -> Iterator[Part]:
        """The scale of what the product reads; on GPUs, the array narrowed."""
        yield from self._looked_at("scale", "forward", self.demand.contracted_width)

    def of_weight(self, phase: Phase) -> Iterator[Part]:
        """The weight rounded."""
        if self.narrows_apart:
            return
        moved_bytes = rounding_pass_bytes(
            P=self.op.weight.size / gathered_shards(self.op.weight, self.columns),
            b_w=self.setting.compute_bytes,
            narrow_bytes=NARROW_BYTES[self.recipe.kind],
            scale_bytes=SCALE_BYTES / SUB_CHANNEL_SIZE if self.in_blocks else 0.0,
        )
        yield self._pass("round", phase, moved_bytes)

    def of_gradients(self) -> Iterator[Part]:
        """Scales of the output gradient; in blocks, weight and input anew as well, and two products' blocks."""
        yield from self._looked_at("scale", "backward", self.demand.produced_width)
        if self.in_blocks and not self.narrows_apart:
            yield from self._looked_at("input/scale", "backward", self.demand.contracted_width)
            yield from self.of_weight("backward")
            for _ in range(2):
                yield from self.partial_sums("backward")

    def _looked_at(self, name: str, phase: Phase, width: int) -> Iterator[Part]:
        elements, b_a = self.demand.rows * width / self.demand.num_shards, self.setting.activation_bytes
        if self.narrows_apart:
            narrow, looks = NARROW_BYTES[self.recipe.kind], num_looks(self.recipe)
            copies = num_copies(
                self.recipe, chip=self.setting.hardware.chip, trains=self.setting.trains(self.op.weight)
            )
            moved = narrowing_bytes(b_a=b_a, narrow_bytes=narrow, num_looks=looks, num_copies=copies)
            yield self._pass(name, phase, elements * moved)
        elif self.recipe.scaling == "dynamic":
            yield self._pass(name, phase, scale_pass_bytes(elements_size=elements, b_a=b_a))

    def _pass(self, name: str, phase: Phase, moved_bytes: Number) -> Part:
        vector, path = self.setting.efficiency.vector, f"{self.op.path}/{name}"
        return traffic_part(path, phase, moved_bytes, setting=self.setting, efficiency=vector)

    def partial_sums(self, phase: Phase) -> Iterator[Part]:
        """The blocks of one product added up; not a number where the rate of the vector unit is not known."""
        if not self.in_blocks or self.narrows_apart:
            return
        chip = self.setting.hardware.chip
        rate = nan if chip.vector_flops_per_s is None else chip.vector_flops_per_s / chip.devices_per_chip
        adding_s = partial_sums_flops(product_flops=self.demand.flops, block_size=SUB_CHANNEL_SIZE) / rate
        yield Part(name=f"{self.op.path}/blocks", phase=phase, resource="hbm", expected_s=adding_s, work=NOTHING)
