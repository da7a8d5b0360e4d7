"""Attention of several kinds in one program, compiled for a TPU: each kernel is counted by what its part sees."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ridgeline.study.compile_job import compile_job
from tests.compiler.jobs import tiny_job

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ridgeline.study.compile_job import CompileAnswer

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


HEADS, SEQUENCE = {"fsdp": 2, "tp": 2}, {"fsdp": 2, "cp": 2}
"""Meshes whose second axis splits heads, or the sequence."""


@pytest.fixture(autouse=True, scope="module")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    pytest.importorskip("jax")
    pytest.importorskip("libtpu")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RIDGELINE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def compiled(mesh: dict[str, int]) -> CompileAnswer:
    tiles = {"kernel": "splash", "block_q": TILE, "block_kv": TILE}
    job = tiny_job(model=MODEL, workload__seq_len=4 * TILE, plan__attention=tiles, plan__mesh=mesh)
    return compile_job(job, program="ours", compiler="tpu")


@pytest.mark.parametrize("mesh", [HEADS, SEQUENCE], ids=["heads split", "sequence split"])
def test_kernels_are_counted_by_the_tiles_that_their_layer_sees(mesh: dict[str, int]) -> None:
    answer = compiled(mesh)

    assert answer.summary is not None
    found = {(part.place.part, part.place.phase): part.flops for part in answer.summary.parts}
    # A device has 2 of 4 sequences and 2 of 4 heads, or the queries of half a sequence: on average half of the tiles.
    # Rows of tiles up to the diagonal see 1, 2, 3 and 4 tiles; through a window of one tile 1, 2, 2 and 2.
    # Forward has products of the width of keys and of values; backward 3 and 2.
    product = 2 * 2 * 2 * TILE * TILE
    expected = {"layer": (7, 64, 64), "layer_2": (10, 192, 128)}
    for layer, (visited, key, value) in expected.items():
        scores = f"{layer}/attention/scores"
        assert found[scores, "forward"] == product * visited * (key + value)
        assert found[scores, "recompute"] == product * visited * (key + value)
        assert found[scores, "backward"] == product * visited * (3 * key + 2 * value)


def test_keys_and_values_of_a_split_sequence_are_gathered_and_their_gradients_scattered() -> None:
    rows = [row for row in compiled(SEQUENCE).beside.collectives if row.axes == ("cp",) and "attention" in row.part]

    found = {(row.part, row.kind, row.phase): row.total_bytes for row in rows if row.found}
    # Of 2 sequences in bf16: 2 key-value heads of 64 + 64, and 4 of latent attention, of 192 + 128.
    token = {"layer/attention": 2 * (64 + 64) * 2, "layer_2/attention": 4 * (192 + 128) * 2}
    collectives = {("all_gather", "forward"), ("all_gather", "recompute"), ("reduce_scatter", "backward")}
    assert found == {
        (part, *collective): 2 * 4 * TILE * token_bytes
        for part, token_bytes in token.items()
        for collective in collectives
    }
    assert all(row.agrees for row in rows if row.found)
    assert {row.reason for row in rows if not row.found} == {"gathered once, and kept for the backward pass"}
