"""Attention of several kinds in one program, compiled for a TPU: each kernel is counted by what its part sees."""

from __future__ import annotations

import pytest

from ridgeline.study.compile_job import compile_job
from tests.compiler.jobs import tiny_job

MODEL = {
    "name": "tiny",
    "embed_dim": 128,
    "vocab_size": 512,
    "num_layers": 2,
    "pattern": ["local", "latent"],
    "attention": {"num_heads": 4, "num_kv_heads": 2, "head_dim": 64, "span": {"kind": "sliding", "window": 128}},
    "mlp": {"mlp_dim": 256},
    "layer": {
        "latent": {
            "mla": {
                "num_heads": 4,
                "q_lora_rank": 64,
                "kv_lora_rank": 64,
                "qk_nope_head_dim": 128,
                "qk_rope_head_dim": 64,
                "v_head_dim": 128,
            }
        }
    },
}
TILE = 128


def test_kernels_are_counted_by_the_tiles_that_their_layer_sees(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jax")
    pytest.importorskip("libtpu")
    monkeypatch.setenv("RIDGELINE_CACHE", str(tmp_path_factory.mktemp("cache")))
    tiles = {"kernel": "splash", "block_q": TILE, "block_kv": TILE}
    job = tiny_job(model=MODEL, workload__seq_len=4 * TILE, plan__attention=tiles)

    answer = compile_job(job, program="ours", compiler="tpu")

    assert answer.summary is not None
    found = {(part.place.part, part.place.phase): part.flops for part in answer.summary.parts}
    # A device has 2 of 4 sequences and 2 of 4 heads. Rows of tiles up to the diagonal see 1, 2, 3 and 4 tiles; through
    # a window of one tile 1, 2, 2 and 2. Forward has products of the width of keys and of values; backward 3 and 2.
    product = 2 * 2 * 2 * TILE * TILE
    expected = {"layer": (7, 64, 64), "layer_2": (10, 192, 128)}
    for layer, (visited, key, value) in expected.items():
        scores = f"{layer}/attention/scores"
        assert found[scores, "forward"] == product * visited * (key + value)
        assert found[scores, "recompute"] == product * visited * (key + value)
        assert found[scores, "backward"] == product * visited * (3 * key + 2 * value)
