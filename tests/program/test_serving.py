"""Prefill and decoding against the forward pass of training, on one device and on meshes; and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.program.processes import answered

pytest.importorskip("jax")

SIZES = {"name": "tiny", "embed_dim": 32, "vocab_size": 64, "num_layers": 3}
GQA = {**SIZES, "attention": {"num_heads": 8, "num_kv_heads": 4, "head_dim": 8}, "mlp": {"mlp_dim": 64}}
MODELS: dict[str, dict[str, Any]] = {
    "grouped-query": GQA,
    "multi-head with learned positions": {
        **GQA,
        "attention": {"num_heads": 8, "num_kv_heads": 8, "head_dim": 8, "qkv_bias": True, "rotary": False},
        "mlp": {"mlp_dim": 64, "gated": False, "bias": True},
        "norm": {"bias": True},
        "max_position_embeddings": 16,
    },
    "multi-query, tied": {
        **GQA,
        "attention": {"num_heads": 8, "num_kv_heads": 1, "head_dim": 8},
        "tied_embeddings": True,
    },
    "local and global": {
        **GQA,
        "num_layers": 4,
        "pattern": ["local", "global"],
        "layer": {"local": {"attention": {"span": {"kind": "sliding", "window": 6}}}, "global": {}},
    },
    "latent": {
        **SIZES,
        "mla": {
            "num_heads": 8,
            "q_lora_rank": 16,
            "kv_lora_rank": 16,
            "qk_nope_head_dim": 8,
            "qk_rope_head_dim": 4,
            "v_head_dim": 8,
        },
        "mlp": {"mlp_dim": 64},
    },
    "mixture of experts": {
        **SIZES,
        "attention": GQA["attention"],
        "moe": {"num_experts": 4, "top_k": 2, "expert_mlp_dim": 32, "shared_mlp_dim": 32},
    },
    "chunked": {
        **GQA,
        "attention": {**GQA["attention"], "span": {"kind": "chunked", "window": 6}},
    },
}
MESHES: list[tuple[dict[str, int], dict[str, int]]] = [
    ({"tp": 2, "dp": 2}, {"tp": 4}),
    ({"tp": 8}, {"tp": 8}),  # two copies of each of four key-value heads
    ({"dp": 8}, {"dp": 2, "tp": 4}),
    ({"cp": 2, "tp": 4}, {"cp": 2, "dp": 2, "tp": 2}),
]
TOLERANCE = 1e-5
"""Of logits in f32, as a fraction of the largest: sums are added up in another order."""

EIGHT_BITS = {"int8": 0.03, "fp8": 0.1}
"""Of logits beside an 8-bit cache: int8 has steps of 1/254 of a head's largest number, e4m3 of 1/16 of each."""

SPREAD = {
    "grouped-query": {"tp": 8},
    "multi-query, tied": {"tp": 8},
    "local and global": {"tp": 8},
    "latent": {"dp": 2, "tp": 4},
}
"""Meshes of decode with more devices than key-value heads, which share out the sequences of the cache."""


def question(model: str, prefill: dict[str, int], decode: dict[str, int], **more: str) -> dict[str, Any]:
    return {"model": MODELS[model], "prefill": prefill, "decode": decode, **more}


QUESTIONS = {
    **{f"{model} on one device": question(model, {"tp": 1}, {"tp": 1}) for model in MODELS},
    **{f"grouped-query on {decode}": question("grouped-query", *meshes) for meshes in MESHES for decode in meshes[1:]},
    "multi-query on tp=8": question("multi-query, tied", {"tp": 8}, {"tp": 8}),
    "local and global on tp=8": question("local and global", {"tp": 8}, {"tp": 8}),
    "latent on a mesh": question("latent", {"tp": 8}, {"dp": 2, "tp": 4}),
    "mixture of experts on a mesh": question("mixture of experts", {"dp": 2, "tp": 4}, {"ep": 4, "tp": 2}),
    **{
        f"{model}, its cache spread": question(model, {"tp": 8}, decode, cache="spread")
        for model, decode in SPREAD.items()
    },
    **{dtype: question("grouped-query", {"tp": 1}, {"tp": 1}, kv_cache=dtype) for dtype in EIGHT_BITS},
}


@pytest.fixture(scope="module")
def answers() -> dict[str, dict[str, float]]:
    """All questions, answered by one process with 8 emulated devices."""
    said = answered("tests.program.serving_emulated", list(QUESTIONS.values()))
    return dict(zip(QUESTIONS, said, strict=True))


@pytest.mark.parametrize("name", [name for name in QUESTIONS if name not in EIGHT_BITS])
def test_prefill_and_decoding_give_the_logits_of_the_whole_forward_pass(
    answers: dict[str, dict[str, float]], name: str
) -> None:
    assert answers[name]["prefill"] < TOLERANCE
    assert answers[name]["decode"] < TOLERANCE


@pytest.mark.parametrize(("dtype", "tolerance"), EIGHT_BITS.items())
def test_a_cache_in_8_bits_is_read_back_nearly_as_it_was(
    answers: dict[str, dict[str, float]], dtype: str, tolerance: float
) -> None:
    assert answers[dtype]["prefill"] < TOLERANCE
    assert TOLERANCE < answers[dtype]["decode"] < tolerance
