"""Two or three requests, each moment computed on paper: what a scheduler does when."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ridgeline.errors import InputError
from ridgeline.search.engine.fleet import serve
from ridgeline.search.engine.latency import served_latency
from ridgeline.search.engine.setting import Disaggregated, Interleaved, Speculation
from ridgeline.search.engine.times import StepTable
from tests.search.engine.setups import ONE_SECOND, PAPER, limited, requests_of, scheduled

TWO = requests_of((0.0, 100, 4), (1.5, 100, 2))


def test_separate_prefill_stops_the_sequences_that_run() -> None:
    served = serve(TWO, PAPER)

    # 0-1 reads A; 1-2 decodes A; 2-3 reads B, which came at 1.5; 3-4 decodes both, B is through; 4-5 A.
    assert served.start_s.tolist() == [0.0, 2.0]
    assert served.first_token_s.tolist() == [1.0, 3.0]
    assert served.finish_s.tolist() == [5.0, 4.0]
    assert (served.busy_s, served.running_s, served.passes) == (5.0, 0 + 1 + 1 + 2 + 1, 3)


def test_utilization_leaves_out_what_servers_do_once_nothing_comes_any_more() -> None:
    # One server works from 0 to 5, and the last request comes at 1.5: until then it always works. A second one, idle
    # until then, and at work from 1.5 to 3.5, makes it a half.
    assert served_latency(serve(TWO, PAPER)).utilization == pytest.approx(1.0)
    both = served_latency(serve(TWO, replace(PAPER, fleet=Interleaved(num_servers=2))))
    assert both.utilization == pytest.approx(0.5)


def test_chunks_of_a_prompt_ride_on_decode_passes_and_lengthen_them() -> None:
    requests = requests_of((0.0, 51, 4), (0.6, 60, 2))

    served = serve(requests, limited(scheduled(PAPER, prefill="chunked"), max_pass_tokens=51))

    # 0-0.51 A; decode to 1.51; with 50 tokens of B beside A's one to 3.01; with the other 10 to 4.11; B to 5.11.
    assert served.first_token_s == pytest.approx([0.51, 4.11])
    assert served.finish_s == pytest.approx([4.11, 5.11])


def test_what_both_halves_of_a_mixed_pass_would_spend_is_spent_once() -> None:
    requests = requests_of((0.0, 51, 4), (0.6, 60, 2))
    engine = limited(scheduled(PAPER, prefill="chunked"), max_pass_tokens=51)
    engine = replace(engine, times=replace(engine.times, shared_s=0.4))

    # The pass with 50 tokens takes 1 + 0.5 - 0.4; that with 10 would take 0.7, and takes the 1.0 of decode.
    assert serve(requests, engine).finish_s == pytest.approx([3.61, 4.61])


def test_a_request_waits_while_all_places_are_taken() -> None:
    served = serve(TWO, limited(PAPER, max_sequences=1))

    assert served.start_s.tolist() == [0.0, 4.0]
    assert served.finish_s.tolist() == [4.0, 6.0]


def test_prompts_that_wait_together_are_read_in_one_pass() -> None:
    served = serve(requests_of((0.0, 40, 1), (0.0, 60, 1), (0.0, 1, 1)), PAPER)

    assert served.finish_s == pytest.approx([1.0, 1.0, 1.01])


def test_without_pages_the_youngest_is_preempted_and_read_anew() -> None:
    two = requests_of((0.0, 4, 4), (0.0, 4, 4))

    served = serve(two, limited(PAPER, page_tokens=1, kv_pages=10))

    # Both are read by 0.08 and decode once, to 10 pages; A alone decodes to 3.08 and leaves; the 6 tokens of B are
    # read by 3.14, which brings its third token, and its fourth is out a second later.
    assert served.preemptions == 1
    assert served.first_token_s == pytest.approx([0.08, 0.08])
    assert served.finish_s == pytest.approx([3.08, 4.14])


def test_room_for_whole_replies_preempts_nobody_and_waits_instead() -> None:
    two = requests_of((0.0, 4, 4), (0.0, 4, 4))

    served = serve(two, limited(scheduled(PAPER, admission="whole"), page_tokens=1, kv_pages=10))

    assert served.preemptions == 0
    assert served.finish_s == pytest.approx([3.04, 6.08])


def test_pages_are_taken_whole() -> None:
    two = requests_of((0.0, 4, 4), (0.0, 4, 4))

    # 4 tokens fill one page of 4 and the fifth takes a second: 2 + 2 pages for 8 tokens of either sequence.
    assert serve(two, limited(PAPER, page_tokens=4, kv_pages=4)).preemptions == 0
    assert serve(two, limited(PAPER, page_tokens=4, kv_pages=3)).preemptions == 1


def test_decode_slows_down_as_contexts_grow_and_bends_where_the_table_does() -> None:
    straight = StepTable(rows=(1.0,), keys=(0.0, 100.0), seconds=((0.0, 1.0),))
    bent = StepTable(rows=(1.0,), keys=(0.0, 12.0, 100.0), seconds=((0.0, 0.12, 0.12),))
    one = requests_of((0.0, 10, 4))

    # Three passes read 11, 12 and 13 keys.
    for table, seconds in ((straight, 0.11 + 0.12 + 0.13), (bent, 0.11 + 0.12 + 0.12)):
        served = serve(one, replace(PAPER, times=replace(PAPER.times, decode=table)))
        assert served.finish_s - served.first_token_s == pytest.approx([seconds])


def test_a_cached_prefix_is_not_read_but_is_seen() -> None:
    by_keys = StepTable(rows=(1.0,), keys=(0.0, 100.0), seconds=((0.0, 1.0),))
    engine = replace(scheduled(PAPER, prefix_hit_fraction=0.5), times=replace(PAPER.times, prefill=by_keys))

    # 50 of 100 tokens are computed; they see 50 cached ones, and of their own 25 on average.
    assert serve(requests_of((0.0, 100, 1)), engine).first_token_s == pytest.approx([0.75])
    assert serve(requests_of((0.0, 100, 1)), scheduled(PAPER, prefix_hit_fraction=0.5)).first_token_s == [0.5]


def test_drafts_that_are_all_accepted_halve_the_passes_and_cost_their_own_time() -> None:
    quarter = StepTable(rows=(1.0,), keys=(0.0,), seconds=((0.25,),))
    engine = replace(
        PAPER,
        times=replace(PAPER.times, draft=quarter),
        speculation=Speculation(draft_tokens=1, acceptance_fraction=1.0),
    )

    assert serve(requests_of((0.0, 100, 5)), engine).finish_s == pytest.approx([1.0 + 2 * 1.25])


def test_a_decode_server_starts_when_the_cache_has_come() -> None:
    fleet = Disaggregated(transfer_s=0.5, transfer_s_per_token=0.01)

    served = serve(requests_of((0.0, 100, 3), (0.0, 100, 2)), replace(PAPER, fleet=fleet))

    # A is read by 1 and sent by 2.5, B by 2 and 3.5; a pass ends at 3.5, 4.5.
    assert served.first_token_s.tolist() == [1.0, 2.0]
    assert served.finish_s.tolist() == [4.5, 4.5]
    assert (served.prefill_busy_s, served.busy_s) == (2.0, 2.0)


def test_servers_take_requests_in_turn() -> None:
    served = serve(TWO, replace(PAPER, fleet=Interleaved(num_servers=2)))

    assert served.finish_s.tolist() == [4.0, 3.5]


def test_a_request_that_no_server_has_room_for_is_refused() -> None:
    with pytest.raises(InputError, match="104 tokens of prompt and reply"):
        serve(TWO, limited(PAPER, kv_pages=6))


def test_a_share_in_percent_and_a_pass_without_rows_are_refused() -> None:
    with pytest.raises(InputError, match=r"0\.8 for 80 percent"):
        serve(TWO, scheduled(PAPER, prefix_hit_fraction=80.0))
    with pytest.raises(InputError, match="no rows for all sequences"):
        serve(TWO, limited(PAPER, max_pass_tokens=4))


def test_a_table_is_read_between_its_points_and_beyond_them() -> None:
    table = StepTable(rows=(1.0, 3.0), keys=(0.0, 100.0), seconds=((1.0, 2.0), (3.0, 5.0)))

    assert table.pass_s(2, 50) == pytest.approx(2.75)
    assert table.pass_s(5, 0) == pytest.approx(5.0)
    assert table.pass_s(1, 200) == pytest.approx(3.0)
    assert ONE_SECOND.pass_s(100, 1e6) == 1.0
