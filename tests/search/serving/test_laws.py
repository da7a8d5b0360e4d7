"""The laws beside a plan of serving, by hand, and the two limits of tensor parallelism."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import ridgeline

if TYPE_CHECKING:
    from ridgeline.search.serving.answer import DecodeLaws


def laws(model: str, on: str, *, batch: int, mesh: str, **said: str) -> DecodeLaws:
    answer = ridgeline.serve(
        model, on=on, prompt_len=1000, generate_len=1000, batch=batch, mesh=mesh, mode="disaggregated", **said
    )
    return answer.laws


def test_the_laws_of_llama_70b_on_eight_v6e_are_those_by_hand() -> None:
    # v6e: 918e12 FLOP/s, 1.64e12 B/s, links of 1e11 B/s one way on two axes; F = 28,672.
    found = laws("llama3.1-70b", "v6e:2x4", batch=64, mesh="tp=8")

    assert found.critical_batch_size == pytest.approx(918e12 / 1.64e12, rel=0.01)
    assert found.tensor_compute_degree == pytest.approx(28_672 * 2 / (918e12 / 2e11), rel=0.01)
    assert found.tensor_memory_degree == pytest.approx(28_672 / (64 * 1.64e12 / 2e11), rel=0.01)
    # 69.5e9 weights of 2 bytes (all but the table that is looked up), over 64 · 327,680 bytes of a token.
    assert found.context_crossover_tokens == pytest.approx(2 * 69.5e9 / (64 * 327_680), rel=0.01)


def test_weights_in_int8_halve_the_critical_batch_and_leave_the_limit_of_computing() -> None:
    # Scaling Book, ch. 8: 240 in bf16 on a v5e, 120 with weights in int8.
    wide, narrow = (
        laws("llama3.1-70b", "v5e:4x4", batch=8, mesh="tp=16", weights_dtype=dtype) for dtype in ("bf16", "int8")
    )

    assert wide.critical_batch_size == pytest.approx(240, rel=0.01)
    assert narrow.critical_batch_size == pytest.approx(120, rel=0.01)
    assert narrow.tensor_compute_degree == wide.tensor_compute_degree


def test_a_mixture_needs_as_many_times_the_batch_as_it_has_experts_for_each_visited() -> None:
    # Scaling Book, ch. 7, question 5: 240 · E/k.
    found = laws("mixtral-8x7b", "v5e:4x4", batch=16, mesh="ep=8,tp=2")

    assert found.critical_batch_size == pytest.approx(240 * 8 / 2, rel=0.01)


@pytest.mark.parametrize("prompt_len", [200, 4000, 16000])
def test_the_crossover_is_of_the_model_and_the_batch_however_long_the_prompts_are(prompt_len: int) -> None:
    # Gemma 3 27B: 54.015e9 bytes of weights are read for 8 sequences; 52 layers keep 1,024 tokens, 10 keep all, each
    # 2 · 16 · 128 · 2 = 8,192 bytes of a token.
    found = ridgeline.serve("gemma3-27b", on="h200:1", prompt_len=prompt_len, generate_len=200, batch=8).laws

    layer_token_bytes = 2 * 16 * 128 * 2
    by_hand = (54.015e9 / 8 - 52 * 1024 * layer_token_bytes) / (10 * layer_token_bytes)
    assert found.context_crossover_tokens == pytest.approx(by_hand, rel=0.01)


def test_experts_narrower_than_the_rest_set_the_critical_batch() -> None:
    # H200: 989.5e12 FLOP/s over 4.8e12 B/s = 206.1; experts in MXFP4, with a byte of scale for 32: 0.53125 of 2 bytes.
    found = ridgeline.serve(
        "gpt-oss-120b", on="h200:1", prompt_len=1000, generate_len=1000, batch=64, mode="disaggregated"
    ).laws

    assert found.critical_batch_size == pytest.approx(206.1 * (0.5 + 1 / 32) / 2 * 128 / 4, rel=0.01)


def test_narrow_weights_are_read_sooner_so_that_fewer_ways_keep_up() -> None:
    wide, narrow = (
        laws("llama3.1-70b", "v6e:2x4", batch=8, mesh="tp=8", weights_dtype=dtype) for dtype in ("bf16", "int8")
    )

    assert wide.tensor_memory_degree is not None
    assert narrow.tensor_memory_degree == pytest.approx(wide.tensor_memory_degree / 2)


def test_ways_of_tensor_parallelism_are_counted_in_devices() -> None:
    # TPU7x: 2,307e12 FLOP/s, links of 1e11 B/s one way on two axes of 2; two devices a chip share its links.
    found = laws("llama3.1-70b", "tpu7x:2x2x1", batch=8, mesh="tp=8")

    assert found.tensor_compute_degree == pytest.approx(2 * 28_672 * 2 / (2307e12 / 2e11), rel=0.01)


def test_a_slice_of_one_chip_has_no_links_that_limit() -> None:
    assert laws("llama3.2-1b", "v6e:1x1", batch=8, mesh="tp=1").tensor_compute_degree is None


def test_off_a_torus_tensor_parallelism_has_no_such_limits() -> None:
    found = laws("llama3.1-70b", "h200:8", batch=64, mesh="tp=8")

    assert found.tensor_compute_degree is None
    assert found.tensor_memory_degree is None
