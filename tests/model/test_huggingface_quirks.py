"""Oddities met in real config.json files, one test per kind."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from ridgeline.errors import InputError
from ridgeline.model.huggingface import read_config
from ridgeline.model.huggingface.reader import spec_from_object
from ridgeline.model.operations import Attention, Span
from ridgeline.model.parameters import count_parameters, counted_operations
from ridgeline.model.spec import (
    AttentionSpec,
    CompressedAttentionSpec,
    GatedDeltaSpec,
    MambaSpec,
    MlaSpec,
    MlpSpec,
    ModelSpec,
    MoeSpec,
)
from ridgeline.model.tree import model_tree

if TYPE_CHECKING:
    from pathlib import Path

    from ridgeline.model.spec import LayerSpec

DIMENSIONS = {
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_attention_heads": 8,
    "num_hidden_layers": 12,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
}
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 256}


def spec(without: tuple[str, ...] = (), **keys: object) -> ModelSpec:
    config = {key: value for key, value in {**DIMENSIONS, **keys}.items() if key not in without}
    return spec_from_object(config, name="model", where="config.json")


def layers(model: ModelSpec) -> list[LayerSpec]:
    return [layer for layer, count in model.layers for _ in range(count)]


def attentions(model: ModelSpec) -> list[AttentionSpec]:
    return [layer.mixer for layer in layers(model) if isinstance(layer.mixer, AttentionSpec)]


def total(model: ModelSpec) -> int:
    return count_parameters(model_tree(model)).total


def letters(model: ModelSpec) -> str:
    """One letter for each layer: L for a window, G for all keys."""
    return "".join("L" if attention.span.kind == "sliding" else "G" for attention in attentions(model))


def sparse(model: ModelSpec) -> str:
    """One letter for each layer: d for dense, m for experts."""
    return "".join("m" if isinstance(layer.mlp, MoeSpec) else "d" for layer in layers(model))


# --- attention --------------------------------------------------------------------------------------------------------


def test_an_absent_head_dim_is_the_width_over_the_heads() -> None:
    assert {attention.head_dim for attention in attentions(spec())} == {64}


def test_a_head_dim_may_make_the_heads_wider_than_the_model() -> None:
    assert {attention.head_dim for attention in attentions(spec(head_dim=256))} == {256}


def test_a_family_has_its_own_default_for_an_absent_head_dim() -> None:
    assert {attention.head_dim for attention in attentions(spec(model_type="qwen3"))} == {128}


def test_absent_key_value_heads_are_as_many_as_the_query_heads() -> None:
    assert {attention.num_kv_heads for attention in attentions(spec(without=("num_key_value_heads",)))} == {8}


def test_key_value_heads_that_are_null_are_as_many_as_the_query_heads_even_where_the_default_is_fewer() -> None:
    # Mistral's default is 8 key-value heads; a null says multi-head attention.
    model = spec(model_type="mistral", num_attention_heads=16, num_key_value_heads=None)

    assert {attention.num_kv_heads for attention in attentions(model)} == {16}


def test_a_flag_says_multi_query_attention() -> None:
    bigcode = spec_from_object({"model_type": "gpt_bigcode"}, name="model", where="config.json")

    assert {attention.num_kv_heads for attention in attentions(bigcode)} == {1}


def test_falcons_newer_architecture_has_key_value_heads_in_spite_of_its_multi_query_flag() -> None:
    falcon = {"model_type": "falcon", "multi_query": True, "num_kv_heads": 8, "n_head": 64, "hidden_size": 4096}
    model = spec_from_object({**falcon, "new_decoder_architecture": True}, name="model", where="config.json")

    assert {attention.num_kv_heads for attention in attentions(model)} == {8}
    assert {layer.pre_norms for layer in layers(model)} == {2}


def test_a_latent_rank_means_multi_head_latent_attention() -> None:
    model = spec(
        model_type="deepseek_v3",
        kv_lora_rank=64,
        q_lora_rank=None,
        qk_nope_head_dim=32,
        qk_rope_head_dim=16,
        v_head_dim=32,
        num_hidden_layers=4,
    )

    mixers = [layer.mixer for layer in layers(model)]

    assert all(isinstance(mixer, MlaSpec) and mixer.q_lora_rank is None for mixer in mixers)


def test_layers_that_share_a_scorer_have_none_of_their_own_but_read_as_few_keys() -> None:
    model = spec_from_object(
        {"model_type": "glm_moe_dsa", "num_hidden_layers": 4, "indexer_types": ["full", "shared", "shared", "full"]},
        name="model",
        where="config.json",
    )

    mixers = [layer.mixer for layer in layers(model) if isinstance(layer.mixer, MlaSpec)]

    assert [mixer.indexer is not None for mixer in mixers] == [True, False, False, True]
    assert {mixer.selected_keys for mixer in mixers} == {2048}


def test_compressed_attention_merges_tokens_by_the_ratio_of_each_layer() -> None:
    model = spec_from_object(
        {"model_type": "deepseek_v4", "num_hidden_layers": 3, "compress_ratios": [0, 4, 128, 0]},
        name="model",
        where="config.json",
    )

    mixers = [layer.mixer for layer in layers(model) if isinstance(layer.mixer, CompressedAttentionSpec)]

    assert [(mixer.tokens_per_key, mixer.indexer is not None) for mixer in mixers] == [
        (0, False),
        (4, True),
        (128, False),
    ]


def test_cross_attention_layers_read_another_modality_and_cache_nothing_per_token() -> None:
    model = spec_from_object(
        {"model_type": "mllama", "text_config": {"num_hidden_layers": 5, "cross_attention_layers": [3]}},
        name="model",
        where="config.json",
    )

    assert [attention.cross for attention in attentions(model)] == [False, False, False, True, False]
    scores = [operation for operation, _ in counted_operations(model_tree(model)) if isinstance(operation, Attention)]
    assert [operation.cached for operation in scores] == [True, False]


def test_layers_that_reuse_keys_have_no_key_projections_of_their_own() -> None:
    model = spec_from_object(
        {"model_type": "gemma4_text", "num_hidden_layers": 12, "num_kv_shared_layers": 2},
        name="model",
        where="config.json",
    )

    assert [attention.own_kv for attention in attentions(model)] == [True] * 10 + [False] * 2


# --- windows ----------------------------------------------------------------------------------------------------------


def test_a_window_binds_every_layer_of_mistral() -> None:
    assert letters(spec(model_type="mistral", sliding_window=4096)) == "L" * 12


def test_a_window_that_is_switched_off_binds_no_layer() -> None:
    assert letters(spec(model_type="qwen2", sliding_window=4096, use_sliding_window=False)) == "G" * 12


def test_a_window_of_qwen_binds_the_layers_from_max_window_layers_on() -> None:
    model = spec(model_type="qwen2", sliding_window=4096, use_sliding_window=True, max_window_layers=8)

    assert letters(model) == "G" * 8 + "L" * 4


def test_a_window_as_long_as_the_context_is_none() -> None:
    assert letters(spec(model_type="phi3", sliding_window=4096, max_position_embeddings=4096)) == "G" * 12


def test_a_list_of_layer_types_says_which_layers_a_window_binds() -> None:
    kinds = ["sliding_attention", "full_attention"] * 6

    model = spec(model_type="gpt_oss", sliding_window=128, layer_types=kinds)

    assert letters(model) == "LG" * 6
    assert attentions(model)[0].span == Span(kind="sliding", window=128)


def test_a_window_pattern_leaves_every_nth_layer_global() -> None:
    assert letters(spec(model_type="gemma3_text", sliding_window_pattern=6)) == "LLLLLG" * 2


def test_gemma_2_alternates_without_saying_so() -> None:
    assert letters(spec(model_type="gemma2")) == "LG" * 6


def test_a_window_pattern_may_be_a_string() -> None:
    assert letters(spec(model_type="exaone4", sliding_window_pattern="LLLG", sliding_window=4096)) == "LLLG" * 3


def test_a_hybrid_layer_pattern_is_one_where_a_window_binds() -> None:
    model = spec(model_type="mimo_v2_flash", hybrid_layer_pattern=[0, 1, 1] * 4, swa_num_key_value_heads=4)

    assert letters(model) == "GLL" * 4
    assert [attention.num_kv_heads for attention in attentions(model)][:3] == [2, 4, 4]
    assert [attention.sinks for attention in attentions(model)][:3] == [False, True, True]


def test_gpt_neo_repeats_a_list_of_kinds() -> None:
    model = spec(model_type="gpt_neo", attention_types=[[["global", "local"], 6]], num_key_value_heads=8)

    assert letters(model) == "GL" * 6


def test_llama_4_is_chunked_except_where_it_has_no_positions() -> None:
    model = spec(model_type="llama4_text", **EXPERTS, attention_chunk_size=8192)

    spans = [attention.span.kind for attention in attentions(model)]

    assert spans == ["chunked", "chunked", "chunked", "causal"] * 3
    assert [attention.rotary for attention in attentions(model)] == [True, True, True, False] * 3


def test_a_list_says_which_layers_have_no_positions() -> None:
    model = spec(model_type="smollm3", no_rope_layers=[1, 1, 1, 0] * 3)

    assert [attention.rotary for attention in attentions(model)] == [True, True, True, False] * 3


# --- experts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"])
def test_the_number_of_experts_goes_by_several_names(key: str) -> None:
    model = spec(**{key: 8}, num_experts_per_tok=2, moe_intermediate_size=256)

    assert {layer.mlp.num_experts for layer in layers(model) if isinstance(layer.mlp, MoeSpec)} == {8}


@pytest.mark.parametrize("key", ["num_experts_per_tok", "experts_per_token", "top_k_experts", "moe_k", "moe_topk"])
def test_the_experts_a_token_visits_go_by_several_names(key: str) -> None:
    model = spec(num_experts=8, **{key: 3}, moe_intermediate_size=256)

    assert {layer.mlp.top_k for layer in layers(model) if isinstance(layer.mlp, MoeSpec)} == {3}


def test_without_a_width_of_their_own_experts_have_the_intermediate_size() -> None:
    model = spec(model_type="mixtral", num_local_experts=8, num_experts_per_tok=2)

    assert {layer.mlp.expert_mlp_dim for layer in layers(model) if isinstance(layer.mlp, MoeSpec)} == {1024}


def test_a_number_of_experts_that_is_null_means_a_dense_model() -> None:
    assert sparse(spec(model_type="gemma4_text", num_experts=None, enable_moe_block=False)) == "d" * 12


def test_leading_layers_are_dense() -> None:
    assert sparse(spec(**EXPERTS, first_k_dense_replace=3)) == "ddd" + "m" * 9


def test_a_list_says_which_layers_have_experts() -> None:
    assert sparse(spec(**EXPERTS, moe_layer_freq=[0, 1, 1] * 4)) == "dmm" * 4


def test_a_list_of_mlp_types_says_which_layers_have_experts() -> None:
    assert sparse(spec(**EXPERTS, mlp_layer_types=["dense", "sparse"] * 6)) == "dm" * 6


def test_a_list_of_numbers_as_text_says_which_layers_have_experts() -> None:
    assert sparse(spec(**EXPERTS, moe_layers_enum="1,3,11")) == "dmdm" + "d" * 7 + "m"


def test_experts_may_stand_in_every_nth_layer() -> None:
    assert sparse(spec(**EXPERTS, decoder_sparse_step=2)) == "dm" * 6
    assert sparse(spec(**EXPERTS, interleave_moe_layer_step=3)) == "ddm" * 4
    assert sparse(spec(**EXPERTS, expert_layer_period=2, expert_layer_offset=1)) == "dm" * 6


def test_some_layers_may_be_exempt_from_experts() -> None:
    assert sparse(spec(model_type="qwen3_moe", **EXPERTS, mlp_only_layers=[0, 11])) == "d" + "m" * 10 + "d"


def test_experts_may_stand_between_two_layers() -> None:
    model = spec(model_type="ernie4_5_moe", **EXPERTS, moe_layer_start_index=2, moe_layer_end_index=9)

    assert sparse(model) == "dd" + "m" * 8 + "dd"


def test_the_number_of_experts_may_be_a_list() -> None:
    model = spec(model_type="hunyuan_v1_moe", num_experts=[4, 8] * 6, moe_topk=[1, 2] * 6)

    experts = [layer.mlp for layer in layers(model) if isinstance(layer.mlp, MoeSpec)]

    assert [(moe.num_experts, moe.top_k) for moe in experts] == [(4, 1), (8, 2)] * 6


# --- hybrids ----------------------------------------------------------------------------------------------------------


def test_a_pattern_of_letters_gives_each_layer_one_block() -> None:
    model = spec_from_object(
        {"model_type": "nemotron_h", "hybrid_override_pattern": "M-*E", "num_hidden_layers": 4},
        name="model",
        where="config.json",
    )

    kinds = [(type(layer.mixer), type(layer.mlp)) for layer in layers(model)]

    assert kinds == [
        (MambaSpec, type(None)),
        (type(None), MlpSpec),
        (AttentionSpec, type(None)),
        (type(None), MoeSpec),
    ]


def test_a_list_of_block_types_is_as_good_as_a_pattern_of_letters() -> None:
    base = {"model_type": "nemotron_h", "num_hidden_layers": 4}
    listed = {**base, "layers_block_type": ["mamba", "mlp", "attention", "moe"]}

    def read(config: dict[str, Any]) -> ModelSpec:
        return spec_from_object(config, name="model", where="config.json")

    assert read(listed) == read({**base, "hybrid_override_pattern": "M-*E"})


def test_attention_stands_once_in_a_period_of_jamba() -> None:
    model = spec_from_object({"model_type": "jamba", "num_hidden_layers": 16}, name="model", where="config.json")

    places = [index for index, layer in enumerate(layers(model)) if isinstance(layer.mixer, AttentionSpec)]

    assert places == [4, 12]


def test_an_interval_says_where_full_attention_stands_among_linear_layers() -> None:
    model = spec(model_type="qwen3_next", full_attention_interval=3)

    assert [isinstance(layer.mixer, GatedDeltaSpec) for layer in layers(model)] == [True, True, False] * 4


def test_two_mixers_may_run_side_by_side() -> None:
    model = spec_from_object({"model_type": "falcon_h1", "num_hidden_layers": 2}, name="model", where="config.json")

    (layer,) = model_tree(model).layers

    assert [block.name for block in layer.blocks] == ["hybrid", "mlp"]
    assert {op.path.split("/")[0] for op in layer.blocks[0].operations} >= {"attention", "mamba"}


# --- the file ---------------------------------------------------------------------------------------------------------


def test_the_decoder_may_be_nested_under_text_config() -> None:
    nested = {"model_type": "qwen3_vl", "text_config": {**DIMENSIONS, "model_type": "qwen3_vl_text"}}

    model = spec_from_object({**nested, "vision_config": {"depth": 2}}, name="model", where="config.json")

    assert model.embed_dim == 512
    assert "only the language model is read; left out: vision_config" in model.notes


def test_a_flag_for_tied_tables_may_stand_only_at_the_top() -> None:
    nested = {"model_type": "llava", "text_config": DIMENSIONS}

    tied, untied = (
        spec_from_object({**nested, "tie_word_embeddings": flag}, name="model", where="config.json")
        for flag in (True, False)
    )

    assert total(untied) - total(tied) == 1000 * 512


def test_an_absent_flag_for_tied_tables_is_the_familys_own() -> None:
    assert [spec(model_type=name).tied_embeddings for name in ("llama", "gemma", "gpt2", "mpt")] == [
        *(False, True, True, True),
    ]


def test_keys_have_older_names() -> None:
    old = {
        "model_type": "gpt2",
        "n_embd": 768,
        "n_head": 12,
        "n_layer": 12,
        "n_inner": None,
        "n_positions": 1024,
        "vocab_size": 50257,
    }

    assert total(spec_from_object(old, name="gpt2", where="config.json")) == 124439808


def test_nested_objects_hold_some_keys() -> None:
    dbrx = {
        "model_type": "dbrx",
        "d_model": 512,
        "n_heads": 8,
        "n_layers": 2,
        "vocab_size": 1000,
        "attn_config": {"kv_n_heads": 2},
        "ffn_config": {"ffn_hidden_size": 256, "moe_num_experts": 4, "moe_top_k": 2},
    }

    (layer, count), *_ = spec_from_object(dbrx, name="model", where="config.json").layers

    assert count == 2
    assert isinstance(layer.mixer, AttentionSpec)
    assert layer.mixer.num_kv_heads == 2
    assert layer.mlp == MoeSpec(num_experts=4, top_k=2, expert_mlp_dim=256)


def test_a_vocabulary_need_not_be_a_multiple_of_anything() -> None:
    assert spec(vocab_size=50257).vocab_size == 50257


@pytest.mark.parametrize(
    "oddity",
    [
        {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}},
        {"rope_scaling": {"type": "longrope", "short_factor": [1.0]}},
        {"rope_scaling": {"type": "yarn", "factor": 40}},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
        {"dtype": "bfloat16"},
        {"torch_dtype": "float16"},
        {"auto_map": {"AutoModel": "modeling_x.X"}},
        {"architectures": None},
    ],
    ids=str,
)
def test_keys_that_do_not_shape_the_decoder_change_nothing(oddity: dict[str, Any]) -> None:
    assert spec(**oddity) == spec()


def test_infinity_is_a_number_of_real_files(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(DIMENSIONS)[:-1] + ', "time_step_limit": [0.0, Infinity]}')

    assert read_config(path).num_layers == 12


def test_a_model_is_named_after_its_file_or_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "my-model"
    folder.mkdir()
    for path in (folder / "config.json", tmp_path / "other.json"):
        path.write_text(json.dumps(DIMENSIONS))

    assert read_config(folder / "config.json").name == "my-model"
    assert read_config(tmp_path / "other.json").name == "other"


def test_prediction_layers_are_noted_and_not_counted() -> None:
    model = spec(num_nextn_predict_layers=1)

    assert model.mtp_layers == 1
    assert "1 multi-token-prediction layer(s) are not counted" in model.notes
    assert total(model) == total(spec())


def test_lists_may_go_on_with_the_prediction_layers() -> None:
    kinds = ["sliding_attention", "full_attention"] * 7

    assert letters(spec(model_type="gpt_oss", sliding_window=128, layer_types=kinds)) == "LG" * 6


def test_what_a_file_leaves_to_its_family_is_noted() -> None:
    model = spec(without=("hidden_size", "vocab_size"))

    assert (model.embed_dim, model.vocab_size) == (4096, 32000)
    assert model.notes == ("not in the file, taken from the family's defaults: hidden_size, vocab_size",)


def test_an_unknown_family_with_llamas_keys_is_read_as_one_and_noted() -> None:
    model = spec(model_type="llama_of_tomorrow")

    assert model.layers == spec().layers
    assert model.notes == ("model_type llama_of_tomorrow is not known: read as a Llama-like decoder",)


def test_a_file_without_a_model_type_is_known_by_its_class() -> None:
    model = spec(without=("model_type",), architectures=["Qwen2ForCausalLM"])

    assert {attention.qkv_bias for attention in attentions(model)} == {True}
    assert model.notes == ()


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"model_type": "future", "mamba_d_state": 16}, "its family is not known and mamba_d_state tells of layers"),
        ({"model_type": "future", "vocab_size": None}, "its family is not known and it lacks vocab_size"),
        ({"model_type": "future", "architectures": ["FutureForMaskedLM"]}, "it has no language-model head"),
        ({"model_type": "future", "is_encoder_decoder": True}, "it is an encoder-decoder"),
        ({"model_type": "kimi_linear"}, "its layers are of a kind that Ridgeline does not read yet"),
        ({"model_type": "t5", "d_ff": 1024}, "it is an encoder-decoder"),
        ({"model_type": "llama", "peft_type": "LORA"}, "it is an adapter's config"),
        ({"model_type": None, "_class_name": "UNet2DConditionModel"}, "it is a diffusion model"),
        ({"weight_map": {}}, "it is the index of a checkpoint"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_reason(keys: dict[str, Any], reason: str) -> None:
    without = tuple(key for key, value in keys.items() if value is None)

    with pytest.raises(InputError, match=f"this config.json cannot be planned: {reason}"):
        spec(without=without, **keys)
