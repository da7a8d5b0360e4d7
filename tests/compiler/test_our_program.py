"""What our program asks of a TPU: stages, slices, low precision, host memory."""

from __future__ import annotations

import gzip
import re

import pytest

from ridgeline.compiler.compilation import compile_program
from ridgeline.compiler.our_program import OurProgram
from tests.compiler.jobs import TINY, tiny_job

pytest.importorskip("libtpu")
pytest.importorskip("qwix")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIDGELINE_CACHE", str(tmp_path))


@pytest.mark.parametrize(("slices", "devices"), [("2*tpu7x:2x2x1", 8), ("2*v5e:2x2", 4)])
def test_stages_on_two_slices_in_fp8_with_moments_on_the_host(slices: str, devices: int) -> None:
    job = tiny_job(
        model={**TINY, "num_layers": 4},
        hardware=slices,
        workload__global_batch=16,
        plan__mesh={"dcn_pp": 2, "fsdp": devices},
        plan__quantization={"kind": "fp8"},
        plan__optimizer={"state": "host"},
        plan__vocab_tiling=2,
    )

    found = compile_program(OurProgram(job=job, compiler="tpu"))

    # A stage has two of the layers, and all of the tables; the devices share out the matrices, none the norms.
    matrices = 2 * 1024 * 256 + 2 * (256 * 128 * (4 + 2 + 2 + 4) + 3 * 256 * 512)
    elements = matrices / devices + (2 * 2 + 1) * 256
    memory = found.outcome.memory
    assert memory is not None
    assert memory.host_bytes == pytest.approx(2 * 4 * elements, rel=0.02)
    assert memory.arguments_bytes == pytest.approx(4 * elements, rel=0.05)
    assert found.hlo is not None
    text = gzip.decompress(found.hlo.read_bytes()).decode()
    assert re.search(r"f8e4m3fn\[[\d,]+\]", text)
    assert "rematted_computation/layer/mlp/up" in text
