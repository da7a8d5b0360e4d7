"""Narrower precisions of a server: never taken unasked, shown with what they save, and searched where left open."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import ridgeline
from ridgeline.errors import InfeasibleError
from ridgeline.job.job import BYTES_OF
from ridgeline.job.serving import ServingDtypes
from ridgeline.search.serving.dtypes import narrower_dtypes, no_wider, searched_dtypes

if TYPE_CHECKING:
    from ridgeline.search.serving.answer import ServeAnswer


def llama(on: str = "v6e:2x4", **said: str | float) -> ServeAnswer:
    return ridgeline.serve("llama3.1-70b", on=on, prompt_len=1000, generate_len=1000, **said)  # pyright: ignore[reportArgumentType] - as told


def test_nothing_is_narrowed_unasked_and_each_narrower_precision_saves_more_than_wider_ones() -> None:
    answer = llama()

    assert answer.best.plan.dtypes == ServingDtypes()
    assert all(point.plan.dtypes == ServingDtypes() for point in answer.frontier)
    assert answer.narrower
    for gain in answer.narrower:
        wider = [
            each
            for each in answer.narrower
            if each != gain and no_wider(gain.point.plan.dtypes, each.point.plan.dtypes)
        ]
        assert all(gain.saving_fraction > each.saving_fraction for each in wider)
        assert gain.saving_fraction > 0
        assert gain.saving_fraction == pytest.approx(
            1
            - (gain.point.cost_per_million_output_tokens_usd or 0)
            / (answer.best.cost_per_million_output_tokens_usd or 1)
        )


def test_weights_of_8_bits_leave_room_for_the_cache_of_more_sequences() -> None:
    # 70.6e9 weights of 1 byte less, and 2 · 2 · 80 · 8 · 128 bytes a token: on 8 chips, 108 sequences of 2,000 more.
    whole = llama(mesh="tp=8")
    narrow = llama(mesh="tp=8", weights_dtype="int8")

    more = 70.55e9 / (2048 * 327_680)  # pages have 256 tokens
    assert narrow.best.max_concurrency - whole.best.max_concurrency == pytest.approx(more, rel=0.05)


def test_what_is_left_open_is_searched_and_as_cheap_a_plan_in_wider_numbers_is_preferred() -> None:
    narrowed = llama(weights_dtype="any")
    assert BYTES_OF[narrowed.best.plan.dtypes.weights] < 2
    assert narrowed.best.plan.dtypes.kv_cache == "bf16"
    assert any("quality" in note for note in narrowed.notes)

    # One request a second needs one server of 8 chips, in whatever precision.
    assert llama(weights_dtype="any", kv_cache_dtype="any", rate=0.1).best.plan.dtypes == ServingDtypes()


@pytest.mark.parametrize(
    ("model", "on", "expected"),
    [
        ("llama3.1-8b", "v6e:2x4", {("int8", "bf16"), ("int8", "int8"), ("int4", "bf16")}),
        ("llama3.1-8b", "tpu7x:2x2x1", {("fp8", "bf16"), ("fp8", "fp8"), ("int4", "bf16")}),
        ("llama3.1-8b", "v4:2x2x1", {("int8", "bf16"), ("int4", "bf16")}),
        ("llama3.1-8b", "b200:8", {("fp8", "bf16"), ("fp8", "fp8"), ("fp4", "bf16"), ("fp4", "fp4")}),
    ],
)
def test_weights_and_matmuls_have_the_widths_that_the_chip_has(
    model: str, on: str, expected: set[tuple[str, str]]
) -> None:
    job = ridgeline.serve(model, on=on, prompt_len=128, generate_len=128).job
    found = {(each.weights, each.compute) for each in narrower_dtypes(job, job.plan.dtypes) if each.weights != "bf16"}

    assert found == expected
    assert searched_dtypes(job) == (ServingDtypes(),)


def test_of_a_mixture_the_experts_alone_may_have_4_bits() -> None:
    job = ridgeline.serve("gpt-oss-20b", on="h200:1", prompt_len=128, generate_len=128, weights_dtype="bf16").job
    found = [each for each in narrower_dtypes(job, job.plan.dtypes) if each.experts is not None]

    assert {(each.weights, each.experts) for each in found} == {("bf16", "int4")}


def test_experts_that_are_published_in_4_bits_stay_as_they_are_where_the_rest_is_narrowed() -> None:
    job = ridgeline.serve("gpt-oss-20b", on="h200:1", prompt_len=128, generate_len=128).job
    found = narrower_dtypes(job, job.plan.dtypes)

    assert {(each.weights, each.experts) for each in found} == {("bf16", "mxfp4"), ("fp8", "mxfp4")}


def test_where_nothing_fits_the_widest_precision_that_does_is_named() -> None:
    with pytest.raises(InfeasibleError, match="with weights int4, KV cache bf16, compute bf16 it can: tp=4 on v5e:2x2"):
        llama("v5e:2x2")
