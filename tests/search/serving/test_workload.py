"""What can be said of a serving job's requests and engine, and what it does to the answer."""

from __future__ import annotations

from math import isfinite, isnan
from typing import TYPE_CHECKING

import pytest

import ridgeline
from ridgeline.errors import InfeasibleError
from ridgeline.job.traffic import FixedLength, Traffic
from ridgeline.search.engine.arrivals import draw_requests
from ridgeline.search.serving.answer import NoServingPlan

if TYPE_CHECKING:
    from pathlib import Path

    from ridgeline.search.serving.answer import ServeAnswer


def served(**said: object) -> ServeAnswer:
    """Llama 3.1 8B on 4 v6e, prompts of 1,000 and replies of 200."""
    arguments = {"on": "v6e:2x2", "prompt_len": 1000, "generate_len": 200, "mesh": "tp=4", **said}
    return ridgeline.serve("llama3.1-8b", **{name: value for name, value in arguments.items() if value is not None})  # pyright: ignore[reportArgumentType] - as told


def traced(folder: Path, lines: list[tuple[float, int, int]]) -> str:
    path = folder / "trace.csv"
    rows = "".join(f"{arrival},{prompt},{reply}\n" for arrival, prompt, reply in lines)
    path.write_text(f"arrival_s,prompt_tokens,output_tokens\n{rows}", encoding="utf-8")
    return str(path)


def test_lengths_that_do_not_vary_give_what_one_number_gives() -> None:
    one, none = served(batch=32), served(batch=32, prompt_len="min=1000,max=1000", generate_len="min=200,max=200")

    assert none.best.ttft.mean_s == pytest.approx(one.best.ttft.mean_s)
    assert none.best.tpot.mean_s == pytest.approx(one.best.tpot.mean_s)
    assert none.best.max_concurrency == one.best.max_concurrency


def test_lengths_that_vary_leave_room_for_fewer_sequences_and_make_first_tokens_wait_longer() -> None:
    alike = served(batch=64, mode="interleaved", prefill_chunk=512)
    varied = served(
        batch=64,
        mode="interleaved",
        prefill_chunk=512,
        generate_len="mean=200,sigma=1,max=4000",
        prompt_len="min=100,max=1900",
    )

    assert varied.best.max_concurrency < alike.best.max_concurrency
    assert varied.best.ttft.mean_s > alike.best.ttft.mean_s
    assert varied.best.reply_tokens == pytest.approx(200, rel=0.03)


def test_every_rank_has_room_for_the_longest_request_or_the_plan_is_refused() -> None:
    with pytest.raises(InfeasibleError):
        served(on="v6e:1x1", mesh="tp=1", prompt_len="p50=500,p90=2000,max=400000", memory_utilization=0.9)


def test_a_prefix_cache_spares_prefill_and_where_it_is_shared_leaves_room_for_more() -> None:
    none, own, shared = (
        served(mode="disaggregated", batch=32, **said)
        for said in ({}, {"prefix_hit_rate": 0.8}, {"prefix_hit_rate": "80%", "prefix_shared": True})
    )

    assert own.best.prefill_s < 0.5 * none.best.prefill_s
    assert own.best.ttft.mean_s < none.best.ttft.mean_s
    assert own.best.plan.prefill_server_ratio < 0.5 * none.best.plan.prefill_server_ratio
    assert own.best.tpot.mean_s == none.best.tpot.mean_s
    assert own.best.max_concurrency == none.best.max_concurrency
    assert shared.best.max_concurrency > 1.5 * own.best.max_concurrency
    assert shared.best.memory.parts["shared_prefix"] > 0


def test_drafts_that_are_always_accepted_divide_the_time_of_a_pass_and_rejected_ones_only_cost() -> None:
    plain, free, wasted = (
        served(mode="disaggregated", batch=4, **said)
        for said in ({}, {"draft_tokens": 3, "acceptance": 1}, {"draft_tokens": 3, "acceptance": 0})
    )

    assert free.best.tpot.mean_s == pytest.approx(free.best.step.expected_s / 4)
    assert plain.best.tpot.mean_s / 4 < free.best.tpot.mean_s < plain.best.tpot.mean_s / 3
    assert wasted.best.tpot.mean_s > plain.best.tpot.mean_s


