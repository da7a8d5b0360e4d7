"""What a serving device holds and computes, by hand for Llama 3.1 8B, and laws that hold for every split."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.cost.serving.device import (
    LANES,
    PhaseColumns,
    ServingSetting,
    held_weight_bytes,
    key_flops,
    serving_flops,
    serving_memory,
)
from ridgeline.job.serving import ServingDtypes
from ridgeline.model.accounting import account
from ridgeline.model.operations import Attention
from ridgeline.model.tree import model_tree
from ridgeline.model.zoo import load_model

if TYPE_CHECKING:
    from ridgeline.job.job import Dtype

LLAMA = load_model("llama3.1-8b")
PARAMETERS = 8_030_261_248
"""https://huggingface.co/meta-llama/Llama-3.1-8B, in its safetensors index."""

degrees = st.sampled_from([1, 2, 4, 8])


def setting(model: str = "llama3.1-8b", *, kv_cache: Dtype = "bf16", prompt_len: int = 1024) -> ServingSetting:
    return ServingSetting(
        tree=model_tree(load_model(model)),
        dtypes=ServingDtypes(kv_cache=kv_cache),
        context_len=2 * prompt_len,
        prompt_len=prompt_len,
    )


def parts(columns: PhaseColumns, *, kv_cache: Dtype = "bf16") -> dict[str, float]:
    memory = serving_memory(setting(kv_cache=kv_cache), columns, "decode")
    return {name: float(part) for name, part in memory.parts.items()}


def test_weights_and_cache_of_a_device_are_those_counted_by_hand() -> None:
    found = parts(PhaseColumns(degrees={"tp": 4}, batch_size=32))

    # All matrices are shared out by 4; norms (65 of 4,096 scales) are on every device.
    norms = 65 * 4096
    assert found["weights"] == 2 * ((PARAMETERS - norms) / 4 + norms)
    # 2 (key, value) · 2 bytes · 32 layers · 32 sequences · 2,048 tokens · 8 heads · 128, over 4 devices: 2 GiB.
    assert found["kv_cache"] == 2 * 2**30
    assert found["logits"] == 2 * 32 * 128_256 / 4


def test_beyond_its_key_value_heads_a_device_saves_weights_and_no_cache() -> None:
    eight, sixteen = (parts(PhaseColumns(degrees={"tp": tensor}, batch_size=32)) for tensor in (8, 16))

    assert sixteen["kv_cache"] == eight["kv_cache"]
    # Keys and values of 32 layers, 2 · 4,096 · 8 · 128 elements each, stay split over 8.
    keys_and_values = 32 * 2 * 4096 * 8 * 128
    norms = 65 * 4096
    assert eight["weights"] - sixteen["weights"] == pytest.approx(
        2 * (PARAMETERS - norms - keys_and_values) * (1 / 8 - 1 / 16)
    )


@pytest.mark.parametrize(
    ("weights", "group_size", "as_published", "matrix_bytes", "vocabulary_bytes"),
    [
        ("int4", 128, True, 0.5 + 2.5 / 128, 2),
        ("int4", 128, False, 0.5 + 2.5 / 128, 2),
        ("int4", 32, True, 0.5 + 2.5 / 32, 2),
        ("int8", 128, True, 1, 2),
        ("int8", 128, False, 1, 1),
    ],
)
def test_integer_checkpoints_keep_a_wide_vocabulary_and_a_scale_and_a_zero_point_for_each_group(
    weights: Dtype, group_size: int, *, as_published: bool, matrix_bytes: float, vocabulary_bytes: float
) -> None:
    narrow = replace(
        setting(),
        dtypes=ServingDtypes(weights=weights),
        int4_group_size=group_size,
        keeps_wide_vocabulary=as_published,
    )
    held = float(held_weight_bytes(narrow, PhaseColumns(degrees={}, batch_size=1)))

    # Embedding and head have 128,256 rows of 4,096; a scale is of 2 bytes, a zero point of half a byte.
    vocabulary = 2 * 128_256 * 4096
    assert held == (PARAMETERS - vocabulary) * matrix_bytes + vocabulary * vocabulary_bytes


def test_a_cache_in_8_bits_is_half_as_large_and_has_scales() -> None:
    columns = PhaseColumns(degrees={"tp": 8}, batch_size=8)
    wide, narrow = parts(columns)["kv_cache"], parts(columns, kv_cache="int8")["kv_cache"]

    assert narrow == wide * (1 / 2 + 4 / (2 * 128))  # a scale of 4 bytes for 128 elements


