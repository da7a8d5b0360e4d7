"""The answer to `ridgeline serve` on a screen, as JSON and as a chart."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING

import pytest

import ridgeline
from ridgeline.errors import InfeasibleError
from ridgeline.report.drawing import drawing
from ridgeline.report.jsonable import jsonable
from ridgeline.report.serve import no_serving_plan_json, serve_json, serve_report
from ridgeline.report.serving_frontier import frontier_charts
from ridgeline.report.svg import svg
from ridgeline.report.terminal import screen

if TYPE_CHECKING:
    from ridgeline.search.serving.answer import ServeAnswer

KEYS = {
    *("plan", "ttft_s", "tpot_s", "tokens_per_s_per_chip", "tokens_per_s_per_user", "max_concurrency", "memory"),
    *("cost_per_million_output_tokens_usd", "bound"),
}


@cache
def answer() -> ServeAnswer:
    return ridgeline.serve("llama3.1-8b", on="v5e:2x4", prompt_len=1024, generate_len=256, rate=5)


def test_json_has_the_keys_that_stay() -> None:
    found = json.loads(json.dumps(jsonable(serve_json(answer())), allow_nan=False))

    assert {"job", "best", "frontier", "rejected"} <= found.keys()
    assert all(point.keys() >= KEYS for point in (found["best"], *found["frontier"]))
    assert found["best"]["ttft_s"].keys() == {"mean", "p50", "p90", "p99"}
    assert found["best"]["tpot_s"]["mean"] > 0
    assert found["best"]["tpot_s"]["p99"] >= found["best"]["tpot_s"]["p50"]
    assert found["best"]["memory"]["verdict"] == "fits"


def test_without_a_rate_json_says_null_of_tails_that_are_not_known() -> None:
    full = ridgeline.serve("llama3.1-8b", on="v5e:2x4", prompt_len=1024, generate_len=256)
    found = json.loads(json.dumps(jsonable(serve_json(full)), allow_nan=False))

    assert found["best"]["tpot_s"]["mean"] > 0
    assert found["best"]["tpot_s"]["p99"] is None


def test_the_screen_says_the_plan_its_cost_its_chips_and_what_it_waits_for() -> None:
    text = screen(serve_report(answer()))

    for words in ("Best plan", "per token", "waits for", "a million output tokens", "5 requests/s", "Frontier", "Laws"):
        assert words in text


def test_how_much_of_prompts_a_pass_reads_is_said_of_each_rank() -> None:
    def mode(mesh: str) -> str:
        found = ridgeline.serve(
            "llama3.1-8b",
            on="h100:8",
            prompt_len=1024,
            generate_len=256,
            mode="interleaved",
            mesh=mesh,
            prefill_chunk=512,
        )
        return " ".join(screen(serve_report(found)).split())

    words = "passes read up to 512 tokens of prompts beside decoding"
    assert f"{words}, on each of 4 ranks" in mode("dp=4,tp=2")
    assert words in mode("tp=8")
    assert "ranks" not in mode("tp=8").partition("decode tp=8")[0]


def test_charts_show_the_frontier_and_what_a_pass_is_made_of() -> None:
    frontier, breakdown = frontier_charts(answer())

    assert len(frontier.curves[0].points) == len(answer().frontier)
    assert {"reading weights", "reading KV cache"} <= {curve.name for curve in breakdown.curves}
    assert all(svg(drawing([chart])).lstrip().startswith("<svg") for chart in (frontier, breakdown))


def test_without_a_plan_json_says_why_and_what_comes_closest() -> None:
    with pytest.raises(InfeasibleError) as caught:
        ridgeline.serve("llama3.1-8b", on="v5e:2x4", prompt_len=1024, generate_len=256, tpot="10us")
    found = no_serving_plan_json(caught.value)

    assert found["best"] is None
    assert found["reasons"]
    assert isinstance(found["closest"], dict)
