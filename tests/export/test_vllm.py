"""A serving job as vLLM is told it: flags of the stated version alone, and memory with which the engine starts."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ridgeline
from ridgeline.errors import InfeasibleError, InputError
from ridgeline.export.vllm import DeviceMemory, serve_line, serve_words, vllm_config
from ridgeline.export.vllm_manifest import manifest_yaml
from ridgeline.export.vllm_version import vllm_version
from ridgeline.hardware.topology import parse_slice
from ridgeline.job.origin import Setting
from ridgeline.job.reading import read_serving_job
from ridgeline.study.export_vllm import device_memory, export_vllm

if TYPE_CHECKING:
    from ridgeline.job.serving import ServingJob, ServingPlan

GIB = 2**30


def job(model: str = "llama3.3-70b", on: str = "v6e:2x4", **more: object) -> ServingJob:
    """A job of 1,024 tokens in and out, with what a test changes."""
    said = {"hardware": on, "workload.prompt_len": 1024, "workload.generate_len": 1024}
    said |= {key.replace("__", "."): value for key, value in more.items()}
    return read_serving_job(model, [Setting(key=key, value=value, where=key) for key, value in said.items()])


def test_llama_on_eight_v6e_has_the_memory_that_paper_and_pencil_give() -> None:
    config = export_vllm(job()).config

    # 70.55 B parameters in bf16 over 8; 80 layers of a key and a value of 8 heads of 128 in bf16, over 8, 2,048 tokens.
    assert config.memory.weights_bytes == pytest.approx(70.55e9 * 2 / 8, rel=1e-3)
    assert config.memory.sequence_bytes == 80 * 2 * 8 * 128 * 2 // 8 * 2048
    assert config.cache_bytes == pytest.approx(0.95 * 31.25 * GIB - config.memory.weights_bytes)
    assert config.settings["max_num_seqs"] == config.num_sequences == 169


def test_flags_are_written_as_vllm_reads_them() -> None:
    config = export_vllm(job("deepseek3-671b", "h200:8", plan__decode={"ep": 8}, **_narrow("fp8", "fp8"))).config

    words = serve_words(config, "deepseek-ai/DeepSeek-V3")

    assert words[:3] == ("vllm", "serve", "deepseek-ai/DeepSeek-V3")
    assert "--enable-expert-parallel" in words
    assert ("--data-parallel-size", "8") in pairwise(words)
    assert ("--quantization", "fp8") in pairwise(words)


def test_every_flag_is_one_of_the_stated_version() -> None:
    version = vllm_version()
    settings = export_vllm(job("llama3.1-8b", "h100:1")).config.settings

    assert version.version == "0.32.0"
    assert "v0.32.0" in version.source
    assert set(settings) <= set(version.keys)
    for key in ("pipeline_parallel_size", "block_size", "enable_prefix_caching", "speculative_config"):
        assert key in version.keys


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"max_num_seq": 3}, "did you mean max_num_seqs"),
        ({"max_num_seqs": "3"}, "not of type int"),
        ({"enable_expert_parallel": 1}, "not of type bool"),
        ({"kv_cache_dtype": "bf16"}, "no such value"),
    ],
)
def test_an_unknown_flag_or_value_cannot_be_written(settings: dict[str, str | int], what: str) -> None:
    with pytest.raises(InputError, match=what):
        vllm_version().check(settings)


def test_keys_of_speculation_are_checked_too() -> None:
    vllm_version().check_speculation({"method": "mtp", "num_speculative_tokens": 1})
    with pytest.raises(InputError, match="num_speculative_tokens"):
        vllm_version().check_speculation({"num_speculative_token": 1})


@pytest.mark.parametrize("model", ["llama3.1-8b", "llama3.3-70b", "gpt-oss-120b", "qwen3-8b", "deepseek3-671b"])
@pytest.mark.parametrize("on", ["v5e:1x1", "v6e:2x4", "tpu7x:2x2x1", "v5p:2x2x1", "h100:1", "h100:8", "h200:8"])
def test_what_is_written_starts_or_is_refused(model: str, on: str) -> None:
    narrow = _narrow("fp8", "fp8") if "fp8" in parse_slice(on).chip.peak_flops_per_s else {}
    try:
        config = export_vllm(job(model, on, **narrow)).config
    except InfeasibleError:
        return

    memory, part = config.memory, float(config.settings["gpu_memory_utilization"])
    held = memory.weights_bytes + memory.sequence_bytes
    assert held + (0 if on.startswith(("v", "t")) else memory.pass_bytes) <= part * memory.usable_bytes
    assert memory.weights_bytes + memory.sequence_bytes + memory.pass_bytes <= memory.usable_bytes
    assert part * memory.hbm_bytes <= memory.usable_bytes
    assert int(config.settings["max_num_batched_tokens"]) >= int(config.settings["max_num_seqs"]) >= 1


def test_an_engine_that_would_not_start_says_what_would_fit() -> None:
    with pytest.raises(InfeasibleError, match="would not start") as raised:
        export_vllm(job("llama3.1-70b", "h100:2", workload__prompt_len=100_000))

    longest = int(re.search(r"at most ([\d,]+) tokens", raised.value.fix)[1].replace(",", ""))  # pyright: ignore[reportOptionalSubscript] - a failure here is one of the test
    fitting = export_vllm(job("llama3.1-70b", "h100:2", workload__prompt_len=longest - 1024 - 256)).config
    assert fitting.num_sequences == 1


def test_more_sequences_than_have_room_are_told() -> None:
    config = export_vllm(job(workload__batch=200)).config

    assert config.settings["max_num_seqs"] == 200
    assert config.notes == ("room for the whole context of 169 of 200 sequences a replica; others wait for pages",)


def test_narrow_weights_without_narrow_matmuls_are_widened_on_the_chip() -> None:
    config = export_vllm(job("llama3.1-8b", "a100-80gb:1", **_narrow("fp8", "bf16"))).config

    assert config.settings["quantization"] == "fp8"
    assert "leave it out where the checkpoint is narrow itself" in config.notes[0]


def test_a_window_keeps_itself_and_what_a_pass_adds() -> None:
    short, long = (
        device_memory(replace(job("gpt-oss-120b", "h100:8", workload__prompt_len=length), plan=_tensor(8)))
        for length in (60_000, 120_000)
    )

    # Half of the 36 layers see 128 tokens: past the length of a pass, only the others grow, by 512 bytes a token.
    pages = 120_000 // 256 - 60_000 // 256
    assert long.sequence_bytes - short.sequence_bytes == pytest.approx(18 * 2 * 8 * 64 * 2 / 8 * 256 * pages, rel=0.01)


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"on": "v6e:4x4"}, "several hosts"),
        ({"plan__decode": {"tp": 4, "dp": 2}}, "the axis dp on v6e"),
        ({"plan__decode": {"tp": 8}, "plan__prefill": {"tp": 4, "dp": 2}}, "two meshes in one server"),
        ({"plan__dtypes": {"kv_cache": "int8"}}, "a cache in int8"),
        ({"plan__dtypes": {"weights": "int8"}}, "int8 weights, bf16 matmuls"),
        ({"on": "a100-80gb:8", "plan__dtypes": {"weights": "fp8", "compute": "fp8"}}, "matmuls in fp8 on a100-80gb"),
        ({"workload__prompt_len": 200_000}, "max_position_embeddings"),
        ({"on": "h100:8", "plan__decode": {"ep": 8}}, "experts of a model without any"),
        ({"on": "h100:8", "plan__decode": {"cp": 2, "tp": 4}}, "the axis cp on h100"),
    ],
)
def test_what_vllm_cannot_be_told_is_refused_by_name(more: dict[str, object], what: str) -> None:
    with pytest.raises(InputError, match=what):
        export_vllm(job(**more))  # pyright: ignore[reportArgumentType] - parameters of a test


def test_narrow_weights_leave_the_table_and_the_head_wide() -> None:
    memory = device_memory(replace(job("llama3.1-8b", "h100:1", **_narrow("int8", "bf16")), plan=_tensor(1, "int8")))

    vocabulary = 2 * 128_256 * 4096
    assert memory.weights_bytes == pytest.approx(8.03e9 + vocabulary, rel=1e-3)


def test_the_part_is_rounded_down_so_that_a_pass_has_room_on_a_tpu() -> None:
    memory = DeviceMemory(hbm_bytes=32e9, usable_bytes=31e9, weights_bytes=10e9, pass_bytes=3e9, sequence_bytes=1e8)

    config = vllm_config(replace(job(), plan=_tensor(8)), memory)

    assert config.settings["gpu_memory_utilization"] == 0.9
    assert config.cache_bytes == pytest.approx(0.9 * 31e9 - 10e9)


def test_manifests_ask_for_the_chips_and_the_version() -> None:
    whole = job()
    config = export_vllm(whole).config
    tpu = manifest_yaml(config, whole.hardware, name="Llama 3.3_70b", checkpoint="it's/here", replicas=3)
    gpus = job(on="h100:8")
    gpu = manifest_yaml(export_vllm(gpus).config, gpus.hardware, name="llama", checkpoint="meta/llama")

    assert "image: vllm/vllm-tpu:v0.32.0" in tpu
    assert "cloud.google.com/gke-tpu-accelerator: tpu-v6e-slice" in tpu
    assert 'cloud.google.com/gke-tpu-topology: "2x4"' in tpu
    assert "limits: {google.com/tpu: 8}" in tpu
    assert "replicas: 3" in tpu
    assert "- 'it''s/here'" in tpu
    assert tpu.count("name: llama-3-3-70b\n") == 2
    assert "image: vllm/vllm-openai:v0.32.0" in gpu
    assert "nodeSelector" not in gpu
    assert "limits: {nvidia.com/gpu: 8}" in gpu


def test_a_manifest_for_other_gpus_is_refused() -> None:
    whole = job(on="mi300x:8")

    with pytest.raises(InputError, match="no manifest for this GPU yet"):
        manifest_yaml(export_vllm(whole).config, whole.hardware, name="llama", checkpoint="meta/llama")


def test_a_line_for_a_shell_quotes_what_needs_it() -> None:
    assert "'my folder/model'" in serve_line(export_vllm(job()).config, "my folder/model")


def test_the_data_file_says_where_it_comes_from() -> None:
    file = Path(ridgeline.__file__).parent / "export" / "vllm_0_32_0.toml"

    assert tomllib.loads(file.read_text())["source"].startswith("github.com/vllm-project/vllm at v0.32.0")


def _narrow(weights: str, compute: str) -> dict[str, object]:
    return {"plan__dtypes": {"weights": weights, "compute": compute}}


def _tensor(degree: int, weights: str = "bf16") -> ServingPlan:
    plan = job().plan
    return replace(plan, decode={"tp": degree}, dtypes=replace(plan.dtypes, weights=weights))
