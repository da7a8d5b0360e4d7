"""What is known from outside of low precision in training: published pairs, compiled cycles, what each option does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ridgeline.cost.training.quantization_pass import SUB_CHANNEL_SIZE
from ridgeline.units import format_fraction

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.job.job import Quantization


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedPair:
    """A job that was run in bf16 and with a recipe.

    Attributes:
        job: In words.
        kind: Of the recipe.
        speedup: Step time in bf16 over that with the recipe.
        source: Where both stand.
    """

    job: str
    kind: str
    speedup: float
    source: str


_RECIPES: Final = "AI-Hypercomputer/tpu-recipes c8cfe2f, training/ironwood/README.md"

PUBLISHED: Final[Mapping[str, tuple[PublishedPair, ...]]] = {
    "tpu7x": (
        PublishedPair(job="Llama 3.1 70B, 8,192 tokens, 64 chips", kind="fp8", speedup=1.54, source=_RECIPES),
        PublishedPair(job="Llama 3.1 405B, 8,192 tokens, 256 chips", kind="fp8", speedup=1.53, source=_RECIPES),
        PublishedPair(job="DeepSeek V3, 4,096 tokens, 256 chips", kind="fp8", speedup=1.21, source=_RECIPES),
        PublishedPair(job="Llama 3.1 70B, 131,072 tokens, 256 chips", kind="fp8", speedup=1.13, source=_RECIPES),
        PublishedPair(job="Qwen3 235B-A22B", kind="fp8", speedup=1.12, source=_RECIPES),
    )
}
"""By chip, the largest gain first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledMatmul:
    """What the compiler expects of the product of two 8192-by-8192 matrices on one device, by operand format.

    Attributes:
        cycles: By format.
    """

    cycles: Mapping[str, int]

    def speedup(self, kind: str) -> float:
        """Of a format over bf16."""
        return self.cycles["bf16"] / self.cycles[kind]


COMPILED: Final[Mapping[str, CompiledMatmul]] = {
    "tpu7x": CompiledMatmul(cycles={"bf16": 2_604_600, "int8": 2_775_112, "fp8": 1_232_432}),
    "v6e": CompiledMatmul(cycles={"bf16": 2_977_840, "int8": 1_745_702, "fp8": 2_493_248}),
    "v5p": CompiledMatmul(cycles={"bf16": 4_652_072, "int8": 2_403_424, "fp8": 4_778_120}),
    "v5e": CompiledMatmul(cycles={"bf16": 9_557_312, "int8": 4_332_174, "fp8": 8_756_387}),
    "v4": CompiledMatmul(cycles={"bf16": 4_523_672, "int8": 4_891_520, "fp8": 5_431_968}),
}
"""By chip. The text of a program keeps f8 operands on all of them; only the cycles tell which multiplies in f8.
Source: `estimated_cycle_count` of the fused product in programs compiled by the libtpu of jax 0.12.0.1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionEffect:
    """What an option of a recipe does to the time of a step.

    Attributes:
        name: Of the option.
        value: As the recipe has it.
        effect: In words.
    """

    name: str
    value: str
    effect: str


def options_of(
    recipe: Quantization, *, scales_share: float, rounding_share: float, blocks_share: float, narrows_apart: bool
) -> tuple[OptionEffect, ...]:
    """Granularity, scaling and rounding of a recipe.

    Args:
        recipe: The recipe.
        scales_share: Of the bf16 step, what looking for its scales adds.
        rounding_share: The same of rounding gathered weights.
        blocks_share: The same of adding up partial sums.
        narrows_apart: Whether the chip's libraries narrow operands in passes of their own, as those of GPUs do.

    >>> from ridgeline.job.precision import parse_quantization
    >>> recipe = parse_quantization({"kind": "fp8", "scaling": "fixed"}, where="")
    >>> options = options_of(recipe, scales_share=0.0, rounding_share=0.0, blocks_share=0.0, narrows_apart=False)
    >>> [option.value for option in options]
    ['per_tensor', 'fixed', 'nearest_even']
    """
    shares = {
        "scales": format_fraction(scales_share),
        "rounding": format_fraction(rounding_share),
        "blocks": format_fraction(blocks_share),
    }
    effects = {
        "granularity": _GRANULARITY[recipe.granularity],
        "scaling": "part of rounding" if narrows_apart else _SCALING[recipe.scaling],
        "rounding": _APART if narrows_apart else _ROUNDING[recipe.rounding],
    }
    return tuple(
        OptionEffect(name=name, value=getattr(recipe, name), effect=effect.format(**shares))
        for name, effect in effects.items()
    )


_GRANULARITY: Final[Mapping[str, str]] = {
    "per_tensor": "taken as nothing: one number scales the product where it is written",
    "per_axis": "taken as nothing: rows and columns of the product are scaled where it is written, by a number each",
    "sub_channel": (
        f"blocks of {SUB_CHANNEL_SIZE}: partial sums are scaled and added on the vector unit, {{blocks}} of the bf16 "
        "step; inputs and weights are looked at and rounded again backward; scales are 3% of the bytes of what is "
        "rounded. A fused kernel is assumed: as XLA compiles qwix, a product on TPU7x takes 16 to 22 times as long as "
        "with one scale"
    ),
}
_SCALING: Final[Mapping[str, str]] = {
    "dynamic": (
        "inputs, once for all products that share one, and output gradients are read once more for their maximum: "
        "{scales} of the bf16 step"
    ),
    "static": "no pass: ranges come from earlier runs",
    "fixed": "no pass: ranges are given",
}
_NEAREST: Final = (
    "gathered weights are read and rounded before each pass of a layer: {rounding} of the bf16 step; inputs and "
    "gradients are rounded where they are made, which is taken as nothing"
)
_ROUNDING: Final[Mapping[str, str]] = {
    "nearest_even": _NEAREST,
    "stochastic": (
        f"{_NEAREST}; so is noise: qwix draws one number for each row of a gradient, and for int8 alone: fp8 it rounds "
        "to the nearest whatever is asked"
    ),
}
_APART: Final = (
    "a pass of its own reads each operand and writes it along rows and along columns, and finds dynamic scales: "
    "{scales} of the bf16 step"
)
