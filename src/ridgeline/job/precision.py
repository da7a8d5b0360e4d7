"""Precisions as users name them: dtypes, and low-precision recipes for the layers' matmuls."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ridgeline.errors import InputError, nearest
from ridgeline.job.job import Dtype, Quantization

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_DTYPES: Final[Mapping[str, Dtype]] = {
    "f32": "f32",
    "bf16": "bf16",
    "fp8": "fp8",
    "int8": "int8",
    "fp32": "f32",
    "float32": "f32",
    "bfloat16": "bf16",
    "float8": "fp8",
}

_SERVING_DTYPES: Final[Mapping[str, Dtype]] = {
    **_DTYPES,
    "int4": "int4",
    "fp4": "fp4",
    "nvfp4": "fp4",
    "mxfp4": "mxfp4",
}

_RECIPES: Final[Mapping[str, Quantization]] = {
    "fp8": Quantization(kind="fp8", weights="e4m3", activations="e4m3", gradients="e5m2"),
    "int8": Quantization(kind="int8", weights="int8", activations="int8", gradients="int8"),
    "fp4": Quantization(kind="fp4", weights="e2m1", activations="e2m1", gradients="e2m1", granularity="sub_channel"),
    "mxfp8": Quantization(kind="fp8", weights="e4m3", activations="e4m3", gradients="e4m3", granularity="sub_channel"),
}
# `fp8` and `int8` as MaxText's `fp8_full` and `int8` (qwix): https://github.com/AI-Hypercomputer/maxtext, 2026-08-22.
# `fp4` and `mxfp8` as Transformer Engine's NVFP4BlockScaling and MXFP8BlockScaling, scales of blocks of 16 and 32:
# https://docs.nvidia.com/deeplearning/transformer-engine/user-guide/api/common.html.

_RECIPE_ALIASES: Final[Mapping[str, str]] = {"fp8_full": "fp8", "nvfp4": "fp4"}

_FORMATS: Final[Mapping[str, tuple[str, ...]]] = {
    "fp8": ("e4m3", "e5m2"),
    "int8": ("int8",),
    "fp4": ("e2m1",),
}

_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "granularity": ("per_tensor", "per_axis", "sub_channel"),
    "scaling": ("dynamic", "static", "fixed"),
    "rounding": ("nearest_even", "stochastic"),
}


def parse_dtype(name: str, *, where: str) -> Dtype:
    """The dtype a user names: `bf16`, or `bfloat16` as JAX writes it.

    >>> parse_dtype("bfloat16", where="--weights-dtype")
    'bf16'
    """
    dtype = _DTYPES.get(name)
    if dtype is None:
        raise _unknown("unknown dtype", name, ("f32", "bf16", "fp8", "int8"), _DTYPES, where=where)
    return dtype


def parse_serving_dtype(name: str, *, where: str) -> Dtype:
    """The same for serving, where weights may be stored in 4 bits.

    >>> parse_serving_dtype("nvfp4", where="--weights-dtype")
    'fp4'
    """
    dtype = _SERVING_DTYPES.get(name)
    if dtype is None:
        shown = ("f32", "bf16", "fp8", "int8", "int4", "fp4", "mxfp4")
        raise _unknown("unknown dtype", name, shown, _SERVING_DTYPES, where=where)
    return dtype


def parse_quantization(recipe: Mapping[str, str], *, where: str) -> Quantization:
    """A low-precision recipe: its `kind`, and what differs from that kind's usual recipe.

    Args:
        recipe: Fields of `Quantization`; `kind` must be among them.
        where: The key or flag of the recipe, for error messages.

    >>> parse_quantization({"kind": "fp8", "scaling": "fixed"}, where="plan.quantization").gradients
    'e5m2'
    """
    kind = recipe.get("kind", "")
    usual = _RECIPES.get(_RECIPE_ALIASES.get(kind, kind))
    if usual is None:
        raise _unknown("unknown quantization", kind, (*_RECIPES, "none"), (*_RECIPES, *_RECIPE_ALIASES), where=where)
    allowed = _CHOICES | dict.fromkeys(("weights", "activations", "gradients"), _FORMATS[usual.kind])
    for field, value in recipe.items():
        if field != "kind" and value not in allowed[field]:
            raise _unknown(
                f"unknown {field} of {usual.kind} quantization", value, allowed[field], allowed[field], where=where
            )
    return replace(usual, **{field: value for field, value in recipe.items() if field != "kind"})


def takes_experts(recipe: Quantization) -> bool:
    """Whether a recipe takes the grouped matmuls of experts: `fp8_full` and scales of blocks do, the others do not.

    Source: MaxText 0.2.5, layers/quantizations.py, `get_quantization_rule`: those are for `dot_general` alone;
    Transformer Engine's `GroupedLinear` takes every recipe.

    >>> [takes_experts(parse_quantization({"kind": kind}, where="")) for kind in ("fp8", "int8")]
    [True, False]
    """
    full = _RECIPES["fp8"]
    formats = (recipe.weights, recipe.activations, recipe.gradients)
    return recipe.granularity == "sub_channel" or formats == (full.weights, full.activations, full.gradients)


def _unknown(what: str, value: str, shown: Iterable[str], known: Iterable[str], *, where: str) -> InputError:
    expected = ", ".join(shown)
    fix = nearest(value, known) or f"use one of {expected}"
    return InputError(what, where=where, value=value, expected=expected, fix=fix)
