"""Sequence mixers: attention of every kind, Mamba, the gated delta rule, one for each place of the stack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from ridgeline.model.spec import (
    AttentionSpec,
    CompressedAttentionSpec,
    GatedDeltaSpec,
    IndexerSpec,
    MambaSpec,
    MlaSpec,
)

if TYPE_CHECKING:
    from ridgeline.model.huggingface.config import Config
    from ridgeline.model.huggingface.patterns import Place
    from ridgeline.model.spec import MixerSpec

_COMPRESSION_WORDS = {
    "sliding_attention": 0,
    "compressed_sparse_attention": 4,
    "heavily_compressed_attention": 128,
}
"""Tokens that DeepSeek-V4 merges into one key, by the layer's word."""


def mixer(config: Config, place: Place) -> MixerSpec | None:
    """The sequence mixer that stands at a place; the attention, where Mamba runs beside it."""
    match place.mixer:
        case "none":
            return None
        case "linear":
            return linear_mixer(config)
        case "attention" | "both" | "cross":
            if config.has("o_lora_rank"):
                return _compressed_attention(config, place)
            if config.has("kv_lora_rank"):
                return _latent_attention(config, place)
            return _attention(config, place)


def linear_mixer(config: Config) -> MixerSpec:
    """The recurrent mixer of a hybrid model."""
    match config.family.linear:
        case "gated_delta":
            return GatedDeltaSpec(
                num_key_heads=config.count("linear_num_key_heads"),
                num_value_heads=config.count("linear_num_value_heads"),
                key_head_dim=config.count("linear_key_head_dim"),
                value_head_dim=config.count("linear_value_head_dim"),
                conv_kernel=config.count("linear_conv_kernel_dim"),
            )
        case "mamba1":
            return _mamba_1(config)
        case "mamba2":
            return _mamba_2(config)
        case None:
            config.refuse("layer_types", "linear attention", "attention in every layer of this family")


def _attention(config: Config, place: Place) -> AttentionSpec:
    """Multi-head, grouped-query or multi-query attention."""
    family = config.family
    heads = _own_count(config, place, "num_attention_heads") or config.count("num_attention_heads")
    kv_heads = _num_kv_heads(config, place)
    if heads % kv_heads:
        config.refuse("num_key_value_heads", kv_heads, f"a divisor of the {heads} attention heads")
    return AttentionSpec(
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=_own_count(config, place, "head_dim") or head_dim(config),
        v_head_dim=_own_count(config, place, "v_head_dim") or config.optional_count("v_head_dim"),
        span=place.span,
        qkv_bias=config.decides(family.qkv_bias),
        out_bias=config.decides(family.out_bias),
        qk_norm=_qk_norm(config, place),
        qk_norm_spec=family.qk_norm_spec,
        query_rank=config.optional_count("share_q_dim"),
        output_gate=family.output_gate == "element",
        head_gate=family.output_gate == "head",
        sinks=family.sinks == "all" or (family.sinks == "local" and place.is_local),
        own_kv=place.own_kv,
        shared_kv_projection=_key_is_value(config, place),
        cross=place.mixer == "cross",
        rotary=place.rotary and place.mixer != "cross",
        indexer=_block_indexer(config, place),
    )


def _block_indexer(config: Config, place: Place) -> IndexerSpec | None:
    """MiniMax-M3: a scorer picks blocks of keys, in the layers that a list marks."""
    sparse = config.nested("sparse_attention_config")
    marked = sparse.counts("sparse_attention_freq", place.index + 1)
    if marked is None or not marked[place.index]:
        return None
    return IndexerSpec(
        num_heads=sparse.count("sparse_num_index_heads"),
        head_dim=sparse.count("sparse_index_dim"),
        top_k=sparse.count("sparse_topk_blocks") * sparse.count("sparse_block_size"),
    )


def _own_count(config: Config, place: Place, key: str) -> int | None:
    """What a file says for the local, or for the global, layers only."""
    return config.optional_count(f"local_{key}" if place.is_local else f"global_{key}")


def _key_is_value(config: Config, place: Place) -> bool:
    """Gemma 4's global layers: one projection for both."""
    return config.flag("attention_k_eq_v") and not place.is_local


def _num_kv_heads(config: Config, place: Place) -> int:
    """K; where the file does not say, as many as query heads, or 1 for families with a multi-query flag."""
    if config.has("num_global_key_value_heads") and _key_is_value(config, place):
        return config.count("num_global_key_value_heads")
    heads = config.count("num_attention_heads")
    if config.flag("multi_query") and not config.flag("new_decoder_architecture"):
        return 1
    if not config.flag("multi_query_attention", default=True):
        return heads
    return _own_count(config, place, "num_key_value_heads") or config.count("num_key_value_heads", heads)