def test_a_draft_model_takes_memory_and_time_and_pays_where_it_is_right_often() -> None:
    said = {"mode": "disaggregated", "batch": 4, "on": "v6e:2x4", "mesh": "tp=8"}
    models = ("llama3.1-70b", "llama3.2-1b")
    plain = ridgeline.serve(models[0], prompt_len=1000, generate_len=200, **said)  # pyright: ignore[reportArgumentType] - as told
    drafted = ridgeline.serve(
        models[0],
        prompt_len=1000,
        generate_len=200,
        draft_tokens=3,
        acceptance=0.8,
        draft_model=models[1],
        **said,  # pyright: ignore[reportArgumentType] - as told
    )

    assert drafted.best.memory.parts["draft_weights"] > 0
    assert drafted.best.max_concurrency < plain.best.max_concurrency
    assert 0.3 < drafted.best.tpot.mean_s / plain.best.tpot.mean_s < 0.7
    assert any(path.startswith("pass/draft") for path, _ in drafted.best.step.parts.walk())


def test_speculation_is_simulated_as_it_is_estimated() -> None:
    best = served(rate=20, batch=32, draft_tokens=2, acceptance=0.7).best

    assert best.is_simulated
    assert best.tpot.mean_s == pytest.approx(1 / best.tokens_per_s_per_user, rel=0.35)
    assert best.tpot.mean_s < best.step.expected_s


@pytest.mark.parametrize("mode", ["interleaved", "disaggregated"])
def test_a_mode_that_is_said_is_the_only_one(mode: str) -> None:
    answer = served(mode=mode)

    assert {point.plan.mode for point in (answer.best, *answer.frontier)} == {mode}


def test_a_chunk_and_pages_that_are_said_are_those_of_every_plan() -> None:
    chunked, paged = served(prefill_chunk=384), served(page_tokens=1, batch=32)

    assert {point.plan.prefill_chunk for point in (chunked.best, *chunked.frontier)} == {384}
    assert paged.best.max_concurrency == paged.best.ideal_concurrency


def test_an_engine_with_less_memory_has_room_for_less() -> None:
    most, less = served(batch=32), served(batch=32, memory_utilization=0.7)

    assert less.best.memory.usable_bytes == pytest.approx(most.best.memory.usable_bytes * 0.7 / 0.9)
    assert less.best.max_concurrency < most.best.max_concurrency


def test_servers_come_in_the_ratio_that_is_said_and_prefill_sets_the_pace_where_there_is_too_little() -> None:
    few = served(server_ratio="1:8", rate=200, batch=64)
    assert few.best.fleet is not None
    fleet = few.best.fleet

    assert fleet.servers == 8 * fleet.prefill_servers
    assert few.best.plan.prefill_server_ratio == 1 / 8
    starved = served(server_ratio="1:64", batch=64).best
    prompts_per_s = starved.plan.prefill_batch / starved.prefill_s
    assert starved.requests_per_s == pytest.approx(prompts_per_s / 64)


def test_a_limit_on_a_percentile_asks_for_no_fewer_chips_than_the_same_limit_on_the_mean() -> None:
    said = {"rate": 60, "mode": "interleaved", "tpot": "12ms"}
    mean, tail = served(ttft="60ms", **said).best, served(ttft={"p99": "60ms"}, **said).best
    assert mean.fleet is not None
    assert tail.fleet is not None

    assert mean.ttft.mean_s <= 0.06
    assert tail.ttft.p99_s <= 0.06
    assert tail.fleet.chips >= mean.fleet.chips


def test_a_percentile_that_no_number_of_servers_meets_is_told_with_what_comes_closest(tmp_path: Path) -> None:
    # One prompt of eight is 200 times as long as the others: reading it alone takes longer than the limit.
    lines = [(number / 2, 100 if number % 8 else 20_000, 20) for number in range(80)]
    with pytest.raises(InfeasibleError) as caught:
        served(trace=traced(tmp_path, lines), prompt_len=None, generate_len=None, ttft="p90=200ms", mode="interleaved")

    words = str(caught.value)
    assert "meets the limits once requests queue" in words
    assert "p90 of the time to the first token is" in words
    assert isinstance(caught.value.answer, NoServingPlan)
    assert caught.value.answer.quickest is not None


