"""Nemotron's hybrids and DeepSeek-V4 among published GPU rows: what their recipes do that others do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ridgeline.study.measured.gpu_records import read_gpu_records

if TYPE_CHECKING:
    from ridgeline.study.measured.case import MeasuredCase

ROW = {
    "id": "row",
    "source": "NVIDIA-NeMo/Megatron-Bridge",
    "framework": "Megatron-Bridge 26.08 container",
    "model": "Nemotron_3_Ultra",
    "gpu": "GB300",
    "gpus": 256,
    "precision": "MXFP8",
    "gbs": 256,
    "mbs": 1,
    "seq_len": 8192,
    "tp": 1,
    "pp": 1,
    "cp": 1,
    "ep": 64,
    "tokens_per_s_per_gpu": 3552,
}


def case_of(**changes: object) -> MeasuredCase:
    cases, left_out = read_gpu_records([{**ROW, **changes}], "rows.json")
    assert not left_out, left_out
    return cases[0]


def test_a_hybrid_predicts_two_further_tokens_where_the_model_has_such_modules() -> None:
    assert case_of().job.model.mtp_depth == 2
    assert case_of(model="Nemotron_3_5_Lightning").job.model.mtp_depth == 2
    assert case_of(model="Nemotron_3_Nano").job.model.mtp_depth == 0
    assert case_of(model="DeepSeekV3").job.model.mtp_depth == 1


def test_a_hybrid_waits_for_its_tokens_where_other_models_send_them_beside_another_microbatch() -> None:
    assert not case_of().job.plan.experts.exchange_overlap
    assert case_of(model="Qwen3_235B_a22B").job.plan.experts.exchange_overlap


def test_deepseek_v4_waits_for_its_tokens_too() -> None:
    assert not case_of(model="DeepSeekV4 Flash").job.plan.experts.exchange_overlap
