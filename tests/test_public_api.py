"""`import ridgeline`: the verbs as functions, with the same arguments."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

import ridgeline
from ridgeline.hardware.chip import Chip
from ridgeline.hardware.slice import Slice
from ridgeline.job.origin import settings
from ridgeline.job.reading import read_job


def test_everything_that_is_promised_is_there() -> None:
    assert [name for name in ridgeline.__all__ if not hasattr(ridgeline, name)] == []


def test_a_mesh_may_be_given_as_text_or_as_a_mapping() -> None:
    def job(mesh: str | Mapping[str, int]) -> object:
        said = settings({"on": "v6e:8x8", "seq_len": 8192, "mesh": mesh}, written=str)
        return read_job("llama3.1-8b", said)

    assert job("fsdp=16,tp=4") == job({"fsdp": 16, "tp": 4})


def test_training_can_be_asked_of_a_job_or_of_a_model_with_arguments() -> None:
    said = settings({"on": "v6e:8x8", "seq_len": 8192, "global_batch": 256}, written=str)
    job = read_job("llama3.1-8b", said)

    answer = ridgeline.train("llama3.1-8b", on="v6e:8x8", seq_len=8192, global_batch=256)

    assert answer.job == job
    assert ridgeline.train(job).best.plan == answer.best.plan


def test_a_whole_job_takes_no_further_arguments() -> None:
    job = read_job("llama3.1-8b", settings({"on": "v6e:8x8", "seq_len": 8192}, written=str))

    with pytest.raises(ridgeline.InputError) as refused:
        ridgeline.train(job, global_batch=256)

    assert (refused.value.where, refused.value.value) == ("global_batch=", 256)


def test_an_argument_is_named_as_it_was_written() -> None:
    with pytest.raises(ridgeline.InputError) as refused:
        ridgeline.train("llama3.1-8b", on="v6e:8x8", seq_len=0)

    assert (refused.value.what, refused.value.where) == ("number too small", "seq_len=")


def test_progress_is_told_and_ends_at_the_whole() -> None:
    told: list[float] = []

    ridgeline.train(
        "llama3.1-8b",
        on="v6e:8x8",
        seq_len=8192,
        global_batch=256,
        progress=lambda _, fraction: told.append(fraction),
    )

    assert told[-1] == 1
    assert all(0 <= fraction <= 1 for fraction in told)


def test_chips_gives_the_catalogue_a_chip_or_a_slice() -> None:
    assert all(isinstance(chip, Chip) for chip in ridgeline.chips())
    assert isinstance(ridgeline.chips("h100"), Chip)
    assert isinstance(ridgeline.chips("h100:64"), Slice)


def test_a_model_can_be_described() -> None:
    assert ridgeline.describe_model("llama3.1-70b").spec.num_layers == 80


def test_the_readme_names_the_functions_that_the_verbs_are() -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    named = re.findall(r"`ridgeline\.(\w+)`", readme)

    assert set(named) >= {"train", "chips", "describe_model"}
    assert [name for name in named if name != "model" and not callable(getattr(ridgeline, name))] == []


def test_a_job_that_our_program_cannot_be_is_refused_from_python_too() -> None:
    pytest.importorskip("jax")

    with pytest.raises(ridgeline.InputError, match="our program has no such sequence mixer yet"):
        ridgeline.compile_job("qwen3-next-80b-a3b", compiler="cpu", on="v5e:2x4", seq_len=128, global_batch=8)
