"""Where operations are declared: gives each its path and its weights their names.

Element counts of elementwise operations are those of one fused pass between two matmuls, each array read
and written once; an operation that joins another's pass adds only what is new (a post-norm: nothing).
FLOPs on the vector unit count one for each arithmetic or transcendental step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ridgeline.model.operations import Activation, Elementwise, Matmul, Tensor

if TYPE_CHECKING:
    from ridgeline.model.spec import NormSpec

RMS_NORM_FLOPS = 4
"""Square, sum, times the reciprocal root, times the scale; per element."""
LAYER_NORM_FLOPS = 7
"""Sum, subtract, square, sum, times the reciprocal root, times the scale, plus the bias; per element."""
ROTARY_FLOPS = 3
"""Two products and a sum; per element."""
SIGMOID_FLOPS = 4
"""Negate, exponential, add, divide; per element."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """A block, or a part of one, in which operations are declared.

    Attributes:
        block: Full path of the block, e.g. `layer/attention`.
        part: Path below the block, e.g. `experts`; "" for the block itself.
    """

    block: str
    part: str = ""

    def under(self, part: str) -> Scope:
        """The scope of a part of this one."""
        return replace(self, part=self.path(part))

    def path(self, name: str) -> str:
        """An operation's path below its block."""
        return f"{self.part}/{name}" if self.part else name

    def weight(self, name: str, **dims: int) -> Tensor:
        """A weight named after its part, with the logical axes and sizes `dims` in order."""
        return Tensor(name=f"{self.block}/{self.path(name)}", axes=tuple(dims), shape=tuple(dims.values()))

    def matmul(
        self,
        name: str,
        output: str,
        *,
        contracted: int = 1,
        bias: bool = False,
        quantizable: bool = True,
        **dims: int,
    ) -> Matmul:
        """A matmul whose weight has axes `dims`, the first `contracted` of them summed over."""
        kept = dict(list(dims.items())[contracted:])
        return Matmul(
            path=self.path(name),
            weight=self.weight(name, **dims),
            num_contracted=contracted,
            output=Activation(name=output, axes=tuple(kept), shape=tuple(kept.values())),
            bias=self.weight(f"{name}/bias", **kept) if bias else None,
            quantizable=quantizable,
        )

    def norm(self, name: str, spec: NormSpec, width: int, *, fused: bool = False, saved_as: str = "") -> Elementwise:
        """A norm of `width` elements; `fused` when it joins the pass of the operation beside it."""
        moved = 0 if fused else width
        return Elementwise(
            path=self.path(name),
            read_elements=moved,
            write_elements=moved,
            flops_per_token=norm_flops(spec, width),
            weights=self.norm_weights(name, spec, width),
            name=saved_as,
        )

    def norm_weights(self, name: str, spec: NormSpec, width: int) -> tuple[Tensor, ...]:
        """The scale and bias of a norm, as far as it has them."""
        scale = (self.weight(f"{name}/scale", norm=width),) if spec.scale else ()
        bias = (self.weight(f"{name}/bias", norm=width),) if spec.bias else ()
        return scale + bias

    def residual(self, width: int) -> Elementwise:
        """The add that ends a branch: in the pass of the next norm, it also reads and writes the stream."""
        return Elementwise(path=self.path("residual"), read_elements=width, write_elements=width, flops_per_token=width)


def norm_flops(spec: NormSpec, width: int) -> int:
    """FLOPs of one norm over `width` elements."""
    return width * (LAYER_NORM_FLOPS if spec.bias else RMS_NORM_FLOPS)
