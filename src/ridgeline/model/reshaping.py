"""The same number of parameters in another shape: fewer and wider layers, wider heads, more and narrower experts.

A shape is said by factors on the model's dimensions (`{"num_layers": 0.5}`). What is not said follows:

    embed_dim   L·D² stays, where the depth changes; heads and MLP follow it
    num_layers  the depth closes the budget, where the MLP's width over D changes
    mlp_dim     closes what is left of the budget in any case: parameters are linear in it

Widths fill tiles, and of the widths near enough the one is taken that halves most often, so that meshes divide it.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle, groupby, islice
from math import sqrt
from typing import TYPE_CHECKING, Final, TypeAlias

from ridgeline.model.parameters import count_parameters
from ridgeline.model.spec import AttentionSpec, LayerSpec, MlaSpec, MlpSpec, MoeSpec
from ridgeline.model.tree import model_tree

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.model.spec import ChannelSpec, MixerSpec, ModelSpec

DIMENSIONS: Final = ("num_layers", "mlp_ratio", "num_heads", "num_kv_heads", "head_dim", "num_experts")
"""What a factor may stand on. Of heads, `num_heads` is the queries'; `head_dim` keeps the width of all heads together;
`num_experts` keeps the parameters of all experts together and of those that a token visits."""

SLACK: Final = 0.04
"""How far a dimension may lie from where its factor puts it, for the sake of one that divides well."""

_Layers: TypeAlias = "tuple[tuple[LayerSpec, int], ...]"

_KINDS_IN_FRONT: Final = 2
"""Runs of equal layers up to which a stack is one kind after another (dense in front of experts), not a pattern."""

_NARROWEST, _WIDEST = 0.2, 5.0
"""Factors of an MLP's width beyond which a shape is another kind of model."""


def reshaped(model: ModelSpec, factors: Mapping[str, float], *, tile: int, band: float) -> ModelSpec | None:
    """The model in another shape, its parameters within a band of what they are; None where it has no such shape.

    Args:
        model: The model.
        factors: Dimension of `DIMENSIONS` to how much larger it is to be.
        tile: What widths are a multiple of.
        band: Fraction by which parameters may differ, all of them and those a token visits.
    """
    if any(value != 1 and not has_dimension(model, name) for name, value in factors.items()):
        return None
    before = _parameters(model)
    deeper = factors.get("num_layers", 1.0)
    widths = handy(model.embed_dim / sqrt(deeper), tile=tile, slack=2 * SLACK) if deeper != 1 else (model.embed_dim,)
    for width in widths:
        shaped = _of_ratio(_of_depth(model, deeper, width, tile=tile), factors, budget=before[0])
        shaped = replace(shaped, layers=tuple((_mixed(layer, factors), count) for layer, count in shaped.layers))
        closed = _closed(shaped, budget=before[0], tile=tile)
        if closed is None or closed == model:
            continue
        if max(abs(now / then - 1) for now, then in zip(_parameters(closed), before, strict=True)) <= band:
            return closed
    return None


def handy(target: float, *, tile: int, slack: float) -> tuple[int, ...]:
    """The multiples of a tile within a slack of a target: those first that halve most often, then the nearest.

    >>> handy(6689, tile=128, slack=0.05)[:2], handy(28672, tile=256, slack=0.0), handy(53, tile=1, slack=0.05)
    ((6656, 6400), (28672,), (56, 52, 54, 50, 53, 51, 55))
    """
    low, nearest, high = (max(round(target * (1 + side * slack) / tile), 1) for side in (-1, 0, 1))
    sizes = sorted(range(low, high + 1), key=lambda size: (-(size & -size), abs(size - nearest)))
    return tuple(size * tile for size in sizes)


def has_dimension(model: ModelSpec, dimension: str) -> bool:
    """Whether every layer has a dimension, or those that must."""
    mixers = [layer.mixer for layer, _ in model.layers if layer.beside is None]
    channels = [layer.mlp for layer, _ in model.layers]
    match dimension:
        case "num_kv_heads" | "head_dim":
            return all(isinstance(mixer, AttentionSpec) for mixer in mixers)
        case "num_experts":
            return any(isinstance(channel, MoeSpec) for channel in channels)
        case _:  # other mixers have widths of their own, which would have to follow
            return len(mixers) == len(channels) and all(isinstance(mixer, AttentionSpec | MlaSpec) for mixer in mixers)


def _of_depth(model: ModelSpec, deeper: float, width: int, *, tile: int) -> ModelSpec:
    """With its depth changed, and heads and MLP as wide as its stream."""
    if deeper == 1:
        return model
    wider = width / model.embed_dim
    layers = (
        (replace(_mixed(layer, {"num_heads": wider}), mlp=_resized(layer.mlp, wider, tile=tile, slack=SLACK)), count)
        for layer, count in _stacked(model.layers, deeper)
    )
    return replace(model, embed_dim=width, layers=tuple(layers))


