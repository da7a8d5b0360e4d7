"""A serving job as vLLM is told it: flags of the stated version alone, and memory with which the engine starts."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ridgeline
from ridgeline.errors import InfeasibleError, InputError
from ridgeline.export.vllm import DeviceMemory, serve_line, serve_words, vllm_config
from ridgeline.export.vllm_launch import script_lines
from ridgeline.export.vllm_manifest import manifest_yaml
from ridgeline.export.vllm_parallelism import VllmServer
from ridgeline.export.vllm_router import router_version
from ridgeline.export.vllm_version import vllm_version
from ridgeline.hardware.topology import parse_slice
from ridgeline.job.origin import Setting
from ridgeline.job.reading import read_serving_job
from ridgeline.search.serve import serve
from ridgeline.study.export_vllm import device_memory, export_vllm

if TYPE_CHECKING:
    from collections.abc import Callable

    from ridgeline.export.vllm import VllmConfig
    from ridgeline.export.vllm_version import VllmVersion
    from ridgeline.job.serving import ServingJob
    from ridgeline.study.export_vllm import VllmAnswer

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
    assert config.num_sequences == 169


def test_flags_are_written_as_vllm_reads_them() -> None:
    config = export_vllm(job("qwen3-235b-a22b", "h200:8", plan__decode={"ep": 8}, **_narrow("fp8", "fp8"))).config

    words = serve_words(config, "Qwen/Qwen3-235B-A22B")

    assert words[:3] == ("vllm", "serve", "Qwen/Qwen3-235B-A22B")
    assert "--enable-expert-parallel" in words
    assert ("--data-parallel-size", "8") in pairwise(words)
    assert ("--quantization", "fp8") in pairwise(words)


@pytest.mark.parametrize(
    ("model", "on"), [("deepseek3-671b", "h200:8"), ("gpt-oss-120b", "h200:8"), ("kimi-k2.5", "b200:8")]
)
def test_a_checkpoint_that_is_published_narrow_needs_no_quantization(model: str, on: str) -> None:
    config = export_vllm(job(model, on, plan__decode={"ep": 8})).config

    assert "quantization" not in config.settings
    assert config.settings["dtype"] == "bfloat16"
    assert config.notes[0].startswith("weights are read as the checkpoint says")


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
        configured(job("llama3.1-70b", "h100:2", workload__prompt_len=100_000), {"tp": 2})

    longest = int(re.search(r"at most ([\d,]+) tokens", raised.value.fix)[1].replace(",", ""))  # pyright: ignore[reportOptionalSubscript] - a failure here is one of the test
    fitting = job("llama3.1-70b", "h100:2", workload__prompt_len=longest - 1024 - 256)
    assert configured(fitting, {"tp": 2}).num_sequences == 1


def test_more_sequences_than_have_room_are_told() -> None:
    config = configured(job(), {"tp": 8}, sequences=200)

    assert config.settings["max_num_seqs"] == 200
    assert config.notes == ("room for the whole context of 169 of 200 sequences a replica; others wait for pages",)


def test_narrow_weights_without_narrow_matmuls_are_widened_on_the_chip() -> None:
    config = export_vllm(job("llama3.1-8b", "a100-80gb:1", **_narrow("fp8", "bf16"))).config

    assert config.settings["quantization"] == "fp8"
    assert "leave it out where the checkpoint is narrow itself" in config.notes[0]


def test_a_window_keeps_itself_and_what_a_pass_adds() -> None:
    short, long = (
        configured(job("gpt-oss-120b", "h100:8", workload__prompt_len=length), {"tp": 8}, tokens=8192).memory
        for length in (60_000, 120_000)
    )

    # Half of the 36 layers see 128 tokens: past the length of a pass, only the others grow, by 512 bytes a token.
    pages = 120_000 // 256 - 60_000 // 256
    assert long.sequence_bytes - short.sequence_bytes == pytest.approx(18 * 2 * 8 * 64 * 2 / 8 * 256 * pages, rel=0.01)


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"plan__dtypes": {"kv_cache": "int8"}}, "a cache in int8"),
        ({"plan__dtypes": {"weights": "int8"}}, "int8 weights, bf16 matmuls"),
        ({"on": "a100-80gb:8", "plan__dtypes": {"weights": "fp8", "compute": "fp8"}}, "matmuls in fp8 on a100-80gb"),
        ({"workload__prompt_len": 200_000}, "max_position_embeddings"),
        ({"on": "h100:8", "plan__decode": {"ep": 8}}, "experts of a model without any"),
        ({"on": "v6e:4x4", "plan__decode": {"tp": 8, "dp": 2}}, "dp over several hosts of TPUs"),
        (
            {"on": "v6e:4x4", "plan__decode": {"tp": 4, "tp_transpose": 4}, "plan__prefill": {"tp": 16}},
            "the axis tp_transpose on v6e",
        ),
    ],
)
def test_what_vllm_cannot_be_told_is_refused_by_name(more: dict[str, object], what: str) -> None:
    with pytest.raises(InputError, match=what):
        export_vllm(job(**more))  # pyright: ignore[reportArgumentType] - parameters of a test


@pytest.mark.parametrize(
    ("on", "role", "mesh", "what"),
    [
        ("h100:8", "prefill", {"cp": 2, "tp": 4}, "context parallelism of this attention on GPUs"),
        ("h100:8", "decode", {"cp": 2, "tp": 4}, "context parallelism of servers that decode"),
        ("v6e:2x4", "prefill", {"cp": 2, "tp": 2, "dp": 2}, "cp=2 so on TPUs"),
        ("h100:8", "both", {"tp": 3}, "64 heads, 8 cached, over 3 devices"),
    ],
)
def test_meshes_that_vllm_has_no_word_for_are_refused(on: str, role: str, mesh: dict[str, int], what: str) -> None:
    with pytest.raises(InputError, match=what):
        configured(job(on=on), mesh, role=role)


def test_the_plan_of_serve_is_what_vllm_is_told() -> None:
    whole = job(workload__rate=20, workload__tpot_s=0.03)
    best, answer = serve(whole).best, export_vllm(whole)

    plan, (prefill, decode) = best.plan, answer.servers
    assert plan.mode == "disaggregated"
    assert decode.settings["max_num_seqs"] == plan.batch
    assert decode.settings["tensor_parallel_size"] == plan.decode["tp"]
    assert prefill.settings["max_num_batched_tokens"] == plan.prefill_batch * 1024
    assert best.fleet is not None
    assert [answer.replicas(each) for each in answer.servers] == [best.fleet.prefill_servers, best.fleet.servers]
    assert answer.notes == ()


def test_a_server_that_does_both_reads_pieces_of_prompts_beside_decoding() -> None:
    answer = export_vllm(job(plan__mode="interleaved"))

    (config,), plan = answer.servers, answer.point.plan
    assert "kv_transfer_config" not in config.settings
    assert config.settings["max_num_batched_tokens"] == plan.prefill_chunk + plan.batch


def test_caches_go_from_prefill_to_decode_by_the_connector_of_the_chip() -> None:
    told = {
        on: [json.loads(str(each.settings["kv_transfer_config"])) for each in disaggregated(model, on).servers]
        for model, on in (("llama3.3-70b", "v6e:2x4"), ("gpt-oss-120b", "tpu7x:2x2x1"), ("llama3.3-70b", "h100:8"))
    }

    assert [each["kv_role"] for each in told["v6e:2x4"]] == ["kv_producer", "kv_consumer"]
    assert [each["kv_connector"] for each in told["v6e:2x4"]] == ["TPUConnector"] * 2
    assert told["tpu7x:2x2x1"][0]["kv_connector"] == "TPUConnectorHMA"  # half of its layers have windows
    assert told["h100:8"][1] == {"kv_connector": "NixlConnector", "kv_role": "kv_consumer"}


def test_experts_and_stages_are_told_in_the_words_of_the_chip() -> None:
    fp8 = _narrow("fp8", "fp8")
    gpu = configured(job("deepseek3-671b", "h200:16", **fp8), {"ep": 8, "tp": 2}, role="both").settings
    staged = configured(job("llama3.1-405b", "h100:16"), {"pp": 2, "tp": 8}).settings
    tpu = configured(job("deepseek3-671b", "v6e:8x8", **_narrow("bf16", "bf16")), {"ep": 8, "tp": 8}, is_spread=True)

    assert (gpu["data_parallel_size"], gpu["tensor_parallel_size"], gpu["nnodes"]) == (8, 2, 2)
    assert gpu["enable_expert_parallel"] is True
    assert (staged["pipeline_parallel_size"], staged["tensor_parallel_size"]) == (2, 8)
    assert tpu.settings["tensor_parallel_size"] == 64
    assert tpu.settings["decode_context_parallel_size"] == 8
    strategy = json.loads(str(tpu.settings["additional_config"]))["sharding"]["sharding_strategy"]
    assert strategy == {"enable_dp_attention": True, "attn_dp_size": 8}
    assert tpu.environment == {"NEW_MODEL_DESIGN": "1", "TPU_MULTIHOST_BACKEND": "ray"}


def test_stages_hold_their_layers_alone() -> None:
    whole, staged = (configured(job("llama3.1-405b", "h200:16"), mesh) for mesh in ({"tp": 16}, {"pp": 2, "tp": 8}))

    assert staged.memory.weights_bytes == pytest.approx(whole.memory.weights_bytes, rel=0.02)
    assert staged.memory.sequence_bytes == whole.memory.sequence_bytes / 2  # of 16 ways, 8 are copies of 8 heads


def test_a_plan_that_vllm_has_no_words_for_gives_way_to_the_next() -> None:
    asked = job("deepseek3-671b", "v6e:8x8", **_narrow("bf16", "bf16"))
    answer = export_vllm(asked)

    assert "tp_transpose" in serve(asked).best.plan.decode
    assert answer.notes == ("not the best plan of all: vLLM cannot be told the axis tp_transpose on v6e",)
    assert "tp_transpose" not in answer.point.plan.decode


def test_drafts_prefixes_and_pages_are_told() -> None:
    speculation = {"draft_tokens": 3, "acceptance": 0.7}
    more = {"plan__speculation": speculation, "workload__prefix_cache": {"hit_rate": 0.5}, "plan__page_tokens": 32}
    settings = configured(job("qwen3-8b", "h100:1", **more), {}).settings

    assert settings["block_size"] == 32
    assert settings["enable_prefix_caching"] is True
    drafts = json.loads(str(settings["speculative_config"]))
    assert (drafts["method"], drafts["num_speculative_tokens"]) == ("ngram", 3)


@pytest.mark.parametrize(
    ("check", "what"),
    [
        (lambda version: version.transfer_text({"kv_connectors": "NixlConnector"}), "did you mean kv_connector"),
        (lambda version: version.transfer_text({"kv_connector": "TPUConnector"}), "no such value"),
        (lambda version: version.sharding_text({"attention_dp": 2}), "no such key"),
        (lambda version: version.check_environment({"NEW_MODEL": "1"}), "no such key"),
    ],
)
def test_keys_inside_objects_and_variables_are_checked_too(check: Callable[[VllmVersion], object], what: str) -> None:
    with pytest.raises(InputError, match=what):
        check(vllm_version())


def test_narrow_weights_leave_the_table_and_the_head_wide() -> None:
    memory = configured(job("llama3.1-8b", "h100:1", **_narrow("int8", "bf16")), {}).memory

    vocabulary = 2 * 128_256 * 4096
    assert memory.weights_bytes == pytest.approx(8.03e9 + vocabulary, rel=1e-3)


def test_the_part_is_rounded_down_so_that_a_pass_has_room_on_a_tpu() -> None:
    memory = DeviceMemory(hbm_bytes=32e9, usable_bytes=31e9, weights_bytes=10e9, pass_bytes=3e9, sequence_bytes=1e8)

    config = vllm_config(job(), server(job(), {"tp": 8}), memory)

    assert config.settings["gpu_memory_utilization"] == 0.9
    assert config.cache_bytes == pytest.approx(0.9 * 31e9 - 10e9)
    assert config.reserve == "10%, for a pass makes 2.79 GiB beside what vLLM takes"


def test_manifests_ask_for_the_chips_and_the_version() -> None:
    whole = job(plan__mode="interleaved")
    tpu = manifest_yaml([(export_vllm(whole).config, 3)], name="Llama 3.3_70b", checkpoint="it's/here")
    gpus = job(on="h100:8", plan__mode="interleaved")
    gpu = manifest_yaml([(export_vllm(gpus).config, 1)], name="llama", checkpoint="meta/llama")

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


def test_manifests_are_yaml_with_a_service_for_each_kind_of_server() -> None:
    yaml = pytest.importorskip("yaml")
    pair = disaggregated("llama3.3-70b", "v6e:4x4")
    text = manifest_yaml([(each, 2) for each in pair.servers], name="llama", checkpoint="meta/llama")

    documents = list(yaml.safe_load_all(text))
    assert [(each["kind"], each["metadata"]["name"]) for each in documents] == [
        ("LeaderWorkerSet", "llama-prefill"),
        ("Service", "llama-prefill"),
        ("LeaderWorkerSet", "llama-decode"),
        ("Service", "llama-decode"),
    ]
    group = documents[2]["spec"]["leaderWorkerTemplate"]
    (leader,), (worker,) = (group[name]["spec"]["containers"] for name in ("leaderTemplate", "workerTemplate"))
    assert group["size"] == 4
    assert leader["args"][0].splitlines()[-1].startswith("exec vllm serve meta/llama ")
    assert worker["args"] == ['exec ray start --address="$LWS_LEADER_ADDRESS:6379" --block\n']
    assert leader["resources"]["limits"] == {"google.com/tpu": 4}
    assert {"name": "TPU_MULTIHOST_BACKEND", "value": "ray"} in worker["env"]


def test_hosts_of_gpus_are_numbered() -> None:
    yaml = pytest.importorskip("yaml")
    config = configured(job("llama3.1-405b", "h200:16"), {"pp": 2, "tp": 8}, role="decode")
    group, service = yaml.safe_load_all(manifest_yaml([(config, 1)], name="llama", checkpoint="meta/llama"))

    pods = (group["spec"]["leaderWorkerTemplate"][name]["spec"] for name in ("leaderTemplate", "workerTemplate"))
    (leader,), (worker,) = (pod["containers"] for pod in pods)
    assert leader["args"][-4:] == ["--node-rank", "0", "--master-addr", "$(LWS_LEADER_ADDRESS)"]
    assert worker["args"][-5:-3] == ["--node-rank", "$(LWS_WORKER_INDEX)"]
    assert worker["args"][-1] == "--headless"
    assert leader["env"][-1]["valueFrom"] == {"fieldRef": {"fieldPath": "status.podIP"}}
    assert service["spec"]["selector"] == {"app": "llama-decode"}


@pytest.mark.parametrize("model", ["llama3.3-70b", "deepseek3-671b"])
@pytest.mark.parametrize("on", ["v6e:2x4", "v6e:8x8", "h200:8", "h200:16"])
def test_a_script_is_one_that_a_shell_can_read(model: str, on: str, tmp_path: Path) -> None:
    narrow = _narrow("fp8", "fp8") if on.startswith("h") else {}
    try:
        answer = export_vllm(job(model, on, **narrow))
    except InfeasibleError:
        return

    file = tmp_path / "serve.sh"
    file.write_text("\n".join(script_lines(answer.servers, "it's/here")) + "\n")
    subprocess.run(["/bin/sh", "-n", file], check=True)


def test_a_manifest_for_gpus_of_amd_has_their_image_resource_and_rights() -> None:
    yaml = pytest.importorskip("yaml")
    config = export_vllm(job("llama3.1-8b", "mi300x:2", plan__mode="interleaved", plan__decode={"tp": 2})).config
    deployment, _ = yaml.safe_load_all(manifest_yaml([(config, 1)], name="llama", checkpoint="meta/llama"))

    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "vllm/vllm-openai-rocm:v0.32.0"
    assert container["resources"]["limits"] == {"amd.com/gpu": 2}
    assert container["securityContext"]["seccompProfile"] == {"type": "Unconfined"}
    assert container["args"][0] == "meta/llama"


def test_a_manifest_of_two_kinds_of_servers_on_gpus_of_amd_is_refused() -> None:
    pair = [(each, 1) for each in disaggregated("llama3.1-8b", "mi300x:8").servers]

    with pytest.raises(InputError, match="whether vLLM's image for it has NIXL is not known"):
        manifest_yaml(pair, name="llama", checkpoint="meta/llama")


def test_a_router_stands_before_two_kinds_of_servers_on_gpus_and_asks_their_services() -> None:
    yaml = pytest.importorskip("yaml")
    pair = [(each, 3) for each in disaggregated("llama3.3-70b", "h100:8").servers]
    documents = list(yaml.safe_load_all(manifest_yaml(pair, name="Llama 3.3", checkpoint="meta/llama")))

    assert [(each["kind"], each["metadata"]["name"]) for each in documents[-2:]] == [
        ("Deployment", "llama-3-3-router"),
        ("Service", "llama-3-3-router"),
    ]
    (container,) = documents[-2]["spec"]["template"]["spec"]["containers"]
    install, start = container["args"][0].splitlines()
    assert install == "pip install vllm-router==0.1.17"
    words = start.split()
    assert words[:3] == ["exec", "vllm-router", "--vllm-pd-disaggregation"]
    assert ("--prefill", "http://llama-3-3-prefill:8000") in pairwise(words)
    assert ("--decode", "http://llama-3-3-decode:8000") in pairwise(words)


def test_a_script_starts_the_router_with_the_servers_that_it_is_told(tmp_path: Path) -> None:
    file, router = tmp_path / "serve.sh", tmp_path / "vllm-router"
    file.write_text("\n".join(script_lines(disaggregated("llama3.3-70b", "h100:8").servers, "meta/llama")) + "\n")
    router.write_text('#!/bin/sh\necho "$@"\n')
    router.chmod(0o755)
    told = {"PATH": f"{tmp_path}:/usr/bin:/bin", "PREFILL": "http://a:8000", "DECODE": "http://b:8000 http://c:8000"}

    run = subprocess.run(["/bin/sh", file, "router"], env=told, check=True, capture_output=True, text=True)

    assert run.stdout.split()[-6:] == [
        *("--prefill", "http://a:8000"),
        *("--decode", "http://b:8000"),
        *("--decode", "http://c:8000"),
    ]


def test_a_flag_that_the_router_does_not_have_cannot_be_written() -> None:
    with pytest.raises(InputError, match="did you mean decode-policy"):
        router_version().words([("decode-polic", "random")])

    known = router_version().flags
    assert {"prefill", "decode", "policy", "vllm-pd-disaggregation"} <= known
    assert router_version().source.startswith("github.com/vllm-project/router at v0.1.17")


def test_a_line_for_a_shell_quotes_what_needs_it() -> None:
    assert "'my folder/model'" in serve_line(export_vllm(job()).config, "my folder/model")


def test_the_data_file_says_where_it_comes_from() -> None:
    file = Path(ridgeline.__file__).parent / "export" / "vllm_0_32_0.toml"

    assert tomllib.loads(file.read_text())["source"].startswith("github.com/vllm-project/vllm at v0.32.0")


def _narrow(weights: str, compute: str) -> dict[str, object]:
    return {"plan__dtypes": {"weights": weights, "compute": compute}}


def server(job: ServingJob, mesh: dict[str, int], **more: object) -> VllmServer:
    """A server with a mesh of its own, and what a test changes."""
    said = {"role": "both", "sequences": None, "pass_tokens": 2048} | more
    return VllmServer(hardware=job.hardware, mesh=mesh, **said)  # pyright: ignore[reportArgumentType] - parameters of a test


def configured(job: ServingJob, mesh: dict[str, int], *, tokens: int = 2048, **more: object) -> VllmConfig:
    """What vLLM is told of such a server."""
    asked = server(job, mesh, pass_tokens=tokens, **more)
    return vllm_config(job, asked, device_memory(job, asked))


def disaggregated(model: str, on: str) -> VllmAnswer:
    """Servers of both kinds."""
    return export_vllm(job(model, on, plan__mode="disaggregated"))
