"""The kind of a model, by its layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from ridgeline.model.spec import MlaSpec, MoeSpec

if TYPE_CHECKING:
    from ridgeline.model.spec import ModelSpec

ModelKind: TypeAlias = Literal["dense", "moe", "mla", "mla_moe"]
"""Attention or latent attention; one feed-forward block or experts."""


def model_kind(model: ModelSpec) -> ModelKind:
    """Whether any layer has latent attention, and any has experts."""
    layers = [layer for layer, _ in model.layers]
    has_experts = any(isinstance(layer.mlp, MoeSpec) for layer in layers)
    if any(isinstance(layer.mixer, MlaSpec) for layer in layers):
        return "mla_moe" if has_experts else "mla"
    return "moe" if has_experts else "dense"
