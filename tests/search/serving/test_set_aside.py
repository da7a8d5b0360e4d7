"""Memory that an engine sets aside beside weights and caches: what samples, and what experts make of others' tokens."""

from __future__ import annotations

from dataclasses import replace

from ridgeline.job.reading import job_of_tables
from ridgeline.job.serving import ServingJob
from ridgeline.search.serving.pinned import EngineSettings, engine_settings, pinned_server

ENGINE = replace(engine_settings("trtllm"), max_sequences=1024, reading="elsewhere")


def sequences(settings: EngineSettings, *, model: str, on: str, mesh: dict[str, int], prompt_len: int) -> float:
    """Sequences that a server holds, with caches in fp8, of a rank."""
    tables: dict[str, object] = {
        "version": 1,
        "model": model,
        "hardware": on,
        "workload": {"kind": "serve", "prompt_len": prompt_len, "generate_len": 32},
        "plan": {"decode": mesh, "dtypes": {"weights": "fp8", "compute": "fp8", "kv_cache": "fp8"}},
    }
    job = job_of_tables(tables, file="job")
    assert isinstance(job, ServingJob)
    return pinned_server(job, settings).rank_size


def test_a_sampler_takes_room_for_the_logits_of_the_most_sequences_whether_they_come_or_not() -> None:
    def held(settings: EngineSettings) -> float:
        return sequences(settings, model="llama3.1-8b", on="h100:1", mesh={"tp": 1}, prompt_len=16_000)

    # 1,024 sequences · 128,256 logits · 32 bytes are the caches of four: 16,032 tokens · 2 · 32 layers · 8 · 128 each.
    assert 1024 * 128_256 * 32 == 4 * 16_032 * 2 * 32 * 8 * 128
    assert held(ENGINE) - held(replace(ENGINE, sampler_bytes=32.0)) == 4


def test_caches_take_a_share_of_what_is_left_and_not_of_all_memory() -> None:
    def held(share: float) -> float:
        settings = replace(ENGINE, cache_share=share)
        return sequences(settings, model="llama3.1-8b", on="h100:1", mesh={"tp": 1}, prompt_len=16_000)

    assert held(1.0) // 2 == held(0.5)


def test_each_rank_makes_room_for_what_experts_do_with_the_tokens_of_all() -> None:
    def held(pass_tokens: int) -> float:
        settings = replace(ENGINE, pass_tokens=pass_tokens, max_sequences=None)
        return sequences(settings, model="llama4-17b-128e", on="h100:8", mesh={"ep": 8}, prompt_len=96)

    # A token in a block with experts: 128 scores, its own expert and the shared one, the stream; a byte each, for eight
    # ranks. A sequence of 128 tokens has 2 · 48 layers · 8 heads · 128 bytes of each.
    row_bytes, sequence_bytes = 128 + 2 * (2 * 8192 + 5120) + 2 * 5120, 128 * 2 * 48 * 8 * 128
    assert abs(held(4_000) - held(12_000) - 8 * 8_000 * row_bytes / sequence_bytes) <= 1


def test_where_tokens_travel_to_their_experts_alone_a_rank_makes_room_for_its_own() -> None:
    def held(pass_tokens: int) -> float:
        settings = replace(ENGINE, pass_tokens=pass_tokens, max_sequences=None)
        return sequences(settings, model="llama4-17b-128e", on="gb200:8", mesh={"ep": 8}, prompt_len=3_968)

    row_bytes, sequence_bytes = 128 + 2 * (2 * 8192 + 5120) + 2 * 5120, 4_000 * 2 * 48 * 8 * 128
    assert abs(held(8_192) - held(73_728) - 65_536 * row_bytes / sequence_bytes) <= 1
