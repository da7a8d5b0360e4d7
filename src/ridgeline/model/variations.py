"""The same model with one dimension a little larger: for asking what a dimension costs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias

from ridgeline.model.spec import AttentionSpec, LayerSpec, MlaSpec, MlpSpec, MoeSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ridgeline.model.spec import ModelSpec

Variation: TypeAlias = "Callable[[ModelSpec, float], ModelSpec | None]"
"""A model and a factor to the model with that dimension larger by about the factor; None where it has none."""

LANES: Final = 128
"""What widths stay a multiple of: a tile of a TPU has so many columns."""


def _width(width: int, factor: float) -> int:
    """A larger width that still fills tiles.

    >>> _width(28672, 1.25), _width(1408, 1.25), _width(64, 1.25)
    (35840, 1792, 128)
    """
    return max(round(width * factor / LANES), 1) * LANES


def _of_layers(change: Callable[[LayerSpec, float], LayerSpec]) -> Variation:
    """A variation that changes every layer alike; None where it changes none."""

    def varied(model: ModelSpec, factor: float) -> ModelSpec | None:
        layers = tuple((change(layer, factor), count) for layer, count in model.layers)
        return None if layers == model.layers else replace(model, layers=layers)

    return varied


def _deeper(model: ModelSpec, factor: float) -> ModelSpec:
    return replace(model, layers=tuple((layer, max(round(count * factor), 1)) for layer, count in model.layers))


def _wider(model: ModelSpec, factor: float) -> ModelSpec:
    return replace(model, embed_dim=_width(model.embed_dim, factor))


def _larger_vocabulary(model: ModelSpec, factor: float) -> ModelSpec:
    return replace(model, vocab_size=_width(model.vocab_size, factor))


def _wider_mlp(layer: LayerSpec, factor: float) -> LayerSpec:
    """Of dense layers alone."""
    if not isinstance(layer.mlp, MlpSpec):
        return layer
    return replace(layer, mlp=replace(layer.mlp, mlp_dim=_width(layer.mlp.mlp_dim, factor)))


def _wider_experts(layer: LayerSpec, factor: float) -> LayerSpec:
    """Routed ones; what every token visits beside them stays."""
    if not isinstance(layer.mlp, MoeSpec):
        return layer
    return replace(layer, mlp=replace(layer.mlp, expert_mlp_dim=_width(layer.mlp.expert_mlp_dim, factor)))


def _more_heads(layer: LayerSpec, factor: float) -> LayerSpec:
    """More query heads in every group; key-value heads stay."""
    match layer.mixer:
        case AttentionSpec():
            group = layer.mixer.num_kv_heads
            heads = max(round(layer.mixer.num_heads * factor / group), 1) * group
            return replace(layer, mixer=replace(layer.mixer, num_heads=heads))
        case MlaSpec():
            return replace(layer, mixer=replace(layer.mixer, num_heads=round(layer.mixer.num_heads * factor)))
        case _:
            return layer


def _more_experts(layer: LayerSpec, factor: float) -> LayerSpec:
    if not isinstance(layer.mlp, MoeSpec):
        return layer
    return replace(layer, mlp=replace(layer.mlp, num_experts=round(layer.mlp.num_experts * factor)))


def _more_experts_a_token(layer: LayerSpec, factor: float) -> LayerSpec:
    if not isinstance(layer.mlp, MoeSpec):
        return layer
    top_k = min(round(layer.mlp.top_k * factor), layer.mlp.num_experts)
    return replace(layer, mlp=replace(layer.mlp, top_k=top_k))


VARIATIONS: Final[Mapping[str, Variation]] = {
    "embed_dim": _wider,
    "num_layers": _deeper,
    "mlp_dim": _of_layers(_wider_mlp),
    "expert_mlp_dim": _of_layers(_wider_experts),
    "num_heads": _of_layers(_more_heads),
    "num_experts": _of_layers(_more_experts),
    "top_k": _of_layers(_more_experts_a_token),
    "vocab_size": _larger_vocabulary,
}
"""By the name of the dimension."""

COUNTED: Final = frozenset({"num_experts", "top_k"})
"""Those that are small whole numbers which meshes divide: a quarter more of them is no model that one would build."""
