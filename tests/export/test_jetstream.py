"""A serving job as JetStream with MaxText's engine is told it: keys of the stated version alone, slots that fit."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ridgeline.cli.app import main
from ridgeline.errors import InfeasibleError, InputError
from ridgeline.export.maxtext_version import maxtext_version
from ridgeline.job.origin import Setting
from ridgeline.job.reading import read_serving_job
from ridgeline.study.export_jetstream import export_jetstream

if TYPE_CHECKING:
    from pathlib import Path

    from ridgeline.job.serving import ServingJob


def job(model: str = "llama3.1-8b", on: str = "v6e:2x2", **more: object) -> ServingJob:
    """A job of 1,024 tokens in and 512 out, with what a test changes."""
    said = {"hardware": on, "workload.prompt_len": 1024, "workload.generate_len": 512}
    said |= {key.replace("__", "."): value for key, value in more.items()}
    return read_serving_job(model, [Setting(key=key, value=value, where=key) for key, value in said.items()])


def test_every_key_is_one_of_the_stated_version() -> None:
    answer = export_jetstream(job(plan__dtypes={"kv_cache": "int8"}))

    assert set(answer.config.settings) <= set(maxtext_version().keys)
    assert answer.config.settings["model_name"] == "llama3.1-8b"
    assert (answer.config.settings["quantize_kvcache"], answer.config.settings["kv_quant_dtype"]) == (True, "int8")


def test_slots_are_the_batch_and_caches_are_as_long_as_both_together() -> None:
    settings = export_jetstream(job(workload__batch=66)).config.settings

    assert int(float(settings["per_device_batch_size"]) * 4) == 66
    assert (settings["max_prefill_predict_length"], settings["max_target_length"]) == (1024, 1536)


def test_a_slot_has_room_for_its_whole_context_and_a_prompt_for_its_own() -> None:
    few, many = (export_jetstream(job(workload__batch=batch)) for batch in (4, 104))

    # 32 layers of a key and a value of 8 heads of 128 in bf16, over 4 devices, and 128,256 logits in f32.
    slot_bytes = 32 * 2 * 8 * 128 * 2 / 4 * 1536 + 128_256 * 4 / 4
    assert many.held_bytes - few.held_bytes == pytest.approx(100 * slot_bytes)
    assert many.held_bytes < many.usable_bytes


def test_slots_beyond_the_memory_are_left_out() -> None:
    answer = export_jetstream(job("gemma3-27b", "v6e:2x4", workload__prompt_len=30_000))

    assert answer.batch < answer.point.plan.batch  # pages of layers with windows are short, MaxText's caches are not
    assert answer.held_bytes <= answer.usable_bytes


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"on": "v6e:4x4"}, "8 key-value heads over 16 devices"),
        ({"on": "h100:4"}, "GPUs"),
        ({"model": "deepseek3-671b", "on": "v6e:8x8"}, "caches of latents"),
        ({"plan__dtypes": {"weights": "fp8", "compute": "fp8"}, "on": "tpu7x:2x2x1"}, "fp8 weights, fp8 matmuls"),
        ({"model": "gpt-oss-20b"}, "experts mxfp4"),
        ({"plan__dtypes": {"kv_cache": "fp8"}}, "a cache in fp8"),
        ({"plan__mode": "disaggregated"}, "whose parts are not public"),
        ({"plan__speculation": {"draft_tokens": 2, "acceptance": 0.5}}, "drafts"),
    ],
)
def test_what_the_engine_cannot_be_told_is_refused_by_name(more: dict[str, object], what: str) -> None:
    with pytest.raises(InputError, match=what):
        export_jetstream(job(**more))  # pyright: ignore[reportArgumentType] - parameters of a test


def test_a_model_that_does_not_fit_is_told() -> None:
    with pytest.raises(InfeasibleError, match="cannot be served so on v5e:1x1"):
        export_jetstream(job(on="v5e:1x1"))


def test_the_command_line_writes_a_configuration_and_a_script(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, script = tmp_path / "serve.yml", tmp_path / "serve.sh"
    line = ["export", "llama3.1-8b", "--to=jetstream", "--on=v6e:2x2", "--prompt-len=1024", "--generate-len=512"]

    assert main([*line, f"--output={config}"]) == 0
    assert main([*line, "--checkpoint=gs://bucket/llama", f"--output={script}", "--json"]) == 0
    assert "max_prefill_predict_length: 1024\n" in config.read_text()
    command = script.read_text().splitlines()[-1]
    assert command.startswith("exec python3 -m maxtext.inference.maxengine.maxengine_server ")
    assert "load_parameters_path=gs://bucket/llama" in command
    shown = capsys.readouterr().out
    assert json.loads(shown[shown.index("{") :])["settings"]["ici_tensor_parallelism"] == 4


def test_steps_are_of_training(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "llama3.1-8b", "--to=jetstream", "--on=v6e:2x2", "--steps=3"]) == 2
    assert "jetstream has no use for --steps" in capsys.readouterr().err
