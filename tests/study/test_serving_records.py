"""Records and case files of servers, read into cases."""

from __future__ import annotations

import json
from math import ceil
from typing import TYPE_CHECKING

import pytest

from ridgeline.study.measured.files import published_serving_cases, read_cases

if TYPE_CHECKING:
    from pathlib import Path

    from ridgeline.study.measured.serving_case import ServingCase

TPU = {
    "id": "t",
    "chip": "tpu7x",
    "num_chips": 4,
    "topology": "2x2x1",
    "engine": "vLLM (tpu-inference)",
    "model": "qwen3-32b",
    "sharding": {"tp": 8, "dp": 1},
    "dtype": {"weights": "fp8 (w+a)", "kv_cache": "fp8"},
    "server_args": {"max_num_seqs": 135, "max_num_batched_tokens": 4096, "gpu_memory_utilization": 0.98},
    "client": {"range_ratio": 0.8, "max_concurrency": 320},
    "input_len": 1000,
    "output_len": 2000,
    "measured": {"output_tok_s": 4000.0, "tpot_mean_ms": 25.0},
}
LATENCY = {
    "id": "l",
    "backend": "sglang",
    "system": "b200_sxm",
    "model_path": "deepseek-ai/DeepSeek-R1",
    "precision": "fp4",
    "mode": "agg",
    "isl": 1024,
    "osl": 1024,
    "tp_size": 64,
    "attention_dp_size": 1,
    "moe_tp_size": 8,
    "moe_ep_size": 8,
    "concurrency": 16,
    "silicon_ttft_ms": 250.0,
    "silicon_tpot_ms": 12.5,
}
TABLE = {
    "id": "g",
    "backend": "TensorRT-LLM",
    "gpu": "H200",
    "gpus": 8,
    "model": "Llama-3.1-405B",
    "precision": "FP8",
    "tp": 8,
    "isl": 128,
    "osl": 2048,
    "output_tokens_per_s_per_gpu": 668.5,
}
MLPERF = {
    "id": "m",
    "framework": "TensorRT 10.2",
    "gpu": "NVIDIA H100-SXM-80GB",
    "gpus": 8,
    "model": "Llama-2-70B",
    "scenario": "Offline",
    "tokens_per_s_total": 24000.0,
    "samples_per_s": 80.0,
}


def read(folder: Path, *rows: dict[str, object]) -> tuple[list[ServingCase], list[str]]:
    path = folder / "rows.json"
    path.write_text(json.dumps(rows), encoding="utf-8")
    found = read_cases([str(path)])
    return list(found.serving), [each.reason for each in found.skipped]


def test_a_row_of_a_tpu_server_gives_a_case_for_each_quantity_that_it_states(tmp_path: Path) -> None:
    cases, _ = read(tmp_path, TPU)

    assert [(case.metric, case.measured) for case in cases] == [
        ("tpot_s", 0.025),
        ("output_tokens_per_s_per_chip", 1000.0),
    ]
    (job,) = {id(case.job): case.job for case in cases}.values()
    assert (job.workload.prompt_len, job.workload.generate_len, job.workload.batch) == (900, 1800, 320)
    assert (dict(job.plan.decode), job.plan.dtypes.kv_cache) == ({"tp": 8}, "fp8")
    engine = cases[0].engine
    assert (engine.name, engine.max_sequences, engine.pass_tokens, engine.memory_share) == ("vllm", 135, 4096, 0.98)


def test_a_run_of_chats_on_jetstream_has_all_its_requests_at_once_and_caches_of_fixed_room(tmp_path: Path) -> None:
    row = {
        **{key: TPU[key] for key in ("id", "measured")},
        "chip": "v5e",
        "num_chips": 8,
        "topology": "2x4",
        "engine": "jetstream-pytorch",
        "model": "llama3-8b",
        "sharding": {"tp": 8},
        "batch": 128,
        "cache_len": 2048,
        "notes": ["ShareGPT mix; offline 2000 prompts"],
        "input_len": "<=1024 (ShareGPT)",
        "output_len": "<=1024 (ShareGPT)",
    }
    (case, *_), _ = read(tmp_path, row)

    assert (case.engine.num_requests, case.engine.cache_room, case.engine.replies_differ) == (2000, 2048, True)
    assert case.job.workload.batch == 128
    assert any("exponentially spread" in phrase for phrase in case.assumed)


