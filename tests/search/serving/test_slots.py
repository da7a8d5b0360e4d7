"""An engine with a fixed number of slots, whose host works beside its devices: JetStream."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ridgeline.cost.serving.step import host_s
from ridgeline.errors import InfeasibleError
from ridgeline.job.reading import job_of_tables
from ridgeline.job.serving import ServingJob
from ridgeline.search.serving.offline import slot_stretches
from ridgeline.search.serving.pinned import PASSES_AHEAD, PinnedServer, engine_settings, pinned_server

JETSTREAM = replace(engine_settings("jetstream"), cache_room=2048)


def job(model: str = "llama3.1-8b", *, batch: int = 64, on: str = "v5e:2x4", ways: int = 8) -> ServingJob:
    tables: dict[str, object] = {
        "version": 1,
        "model": model,
        "hardware": on,
        "workload": {"kind": "serve", "prompt_len": 200, "generate_len": 100, "batch": batch},
        "plan": {"decode": {"tp": ways}, "dtypes": {"weights": "bf16"}},
    }
    found = job_of_tables(tables, file="job")
    assert isinstance(found, ServingJob)
    return found


def with_host(server: PinnedServer, *, pass_s: float, token_s: float) -> PinnedServer:
    return server.with_efficiency(replace(server.machine.serving, host_s=pass_s, sequence_s=token_s))


def test_the_host_costs_nothing_until_it_is_slower_than_the_devices() -> None:
    server = pinned_server(job(), JETSTREAM)
    quick, slow, none = (with_host(server, pass_s=each, token_s=0.0).times().tpot_s for each in (1e-3, 0.5, 0.0))

    assert quick == none
    assert slow == 0.5
    waiting = with_host(pinned_server(job(), replace(JETSTREAM, dispatches_ahead=False)), pass_s=1e-3, token_s=0.0)
    assert waiting.times().tpot_s > none


def test_a_prompt_is_filled_up_to_the_next_program() -> None:
    server = pinned_server(job(), JETSTREAM)

    assert server.reading.prompt_tokens == 256  # of 200 tokens; programs have 16, 32, … tokens
    assert server.reading_share == 64 / 100  # prompts that begin with each pass, each filled up


def test_every_pass_of_a_run_computes_all_slots_and_every_prompt_is_read_between_them() -> None:
    requests = 500
    settings = replace(JETSTREAM, num_requests=requests, replies_differ=True)
    server = with_host(pinned_server(job(), settings), pass_s=0.0, token_s=0.0)
    decode_s = float(server.decode.expected_s)
    passes = sum(
        each.num_passes for each in slot_stretches(num_requests=500, slots=64, reply_tokens=100 + PASSES_AHEAD)
    )

    found = server.times().output_tokens_per_s_per_chip

    assert host_s(server.machine, server.decoding) == 0
    assert found * 8 == pytest.approx(requests * 100 / (passes * decode_s + requests * float(server.read.expected_s)))


def test_the_likeliest_token_needs_no_logits_of_other_devices() -> None:
    server = pinned_server(job(), JETSTREAM)
    drawn = replace(server, machine=replace(server.machine, takes_likeliest=False))

    assert not any("logits/all_gather" in name for name, _ in server.decode.walk())
    assert any("logits/all_gather" in name for name, _ in drawn.decode.walk())
    assert float(server.decode.expected_s) < float(drawn.decode.expected_s)


def test_caches_that_do_not_fit_are_refused() -> None:
    # 32 layers, 8 heads of 128, keys and values in bf16: 131,072 bytes a token, 34 GB of 128 sequences on chips of 16.
    with pytest.raises(InfeasibleError, match="room for 2,048 tokens of each sequence do not fit"):
        pinned_server(job(batch=128, on="v5e:1x1", ways=1), JETSTREAM)
