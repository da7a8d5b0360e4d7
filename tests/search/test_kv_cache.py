"""KV caches of servers beside published statements and figures by hand: to the byte, and as a paged engine has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import ridgeline

if TYPE_CHECKING:
    from ridgeline.search.serving.answer import ServingPoint

GIB = 2**30


def server(model: str, on: str, *, context: int, batch: int = 1, mesh: str | None = None) -> ServingPoint:
    """The best server of so many sequences at once, each with room for so many tokens."""
    said = {} if mesh is None else {"mesh": mesh}
    return ridgeline.serve(model, on=on, prompt_len=context - 64, generate_len=64, batch=batch, **said).best


def paged_bytes(point: ServingPoint) -> float:
    return point.memory.parts["kv_cache"]


@pytest.mark.parametrize(
    ("model", "on", "mesh", "token_bytes"),
    [
        # Multi-head: 2 · 2 bytes · 40 layers · 40 heads · 128 (Scaling Book, ch. 7: 6.7 GB for 8,192 tokens).
        ("llama2-13b", "h200:1", None, 819_200),
        # Grouped: DeepSeek-V3's hardware paper (arXiv:2505.09343), table 1: 516.1 KB, and 327.7 KB of Qwen2.5 72B.
        ("llama3.1-405b", "h200:8", "tp=8", 516_096 / 8),
        ("qwen2.5-72b", "h200:8", "tp=8", 327_680 / 8),
        # 98,304 = 2 · 2 · 48 · 4 · 128: demand of Qwen3-Coder-30B-A3B, about 96 KB.
        ("qwen3-30b-a3b", "h200:1", None, 98_304),
        # Multi-query: 2 · 2 · 32 · 1 · 64, and of PaLM 540B 2 · 2 · 118 · 256, which no tensor parallelism splits.
        ("falcon-7b", "h200:1", None, 8_192),
        # Latent: the same table: 70.3 KB; 61 layers of 576 elements.
        ("deepseek3-671b", "h200:16", "ep=16", 70_272 / 16),
        # Latent beside the keys of a scorer: 61 · (576 + 128) · 2.
        ("deepseek3.2-671b", "h200:16", "ep=16", 85_888 / 16),
        # Hybrid: of 48 layers 12 attend (2 · 2 · 2 heads of 256), of Nemotron-H 8B 4 of 52 (2 · 2 · 8 · 128).
        ("qwen3-next-80b-a3b", "h200:2", "tp=2", 24_576 / 2),
        ("nemotron-h-8b", "h200:1", None, 16_384),
    ],
)
def test_layers_that_see_all_tokens_keep_them_all_and_pages_waste_nothing(
    model: str, on: str, mesh: str | None, token_bytes: float
) -> None:
    batch = 16 if mesh == "ep=16" else 1
    point = server(model, on, context=2048, batch=batch, mesh=mesh)

    assert point.ideal_cache_bytes == batch * 2048 * token_bytes
    assert paged_bytes(point) == point.ideal_cache_bytes


def test_a_window_in_every_other_layer_wastes_nearly_half_of_the_pages() -> None:
    # hf-mem#70: gpt-oss-20b, 8,192 tokens, 32 sequences: 6.09 GiB capped by windows, 12.00 GiB in vLLM's pages.
    point = server("gpt-oss-20b", "h200:1", context=8192, batch=32)

    assert round(point.ideal_cache_bytes / GIB, 2) == 6.09
    assert paged_bytes(point) == 12 * GIB


def test_gpt_oss_120b_takes_73728_bytes_a_token_in_pages() -> None:
    # hf-mem#60: 36 layers · 2 · 8 heads · 64 · 2 bytes.
    point = server("gpt-oss-120b", "h200:2", context=4096, mesh="tp=2")

    assert paged_bytes(point) * 2 == 4096 * 73_728
    # 18 layers keep all, 18 keep 128.
    assert point.ideal_cache_bytes * 2 == 73_728 / 36 * (18 * 4096 + 18 * 128)


def test_gemma_4_31b_takes_983040_bytes_a_token_in_pages_as_wide_as_its_widest_layer() -> None:
    # hf-mem#60: about 983,195 in vLLM. 60 layers · 2 · 16 heads · 256 · 2 bytes.
    point = server("gemma4-31b", "h200:1", context=8192)

    assert paged_bytes(point) == 8192 * 983_040
    # 10 global layers with 4 heads of 512, 50 local ones with 16 of 256 that keep 1,024 tokens.
    assert point.ideal_cache_bytes == 2 * 2 * (10 * 4 * 512 * 8192 + 50 * 16 * 256 * 1024)


def test_chunked_layers_keep_one_chunk() -> None:
    # Llama 4: every fourth layer of 48 sees all, the others chunks of 8,192; 8 heads of 128.
    point = server("llama4-17b-16e", "h200:2", context=131_072, mesh="tp=2")

    assert point.ideal_cache_bytes * 2 == 2 * 2 * 8 * 128 * (12 * 131_072 + 36 * 8192)
    assert paged_bytes(point) * 2 == 2 * 2 * 8 * 128 * 48 * 131_072


def test_layers_that_reuse_the_cache_of_earlier_ones_keep_none() -> None:
    # Gemma 4 E4B: of 42 layers the first 24 have caches: 4 global ones (2 heads of 512), 20 local ones (2 of 256).
    point = server("gemma4-e4b", "h200:1", context=32_768)

    assert point.ideal_cache_bytes == 2 * 2 * (4 * 2 * 512 * 32_768 + 20 * 2 * 256 * 512)


def test_states_of_a_hybrid_do_not_grow_with_the_context() -> None:
    short, long = (server("qwen3-next-80b-a3b", "h200:2", context=each, mesh="tp=2") for each in (2048, 16_384))

    # 36 layers, f32: 32 heads · 128 · 128, and 3 inputs of a convolution over 8,192.
    assert short.memory.parts["states"] * 2 == 36 * 4 * (32 * 128 * 128 + 3 * 8192)
    assert long.memory.parts["states"] == short.memory.parts["states"]


def test_beyond_its_key_value_heads_tensor_parallelism_copies_the_cache() -> None:
    # tpu-inference#1429: 16 ways, 8 heads: a chip has an eighth of the cache, not a sixteenth.
    eight, sixteen = (
        server("llama3.1-405b", on, context=4096, mesh=mesh) for on, mesh in (("h200:8", "tp=8"), ("h200:16", "tp=16"))
    )

    assert {eight.plan.cache, sixteen.plan.cache} == {"heads"}
    assert eight.ideal_cache_bytes == sixteen.ideal_cache_bytes == 4096 * 516_096 / 8


def test_on_v6e_an_engine_has_room_for_as_many_sequences_as_vllm_reports() -> None:
    # vLLM on TPU, Llama 3.1 8B, 4 ways: 3.74 GiB of weights a chip, 811,008 tokens, 198.00 times 4,096.
    point = ridgeline.serve("llama3.1-8b", on="v6e:2x2", prompt_len=2048, generate_len=2048, mesh="tp=4").best

    assert round(point.memory.parts["weights"] / GIB, 2) == 3.74
    assert point.max_concurrency == pytest.approx(198, rel=0.015)
    assert point.max_concurrency == point.ideal_concurrency


def test_llama_70b_keeps_10_gib_of_32768_tokens() -> None:
    # Vx#303: 10 GiB, and not 80, which 64 heads would take.
    point = server("llama3.1-70b", "h200:8", context=32_768, mesh="tp=8")

    assert point.ideal_cache_bytes * 8 == 10 * GIB
