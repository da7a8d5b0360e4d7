"""What a checkpoint says of narrow weights, method by method; expectations are the published files' own words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ridgeline.errors import InputError
from ridgeline.model.huggingface.reader import spec_from_object
from ridgeline.model.spec import StoredSpec
from ridgeline.model.zoo import load_model, resolve_model

CONFIGS = Path(__file__).parent / "data" / "hf_configs"

NUM_LAYERS = 4
DIMENSIONS = {
    "model_type": "mixtral",
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_attention_heads": 8,
    "num_hidden_layers": NUM_LAYERS,
    "num_key_value_heads": 2,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "vocab_size": 1000,
}
EIGHT_BITS = StoredSpec(weights="fp8", compute="fp8")
FOUR_BIT_FLOATS = StoredSpec(weights="fp4", compute="fp4")

AS_PUBLISHED = {
    "DeepSeek-V3.2": ("deepseek3.2-671b", EIGHT_BITS),
    "Kimi-K2": ("kimi-k2-1t", EIGHT_BITS),
    "Kimi-K2.5": ("kimi-k2.5-1t", StoredSpec(experts="int4", group_size=32)),
    "MiMo-V2-Flash": ("mimo-v2-flash-309b-a15b", EIGHT_BITS),
    "MiniMax-M2.5": ("minimax-m2.5", EIGHT_BITS),
    "gpt-oss-120b": ("gpt-oss-120b", StoredSpec(experts="mxfp4")),
    "gpt-oss-20b": ("gpt-oss-20b", StoredSpec(experts="mxfp4")),
}
"""Of the published files: blocks of e4m3 in all linear layers; 4 bits in experts, attention left as it was."""


def of_schemes(weights: dict[str, Any], inputs: dict[str, Any] | None = None, **more: object) -> dict[str, object]:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}, **more}


def bits(kind: str, count: int) -> dict[str, object]:
    return {"type": kind, "num_bits": count}


def read(table: dict[str, Any], **more: object) -> tuple[StoredSpec | None, tuple[str, ...]]:
    content: dict[str, Any] = {**DIMENSIONS, "quantization_config": table, **more}
    spec = spec_from_object(content, name="m", where="config.json")
    return spec.stored, spec.notes


@pytest.mark.parametrize("config", AS_PUBLISHED)
def test_the_zoo_and_the_reader_know_what_published_checkpoints_hold(config: str) -> None:
    name, expected = AS_PUBLISHED[config]

    of_file, of_zoo = resolve_model(str(CONFIGS / f"{config}.json")).stored, load_model(name).stored

    assert of_file == expected
    assert of_zoo is not None
    assert replace(of_zoo, source=expected.source) == expected
    assert of_zoo.source.startswith("https://huggingface.co/")


def test_a_checkpoint_that_says_nothing_is_none() -> None:
    assert resolve_model(str(CONFIGS / "Qwen3-235B-A22B.json")).stored is None
    assert load_model("llama3.1-70b").stored is None


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ({"quant_method": "fp8", "activation_scheme": "dynamic"}, EIGHT_BITS),
        ({"quant_method": "fbgemm_fp8"}, EIGHT_BITS),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, StoredSpec(weights="int4")),
        ({"quant_method": "awq", "w_bit": 4}, StoredSpec(weights="int4")),
        ({"quant_method": "AWQ", "w_bit": "4", "q_group_size": 64}, StoredSpec(weights="int4", group_size=64)),
        ({"quant_method": "gptq", "bits": 4, "group_size": -1}, StoredSpec(weights="int4", group_size=512)),
        ({"quant_method": "gptq", "bits": 8}, StoredSpec(weights="int8")),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, EIGHT_BITS),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}, FOUR_BIT_FLOATS),
        (
            {"quant_method": "modelopt_fp4", "quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}},
            replace(FOUR_BIT_FLOATS, kv_cache="fp8"),
        ),
        (of_schemes(bits("float", 8), bits("float", 8)), EIGHT_BITS),
        (of_schemes(bits("int", 8), bits("int", 8)), StoredSpec(weights="int8", compute="int8")),
        (of_schemes(bits("int", 4)), StoredSpec(weights="int4")),
        (of_schemes({**bits("int", 4), "group_size": 64}), StoredSpec(weights="int4", group_size=64)),
        (of_schemes(bits("float", 4), bits("float", 4)), FOUR_BIT_FLOATS),
        (
            of_schemes(bits("float", 8), bits("float", 8), kv_cache_scheme=bits("float", 8)),
            StoredSpec(weights="fp8", compute="fp8", kv_cache="fp8"),
        ),
    ],
    ids=str,
)
def test_each_method_says_its_format(table: dict[str, object], expected: StoredSpec) -> None:
    assert read(table) == (expected, ())


@pytest.mark.parametrize(
    "left_out",
    [
        {"ignore": ["lm_head", "re:.*self_attn.*"]},
        {"modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]},
        {"ignore": [f"model.layers.{layer}.self_attn*" for layer in range(NUM_LAYERS)]},
    ],
    ids=str,
)
def test_where_attention_keeps_its_dtype_experts_alone_are_narrow(left_out: dict[str, object]) -> None:
    stored, _ = read(of_schemes(bits("float", 8), bits("float", 8), **left_out))

    assert stored == StoredSpec(experts="fp8", compute="fp8")


def test_attention_that_is_left_out_in_one_layer_alone_counts_as_narrow() -> None:
    stored, _ = read({"quant_method": "fp8", "modules_to_not_convert": ["model.layers.0.self_attn.q_proj", "lm_head"]})

    assert stored == EIGHT_BITS


def test_experts_of_4_bits_beside_8_are_said_by_a_key_of_their_own() -> None:
    stored, _ = read({"quant_method": "fp8", "fmt": "e4m3"}, expert_dtype="fp4")

    assert stored == StoredSpec(weights="fp8", experts="fp4", compute="fp8")


@pytest.mark.parametrize(
    "table",
    [
        {"quant_method": "bitsandbytes", "load_in_4bit": True},
        {"quant_method": "gptq", "bits": 3},
        {"quant_method": "awq"},
        {"quant_method": "awq", "bits": "four"},
        {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"},
        {"bits": 4},
        of_schemes(bits("float", 3)),
        of_schemes({"type": ["float"], "num_bits": "8"}),
        {"quant_method": "compressed-tensors", "config_groups": {"a": None}},
        {
            "quant_method": "compressed-tensors",
            "config_groups": {"a": {"weights": bits("int", 4)}, "b": {"weights": bits("float", 8)}},
        },
    ],
    ids=str,
)
def test_a_format_that_is_not_known_is_named_and_not_guessed(table: dict[str, object]) -> None:
    stored, notes = read(table)

    assert stored is None
    method = table.get("quant_method", "a method without a name")
    assert notes[-1] == (
        f"the checkpoint is quantized by {method}, in a form that is not known here: its weights are taken as bf16; "
        "say plan.dtypes"
    )


@pytest.mark.parametrize("table", [None, {}], ids=str)
def test_an_empty_table_says_nothing(table: object) -> None:
    spec = spec_from_object({**DIMENSIONS, "quantization_config": table}, name="m", where="config.json")  # pyright: ignore[reportArgumentType] - as files have it

    assert spec.stored is None


@pytest.mark.parametrize("table", ["awq", ["awq"], [], 5, True], ids=str)
def test_what_is_no_table_is_refused(table: object) -> None:
    with pytest.raises(InputError, match=r"config\.json: quantization_config"):
        spec_from_object({**DIMENSIONS, "quantization_config": table}, name="m", where="config.json")  # pyright: ignore[reportArgumentType] - as files have it


def test_a_method_that_is_no_word_is_refused() -> None:
    with pytest.raises(InputError, match=r"config\.json: quant_method"):
        read({"quant_method": {"a": 1}})


@pytest.mark.parametrize("size", [0, -7, "big", 1e18, 513, True], ids=str)
def test_a_group_is_from_1_weight_to_a_row_of_the_matrix(size: object) -> None:
    for table in (
        {"quant_method": "awq", "bits": 4, "group_size": size},
        of_schemes({**bits("int", 4), "group_size": size}),
    ):
        with pytest.raises(InputError, match=r"config\.json: group_size"):
            read(table)


def test_experts_in_mxfp4_of_a_model_without_experts_are_nothing_and_it_says_so() -> None:
    dense = {"model_type": "llama", "num_local_experts": None, "num_experts_per_tok": None}
    stored, notes = read({"quant_method": "mxfp4"}, **dense)

    assert stored is None
    assert notes[-1] == "mxfp4 is of experts alone, and there are none: the weights are taken as bf16"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Qwen/Qwen3-235B-A22B-FP8", EIGHT_BITS),
        ("amd/Llama-3.3-70B-Instruct-FP8-KV", StoredSpec(weights="fp8", compute="fp8", kv_cache="fp8")),
        ("nvidia/Llama-3.1-70B-Instruct-FP4", StoredSpec(weights="fp4", compute="fp4")),
        ("nvidia/DeepSeek-R1-0528-NVFP4", StoredSpec(experts="fp4", compute="fp4")),
        ("meta/Llama-3.1-70B-W8A8", StoredSpec(weights="int8", compute="int8")),
        ("Qwen/Qwen3-32B-AWQ", StoredSpec(weights="int4")),
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int8", StoredSpec(weights="int8")),
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4", StoredSpec(weights="int4")),
        ("Qwen3-32B-FP8-INT4", None),
    ],
)
def test_a_name_says_what_its_checkpoint_holds(name: str, expected: StoredSpec | None) -> None:
    assert load_model(name).stored == (expected and replace(expected, source=f"the name {name}"))


def test_a_name_goes_before_what_is_published_under_the_model_s_own() -> None:
    assert load_model("unsloth/DeepSeek-V3-bf16").stored is None
    assert load_model("deepseek-ai/DeepSeek-V3").stored == load_model("deepseek3-671b").stored
    own = load_model("gpt-oss-120b").stored
    assert load_model("openai/gpt-oss-120b-mxfp4").stored == own
