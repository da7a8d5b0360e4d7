"""Weights are served as their checkpoint is published, unless a job says otherwise; training does not follow it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import ridgeline
from ridgeline.errors import InputError
from ridgeline.job.job import Dtypes
from ridgeline.job.reading import read_job, read_serving_job
from ridgeline.job.serving import ServingDtypes
from ridgeline.job.whole import whole_serving_job
from ridgeline.job.writing import write_job

if TYPE_CHECKING:
    from pathlib import Path

    from ridgeline.job.serving import ServingJob


def job(model: str, on: str, **said: str) -> ServingJob:
    return whole_serving_job(model, {"on": on, "prompt_len": 1000, "generate_len": 500, **said})  # pyright: ignore[reportArgumentType] - as told


def dtypes(model: str, on: str, **said: str) -> ServingDtypes:
    return job(model, on, **said).plan.dtypes


@pytest.mark.parametrize(
    ("model", "on", "expected"),
    [
        ("gpt-oss-120b", "h200:8", ServingDtypes(experts="mxfp4")),
        ("deepseek-v3", "h200:8", ServingDtypes(weights="fp8", compute="fp8")),
        ("deepseek-v3", "a100-80gb:16", ServingDtypes(weights="fp8")),  # an A100 has no matmul in fp8
        ("deepseek-v4-flash", "b200:8", ServingDtypes(weights="fp8", experts="fp4", compute="fp8")),
        ("kimi-k2.5", "h200:8", ServingDtypes(experts="int4")),
        ("llama3.1-70b", "h200:8", ServingDtypes()),
    ],
)
def test_what_a_job_leaves_out_is_as_published(model: str, on: str, expected: ServingDtypes) -> None:
    assert dtypes(model, on) == expected


def test_a_job_overrides_each_part_and_other_weights_are_another_checkpoint() -> None:
    published = ServingDtypes(weights="fp8", compute="fp8")

    assert dtypes("deepseek-v3", "h200:8", weights_dtype="bf16") == ServingDtypes()
    assert dtypes("gpt-oss-120b", "h200:8", weights_dtype="bf16") == ServingDtypes()
    assert dtypes("deepseek-v3", "h200:8", compute_dtype="bf16") == ServingDtypes(weights="fp8")
    assert dtypes("deepseek-v3", "h200:8", kv_cache_dtype="fp8") == ServingDtypes(
        weights="fp8", compute="fp8", kv_cache="fp8"
    )
    assert dtypes("deepseek-v3", "h200:8", weights_dtype="any") == published


def test_a_device_holds_the_bytes_of_the_published_checkpoint() -> None:
    # Experts of gpt-oss-120b: 36 · 128 · 3 · 2,880² weights of 4 bits with a scale of 1 byte for 32; 2.17e9 others.
    experts = 36 * 128 * 3 * 2880**2
    expected = (experts * (0.5 + 1 / 32) + (116_829_156_672 - experts) * 2) / 8

    best = ridgeline.serve("gpt-oss-120b", on="h200:8", prompt_len=1000, generate_len=500, mesh="tp=8").best

    assert best.memory.parts["weights"] == pytest.approx(expected, rel=0.01)


def test_the_answer_says_whose_precision_it_is() -> None:
    def says(on: str, **said: str) -> str:
        answer = ridgeline.serve("gpt-oss-20b", on=on, prompt_len=1000, generate_len=500, **said)  # pyright: ignore[reportArgumentType] - as told
        return next(line for line in answer.assumptions if "checkpoint" in line)

    source = "https://huggingface.co/openai/gpt-oss-20b config.json"
    assert says("h100:1") == (
        f"experts mxfp4, the rest bf16, as the checkpoint is published ({source}); NVIDIA H100 SXM5 80GB has no matmul "
        "in them; they are widened to bf16 on their way to each matmul"
    )
    assert says("h100:1", weights_dtype="bf16") == (
        f"weights bf16, as asked; the published checkpoint has experts mxfp4, the rest bf16 ({source})"
    )


def test_a_saved_job_has_what_was_published_and_reads_back_as_the_same(tmp_path: Path) -> None:
    asked, file = job("deepseek-v3", "h200:8"), tmp_path / "job.toml"

    write_job(asked, str(file))

    assert 'weights = "fp8"' in file.read_text()
    assert read_serving_job(str(file)) == asked


def test_an_own_model_says_what_its_checkpoint_holds(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text(
        'version = 1\nhardware = "h100:1"\n[workload]\nkind = "serve"\nprompt_len = 100\ngenerate_len = 100\n'
        '[model]\nbase = "llama3.1-8b"\nstored = { weights = "int8", compute = "int8" }\n'
    )
    assert read_serving_job(str(file)).plan.dtypes == ServingDtypes(weights="int8", compute="int8")

    file.write_text(file.read_text().replace('weights = "int8"', 'weights = "int7"'))
    with pytest.raises(InputError, match="one of bf16, fp8, int8, int4, fp4, mxfp4"):
        read_serving_job(str(file))


def test_training_does_not_follow_the_checkpoint(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text(
        'version = 1\nmodel = "deepseek-v3"\nhardware = "h200:256"\n[workload]\nseq_len = 4096\nglobal_batch = 1024\n'
    )

    assert read_job(str(file)).plan.dtypes == Dtypes()
