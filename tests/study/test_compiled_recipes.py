"""Whole models compiled for slices that are not there: minutes each, so only when asked for (`make test-slow`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import ridgeline
from ridgeline.compiler.maxtext_environment import find_maxtext
from tests.conftest import MAXTEXT_PYTHON
from tests.witness.recorded import Compiled, compiled_jobs

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

KEPT = ("decoder_layer_input", "query_proj", "key_proj", "value_proj")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("libtpu")
    monkeypatch.setenv("RIDGELINE_CACHE", str(tmp_path))


def test_a_70b_model_needs_what_the_equation_says_and_minutes_to_compile() -> None:
    answer = ridgeline.compile_job(
        "llama3.1-70b",
        on="tpu7x:4x4x4",
        mesh="fsdp=128",
        global_batch=256,
        seq_len=8192,
        remat={"policy": "custom", "context": "device"} | dict.fromkeys(KEPT, "device"),
        program="ours",
    )

    assert answer.peak_bytes == pytest.approx(answer.estimate.memory.total_bytes, rel=0.05)
    assert answer.summary is not None
    assert answer.summary.flops == pytest.approx(answer.predicted_flops, rel=0.03)
    assert answer.compilation.outcome.compile_s < 6 * 60
    assert answer.compilation.outcome.process_bytes < 3e9


def test_offloaded_values_lie_in_the_host_memory_to_the_byte() -> None:
    answer = ridgeline.compile_job(
        "llama3.1-8b",
        on="v6e:4x4",
        mesh="fsdp=16",
        global_batch=32,
        seq_len=8192,
        remat={"policy": "custom", "context": "device"} | dict.fromkeys(KEPT, "offload"),
        program="ours",
    )

    memory = answer.compilation.outcome.memory
    assert memory is not None
    # 32 layers, 2 sequences a device: the layer's input, 32 query heads, 8 key and 8 value heads of 128, in bf16.
    assert memory.host_bytes == 32 * 2 * 8192 * (4096 + (32 + 8 + 8) * 128) * 2


@pytest.mark.parametrize("job", compiled_jobs(), ids=lambda job: job.name)
def test_maxtext_compiled_anew_needs_what_is_recorded_and_the_equation_says(job: Compiled) -> None:
    environment = find_maxtext(MAXTEXT_PYTHON or None)
    if environment is None:
        pytest.skip("MaxText is not found")
    answer = ridgeline.compile_job(str(job.path), program="maxtext", maxtext_python=environment.python)

    assert answer.peak_bytes == pytest.approx(job.peak_bytes, rel=0.02)
    assert answer.peak_bytes == pytest.approx(answer.estimate.memory.total_bytes, rel=0.15)
    assert [row for row in answer.beside.collectives if row.reason == "unexplained"] == []


@pytest.mark.parametrize("name", ["llama3.1-70b-full", "mixtral-8x7b"])
def test_our_program_needs_what_the_equation_says_where_layers_outweigh_the_head(name: str) -> None:
    job = next(job for job in compiled_jobs() if job.name == name)
    answer = ridgeline.compile_job(str(job.path), program="ours")

    assert answer.peak_bytes == pytest.approx(answer.estimate.memory.total_bytes, rel=0.10)
    assert [row for row in answer.beside.collectives if row.reason == "unexplained"] == []