def test_degrees_of_attention_and_experts_that_were_multiplied_lie_on_the_same_chips(tmp_path: Path) -> None:
    cases, _ = read(tmp_path, LATENCY, {**LATENCY, "id": "d", "tp_size": 1, "attention_dp_size": 64})

    assert [case.chips for case in cases] == [8, 8, 8, 8]
    assert [dict(case.job.plan.decode) for case in cases[1:3]] == [{"tp": 8}, {"ep": 8}]
    assert [case.metric for case in cases[:2]] == ["ttft_s", "tpot_s"]
    assert cases[0].engine.reading == "apart"


def test_of_a_mixture_in_four_bits_the_experts_alone_are_narrow(tmp_path: Path) -> None:
    (case, _), _ = read(tmp_path, LATENCY)

    dtypes = case.job.plan.dtypes
    assert (dtypes.weights, dtypes.experts, case.precision) == ("bf16", "fp4", "fp4")


def test_a_table_of_the_most_that_servers_yield_queues_all_requests_at_once(tmp_path: Path) -> None:
    (case,), _ = read(tmp_path, TABLE)

    assert (case.job.workload.batch, case.metric, case.measured) == (None, "output_tokens_per_s_per_chip", 668.5)


def test_the_benchmark_of_a_table_limits_its_engine_by_what_it_thinks_memory_has_room_for(tmp_path: Path) -> None:
    (case,), _ = read(tmp_path, {**TABLE, "backend": "TensorRT-LLM, trtllm-bench max-throughput"})

    # 405.85e9 bytes of weights on 8 · 141e9; a token has 2 · 126 layers · 8 heads · 128 bytes: 1,216 requests of 2,176.
    thought = 0.95 * (8 * case.job.hardware.chip.hbm_bytes - 405.85e9) / (2176 * 2 * 126 * 8 * 128)
    engine = case.engine
    assert engine.max_sequences == 256 * ceil(thought / 256)
    assert engine.pass_tokens == 2048  # thought · (1 + 128/2,048) is fewer
    assert (engine.graph_sizes[-2:], engine.num_requests) == ((1024, engine.max_sequences), 3000)
    assert (engine.cache_share, engine.sampler_bytes) == (0.95, 2 + 4 + 4 + 4 + 8 + 8)


def test_a_table_of_a_mixture_has_attention_in_ranks_whatever_it_calls_them(tmp_path: Path) -> None:
    row = {**TABLE, "model": "Llama-4-Maverick", "backend": "TensorRT-LLM, trtllm-bench max-throughput"}
    (case,), _ = read(tmp_path, row)

    assert dict(case.job.plan.decode) == {"ep": 8}
    assert case.engine.max_sequences is not None
    assert case.engine.max_sequences % 8 == 0
    assert case.engine.graph_sizes[-1] == case.engine.max_sequences // 8


def test_the_cache_of_a_checkpoint_that_says_nothing_of_it_is_wide_where_the_chip_has_no_fp4(tmp_path: Path) -> None:
    row = {**TABLE, "model": "GPT-OSS-20B", "gpus": 1, "tp": 1}
    (old, new), _ = read(tmp_path, row, {**row, "id": "new", "gpu": "B200"})

    assert (old.job.plan.dtypes.kv_cache, new.job.plan.dtypes.kv_cache) == ("bf16", "fp8")


RUN = {**LATENCY, "measured": "2026-03-25", "ds": "db-dump/2026-04-27"}


def test_lengths_of_a_public_run_are_nine_tenths_of_those_stated_and_its_flags_those_of_its_scripts(
    tmp_path: Path,
) -> None:
    (_, case, *_), _ = read(tmp_path, RUN)

    workload = case.job.workload
    assert (workload.prompt_len, workload.generate_len) == (922, 922)
    assert (case.job.plan.dtypes.kv_cache, case.engine.pass_tokens, case.engine.receive_passes) == ("fp8", 16_384, 30)


