"""What `ridgeline model` shows: totals, layers and parts, and the same as JSON in base units."""

import json
from typing import Any

import pytest

from ridgeline.job.job import Dtype
from ridgeline.model.zoo import load_model
from ridgeline.report.blocks import Table
from ridgeline.report.model import ModelAnswer, model_answer, model_json, model_report, names_report
from ridgeline.report.terminal import render


def answer(name: str, *, seq_len: int = 8192, dtype: Dtype = "bf16") -> ModelAnswer:
    return model_answer(load_model(name), seq_len=seq_len, dtype=dtype)


def screen(name: str, *, seq_len: int = 8192) -> str:
    return render(model_report(answer(name, seq_len=seq_len)), width=100, colour=False)


def parsed(name: str, *, seq_len: int = 8192, dtype: Dtype = "bf16") -> dict[str, Any]:
    """What a program reads."""
    return json.loads(json.dumps(model_json(answer(name, seq_len=seq_len, dtype=dtype)), allow_nan=False))


def test_the_screen_opens_with_what_the_model_is_and_asks_for() -> None:
    lines = [line.strip() for line in screen("llama3.1-70b").splitlines()]

    assert lines[0] == "llama3.1-70b · 80 layers, width 8,192, vocabulary 128,256"
    assert "parameters       70.6B  (70,553,706,496)" in lines
    assert "KV cache         320 KiB a token, 2.50 GiB a sequence (bf16)" in lines


def test_the_screen_names_every_kind_of_layer_once() -> None:
    text = screen("deepseek3-671b")

    assert "dense_layer   3  MLA, 128 heads, cache of 512 + 64  gated MLP 18,432" in text
    assert "8 of 256 experts 2,048" in text
    assert "1 multi-token-prediction head predicts beside the model; not counted." in text


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gemma3-27b", "attention, 32 heads (16 KV) of 128, last 1,024"),
        ("llama4-17b-16e", "chunks of 8,192"),
        ("qwen3-next-80b-a3b", "gated delta rule, 32 heads of 128"),
        ("qwen3-next-80b-a3b", "includes recurrent states"),
        ("gemma3-27b", "Windows cap the cache"),
        ("deepseek3.2-671b", "best 2,048 keys"),
        ("mpt-7b", "plain MLP 16,384"),
        ("gemma4-26b", "dense 2,112"),
    ],
)
def test_the_screen_says_what_is_special(name: str, words: str) -> None:
    assert words in " ".join(screen(name).split())


def test_a_sequence_beyond_the_models_context_is_remarked_on() -> None:
    remark = "The model was made for sequences of up to 8,192 tokens."

    assert remark in screen("llama3-8b", seq_len=8193)
    assert remark not in screen("llama3-8b", seq_len=8192)


def test_no_line_of_the_screen_is_wider_than_the_screen() -> None:
    assert max(map(len, screen("deepseek3-671b").splitlines())) <= 100


def test_json_has_the_keys_that_stay() -> None:
    stay = {
        "name",
        "params_total",
        "params_text",
        "params_active",
        "flops_per_token_forward",
        "flops_per_token_training",
        "kv_cache_bytes_per_token",
        "parts",
    }

    assert stay <= set(parsed("llama3.1-8b"))


@pytest.mark.parametrize("name", ["llama3.1-8b", "gpt3-175b", "deepseek3-671b", "gemma3-12b", "qwen3.5-35b-a3b"])
def test_parts_of_the_json_sum_to_its_totals(name: str) -> None:
    whole = parsed(name)
    totals = {
        "params": "params_total",
        "params_active": "params_active",
        "flops_per_token_forward": "flops_per_token_forward",
        "flops_per_token_training": "flops_per_token_training",
        "kv_cache_bytes_per_token": "kv_cache_bytes_per_token",
        "kv_cache_bytes_per_sequence": "kv_cache_bytes_per_sequence",
        "activation_bytes_per_token": "activation_bytes_per_token",
    }

    for part, total in totals.items():
        assert sum(item[part] for item in whole["parts"]) == pytest.approx(whole[total])


def test_bytes_follow_the_dtype_and_counts_do_not() -> None:
    wide, narrow = parsed("llama3.1-8b", dtype="f32"), parsed("llama3.1-8b", dtype="fp8")

    assert wide["kv_cache_bytes_per_token"] == 4 * narrow["kv_cache_bytes_per_token"]
    assert wide["activation_bytes_per_token"] == 4 * narrow["activation_bytes_per_token"]
    assert wide["params_total"] == narrow["params_total"]
    assert wide["flops_per_token_training"] == narrow["flops_per_token_training"]


def test_full_rematerialisation_keeps_the_input_of_every_layer() -> None:
    kept = parsed("llama3.1-70b")["activation_bytes_per_token_by_remat"]

    assert kept["full"] == 80 * 8192 * 2
    assert kept["full"] < kept["minimal"] < parsed("llama3.1-70b")["activation_bytes_per_token"]


def test_the_convention_of_maxtext_is_the_planners_own() -> None:
    whole = parsed("gemma3-27b", seq_len=32768)

    assert whole["flops_per_token_training_by_convention"]["maxtext"] == whole["flops_per_token_training"]


def test_names_are_listed_by_family() -> None:
    (table,) = names_report(["llama3-8b", "llama3-70b", "palm-8b"]).pieces

    assert isinstance(table, Table)
    assert [row[1].text for row in table.rows] == ["llama3-8b  llama3-70b", "palm-8b"]