def test_a_trace_of_requests_that_do_not_meet_takes_what_each_takes_alone(tmp_path: Path) -> None:
    lines = [(10.0 * number, 1000, 200) for number in range(6)]
    answer = served(
        trace=traced(tmp_path, lines),
        prompt_len=None,
        generate_len=None,
        mode="disaggregated",
        batch=4,
        prefill_batch=1,
    )
    best = answer.best
    assert best.simulation is not None
    assert best.fleet is not None

    assert (best.fleet.servers, best.fleet.prefill_servers) == (1, 1)
    assert best.ttft.mean_s == pytest.approx(best.prefill_s, rel=1e-6)
    assert best.ttft.p99_s == pytest.approx(best.prefill_s, rel=1e-6)
    assert best.simulation.queueing.mean_s == 0
    assert best.tpot.mean_s < best.step.expected_s  # one sequence at a time is quicker than four
    assert best.simulation.is_trace
    assert best.simulation.num_requests == 6


def test_a_trace_that_is_drawn_at_a_rate_is_answered_as_the_rate_is(tmp_path: Path) -> None:
    traffic = Traffic(
        requests_per_s=30.0, prompt=FixedLength(tokens=1000), output=FixedLength(tokens=200), num_requests=4000, seed=3
    )
    arrivals = draw_requests(traffic).arrival_s.tolist()
    path = traced(tmp_path, [(arrival, 1000, 200) for arrival in arrivals])
    drawn = served(rate=30, tpot="15ms", mode="interleaved", batch=32).best
    replayed = served(trace=path, prompt_len=None, generate_len=None, tpot="15ms", mode="interleaved", batch=32).best
    assert drawn.fleet is not None
    assert replayed.fleet is not None

    assert replayed.fleet.servers == drawn.fleet.servers
    assert replayed.ttft.mean_s == pytest.approx(drawn.ttft.mean_s, rel=0.1)
    assert replayed.tpot.p90_s == pytest.approx(drawn.tpot.p90_s, rel=0.1)
    assert replayed.simulation is not None
    assert replayed.simulation.requests_per_s == pytest.approx(30, rel=0.05)


def test_a_burst_needs_more_servers_than_the_mean_rate_of_its_trace(tmp_path: Path) -> None:
    steady = [(number / 10, 1000, 200) for number in range(1000)]
    burst = [(number / 100 + (80 if number >= 500 else 0), 1000, 200) for number in range(1000)]
    (tmp_path / "steady").mkdir()
    (tmp_path / "burst").mkdir()
    fleets = [
        served(trace=traced(folder, lines), prompt_len=None, generate_len=None, ttft="p90=1s", batch=32).best.fleet
        for folder, lines in ((tmp_path / "steady", steady), (tmp_path / "burst", burst))
    ]

    assert fleets[0] is not None
    assert fleets[1] is not None
    assert fleets[1].chips > fleets[0].chips


@pytest.mark.parametrize(
    ("said", "limit_s"),
    [
        # Full servers take 16 ms a token; a pass that only decodes, with one sequence, takes half the limit.
        ({"on": "v6e:2x2", "prompt_len": 1000, "generate_len": 2, "rate": 50, "tpot": "10ms"}, 10e-3),
        # Full servers take 26 ms; without the limit the answer's three servers, with room to spare, take 12 ms.
        (
            {"on": "h200:1", "prompt_len": 2000, "generate_len": 200, "rate": 25, "batch": 64, "tpot": "20ms"},
            20e-3,
        ),
    ],
)
def test_at_a_rate_servers_with_room_to_spare_meet_a_limit_that_full_ones_do_not(
    said: dict[str, str | int], limit_s: float
) -> None:
    best = ridgeline.serve("llama3.1-8b", mode="interleaved", **said).best  # pyright: ignore[reportArgumentType] - as told

    assert best.is_simulated
    assert best.tpot.mean_s <= limit_s < 1 / best.tokens_per_s_per_user