def test_a_run_of_one_s_own_has_the_lengths_that_it_states(tmp_path: Path) -> None:
    (_, case), _ = read(
        tmp_path, {**RUN, "ds": "source_file=aic-auto-gap-analysis/b200.csv", "tp_size": 8, "moe_tp_size": 1}
    )

    assert (case.job.workload.prompt_len, case.engine.pass_tokens) == (1024, 8192)


def test_a_pass_of_a_public_run_of_deepseek_has_room_for_a_prompt_beside_all_sequences(tmp_path: Path) -> None:
    row = {**RUN, "backend": "trtllm", "measured": "2025-11-02", "concurrency": 100}
    (_, case), _ = read(tmp_path, row)

    assert case.engine.pass_tokens == 1216  # 1,024 + 100 + 64, in whole blocks of 64
    assert case.not_stated == ""


def test_a_submission_shares_its_gpus_among_servers_that_hold_the_weights_and_room_for_caches(tmp_path: Path) -> None:
    (case, other), _ = read(tmp_path, MLPERF, {**MLPERF, "id": "n", "gpu": "NVIDIA H200-SXM-141GB"})

    assert (case.chips, other.chips, case.measured) == (2, 1, 3000.0)
    assert case.job.workload.generate_len == 300


@pytest.mark.parametrize(
    ("row", "changes", "reason"),
    [
        (TPU, {"engine": "mine"}, "unknown engine"),
        (TPU, {"input_len": None}, "lengths of neither prompts nor replies"),
        (TPU, {"notes": ["unoptimised baseline"]}, "its own notes say not to use it"),
        (TPU, {"measured": {}}, "nothing that an estimate has"),
        (TPU, {"sharding": {"tp": 3}}, "mesh does not fill the devices in one slice"),
        (LATENCY, {"mode": "disagg"}, "decode_tp_size not stated"),
        (LATENCY, {"model_path": "nobody/nothing"}, "unknown model"),
        (LATENCY, {"moe_ep_size": 2, "moe_tp_size": 1}, "experts on other GPUs than attention"),
        (
            LATENCY,
            {"backend": "trtllm", "measured": "2026-01-14"},
            "tokens are drafted ahead, and how many are accepted is not stated",
        ),
        (
            LATENCY,
            {"silicon_ttft_ms": 13_000.0},
            "requests wait longer than they are answered; how many are held is not stated",
        ),
        (TABLE, {"gpu": "Jetson AGX Orin"}, "not a GPU of the catalogue"),
        (TABLE, {"isl": 0}, "isl is not a number above zero"),
        (MLPERF, {"scenario": "Server"}, "a rate under limits on tails"),
    ],
)
def test_a_row_that_cannot_be_used_is_listed_with_the_reason(
    tmp_path: Path, row: dict[str, object], changes: dict[str, object], reason: str
) -> None:
    cases, reasons = read(tmp_path, {**row, **changes})

    assert cases == []
    assert [each.split(" (")[0] for each in reasons] == [reason]


def test_a_row_that_is_there_twice_counts_once(tmp_path: Path) -> None:
    cases, reasons = read(tmp_path, TABLE, TABLE)

    assert (len(cases), reasons) == (1, ["repeats a record that is used"])


def test_every_published_record_of_a_server_is_used_or_has_a_reason() -> None:
    found = published_serving_cases()

    assert len({case.id for case in found.serving}) + len(found.skipped) == 28 + 327 + 714
    assert len(found.serving) > 1200


def test_an_engine_that_knew_tensor_parallelism_alone_has_all_gpus_of_its_server(tmp_path: Path) -> None:
    row = {**MLPERF, "gpu": "NVIDIA L40S", "framework": "vLLM 0.5.2"}
    (stated, default), _ = read(tmp_path, row, {**row, "id": "d", "system": "8xL40S-default_config"})

    # 68.98e9 weights in fp8: 1.9 times that is more than two GPUs of 48 GB have, and less than four.
    assert [dict(case.job.plan.decode) for case in (stated, default)] == [{"tp": 4}, {"tp": 8}]