def _of_ratio(model: ModelSpec, factors: Mapping[str, float], *, budget: int) -> ModelSpec:
    """With the MLP's width over D changed, and as many layers as the budget then has room for."""
    ratio = factors.get("mlp_ratio", 1.0)
    if ratio == 1:
        return model
    layers = tuple((replace(layer, mlp=_resized(layer.mlp, ratio)), count) for layer, count in model.layers)
    once, twice = (
        _parameters(replace(model, layers=tuple((layer, times * count) for layer, count in layers)))[0]
        for times in (1, 2)
    )
    return replace(model, layers=_stacked(layers, 1 + (budget - once) / (twice - once)))


def _stacked(layers: _Layers, deeper: float) -> _Layers:
    """A stack with more or fewer layers: of one or two kinds, more of each; of a pattern of kinds, more patterns."""
    if len(layers) <= _KINDS_IN_FRONT:
        return tuple((layer, handy(count * deeper, tile=1, slack=SLACK)[0]) for layer, count in layers)
    whole = [layer for layer, count in layers for _ in range(count)]
    depth = handy(len(whole) * deeper, tile=1, slack=SLACK)[0]
    return tuple((layer, len(list(run))) for layer, run in groupby(islice(cycle(whole), depth)))


def _mixed(layer: LayerSpec, factors: Mapping[str, float]) -> LayerSpec:
    """A layer with the heads and experts that are asked for."""
    mixer, mlp = layer.mixer, layer.mlp
    more = factors.get("num_experts", 1.0)
    if isinstance(mlp, MoeSpec) and more != 1:
        mlp = replace(
            mlp,
            num_experts=max(round(mlp.num_experts * more), 1),
            top_k=max(round(mlp.top_k * more), 1),
            expert_mlp_dim=max(round(mlp.expert_mlp_dim / more), 1),
        )
    return replace(layer, mixer=_headed(mixer, factors), mlp=mlp)


def _headed(mixer: MixerSpec | None, factors: Mapping[str, float]) -> MixerSpec | None:
    match mixer:
        case AttentionSpec():
            wider = factors.get("head_dim", 1.0)
            group = max(round(mixer.num_kv_heads * factors.get("num_kv_heads", 1.0) / wider), 1)
            heads = handy(mixer.num_heads * factors.get("num_heads", 1.0) / wider, tile=group, slack=3 * SLACK)[0]
            value_dim = None if mixer.v_head_dim is None else round(mixer.v_head_dim * wider)
            return replace(
                mixer,
                num_heads=heads,
                num_kv_heads=group,
                head_dim=round(mixer.head_dim * wider),
                v_head_dim=value_dim,
            )
        case MlaSpec():
            heads = handy(mixer.num_heads * factors.get("num_heads", 1.0), tile=1, slack=SLACK)[0]
            return replace(mixer, num_heads=heads)
        case _:
            return mixer


def _closed(model: ModelSpec, *, budget: int, tile: int) -> ModelSpec | None:
    """With MLPs, shared and routed experts alike, as wide as the budget asks for."""
    none, all_of_it = (_parameters(_resized_all(model, factor))[0] for factor in (0.0, 1.0))
    if all_of_it == none:
        return None
    factor = (budget - none) / (all_of_it - none)
    if not _NARROWEST < factor < _WIDEST:
        return None
    # Within half a percent of its width, which is less of the whole, the one that divides best.
    return _resized_all(model, factor, tile=tile, slack=0.005)


def _resized_all(model: ModelSpec, factor: float, *, tile: int = 1, slack: float = 0.0) -> ModelSpec:
    layers = (
        (replace(layer, mlp=_resized(layer.mlp, factor, tile=tile, slack=slack)), count)
        for layer, count in model.layers
    )
    return replace(model, layers=tuple(layers))


def _resized(channel: ChannelSpec | None, factor: float, *, tile: int = 1, slack: float = 0.0) -> ChannelSpec | None:
    def width(size: int) -> int:
        return handy(size * factor, tile=tile, slack=slack)[0] if size else 0

    match channel:
        case MlpSpec():
            return replace(channel, mlp_dim=width(channel.mlp_dim))
        case MoeSpec():
            return replace(
                channel,
                expert_mlp_dim=width(channel.expert_mlp_dim),
                shared_mlp_dim=width(channel.shared_mlp_dim),
                dense_mlp_dim=width(channel.dense_mlp_dim),
            )
        case None:
            return None


def _parameters(model: ModelSpec) -> tuple[int, int]:
    """All of them, and those a token visits."""
    count = count_parameters(model_tree(model))
    return count.total, count.active
