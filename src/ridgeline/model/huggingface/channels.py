"""Channel mixers: the MLP or the experts that stand at each place of the stack."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ridgeline.model.spec import MlpSpec, MoeSpec

if TYPE_CHECKING:
    from ridgeline.model.huggingface.config import Config
    from ridgeline.model.huggingface.patterns import Place
    from ridgeline.model.spec import ChannelSpec


def channel(config: Config, place: Place) -> ChannelSpec | None:
    """The channel mixer that stands at a place."""
    match place.channel:
        case "none":
            return None
        case "dense":
            return MlpSpec(
                mlp_dim=_dense_width(config, place),
                gated=config.family.gated,
                bias=config.decides(config.family.mlp_bias),
            )
        case "moe":
            return _experts(config, place)


def _dense_width(config: Config, place: Place) -> int:
    """F of a dense layer."""
    if config.has("dense_intermediate_size"):
        return config.count("dense_intermediate_size")
    if config.values.get("num_experts") == 0 and config.has("shared_expert_intermediate_size"):
        return config.count("shared_expert_intermediate_size")
    width = _per_layer(config, "intermediate_size", place, default=_default_width(config))
    if config.flag("use_double_wide_mlp") and not place.own_kv:
        return 2 * width
    # Qwen's first generation states the width of gate and up together.
    return width // 2 if config.flag("gate_and_up_in_one") else width


def _default_width(config: Config) -> int | None:
    """Four times the model's width, where the family has that rule."""
    if not config.has("expansion_ratio"):
        return None
    return config.count("expansion_ratio") * config.count("hidden_size")


def _experts(config: Config, place: Place) -> MoeSpec:
    family = config.family
    num_experts = _per_layer(config, "num_experts", place)
    top_k = _per_layer(config, "num_experts_per_tok", place)
    if top_k > num_experts:
        config.refuse("num_experts_per_tok", top_k, f"at most the {num_experts} experts there are")
    width = _per_layer(
        config, "moe_intermediate_size" if config.has("moe_intermediate_size") else "intermediate_size", place
    )
    return MoeSpec(
        num_experts=num_experts,
        top_k=top_k,
        expert_mlp_dim=width,
        gated=family.gated,
        shared_mlp_dim=_shared_width(config, place, width),
        shared_gate=family.shared_gate,
        router_bias=family.router_bias,
        bias=family.expert_bias,
        score_correction=family.score_correction,
        dense_mlp_dim=_beside_width(config),
        latent_dim=config.optional_count("moe_latent_size"),
    )


def _shared_width(config: Config, place: Place, expert_width: int) -> int:
    """F of the experts that every token visits, together."""
    if config.has("shared_expert_intermediate_size"):
        return config.count("shared_expert_intermediate_size", least=0)
    if not config.has("num_shared_experts"):
        return 0
    return expert_width * _per_layer(config, "num_shared_experts", place, least=0)


def _beside_width(config: Config) -> int:
    """F of a dense MLP that runs beside the experts (Gemma 4, Arctic)."""
    if config.flag("enable_moe_block"):
        return config.count("intermediate_size")
    return config.count("hidden_size") if config.flag("parallel_attn_mlp_res") else 0


def _per_layer(config: Config, key: str, place: Place, *, default: int | None = None, least: int = 1) -> int:
    """A number that holds for all layers, or a list with one for each."""
    listed = config.counts(key, place.index + 1)
    if listed is None:
        return config.count(key, default, least=least)
    if listed[place.index] < least:
        config.refuse(key, listed[place.index], f"at least {least}")
    return listed[place.index]
