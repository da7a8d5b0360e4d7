"""Means of lengths: as sums by hand have them, and as a long draw does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from ridgeline.cost.serving.requests import like
from ridgeline.job.serving import PrefixCache, ServingWorkload
from ridgeline.job.traffic import EmpiricalLength, FixedLength, LognormalLength, Requests, Trace, Traffic, UniformLength
from ridgeline.search.engine.arrivals import draw_requests
from ridgeline.search.serving.lengths import request_lengths

if TYPE_CHECKING:
    from ridgeline.job.traffic import Length


def workload(prompts: Length, replies: Length, *, cached: float = 0.0, shared: bool = False) -> ServingWorkload:
    return ServingWorkload(
        prompt_len=prompts.longest_tokens,
        generate_len=replies.longest_tokens,
        prompt_lengths=prompts,
        generate_lengths=replies,
        prefix_cache=PrefixCache(hit_fraction=cached, shared=shared),
    )


def test_lengths_that_are_all_alike_have_the_means_of_one_request() -> None:
    found = request_lengths(ServingWorkload(prompt_len=1000, generate_len=500))

    assert found == like(prompt_tokens=1000, reply_tokens=500)
    assert (found.context_tokens, found.own_prompt_tokens, found.paged_tokens(256)) == (1250.0, 1000.0, 1536.0)


def test_a_running_sequence_is_likelier_one_with_a_long_reply_and_a_token_one_of_a_long_prompt() -> None:
    # Prompts of 100 and 300, replies of 10 and 30, each pair as likely: by hand.
    found = request_lengths(workload(EmpiricalLength(tokens=(100, 300)), EmpiricalLength(tokens=(10, 30))))

    assert found.prompt_tokens == pytest.approx(200, rel=2e-3)
    assert found.own_prompt_tokens == pytest.approx((100**2 + 300**2) / 400, rel=2e-3)
    assert found.context_tokens == pytest.approx(200 + (10**2 + 30**2) / (10 + 30) / 2, rel=2e-3)
    assert found.mean_end_tokens == pytest.approx(200 + (10**2 + 30**2) / (10 + 30), rel=2e-3)
    assert float(found.chunk_count(100.0)) == pytest.approx((1 + 3) / 2, rel=2e-3)
    assert float(found.chunk_wait_count(100.0)) == pytest.approx((1 + 9) / (1 + 3), rel=2e-3)


def test_quantiles_stand_for_a_long_draw() -> None:
    prompts = LognormalLength(mean_tokens=1000.0, sigma=0.8, most_tokens=8000)
    replies = UniformLength(least_tokens=10, most_tokens=500)
    found = request_lengths(workload(prompts, replies, cached=0.5))
    rng = np.random.default_rng(7)
    drawn_prompts = np.clip(np.rint(rng.lognormal(np.log(1000) - 0.32, 0.8, 400_000)), 1, 8000)
    drawn_replies = rng.integers(10, 500, 400_000, endpoint=True)
    read = drawn_prompts - np.floor(drawn_prompts * 0.5)

    assert found.prompt_tokens == pytest.approx(drawn_prompts.mean(), rel=0.01)
    assert found.own_prompt_tokens == pytest.approx((drawn_prompts**2).mean() / drawn_prompts.mean(), rel=0.01)
    assert found.context_tokens == pytest.approx(
        np.average(drawn_prompts + drawn_replies / 2, weights=drawn_replies), rel=0.01
    )
    assert float(found.chunk_count(512.0)) == pytest.approx(np.ceil(read / 512).mean(), rel=0.01)
    pages = np.ceil((drawn_prompts + drawn_replies) / 256)
    assert found.paged_tokens(256) == pytest.approx(256 * np.average(pages, weights=drawn_replies), rel=0.01)


def test_a_trace_keeps_which_prompt_goes_with_which_reply() -> None:
    requests = Requests(
        arrival_s=np.array([0.0, 1.0]), prompt_tokens=np.array([100, 300]), output_tokens=np.array([30, 10])
    )
    asked = ServingWorkload(prompt_len=300, generate_len=30, trace=Trace(file="trace.csv", requests=requests), rate=1.0)

    assert request_lengths(asked).context_tokens == ((100 + 15) * 30 + (300 + 5) * 10) / 40
    assert asked.context_len == 310


def test_a_cached_prefix_is_not_read_and_where_it_is_shared_takes_room_once() -> None:
    asked = ServingWorkload(prompt_len=1000, generate_len=200, prefix_cache=PrefixCache(hit_fraction=0.6))
    own, shared = (
        request_lengths(asked),
        request_lengths(
            ServingWorkload(prompt_len=1000, generate_len=200, prefix_cache=PrefixCache(hit_fraction=0.6, shared=True))
        ),
    )

    assert own.mean_read_tokens == shared.mean_read_tokens == 400
    assert (own.mean_end_tokens, own.prefix_tokens) == (1200, 0)
    assert (shared.mean_end_tokens, shared.prefix_tokens) == (600, 600)
    assert own.context_tokens == shared.context_tokens == 1100  # what is shared is read by each sequence all the same


def test_a_lognormal_length_is_cut_where_one_in_a_thousand_would_be() -> None:
    length = LognormalLength(mean_tokens=1000.0, sigma=1.0)
    drawn = draw_requests(
        Traffic(requests_per_s=1.0, prompt=length, output=FixedLength(tokens=1), num_requests=20_000)
    ).prompt_tokens

    assert drawn.max() <= length.longest_tokens
    assert (drawn == length.longest_tokens).mean() == pytest.approx(1e-3, rel=0.5)


@pytest.mark.parametrize(("sigma", "most"), [(0.6, None), (1.5, None), (2.5, None), (2.0, 4000), (1.0, 2000)])
def test_the_mean_of_a_lognormal_length_is_as_said_though_long_ones_are_cut(sigma: float, most: int | None) -> None:
    length = LognormalLength(mean_tokens=800.0, sigma=sigma, most_tokens=most)
    drawn = np.random.default_rng(11).lognormal(np.log(length.median_tokens), sigma, 4_000_000)

    assert np.minimum(drawn, length.longest_tokens).mean() == pytest.approx(800, rel=0.01)
    assert request_lengths(workload(length, FixedLength(tokens=10))).prompt_tokens == pytest.approx(800, rel=0.04)
