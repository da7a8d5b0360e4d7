"""Parameter counts of Hugging Face configs: exactly those of the model the config instantiates.

Golden values come from elsewhere: the models' own code on the meta device (`data/*.json` say how), counts
printed beside published weights, or arithmetic in the test.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ridgeline.errors import InputError
from ridgeline.model.huggingface import read_config
from ridgeline.model.huggingface.reader import spec_from_object
from ridgeline.model.parameters import ParameterCount, count_parameters
from ridgeline.model.tree import model_tree

DATA = Path(__file__).parent / "data"
COUNTS: dict[str, dict[str, Any]] = json.loads((DATA / "huggingface_counts.json").read_text())
DERIVED: dict[str, Any] = json.loads((DATA / "huggingface_derived.json").read_text())


def counted(config: dict[str, Any]) -> ParameterCount:
    return count_parameters(model_tree(spec_from_object(config, name="model", where="config.json")))


@pytest.mark.parametrize("name", COUNTS["models"])
def test_a_published_config_has_the_parameters_its_own_code_instantiates(name: str) -> None:
    count = count_parameters(model_tree(read_config(DATA / "hf_configs" / f"{name}.json")))

    expected = COUNTS["models"][name]
    assert (count.text, count.active) == (expected["params_text"], expected["params_active"])


@pytest.mark.parametrize("name", COUNTS["refused"])
def test_a_config_that_is_no_decoder_with_attention_is_refused_with_the_reason(name: str) -> None:
    reasons = {
        "bart-large": "it is an encoder-decoder",
        "clip-vit-large-patch14": "it is a vision model without a language model",
        "rwkv5-3b": "it has no attention: its layers are recurrent",
        "snowflake-arctic-embed-m": "it is an encoder: it generates no tokens",
        "t5-v1_1-xxl": "it is an encoder-decoder",
        "whisper-tiny": "it is an encoder-decoder",
    }

    with pytest.raises(InputError, match=f"this config.json cannot be planned: {reasons[name]}"):
        read_config(DATA / "hf_configs" / f"{name}.json")


@pytest.mark.parametrize("model_type", DERIVED["defaults"])
def test_a_config_that_says_only_its_family_is_the_familys_default_model(model_type: str) -> None:
    assert counted({"model_type": model_type}).text == DERIVED["defaults"][model_type]


@pytest.mark.parametrize("entry", DERIVED["configs"], ids=lambda entry: entry["name"])
def test_a_config_of_each_family_has_the_parameters_its_own_code_instantiates(entry: dict[str, Any]) -> None:
    assert counted(entry["config"]).text == entry["params"]


def test_a_flat_step_config_is_read_as_it_says() -> None:
    # The published file has no text_config. Its vocabulary of 128,896 is what the weights have; code that
    # looks for a nested object takes the class's 128,815 instead, and counts 81 rows of two tables less.
    flat = {
        "model_type": "step3p7",
        "num_hidden_layers": 45,
        "hidden_size": 4096,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 128896,
        "intermediate_size": 11264,
        "first_k_dense_replace": 3,
        "num_experts": 288,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 1280,
        "share_expert_dim": 1280,
    }

    assert counted(flat).text - 195843833088 == 2 * (128896 - 128815) * 4096


# --- families that transformers does not know -------------------------------------------------------------------------

CHATGLM3_6B = {
    "model_type": "chatglm",
    "add_bias_linear": False,
    "add_qkv_bias": True,
    "ffn_hidden_size": 13696,
    "hidden_size": 4096,
    "kv_channels": 128,
    "multi_query_attention": True,
    "multi_query_group_num": 2,
    "num_attention_heads": 32,
    "num_layers": 28,
    "padded_vocab_size": 65024,
    "post_layer_norm": True,
    "rmsnorm": True,
    "seq_length": 8192,
    "tie_word_embeddings": False,
}
DEEPSEEK_MOE_16B = {
    "model_type": "deepseek",
    "first_k_dense_replace": 1,
    "hidden_size": 2048,
    "intermediate_size": 10944,
    "moe_intermediate_size": 1408,
    "moe_layer_freq": 1,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "num_attention_heads": 16,
    "num_experts_per_tok": 6,
    "num_hidden_layers": 28,
    "num_key_value_heads": 16,
    "tie_word_embeddings": False,
    "vocab_size": 102400,
}
QWEN_7B = {
    "model_type": "qwen",
    "hidden_size": 4096,
    "intermediate_size": 22016,
    "kv_channels": 128,
    "no_bias": True,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "seq_length": 8192,
    "tie_word_embeddings": False,
    "vocab_size": 151936,
}
BAICHUAN_7B = {
    "model_type": "baichuan",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "tie_word_embeddings": False,
    "vocab_size": 64000,
}


@pytest.mark.parametrize(
    ("config", "total"),
    [
        # As the models' own code prints them, in training logs published with ChatGLM3, Baichuan-7B and Qwen-7B.
        (CHATGLM3_6B, 6243584000),
        (BAICHUAN_7B, 7000559616),
        (QWEN_7B, 7721324544),
        (DEEPSEEK_MOE_16B, 16375728128),
    ],
    ids=["chatglm3-6b", "baichuan-7b", "qwen-7b", "deepseek-moe-16b"],
)
def test_a_family_with_its_own_code_has_the_parameters_that_code_prints(config: dict[str, Any], total: int) -> None:
    assert counted(config).total == total


def test_deepseek_moe_activates_six_of_its_experts_and_the_shared_ones() -> None:
    assert counted(DEEPSEEK_MOE_16B).active == 2828650496  # as published with its inference benchmarks


def test_internlm_is_a_llama_with_biases_on_its_attention() -> None:
    internlm = {
        "model_type": "internlm",
        "bias": True,
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "vocab_size": 103168,
    }
    llama = {key: value for key, value in internlm.items() if key != "bias"} | {"model_type": "llama"}

    assert counted(internlm).total - counted(llama).total == 32 * 4 * 4096


def test_orion_is_a_llama_with_biases_in_its_norms() -> None:
    orion = {
        "model_type": "orion",
        "hidden_size": 5120,
        "intermediate_size": 15360,
        "num_attention_heads": 40,
        "num_hidden_layers": 40,
        "num_key_value_heads": 40,
        "vocab_size": 84608,
    }

    assert counted(orion).total - counted({**orion, "model_type": "llama"}).total == (2 * 40 + 1) * 5120


def test_mimo_is_a_qwen2_and_its_prediction_layer_is_not_counted() -> None:
    mimo = {
        "model_type": "mimo",
        "attention_bias": True,
        "head_dim": 128,
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_attention_heads": 32,
        "num_hidden_layers": 36,
        "num_key_value_heads": 8,
        "num_nextn_predict_layers": 1,
        "tie_word_embeddings": False,
        "vocab_size": 151680,
    }

    assert counted(mimo) == counted({**mimo, "model_type": "qwen2", "num_nextn_predict_layers": 0})


def test_arctic_has_480_billion_parameters_of_which_17_are_active() -> None:
    # Snowflake's announcement (April 2024): a 10B dense transformer with 128 experts of 3.66B, top-2;
    # "480B total and 17B active".
    arctic = {
        "model_type": "arctic",
        "hidden_size": 7168,
        "intermediate_size": 4864,
        "moe_layer_frequency": 1,
        "num_attention_heads": 56,
        "num_experts_per_tok": 2,
        "num_hidden_layers": 35,
        "num_key_value_heads": 8,
        "num_local_experts": 128,
        "parallel_attn_mlp_res": True,
        "tie_word_embeddings": False,
        "vocab_size": 32000,
    }
    attention = 7168 * 128 * (56 + 2 * 8) + 56 * 128 * 7168
    experts = 128 * 3 * 7168 * 4864 + 128 * 7168  # with the router
    beside = 3 * 7168 * 7168  # a dense MLP as wide as the model
    norms = 3 * 7168

    count = counted(arctic)

    assert count.total == 35 * (attention + experts + beside + norms) + 2 * 32000 * 7168 + 7168
    assert (round(count.total / 1e9), round(count.active / 1e9)) == (479, 17)


def test_step3_has_316_billion_parameters_in_its_language_model() -> None:
    # Step-3 report (arXiv:2507.19427): 316B in the language model, 38B active per token (the lookup aside).
    step3 = {
        "model_type": "step3_vl",
        "text_config": {
            "model_type": "step3_text",
            "head_dim": 256,
            "hidden_size": 7168,
            "intermediate_size": 18432,
            "moe_intermediate_size": 5120,
            "moe_layers_enum": ",".join(map(str, range(4, 60))),
            "moe_num_experts": 48,
            "moe_top_k": 3,
            "num_attention_groups": 1,
            "num_attention_heads": 64,
            "num_hidden_layers": 61,
            "share_expert_dim": 5120,
            "share_q_dim": 2048,
            "vocab_size": 128815,
        },
        "vision_config": {"hidden_size": 1792},
    }

    count = counted(step3)

    assert (round(count.text / 1e9), round((count.active - count.embedding) / 1e9)) == (316, 38)


def test_a_searched_model_has_the_widths_its_blocks_state() -> None:
    def block(group: int | None, mult: float | None) -> dict[str, Any]:
        return {
            "attention": {"n_heads_in_group": group, "no_op": group is None, "replace_with_linear": False},
            "ffn": {"ffn_mult": mult, "no_op": mult is None, "replace_with_linear": False},
        }

    searched = {
        "model_type": "nemotron-nas",
        "hidden_size": 8192,
        "num_attention_heads": 64,
        "num_key_value_heads": None,
        "intermediate_size": None,
        "num_hidden_layers": 3,
        "vocab_size": 128256,
        "tie_word_embeddings": False,
        "block_configs": [block(8, 5.25), block(None, 2.625), block(16, None)],
    }
    attention = {group: 8192 * 128 * (64 + 2 * 64 // group) + 8192 * 8192 for group in (8, 16)}
    # Two thirds of ffn_mult widths, rounded up to 256: 28,672 is Llama 3.1 70B's own.
    wide, narrow = 3 * 8192 * 28672, 3 * 8192 * 14336

    expected = attention[8] + wide + narrow + attention[16] + 4 * 8192 + 2 * 128256 * 8192 + 8192

    assert counted(searched).total == expected
