"""What a model's name says of how its checkpoint holds the weights: `Qwen/Qwen3-235B-A22B-FP8`.

Organisations that narrow a checkpoint say so in its name, in few words. Of a mixture in FP4 the experts alone are
narrow, as `hf_quant_config.json` of nvidia/DeepSeek-R1-FP4 has it; how much else is, differs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ridgeline.model.spec import MoeSpec, StoredSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ridgeline.model.spec import ModelSpec

_EIGHT_BIT_FLOATS: Final = StoredSpec(weights="fp8", compute="fp8")
_FOUR_BIT_INTEGERS: Final = StoredSpec(weights="int4")
_FOUR_BIT_FLOATS: Final = StoredSpec(weights="fp4", compute="fp4")
_FOUR_BITS: Final = ("fp4", "mxfp4")
_FORMATS: Final[Mapping[str, StoredSpec]] = {
    "fp8": _EIGHT_BIT_FLOATS,
    "int8": StoredSpec(weights="int8"),
    "w8a8": StoredSpec(weights="int8", compute="int8"),
    "int4": _FOUR_BIT_INTEGERS,
    "awq": _FOUR_BIT_INTEGERS,
    "gptq": _FOUR_BIT_INTEGERS,
    "w4a16": _FOUR_BIT_INTEGERS,
    "fp4": _FOUR_BIT_FLOATS,
    "nvfp4": _FOUR_BIT_FLOATS,
    "mxfp4": replace(_FOUR_BIT_FLOATS, weights="mxfp4"),
    "bf16": StoredSpec(),
}
_METHODS: Final = ("awq", "gptq")
"""Of 4 bits, where no other number stands beside them."""

_KV: Final = "kv"
"""Beside a format: scales for a cache in 8 bits are published too (`-FP8-KV`)."""


def as_named(model: ModelSpec, *, name: str, words: Sequence[str]) -> ModelSpec:
    """The model, its checkpoint as its name says; as it was where the name says nothing, or several formats.

    Args:
        model: As its own checkpoint is published.
        name: As the user wrote it.
        words: Of it, in small letters.

    >>> from ridgeline.model.zoo import load_model
    >>> [load_model(name).stored is None for name in ("Llama-3.3-70B", "amd/Llama-3.3-70B-Instruct-FP8-KV")]
    [True, False]
    """
    said = [word for word in words if word in _FORMATS]
    formats = {_FORMATS[word] for word in said if word not in _METHODS} or {_FORMATS[word] for word in said}
    if len(formats) != 1:
        return model
    stored = formats.pop()
    if stored == StoredSpec():
        return replace(model, stored=None)
    if stored.weights in _FOUR_BITS and any(isinstance(layer.mlp, MoeSpec) for layer, _ in model.layers):
        if model.stored is not None and model.stored.experts in _FOUR_BITS:
            return model
        stored = replace(stored, weights="bf16", experts=stored.weights)
    kv_cache = "fp8" if _KV in words else None
    return replace(model, stored=replace(stored, kv_cache=kv_cache, source=f"the name {name}"))