def test_an_answer_says_that_times_near_full_load_depend_on_the_sample() -> None:
    full = served(mode="interleaved", batch=32).best.requests_per_s

    def said(load: float) -> bool:
        answer = served(mode="interleaved", batch=32, rate=10 * load * full, server_ratio=None)
        return any("so near full load" in each for each in answer.assumptions)

    assert said(0.995)
    assert not said(0.9)


def test_without_a_rate_nothing_is_simulated_and_tails_are_unknown() -> None:
    best = served().best

    assert best.simulation is None
    assert isnan(best.ttft.p99_s)
    assert isfinite(best.ttft.mean_s)


@pytest.mark.parametrize(
    ("mode", "lengths"),
    [
        ("interleaved", {}),
        ("interleaved", {"prefix_hit_rate": 0.6}),
        ("disaggregated", {"prompt_len": "min=100,max=1900", "generate_len": "min=50,max=350"}),
    ],
)
def test_servers_that_are_nearly_full_take_in_simulation_what_the_steady_state_says(
    mode: str, lengths: dict[str, object]
) -> None:
    steady = served(batch=32, mode=mode, **lengths).best
    simulated = served(batch=32, mode=mode, rate=0.95 * 20 * steady.requests_per_s, **lengths).best

    assert simulated.simulation is not None
    assert simulated.simulation.utilization > 0.75
    assert simulated.tpot.mean_s == pytest.approx(steady.tpot.mean_s, rel=0.12)


@pytest.mark.parametrize("mode", ["interleaved", "disaggregated"])
def test_what_is_served_a_second_is_the_whole_fleets_though_a_part_of_it_is_simulated(mode: str) -> None:
    best = served(rate=2000, batch=64, mode=mode).best

    assert best.fleet is not None
    assert best.simulation is not None
    assert best.fleet.servers > 20
    assert best.simulation.requests_per_s == pytest.approx(2000, rel=0.05)
    assert best.simulation.output_tokens_per_s == pytest.approx(2000 * 200, rel=0.05)


@pytest.mark.parametrize(("reply", "passes"), [(2, 1), (201, 200)])
def test_decoding_adds_all_tokens_of_a_reply_but_the_first_which_prefill_gives(reply: int, passes: int) -> None:
    best = served(generate_len=reply, batch=32, mode="disaggregated", prefill_batch=1).best

    # 32 sequences, each replaced after so many passes; a reader for each prompt that begins meanwhile.
    assert best.requests_per_s == pytest.approx(32 / (passes * best.step.expected_s))
    assert best.plan.prefill_server_ratio == pytest.approx(32 * best.prefill_s / (passes * best.step.expected_s))
    chips = 4 * (1 + best.plan.prefill_server_ratio)
    assert best.tokens_per_s_per_chip == pytest.approx(reply * best.requests_per_s / chips)


def test_full_servers_that_are_simulated_serve_as_many_short_replies_as_the_steady_state_says() -> None:
    steady = served(generate_len=3, batch=32, mode="disaggregated", prefill_batch=1).best
    fleet = served(generate_len=3, batch=32, mode="disaggregated", prefill_batch=1, rate=10 * steady.requests_per_s)

    assert fleet.best.fleet is not None
    assert 10 <= fleet.best.fleet.servers <= 12


def test_a_chunk_that_does_not_fit_is_said_to_be_what_does_not() -> None:
    with pytest.raises(InfeasibleError) as caught:
        served(prefill_chunk=1e9, generate_len=200)

    assert "a pass that reads 1B tokens of prompts beside needs layer working set" in " ".join(caught.value.reasons)


def test_a_cache_in_a_format_that_a_chip_has_not_is_noted() -> None:
    narrow = ridgeline.serve("llama3.1-8b", on="a100-80gb:1", prompt_len=100, generate_len=10, kv_cache_dtype="fp4")

    assert any("has no fp4: no engine that is known keeps a KV cache in it" in note for note in narrow.notes)