def test_engines_keep_one_scale_for_a_whole_cache_in_fp8_where_our_program_has_one_a_head_and_token() -> None:
    columns, engine = PhaseColumns(degrees={"tp": 8}, batch_size=8), setting(kv_cache="fp8")
    wide = parts(columns)["kv_cache"]

    assert serving_memory(engine, columns, "decode").parts["kv_cache"] == wide / 2
    program = replace(engine, scaled_caches=("int8", "fp8"))
    assert serving_memory(program, columns, "decode").parts["kv_cache"] == wide * (1 / 2 + 4 / (2 * 128))


@pytest.mark.parametrize(("model", "times"), [("llama3.1-8b", 1), ("gpt-oss-120b", 2), ("deepseek3-671b", 640 / 576)])
def test_on_a_tpu_heads_fill_rows_of_memory(model: str, times: float) -> None:
    columns, plain = PhaseColumns(degrees={}, batch_size=1), setting(model)
    exact = serving_memory(plain, columns, "decode").parts["kv_cache"]
    padded = serving_memory(replace(plain, row_elements=LANES), columns, "decode").parts["kv_cache"]

    assert padded == pytest.approx(times * exact)


def test_layers_with_a_window_keep_no_more_than_it() -> None:
    gemma = setting("gemma3-4b", prompt_len=8192)
    memory = serving_memory(gemma, PhaseColumns(degrees={}, batch_size=1), "decode")

    # 34 layers, every sixth sees all 16,384 tokens, the others 1,024; 4 heads of 256.
    assert memory.parts["kv_cache"] == 2 * 2 * 4 * 256 * (5 * 16_384 + 29 * 1024)


@given(tensor=degrees, data=degrees)
def test_devices_together_hold_what_the_model_counts(tensor: int, data: int) -> None:
    found = parts(PhaseColumns(degrees={"tp": tensor, "dp": data}, batch_size=16))
    counted = account(model_tree(LLAMA), embed_dim=LLAMA.embed_dim, seq_len=2048)

    assert found["kv_cache"] * tensor * data == 2 * 16 * counted.cache_elements_per_sequence


@given(tensor=degrees, data=degrees)
def test_devices_together_compute_what_one_would(tensor: int, data: int) -> None:
    def flops(**mesh: int) -> float:
        columns = PhaseColumns(degrees=mesh, batch_size=16)
        return sum(float(serving_flops(setting(), columns, phase, block_keys=512)) for phase in ("prefill", "decode"))

    assert flops(tp=tensor, dp=data) * tensor * data == pytest.approx(flops())


def test_a_step_of_decoding_multiplies_every_matrix_once_for_each_sequence() -> None:
    columns = PhaseColumns(degrees={}, batch_size=4)
    lookups, norms = 128_256 * 4096, 65 * 4096

    # 2 · 2 · 2,048 keys · 32 heads · 128 of scores and values, in 32 layers.
    by_hand = 4 * (2 * (PARAMETERS - lookups - norms) + 32 * 4 * 2048 * 32 * 128)
    assert serving_flops(setting(), columns, "decode", block_keys=None) == by_hand


def test_a_vector_that_is_key_and_value_of_all_heads_is_read_as_it_is() -> None:
    tree = model_tree(load_model("deepseek4-284b"))
    scores = next(
        operation
        for block in tree.layers[0].blocks
        for operation in block.operations
        if isinstance(operation, Attention)
    )

    # 2 · 64 heads · (512 of the score + 512 of the value), decoding as reading a prompt.
    assert key_flops(scores, tree, "decode") == key_flops(scores, tree, "prefill") == 2 * 64 * (512 + 512)


@pytest.mark.parametrize("model", ["deepseek4-1.6t", "glm-5.2", "minimax-m3", "nemotron3-ultra-550b-a55b", "jamba"])
def test_every_kind_of_layer_can_be_served(model: str) -> None:
    columns = PhaseColumns(degrees={"tp": 8}, batch_size=4)

    assert serving_flops(setting(model), columns, "decode", block_keys=None) > 0
    assert serving_memory(setting(model), columns, "decode").parts["kv_cache"] > 0
