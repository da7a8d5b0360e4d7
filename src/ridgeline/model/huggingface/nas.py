"""Models whose layers were found by search (Nemotron-NAS): each says its own width, or that it is absent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ridgeline.model.huggingface.mixers import head_dim
from ridgeline.model.spec import AttentionSpec, LayerSpec, MlpSpec

if TYPE_CHECKING:
    from ridgeline.model.huggingface.config import Config

_MULTIPLE = 256
"""Widths are rounded up to this."""


def searched_layers(config: Config) -> tuple[LayerSpec, ...] | None:
    """The layers of `block_configs`; None when the config has no such list."""
    blocks = config.objects("block_configs", config.count("num_hidden_layers", 0, least=0))
    if not blocks:
        return None
    return tuple(
        LayerSpec(mixer=_attention(config, block.nested("attention")), mlp=_mlp(config, block.nested("ffn")))
        for block in blocks
    )


def _attention(config: Config, block: Config) -> AttentionSpec | None:
    _refuse_linear(block)
    if block.flag("no_op"):
        return None
    heads, group = config.count("num_attention_heads"), block.count("n_heads_in_group")
    if heads % group:
        block.refuse("n_heads_in_group", group, f"a divisor of the {heads} attention heads")
    bias = config.flag("attention_bias")
    return AttentionSpec(
        num_heads=heads, num_kv_heads=heads // group, head_dim=head_dim(config), qkv_bias=bias, out_bias=bias
    )


def _mlp(config: Config, block: Config) -> MlpSpec | None:
    """A gated MLP of two thirds of `ffn_mult` widths, or of the width it states."""
    _refuse_linear(block)
    if block.flag("no_op"):
        return None
    asked = int(2 * block.number("ffn_mult", 1.0) * config.count("hidden_size") / 3)
    rounded = -(-asked // _MULTIPLE) * _MULTIPLE
    return MlpSpec(mlp_dim=block.count("intermediate_size", rounded), bias=config.flag("mlp_bias"))


def _refuse_linear(block: Config) -> None:
    if block.flag("replace_with_linear"):
        block.refuse("replace_with_linear", value=True, expected="false: single linear layers are not read yet")
