"""Runs of requests that are all queued when they begin: their passes counted by hand."""

from __future__ import annotations

from heapq import heapify, heapreplace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.search.serving.offline import Stretch, run_stretches, slot_stretches


def test_two_requests_that_are_read_one_after_the_other_take_the_passes_counted_by_hand() -> None:
    # Pass 1 reads A. Pass 2 reads B beside A, which then has 100 + 1 tokens. A's last token is pass 3's, B's pass 4's.
    found = run_stretches(
        num_requests=2, most_sequences=2, pass_tokens=100, prompt_tokens=100, reply_tokens=3, graph_sizes=()
    )

    assert found == (
        Stretch(num_passes=1.0, num_decoding=0.0, context_tokens=0.0, num_prompts=1.0, padded_size=0.0),
        Stretch(num_passes=1.0, num_decoding=1.0, context_tokens=101.0, num_prompts=1.0, padded_size=1.0),
        Stretch(num_passes=1.0, num_decoding=1.0, context_tokens=102.0, num_prompts=0.0, padded_size=1.0),
        Stretch(num_passes=1.0, num_decoding=2.0, context_tokens=101.5, num_prompts=0.0, padded_size=2.0),
    )


def test_a_pass_that_only_decodes_is_filled_up_to_a_program_that_is_there() -> None:
    # Three at once, all read by the first pass; programs for 2 and 8 sequences: three take the one for 8.
    (reading, decoding) = run_stretches(
        num_requests=3, most_sequences=3, pass_tokens=300, prompt_tokens=100, reply_tokens=11, graph_sizes=(2, 8)
    )

    assert (reading.num_passes, reading.num_prompts, reading.padded_size) == (1.0, 3.0, 0.0)
    assert (decoding.num_passes, decoding.num_decoding, decoding.padded_size) == (10.0, 3.0, 8.0)
    assert decoding.context_tokens == 101 + (10 - 1) / 2


@given(
    num_requests=st.integers(1, 200),
    most_sequences=st.integers(1, 64),
    pass_tokens=st.integers(1, 2000),
    prompt_tokens=st.integers(1, 500),
    reply_tokens=st.integers(1, 300),
)
def test_a_run_reads_every_prompt_and_adds_every_token_whatever_is_held_at_once(
    num_requests: int, most_sequences: int, pass_tokens: int, prompt_tokens: int, reply_tokens: int
) -> None:
    found = run_stretches(
        num_requests=num_requests,
        most_sequences=most_sequences,
        pass_tokens=pass_tokens,
        prompt_tokens=prompt_tokens,
        reply_tokens=reply_tokens,
    )

    assert sum(each.num_passes * each.num_prompts for each in found) == pytest.approx(num_requests)
    added = sum(each.num_passes * (each.num_prompts + each.num_decoding) for each in found)
    assert added == pytest.approx(num_requests * reply_tokens)
    assert all(each.num_decoding <= most_sequences + 1e-9 for each in found)
    assert all(each.padded_size >= each.num_decoding - 1e-9 for each in found)


@pytest.mark.parametrize(("num_requests", "slots"), [(2000, 128), (2000, 1024), (50, 64)])
def test_a_run_of_replies_that_differ_lasts_as_long_as_when_it_is_played(num_requests: int, slots: int) -> None:
    # Each reply takes the slot that is free first; lengths are drawn from an exponential of mean 200.
    played: list[float] = []
    generator = np.random.default_rng(0)
    for _ in range(20):
        ends = [0.0] * slots
        heapify(ends)
        for reply in generator.exponential(200.0, num_requests):
            heapreplace(ends, ends[0] + reply)
        played.append(max(ends))

    found = slot_stretches(num_requests=num_requests, slots=slots, reply_tokens=200.0)

    assert sum(each.num_passes for each in found) == pytest.approx(np.mean(played), rel=0.05)
    assert sum(each.num_passes * each.num_decoding for each in found) == pytest.approx(num_requests * 200)
    assert {each.padded_size for each in found} == {float(slots)}
