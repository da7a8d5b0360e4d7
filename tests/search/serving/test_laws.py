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


def test_off_a_torus_tensor_parallelism_has_no_such_limits() -> None:
    found = laws("llama3.1-70b", "h200:8", batch=64, mesh="tp=8")

    assert found.tensor_compute_degree is None
    assert found.tensor_memory_degree is None
