"""Where the engine is a queue that theory has solved, it waits as long; and what holds of every queue holds here."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ridgeline.job.traffic import (
    EmpiricalLength,
    FixedLength,
    LognormalLength,
    Requests,
    Traffic,
    UniformLength,
)
from ridgeline.search.engine.arrivals import decode_passes, draw_requests
from ridgeline.search.engine.fleet import serve
from ridgeline.search.engine.latency import served_latency
from ridgeline.search.engine.server import Work, idle_server
from ridgeline.search.engine.setting import Disaggregated, Engine, Interleaved, Speculation
from ridgeline.search.engine.times import StepTable, StepTimes
from tests.search.engine.setups import LARGE, ONE_SECOND, PAPER, chats, limited, requests_of, scheduled

ONE_AT_A_TIME = limited(PAPER, max_sequences=1, max_pass_tokens=1)
"""Every prompt is a pass of its own: a queue with one server."""


def exponential_prompts(requests_per_s: float, num_requests: int) -> Requests:
    """Replies of one token to prompts of exponential length, a second long on average."""
    draw = np.random.default_rng(7)
    return Requests(
        arrival_s=np.cumsum(draw.exponential(1 / requests_per_s, num_requests)),
        prompt_tokens=np.maximum(np.rint(draw.exponential(100, num_requests)), 1).astype(np.int64),
        output_tokens=np.ones(num_requests, dtype=np.int64),
    )


def test_equal_prompts_wait_as_pollaczek_and_khinchine_say() -> None:
    law = Traffic(requests_per_s=0.8, prompt=FixedLength(tokens=100), output=FixedLength(tokens=1), num_requests=60_000)

    latency = served_latency(serve(draw_requests(law), ONE_AT_A_TIME))

    # M/D/1: rho S / 2(1 - rho), S = 1 s.
    assert latency.queueing.mean_s == pytest.approx(0.8 / (2 * 0.2), rel=0.08)
    assert latency.utilization == pytest.approx(0.8, rel=0.02)


def test_exponential_prompts_wait_as_pollaczek_and_khinchine_say() -> None:
    requests = exponential_prompts(0.7, 60_000)

    latency = served_latency(serve(requests, ONE_AT_A_TIME))

    seconds = requests.prompt_tokens * 0.01
    rate_per_s = requests.count / requests.arrival_s[-1]
    khinchine_s = rate_per_s * (seconds**2).mean() / (2 * (1 - rate_per_s * seconds.mean()))
    assert khinchine_s == pytest.approx(0.7 / 0.3, rel=0.03)
    assert latency.queueing.mean_s == pytest.approx(khinchine_s, rel=0.1)


def test_two_prefill_servers_wait_as_erlang_says() -> None:
    requests = exponential_prompts(1.4, 60_000)

    latency = served_latency(serve(requests, replace(ONE_AT_A_TIME, fleet=Disaggregated(num_prefill_servers=2))))

    # M/M/2 at rho = 0.7: an arrival waits with chance 2 rho² / (1 + rho), and then 1 / (2 - 1.4) s.
    assert latency.queueing.mean_s == pytest.approx(2 * 0.7**2 / 1.7 / 0.6, rel=0.1)


@pytest.mark.parametrize("prefill", ["chunked", "separate"])
def test_sequences_that_run_are_the_rate_times_their_stay(prefill: str) -> None:
    served = serve(chats(20.0), scheduled(LARGE, prefill=prefill))

    # Little's law, over the whole trace.
    assert served.running_s == pytest.approx(float((served.finish_s - served.first_token_s).sum()))


@pytest.mark.parametrize("kv_pages", [None, 110])
def test_every_token_is_decoded_once(kv_pages: int | None) -> None:
    free = StepTable(rows=(1.0,), keys=(0.0,), seconds=((0.0,),))
    engine = replace(limited(PAPER, kv_pages=kv_pages), times=StepTimes(decode=ONE_SECOND, prefill=free))
    law = Traffic(
        requests_per_s=0.05,
        prompt=UniformLength(least_tokens=1, most_tokens=900),
        output=LognormalLength(mean_tokens=80, sigma=1.0, most_tokens=500),
        num_requests=300,
    )
    requests = draw_requests(law)

    served = serve(requests, engine)

    # Where decode takes all the time, a second a pass, sequence-seconds are tokens; each re-reading brings one more.
    assert served.running_s + served.preemptions == (requests.output_tokens - 1).sum()
    assert (served.preemptions > 0) == (kv_pages is not None)
    assert (requests.arrival_s <= served.start_s).all()
    assert (served.start_s <= served.first_token_s).all()
    assert (served.first_token_s <= served.finish_s).all()


@pytest.mark.parametrize("prefill", ["chunked", "separate"])
def test_more_than_servers_can_do_is_said_and_not_timed(prefill: str) -> None:
    engine = scheduled(LARGE, prefill=prefill)
    short, long = (served_latency(serve(chats(40.0, count), engine)) for count in (3000, 6000))

    assert not short.is_stable
    assert np.isnan([short.ttft.mean_s, short.tpot.p99_s, short.end_to_end.p50_s, short.num_running]).all()
    assert short.load_ratio == pytest.approx(long.load_ratio, rel=0.05)
    # What full servers do does not depend on how long they are watched, and is what the load is a part of.
    assert short.requests_per_s == pytest.approx(long.requests_per_s, rel=0.05)
    assert long.requests_per_s == pytest.approx(40.0 / long.load_ratio, rel=0.05)


def test_a_replayed_trace_is_timed_even_where_it_overloads() -> None:
    latency = served_latency(serve(chats(40.0, 2000), LARGE), is_replay=True)

    assert not latency.is_stable
    assert latency.ttft.p99_s > latency.ttft.p50_s > 0.0


def test_equal_seeds_are_served_equally_and_others_are_not() -> None:
    one, same, other = (served_latency(serve(chats(20.0, 2000, seed=seed), LARGE)) for seed in (1, 1, 2))

    assert one == same
    assert one != other


def test_another_rate_stretches_the_same_trace() -> None:
    slow, fast = chats(10.0, 100), chats(20.0, 100)

    assert slow.arrival_s == pytest.approx(2 * fast.arrival_s)
    assert (slow.output_tokens == fast.output_tokens).all()


@given(
    faster=st.floats(min_value=0.3, max_value=1.0),
    prefill=st.sampled_from(["chunked", "separate"]),
    admission=st.sampled_from(["prompt", "whole"]),
)
@settings(max_examples=15, deadline=None)
def test_faster_passes_never_lengthen_the_mean_latency(faster: float, prefill: str, admission: str) -> None:
    engine = scheduled(LARGE, prefill=prefill, admission=admission)
    requests = chats(18.0, 600)

    before, after = (
        served_latency(serve(requests, replace(engine, times=times)), is_replay=True)
        for times in (engine.times, _scaled(engine.times, faster))
    )

    assert after.end_to_end.mean_s <= before.end_to_end.mean_s * 1.01
    assert after.ttft.mean_s <= before.ttft.mean_s * 1.01


def test_lengths_have_the_means_that_were_asked_for() -> None:
    for length, mean in (
        (UniformLength(least_tokens=10, most_tokens=30), 20.0),
        (LognormalLength(mean_tokens=300.0, sigma=0.8), 300.0),
        (EmpiricalLength(tokens=(1, 1, 10)), 4.0),
    ):
        law = Traffic(requests_per_s=1.0, prompt=length, output=FixedLength(tokens=1), num_requests=40_000)
        assert draw_requests(law).prompt_tokens.mean() == pytest.approx(mean, rel=0.03)


def test_speculation_takes_as_many_passes_as_its_renewals_do() -> None:
    tokens, speculation = np.full(4000, 201), Speculation(draft_tokens=3, acceptance_fraction=0.7)

    passes = decode_passes(tokens, speculation)

    # Token by token: a pass adds 1, and one more for each draft until the first that is refused.
    draw = np.random.default_rng(3)
    counted = []
    for _ in range(2000):
        done, count = 0, 0
        while done < 200:
            accepted = draw.random(3) < 0.7
            done += 1 + int(np.cumprod(accepted).sum())
            count += 1
        counted.append(count)
    assert passes.mean() == pytest.approx(np.mean(counted), rel=0.02)
    assert passes.std() == pytest.approx(np.std(counted), rel=0.1)


@given(
    rows=st.lists(
        st.tuples(st.floats(min_value=0, max_value=9), st.integers(1, 120), st.integers(1, 9)), min_size=1, max_size=9
    ),
    prefill=st.sampled_from(["chunked", "separate"]),
    max_sequences=st.integers(1, 4),
)
@settings(max_examples=60, deadline=None)
def test_runs_in_closed_form_end_as_passes_one_by_one_do(
    rows: list[tuple[float, int, int]], prefill: str, max_sequences: int
) -> None:
    table = StepTable(rows=(1.0, 2.0, 4.0), keys=(0.0, 40.0, 90.0), seconds=((0.1, 0.2, 0.5),) * 2 + ((0.3, 0.4, 0.9),))
    engine = limited(scheduled(PAPER, prefill=prefill), max_sequences=max_sequences, max_pass_tokens=30)
    engine = replace(engine, times=replace(engine.times, decode=table), fleet=Interleaved())
    requests = requests_of(*sorted(rows))

    served = serve(requests, engine)

    first_s, finish_s = _pass_by_pass(requests, engine)
    assert served.first_token_s == pytest.approx(first_s)
    assert served.finish_s == pytest.approx(finish_s)


@given(
    rows=st.lists(
        st.tuples(st.floats(min_value=0, max_value=20), st.integers(1, 30), st.integers(1, 30)),
        min_size=1,
        max_size=12,
    ),
    prefill=st.sampled_from(["chunked", "separate"]),
    admission=st.sampled_from(["prompt", "whole"]),
    page_tokens=st.integers(1, 9),
    draft_tokens=st.integers(0, 3),
    spare_pages=st.integers(0, 8),
)
@settings(max_examples=150, deadline=None)
def test_however_few_pages_all_is_served_and_every_page_is_given_back(
    rows: list[tuple[float, int, int]],
    prefill: str,
    admission: str,
    page_tokens: int,
    draft_tokens: int,
    spare_pages: int,
) -> None:
    pages = max(-(-(prompt + output) // page_tokens) for _, prompt, output in rows) + spare_pages
    engine = limited(scheduled(PAPER, prefill=prefill, admission=admission), kv_pages=pages, page_tokens=page_tokens)
    engine = replace(engine, speculation=Speculation(draft_tokens=draft_tokens, acceptance_fraction=0.6))
    requests = requests_of(*sorted(rows))
    passes = decode_passes(requests.output_tokens, engine.speculation)

    server = idle_server(
        Work(
            ready_s=requests.arrival_s.tolist(),
            prompt_tokens=requests.prompt_tokens.tolist(),
            new_tokens=requests.prompt_tokens.tolist(),
            passes=passes.tolist(),
            output_tokens=requests.output_tokens.tolist(),
        ),
        engine,
    )
    server.run()

    assert min(server.log.finish_s) > 0
    assert server.pages.used == [0]
    assert not any(server.pages.takers)
    assert not any((server.offsets, server.ends, server.waiting, server.reading))
    assert not server.log.preemptions or admission == "prompt"


def test_decode_servers_that_cannot_keep_up_are_told() -> None:
    fleet = Disaggregated(num_prefill_servers=4, num_decode_servers=1)

    latency = served_latency(serve(chats(60.0, 4000), replace(LARGE, fleet=fleet)))

    assert not latency.is_stable
    assert np.isnan(latency.tpot.mean_s)


def _pass_by_pass(requests: Requests, engine: Engine) -> tuple[list[float], list[float]]:
    """The plainest simulation: one pass after another, every sequence looked at in each."""
    count, is_chunked = requests.count, engine.scheduling.prefill == "chunked"
    left, out = requests.prompt_tokens.tolist(), [0] * count
    first_s, finish_s = [0.0] * count, [0.0] * count
    admitted, now, come = list[int](), 0.0, 0
    while come < count or admitted:
        if not admitted:
            now = max(now, float(requests.arrival_s[come]))
        while come < count and requests.arrival_s[come] <= now and len(admitted) < engine.limits.max_sequences:
            admitted.append(come)
            come += 1
        reading = [each for each in admitted if left[each]]
        running = [each for each in admitted if not left[each]] if is_chunked or not reading else []
        rows, chunks = engine.limits.max_pass_tokens - len(running), dict[int, int]()
        for each in reading:
            if rows <= 0 or (chunks and not is_chunked and left[each] > rows):
                break
            chunks[each] = min(left[each], rows) if is_chunked else left[each]
            rows -= chunks[each]
        read_s = engine.times.prefill.pass_s(sum(chunks.values()), 0.0) if chunks else 0.0
        keys = sum(int(requests.prompt_tokens[each]) + out[each] for each in running) / max(len(running), 1)
        now += read_s + (engine.times.decode.pass_s(len(running), keys) if running else 0.0)
        for each, chunk in chunks.items():
            left[each] -= chunk
            first_s[each] = now
        for each in [*running, *(each for each in chunks if not left[each])]:
            out[each] += 1
            if out[each] == requests.output_tokens[each]:
                finish_s[each] = now
                admitted.remove(each)
    return first_s, finish_s


def _scaled(times: StepTimes, factor: float) -> StepTimes:
    def scaled(table: StepTable) -> StepTable:
        return replace(table, seconds=tuple(tuple(factor * each for each in row) for row in table.seconds))

    return replace(times, decode=scaled(times.decode), prefill=scaled(times.prefill), shared_s=factor * times.shared_s)
