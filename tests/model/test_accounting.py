"""FLOPs, caches and activations of a model: by hand, against published figures, and by law."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.model.accounting import account, kept_elements_per_token, keys_read, mean_visible_keys, operations
from ridgeline.model.operations import Activation, Attention, ModelTree, Span
from ridgeline.model.parameters import count_parameters
from ridgeline.model.table import model_from_table
from ridgeline.model.tree import model_tree
from ridgeline.model.zoo import load_model, model_names

if TYPE_CHECKING:
    from ridgeline.model.accounting import ModelAccount
    from ridgeline.model.table import Table

TINY: Table = {
    "embed_dim": 8,
    "vocab_size": 32,
    "num_layers": 3,
    "attention": {"num_heads": 2, "num_kv_heads": 1, "head_dim": 4},
    "mlp": {"mlp_dim": 16},
}
BF16_BYTES = 2


def tiny(**changes: object) -> ModelTree:
    return model_tree(model_from_table({**TINY, **changes}, name="tiny", where="test"))


def counted(tree: ModelTree, *, seq_len: int) -> ModelAccount:
    return account(tree, embed_dim=8, seq_len=seq_len)


def zoo(name: str) -> ModelTree:
    return model_tree(load_model(name))


# --- keys -------------------------------------------------------------------------------------------------------------


@given(
    kind=st.sampled_from(["causal", "sliding", "chunked", "full"]),
    window=st.integers(1, 300),
    seq_len=st.integers(1, 200),
)
def test_mean_visible_keys_is_within_half_a_key_of_counting_them(kind: str, window: int, seq_len: int) -> None:
    by_counting = {
        "causal": [query + 1 for query in range(seq_len)],
        "sliding": [min(query + 1, window) for query in range(seq_len)],
        "chunked": [query % window + 1 for query in range(seq_len)],
        "full": [seq_len] * seq_len,
    }[kind]
    windows = {"window": window} if kind in {"sliding", "chunked"} else {}

    mean = mean_visible_keys(Span(kind=kind, **windows), seq_len=seq_len)

    assert abs(mean - sum(by_counting) / seq_len) <= 0.5 * (1 + 1e-12)  # floats round where it is just half a key


def test_a_scorer_lets_through_no_more_keys_than_it_picks() -> None:
    picked = [
        operation
        for _, operation, _ in operations(zoo("deepseek3.2-671b"))
        if isinstance(operation, Attention) and operation.selected_keys
    ]

    assert {operation.selected_keys for operation in picked} == {2048}
    assert {keys_read(operation, seq_len=2048) for operation in picked} == {1024}
    assert {keys_read(operation, seq_len=131072) for operation in picked} == {2048 - 2048**2 / (2 * 131072)}


def test_a_key_that_stands_for_several_tokens_is_read_and_kept_once_for_them() -> None:
    def compressed(**changes: int) -> Attention:
        return replace(
            Attention(
                path="scores",
                num_heads=1,
                num_kv_heads=1,
                qk_head_dim=4,
                v_head_dim=4,
                span=Span(),
                output=Activation(name="context", axes=("heads",), shape=(4,)),
                cache_elements=4,
            ),
            **changes,
        )

    assert keys_read(compressed(tokens_per_key=4), seq_len=1000) == 500 / 4
    assert keys_read(compressed(tokens_per_key=4, selected_keys=25), seq_len=1000) == (100 - 100**2 / 2000) / 4


def test_compressed_keys_make_the_cache_of_a_long_sequence_small() -> None:
    # 21 layers keep a key for 4 tokens (512 elements, 128 for the scorer), 20 a key for 128, all 43 a window of 128.
    tokens = 2**20
    elements = 43 * 128 * 512 + tokens * (21 * (512 + 128) / 4 + 20 * 512 / 128)

    assert counted(zoo("deepseek4-284b"), seq_len=tokens).cache_elements_per_sequence == elements


# --- FLOPs ------------------------------------------------------------------------------------------------------------


def test_flops_of_a_dense_layer_are_twice_its_weights_and_four_times_its_pairs() -> None:
    weights = 3 * (8 * 4 * (2 + 1 + 1 + 2) + 3 * 8 * 16) + 8 * 32
    pairs = 3 * 2 * 4 * 10 / 2

    assert counted(tiny(), seq_len=10).flops_per_token_forward == 2 * weights + 4 * pairs


def test_an_expert_layer_costs_its_router_and_the_experts_a_token_visits() -> None:
    visited = tiny(mlp={"mlp_dim": 32})
    experts = tiny(layer={"layer": {"moe": {"num_experts": 4, "top_k": 2, "expert_mlp_dim": 16}}})
    router = 3 * 2 * 8 * 4

    more = counted(experts, seq_len=10).flops_per_token_forward - counted(visited, seq_len=10).flops_per_token_forward

    assert more == router


@pytest.mark.parametrize(
    ("name", "gigaflops"),
    [("deepseek2-236b", 155), ("deepseek3-671b", 250)],
)
def test_training_flops_a_token_are_those_deepseek_publishes(name: str, gigaflops: int) -> None:
    # Insights into DeepSeek-V3, arXiv:2505.09343, table 2: sequences of 4,096.
    assert round(counted(zoo(name), seq_len=4096).flops_per_token_training / 1e9) == gigaflops


def test_training_costs_three_forward_passes() -> None:
    result = counted(tiny(), seq_len=10)

    assert result.flops_per_token_training == 3 * result.flops_per_token_forward


@pytest.mark.parametrize("name", ["llama3.1-8b", "gemma3-27b", "deepseek3.2-671b", "qwen3-next-80b-a3b"])
@given(short=st.integers(1, 2**18), longer=st.integers(0, 2**18))
def test_a_longer_sequence_never_costs_a_token_fewer_flops(name: str, short: int, longer: int) -> None:
    tree = zoo(name)

    assert counted(tree, seq_len=short).flops_per_token_forward <= counted(
        tree, seq_len=short + longer
    ).flops_per_token_forward * (1 + 1e-12)


# --- parameters -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", model_names())
def test_parts_sum_to_the_parameters_of_the_model(name: str) -> None:
    tree = zoo(name)
    whole, summed = count_parameters(tree), counted(tree, seq_len=1)

    assert (summed.parameters, summed.active_parameters) == (whole.total, whole.active)


# --- caches -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "cache_bytes"),
    [
        # Insights into DeepSeek-V3, arXiv:2505.09343, table 1.
        ("deepseek3-671b", 70_272),
        ("llama3.1-405b", 516_096),
        # Scaling Book, chapter 7: a LLaMA 2-13B sequence of 8,192 tokens takes 6.7 GB.
        ("llama2-13b", 6_710_886_400 // 8192),
    ],
)
def test_kv_cache_of_a_token_is_as_published(name: str, cache_bytes: int) -> None:
    assert counted(zoo(name), seq_len=8192).cache_elements_per_token * BF16_BYTES == cache_bytes


def test_a_window_caps_the_cache_of_a_sequence() -> None:
    attention = {**TINY["attention"], "span": {"kind": "sliding", "window": 16}}
    tree = tiny(pattern=["local", "local", "global"], layer={"local": {"attention": attention}})
    elements_of_layer = 2 * 1 * 4

    assert counted(tree, seq_len=10).cache_elements_per_sequence == 3 * elements_of_layer * 10
    assert counted(tree, seq_len=100).cache_elements_per_sequence == elements_of_layer * (16 + 16 + 100)


def test_a_layer_that_reuses_keys_and_values_caches_none() -> None:
    attention = {**TINY["attention"], "own_kv": False}
    tree = tiny(pattern=["own", "shared", "shared"], layer={"shared": {"attention": attention}})

    assert counted(tree, seq_len=10).cache_elements_per_token == 2 * 1 * 4


def test_a_recurrent_state_does_not_grow_with_the_sequence() -> None:
    short, long = (counted(zoo("qwen3-next-80b-a3b"), seq_len=seq_len) for seq_len in (1000, 2000))
    growth = 12 * 2 * 2 * 256

    assert short.cache_elements_per_token == growth
    assert long.cache_elements_per_sequence - short.cache_elements_per_sequence == 1000 * growth
    assert short.cache_elements_per_sequence > 1000 * growth


# --- activations ------------------------------------------------------------------------------------------------------


def test_a_policy_keeps_the_layer_input_and_the_values_it_names() -> None:
    llama = zoo("llama3-8b")
    projections = 4096 + 2 * 1024 + 4096
    mlp = 2 * 14336 + 4096

    def kept(*names: str) -> float:
        return kept_elements_per_token(llama, embed_dim=4096, names=names)

    assert kept() == 32 * 4096
    assert kept("query_proj", "key_proj", "value_proj", "out_proj") == 32 * (4096 + projections)
    assert kept("mlpwi_0", "mlpwi_1", "mlpwo") == 32 * (4096 + mlp)
    assert kept("context") == 32 * (4096 + 4096)


def test_every_named_value_and_every_layer_input_is_an_activation() -> None:
    values = 3 * (8 + 2 * 4 + 4 + 4 + 2 * 4 + 8 + 16 + 16 + 8) + 32

    assert counted(tiny(), seq_len=10).activation_elements_per_token == values


def test_expert_activations_have_a_row_for_each_visited_expert() -> None:
    tree = zoo("mixtral-8x7b")

    assert kept_elements_per_token(tree, embed_dim=4096, names=["moe_mlpwi_0"]) == 32 * (4096 + 2 * 14336)
