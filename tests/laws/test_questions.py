"""Questions beside the laws of training: attention, memory of serving, products, experts, softmax, prices."""

from __future__ import annotations

from itertools import pairwise
from math import exp

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ridgeline
from ridgeline.errors import InputError

dims = st.integers(1, 12)
logits = st.lists(st.floats(-50, 50), min_size=1, max_size=8)


@given(st.lists(st.integers(1, 64), min_size=2, max_size=6, unique=True))
def test_more_queries_a_key_value_head_lower_the_prompt_that_binds(groups: list[int]) -> None:
    """Chapter 4: 480 tokens for a head each, towards 240 for many."""
    lengths = [
        ridgeline.attention_laws(G=G, ridge_flops_per_byte=240)["prefill_critical_tokens"] for G in sorted(groups)
    ]

    assert all(more > less for more, less in pairwise(lengths))
    assert all(240 < length <= 480 for length in lengths)


@given(st.integers(1, 10**6), st.integers(1, 64))
def test_decoding_never_has_more_intensity_than_its_group(S: int, G: int) -> None:
    assert ridgeline.attention_laws(S=S, G=G)["decode_intensity_flops_per_byte"] < G


def test_decoding_waits_for_memory_and_a_long_prompt_for_arithmetic() -> None:
    laws = ridgeline.attention_laws(T=8192, S=8192, N=64, K=8, C_flops_per_s=1.97e14, W_hbm_bytes_per_s=8.2e11)

    assert (laws.prefill_bound, laws.decode_bound) == ("compute", "memory")


def test_the_cache_of_chapter_8_asks_for_85_chips() -> None:
    """LLaMA 3 70B in int8: 240 sequences of 32k tokens beside 70 GB of weights on v5e; rounded inputs give 86."""
    answer = ridgeline.serving_memory(
        {"L": 80, "K": 8, "H": 128}, T=32768, B=240, b_a=1, weight_bytes="70GB", hbm_bytes="16GB"
    )

    assert answer["token_cache_bytes"] == 163_840
    assert answer["sequence_cache_bytes"] == 5_368_709_120
    assert answer["num_whole_memory_chips"] == 85


def test_windows_cap_the_cache_of_a_sequence() -> None:
    answer = ridgeline.serving_memory("gemma3-27b", T=131072)

    assert answer["sequence_cache_bytes"] < answer["token_cache_bytes"] * 131072 / 4


def test_experts_are_split_over_their_number_and_the_rest_over_what_is_left() -> None:
    """Question 6 of chapter 7: 16 experts on 128 chips, so that everything else is split 8 ways."""
    model = {"L": 64, "D": 4096, "F": 16384, "N": 32, "K": 8, "H": 256, "V": 32128, "E": 16, "k": 2, "tied": 1}

    answer = ridgeline.serving_memory(model, num_chips=128, b_w=2)

    assert answer["chip_weight_bytes"] == 4_596_301_824


@given(dims, dims, dims, dims)
def test_an_einsum_has_the_elements_and_points_of_numpy_s(b: int, n: int, p: int, m: int) -> None:
    left, right = np.ones((b, n, p)), np.ones((b, p, m))

    count = ridgeline.einsum("bnp,bpm->bnm", b=b, n=n, p=p, m=m)

    assert count.operand_elements == left.size + right.size
    assert count.output_elements == np.einsum("bnp,bpm->bnm", left, right).size
    assert count.forward_flops == 2 * np.einsum("bnp,bpm->", left, right)


def test_a_product_that_sums_nothing_has_no_additions() -> None:
    assert ridgeline.einsum("nm,nm->nm", n=3, m=5).forward_flops == 15


def test_training_takes_three_products_for_one() -> None:
    count = ridgeline.einsum("NP,PM->NM", N=8, P=4, M=2)

    assert count.training_flops == 3 * count.forward_flops


@pytest.mark.parametrize("expression", ["NP,PM", "NP->N", "N P", "NP,PM->NM->N"])
def test_a_malformed_einsum_is_refused(expression: str) -> None:
    with pytest.raises(InputError, match="not a product of two arrays"):
        ridgeline.einsum(expression, N=1, P=1, M=1)


def test_a_dimension_without_a_size_is_named() -> None:
    with pytest.raises(InputError) as refused:
        ridgeline.einsum("NP,PM->NM", N=1, P=1)

    assert (refused.value.what, refused.value.value) == ("a dimension has no size", "M")


def test_routing_asks_for_a_batch_that_grows_with_the_experts_a_token_skips() -> None:
    routing = ridgeline.expert_routing(E=16, k=2, C_flops_per_s=2.4e14, W_hbm_bytes_per_s=1e12)

    assert (routing.critical_tokens, routing.collective, routing.num_collectives) == (1920, "all_to_all", 2)
    assert routing.exchange_ratio == 0.25


@given(st.lists(logits, min_size=1, max_size=5))
def test_merged_softmax_sums_are_those_of_all_logits(chunks: list[list[float]]) -> None:
    merge = ridgeline.merge_softmax(*chunks)

    everything = [x for chunk in chunks for x in chunk]
    assert merge.matches
    assert merge.merged.exponential_sum * exp(merge.merged.largest_logit) == pytest.approx(sum(map(exp, everything)))


def test_an_empty_chunk_of_logits_is_refused() -> None:
    with pytest.raises(InputError, match="a chunk has no logits"):
        ridgeline.merge_softmax([1.0], [])


def test_chips_rank_by_what_a_dollar_buys() -> None:
    """Chapter 8: v5e, v5p, H100; true FLOPs per dollar are 3600 times the table's column."""
    peaks = {"h100": 9.9e14, "v5p": 4.59e14, "v5e": 1.97e14}
    ranking = ridgeline.rank_chips(peaks, usd_per_chip_hour={"h100": 10.8, "v5p": 4.2, "v5e": 1.2})

    assert list(ranking.flops_per_usd) == ["v5e", "v5p", "h100"]
    for name, rate in ranking.flops_per_s_per_usd_per_hour.items():
        assert ranking.flops_per_usd[name] == 3600 * rate


def test_a_chip_without_a_price_is_not_ranked() -> None:
    with pytest.raises(InputError) as refused:
        ridgeline.rank_chips({"v5e": 1.97e14}, usd_per_chip_hour={})

    assert (refused.value.what, refused.value.value) == ("no price", "v5e")


def test_a_question_that_does_not_exist_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'trainning_laws'"):
        ridgeline.trainning_laws  # noqa: B018 - naming it is the test