def _qk_norm(config: Config, place: Place) -> Literal["head", "full"] | None:
    """The family's, where the config asks for it; always on each head across modalities (Llama 3.2)."""
    if place.mixer == "cross":
        return "head"
    # Llama 4's norm has no scale, and stands only where it rotates.
    stands = place.rotary or config.family.qk_norm_spec.scale
    return config.family.qk_norm if stands and config.decides(config.family.qk_norm_when) else None


def head_dim(config: Config) -> int:
    """H; where the file does not say, the width over the heads, rounded down."""
    given = config.optional_count("head_dim")
    if given is not None:
        return given
    width, heads = config.count("hidden_size"), config.count("num_attention_heads")
    if heads > width:
        config.refuse("num_attention_heads", heads, f"at most hidden_size = {width}")
    return width // heads


def _latent_attention(config: Config, place: Place) -> MlaSpec:
    """DeepSeek's multi-head latent attention, with the scorer of sparse attention if it has one."""
    indexer = _indexer(config) if config.has("index_n_heads") else None
    return MlaSpec(
        num_heads=config.count("num_attention_heads"),
        q_lora_rank=config.optional_count("q_lora_rank"),
        kv_lora_rank=config.count("kv_lora_rank"),
        qk_nope_head_dim=config.count("qk_nope_head_dim"),
        qk_rope_head_dim=config.count("qk_rope_head_dim"),
        v_head_dim=config.count("v_head_dim"),
        bias=config.flag("attention_bias"),
        indexer=indexer if _scores_keys(config, place) else None,
        selected_keys=indexer.top_k if indexer else 0,
    )


def _indexer(config: Config) -> IndexerSpec:
    return IndexerSpec(
        num_heads=config.count("index_n_heads"),
        head_dim=config.count("index_head_dim"),
        top_k=config.count("index_topk"),
    )


def _scores_keys(config: Config, place: Place) -> bool:
    """Whether the layer picks its keys itself, or reads those an earlier layer picked (GLM-5.2)."""
    count = config.num_layers
    words = config.words("indexer_types", count)
    if words is not None:
        return words[place.index] == "full"
    letters = config.word("index_topk_pattern")
    if letters:
        return place.index >= len(letters) or letters[place.index] == "F"
    every = config.optional_count("index_topk_freq") or 1
    offset = config.count("index_skip_topk_offset", 2, least=0)
    return max(place.index - offset + 1, 0) % every == 0


def _compressed_attention(config: Config, place: Place) -> CompressedAttentionSpec:
    """DeepSeek-V4: one shared key-value head over a window, and over compressed keys beyond it."""
    count, window = config.num_layers, config.count("sliding_window")
    ratios = config.counts("compress_ratios", count)
    words = config.words("layer_types", count)
    if ratios is not None:
        tokens_per_key = ratios[place.index]
    elif words is not None:
        tokens_per_key = _COMPRESSION_WORDS.get(words[place.index], 0)
    else:
        tokens_per_key = 4 if place.index > 1 and place.index % 2 else 128
    return CompressedAttentionSpec(
        num_heads=config.count("num_attention_heads"),
        head_dim=config.count("head_dim"),
        q_lora_rank=config.count("q_lora_rank"),
        output_groups=config.count("o_groups"),
        output_rank=config.count("o_lora_rank"),
        window=window,
        tokens_per_key=tokens_per_key,
        indexer=_indexer(config) if tokens_per_key == _COMPRESSION_WORDS["compressed_sparse_attention"] else None,
    )


def _mamba_1(config: Config) -> MambaSpec:
    width = config.count("hidden_size")
    automatic = config.word("mamba_dt_rank") == "auto" or not config.has("mamba_dt_rank")
    return MambaSpec(
        version=1,
        inner_dim=config.count("mamba_expand") * width,
        state_dim=config.count("mamba_state_dim"),
        conv_kernel=config.count("mamba_conv_kernel"),
        conv_bias=config.flag("mamba_conv_bias", default=True),
        dt_rank=-(-width // 16) if automatic else config.count("mamba_dt_rank"),
        proj_bias=config.flag("mamba_proj_bias"),
        inner_norms=True,
    )


def _mamba_2(config: Config) -> MambaSpec:
    heads = config.count("mamba_num_heads")
    if config.has("mamba_d_ssm"):
        inner = config.count("mamba_d_ssm")
    elif config.family.single_blocks:
        inner = heads * config.count("mamba_head_dim")
    else:
        inner = config.count("mamba_expand") * config.count("hidden_size")
    return MambaSpec(
        version=2,
        inner_dim=inner,
        state_dim=config.count("mamba_state_dim"),
        conv_kernel=config.count("mamba_conv_kernel"),
        conv_bias=config.flag("mamba_conv_bias", default=True),
        num_heads=heads,
        num_groups=config.count("mamba_num_groups", 1),
        proj_bias=config.flag("use_bias") if config.family.single_blocks else config.flag("mamba_proj_bias"),
        gate_norm=config.flag("mamba_rms_norm", default=True),
        chunk_tokens=config.count("mamba_chunk_size", 256),
    )
