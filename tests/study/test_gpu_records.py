"""Published GPU rows as measured cases: what is read, what is assumed, and what is left out with a reason."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ridgeline.job.job import Lora
from ridgeline.study.measured.files import PUBLISHED
from ridgeline.study.measured.gpu_records import read_gpu_records

if TYPE_CHECKING:
    from ridgeline.study.measured.case import MeasuredCase

ROW = {
    "id": "row",
    "source": "NVIDIA-NeMo/Megatron-Bridge",
    "model": "LLAMA3_70B",
    "gpu": "H100",
    "gpus": 64,
    "precision": "FP8-CS",
    "gbs": 128,
    "mbs": 1,
    "seq_len": 8192,
    "tp": 4,
    "pp": 8,
    "cp": 1,
    "vp": 5,
    "ep": 1,
    "tokens_per_s_per_gpu": 1639,
}


def case_of(**changes: object) -> MeasuredCase:
    cases, left_out = read_gpu_records([{**ROW, **changes}], "rows.json")
    assert not left_out, left_out
    return cases[0]


def reason_of(record: object) -> str:
    cases, left_out = read_gpu_records([record], "rows.json")
    assert not cases
    return left_out[0].reason


def test_a_row_becomes_a_job_in_which_nothing_is_left_open() -> None:
    case = case_of()
    plan = case.job.plan

    assert (case.chip, case.chips, case.model) == ("h100", 64, "llama3-70b")
    assert {axis: degree for axis, degree in plan.mesh.items() if degree > 1} == {"dp": 2, "tp": 4, "pp": 8}
    assert (plan.pipeline.microbatches, plan.pipeline.repeats) == (64, 5)
    assert plan.optimizer.distributed
    assert case.job.workload.global_batch == 128
    assert case.step_s == pytest.approx(128 * 8192 / 64 / 1639)


def test_what_a_row_leaves_open_is_said_and_its_other_readings_are_given() -> None:
    case = case_of()

    assert "recomputation not stated: none" in case.assumed
    assert "kernels launched one by one" in case.assumed
    policies = [job.plan.remat and job.plan.remat.policy for job in case.alternatives]
    assert policies == ["minimal_with_context", "full", "none"]
    (alternative,) = case_of(activation_checkpointing=True).alternatives
    assert alternative.plan.compiler.kernel_launch == "graph"


def test_fully_sharded_weights_take_the_place_of_a_distributed_optimizer() -> None:
    plan = case_of(tp=1, pp=1, vp=None, fsdp=64, mbs=2).job.plan

    assert plan.mesh["fsdp"] == 64
    assert not plan.optimizer.distributed
    assert plan.gradient_accumulation == 1


@pytest.mark.parametrize(
    ("precision", "kind", "scaling"),
    [
        ("BF16", None, None),
        ("FP8-CS", "fp8", ("per_tensor", "dynamic")),
        ("FP8-MX", "fp8", ("sub_channel", "dynamic")),
        ("MXFP8", "fp8", ("sub_channel", "dynamic")),
        ("NVFP4", "fp4", ("sub_channel", "dynamic")),
        ("FP8 delayed", "fp8", ("per_tensor", "static")),
    ],
)
def test_precisions_are_known_by_the_names_of_frameworks(
    precision: str, kind: str | None, scaling: tuple[str, str] | None
) -> None:
    recipe = case_of(precision=precision).job.plan.quantization

    assert (recipe and recipe.kind) == kind
    assert (recipe and (recipe.granularity, recipe.scaling)) == scaling


@pytest.mark.parametrize(
    ("said", "chip"),
    [
        ("h100_80gb", "h100"),
        ("a100_40gb", "a100-40gb"),
        ("A100-80GB SXM (Selene)", "a100-80gb"),
        ("B200 SXM", "b200"),
        ("GB200 NVL72", "gb200"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("H800", "h100"),
    ],
)
def test_gpus_are_known_by_many_names(said: str, chip: str) -> None:
    assert case_of(gpu=said).chip == chip


def test_experts_are_split_over_gpus_that_share_the_batch() -> None:
    """Of Megatron-Bridge's experts none is split over tp: its ways are ways of expert parallelism."""
    row = {"model": "Qwen3_235B_a22B", "gpus": 256, "tp": 2, "vp": 4, "ep": 16, "gbs": 2048, "seq_len": 4096}
    case = case_of(**row)

    assert (case.job.plan.mesh["ep"], case.job.plan.mesh["dp"]) == (8, 2)
    assert "experts split 8 ways over the batch, 2 beside" in case.assumed
    assert case_of(**row, etp=2).job.plan.mesh["ep"] == 16


def test_tokens_travel_beside_another_microbatch_in_dualpipe_and_as_a_recipe_of_the_release_sets_it() -> None:
    row = {"model": "Qwen3_235B_a22B", "gpus": 256, "tp": 1, "vp": 4, "ep": 8, "gbs": 8192, "mbs": 1, "seq_len": 4096}
    bridge = {"framework": "Megatron-Bridge 26.04 container", "precision": "MXFP8"}

    def overlaps(**changes: object) -> bool | None:
        return case_of(**{**row, **bridge, **changes}).job.plan.experts.exchange_overlap

    assert overlaps(gpu="H100", precision="FP8")
    assert not overlaps(gpu="B200", vp=None)
    assert not overlaps(gpu="GB200")
    assert overlaps(gpu="GB200", framework="Megatron-Bridge 26.06 container")
    assert overlaps(gpu="H800", vp=None, framework="HAI-LLM")
    assert not overlaps(source="NVIDIA/Megatron-LM", framework="Megatron-LM")


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({**ROW, "model": "Nobody-7B"}, "unknown model (model: Nobody-7B)"),
        ({**ROW, "gpu": "Cerebras"}, "not a GPU of the catalogue (gpu: Cerebras)"),
        ({**ROW, "seq_len": None}, "seq_len not stated (seq_len: None)"),
        ({**ROW, "gpus": "many"}, "gpus is not a number above zero (gpus: many)"),
        ({**ROW, "gbs": 127}, "the batch is no multiple of what the replicas take at once (gbs: 127)"),
        ({**ROW, "tokens_per_s_per_gpu": None}, "states no time and no rate (tokens_per_s_per_gpu: None)"),
        ({**ROW, "precision": "posit8"}, "unknown precision (precision: posit8)"),
        ({"kind": "memory", "model": "GPT"}, "states no time of a step (kind: memory)"),
        (["not", "an", "object"], "not an object (record: ['not', 'an', 'object'])"),
    ],
)
def test_a_row_that_cannot_be_used_is_left_out_with_the_reason(record: object, reason: str) -> None:
    assert reason_of(record) == reason


@pytest.mark.parametrize(
    ("said", "policy"), [("uniform", "full"), ("no", "none"), ("seq", "none"), ("core_attn", "custom")]
)
def test_recomputation_has_several_names(said: str, policy: str) -> None:
    assert case_of(activation_checkpointing=said).job.plan.remat.policy == policy


def test_an_axis_of_no_ways_is_off() -> None:
    assert case_of(ep=0, cp=0, vp=0).job == case_of(vp=1).job


def test_a_gpt_that_the_zoo_does_not_know_is_built_from_the_dimensions_that_its_row_states() -> None:
    dimensions = {"hidden": 3072, "layers": 32, "heads": 24, "vocab": 131072}
    case = case_of(model="GPT-4.2B", framework="Megatron-Core 0.8", vp=None, **dimensions)
    (layer, count), *others = case.job.model.layers

    assert (case.model, case.job.model.embed_dim, case.job.model.vocab_size) == ("GPT-4.2B", 3072, 131072)
    assert (count, others, getattr(layer.mlp, "mlp_dim", None)) == (32, [], 4 * 3072)
    assert any("stated dimensions" in phrase for phrase in case.assumed)
    assert reason_of({**ROW, "model": "GPT-4.2B", "heads": 24}).startswith("unknown model")
    assert reason_of({**ROW, "model": "GPT-4.2B", **dimensions, "heads": 25}).startswith("heads that do not divide")


def test_a_lora_run_trains_adapters_beside_attentions_inputs_on_packed_sequences() -> None:
    case = case_of(phase="LoRA")

    assert case.job.plan.lora == Lora(rank=16, targets=("query", "key", "value"), alpha=32.0)
    assert case.not_stated == "packed sequences that do not see each other"
    assert case_of().job.plan.lora is None


def test_every_published_row_is_a_case_or_is_left_out() -> None:
    rows = json.loads((PUBLISHED / "gpu_training.json").read_text(encoding="utf-8"))
    cases, left_out = read_gpu_records(rows, "gpu_training.json")

    assert len(cases) + len(left_out) == len(rows) == 513
    assert len(cases) == 462


def test_attention_was_not_fused_in_the_papers_of_2021_and_2022_and_first_so_in_triton() -> None:
    paper = {"source": "arXiv 2205.05198 (Korthikanti 2022) Table 5", "framework": "Megatron-LM"}

    assert case_of(**paper).job.plan.attention.kernel == "dot_product"
    assert case_of(framework="llm-foundry/Composer FSDP").job.plan.attention.kernel == "flash"
    assert case_of().job.plan.attention.kernel is None


def test_recipes_name_a_library_that_sends_tokens_once_or_leave_it_to_all_to_all() -> None:
    row = {"model": "Qwen3_235B_a22B", "gpus": 256, "tp": 1, "vp": 4, "ep": 8, "gbs": 2048, "seq_len": 4096}

    def exchange(**changes: object) -> str | None:
        return case_of(**{**row, **changes}).job.plan.experts.exchange

    assert exchange() == "all_to_all"
    assert exchange(gpu="GB200") == "send_once"
    assert exchange(model="DeepSeekV3", vp=None) == "send_once"
    small = {"model": "Qwen3_30B_a3B", "pp": 1, "vp": None}
    assert exchange(**small, framework="Megatron-Bridge 25.11 container") == "all_to_all"
    assert exchange(**small, framework="Megatron-Bridge 26.04 container") == "send_once"
    assert exchange(ep=1) is None


def test_dualpipe_begins_at_both_ends_of_the_pipeline() -> None:
    assert case_of(framework="HAI-LLM", gpu="H800", vp=None).job.plan.pipeline.repeats == 2


def test_whole_steps_are_replayed_where_the_recipe_of_the_release_says_so() -> None:
    late = {"framework": "Megatron-Bridge 26.06 container", "precision": "MXFP8"}
    large = {"model": "Qwen3_235B_a22B", "gpus": 256, "tp": 1, "vp": 3, "ep": 32, "gbs": 8192, "seq_len": 4096}
    small = {"model": "Qwen3_30B_a3B", "gpus": 8, "tp": 1, "pp": 1, "vp": None, "ep": 8, "gbs": 512, "seq_len": 4096}

    def launch(**changes: object) -> str | None:
        return case_of(**{**late, **changes}).job.plan.compiler.kernel_launch

    assert launch(gpu="GB300") == "graph"
    assert launch(gpu="GB200", **large) == "graph"
    assert launch(gpu="GB200", **large, framework="Megatron-Bridge 26.04 container") == "eager"
    assert launch(gpu="B300", **large) == "eager"
    assert launch(gpu="B300", **small, mbs=8) == "graph"


def test_a_recipe_that_splits_a_run_as_its_row_does_leaves_nothing_open() -> None:
    """One of 26.02 for B300 is carried on by the tables of 26.02.01, whose own recipe splits otherwise."""
    row = {"model": "Qwen3_235B_a22B", "gpus": 256, "gpu": "B300", "tp": 1, "ep": 8, "gbs": 8192, "mbs": 1}
    more = {"seq_len": 4096, "precision": "MXFP8", "framework": "Megatron-Bridge 26.02.01 container"}
    carried, other = (case_of(**row, **more, vp=turns) for turns in (4, 2))

    assert (carried.job.plan.experts.exchange_overlap, carried.alternatives) == (True, ())
    assert other.job.plan.experts.exchange_overlap is False
    assert other.alternatives


def test_recipes_of_whole_graphs_narrow_attention_and_fuse_and_stash_what_experts_make() -> None:
    row = {"model": "DeepSeekV3", "gpus": 256, "tp": 1, "gbs": 4096, "seq_len": 4096, "precision": "MXFP8"}
    release = {"framework": "Megatron-Bridge 26.06 container"}
    gb300 = case_of(**row, **release, gpu="GB300", pp=2, vp=8, ep=32, mbs=1).job.plan
    gb200 = case_of(**row, **release, gpu="GB200", pp=4, vp=4, ep=64, mbs=1).job.plan

    assert (gb300.attention.fp8, gb300.experts.fused, gb300.experts.paged_stash) == (True, True, True)
    assert (gb200.attention.fp8, gb200.experts.fused, gb200.experts.paged_stash) == (None, True, True)


def test_containers_of_26_02_had_no_deepep_and_cheap_modules_computed_again_are_left_out() -> None:
    row = {"model": "Qwen3_30B_a3B", "gpus": 16, "tp": 1, "pp": 2, "vp": 12, "ep": 8, "gbs": 1024, "mbs": 1}
    case = case_of(**row, seq_len=4096, precision="FP8", framework="Megatron-Bridge 26.02 container")
    deep = {"model": "DeepSeekV3", "gpus": 256, "tp": 1, "pp": 4, "vp": 4, "ep": 64, "gbs": 4096, "seq_len": 4096}
    compressed = case_of(**deep, gpu="GB200", precision="MXFP8", framework="Megatron-Bridge 26.02 container")

    assert case.job.plan.experts.exchange == "all_to_all"
    assert compressed.job.plan.remat.policy == "none"
    assert "mla_up_proj computed again: next to nothing" in compressed.assumed


def test_what_a_row_states_of_recomputation_stands_over_its_recipe() -> None:
    row = {"model": "DeepSeekV3", "gpus": 256, "tp": 1, "pp": 4, "vp": 4, "ep": 64, "gbs": 4096, "seq_len": 4096}
    case = case_of(**row, gpu="GB200", recompute="full", framework="Megatron-Bridge 26.02 container", precision="MXFP8")

    assert case.job.plan.remat.policy == "full"


def test_plain_megatron_hides_no_collective_and_async_tensor_parallelism_says_so() -> None:
    said = [case_of(framework="torchtitan", technique=f"{name} + torch.compile") for name in ("vanilla TP", "async TP")]

    assert what_hides(case_of()) == (None, None)
    assert what_hides(case_of(framework="Megatron-LM 0.14")) == (False, False)
    assert [case.job.plan.compiler.collective_matmul for case in said] == [False, True]
    assert what_hides(case_of(precision="NVFP4"))[0] is False


def what_hides(case: MeasuredCase) -> tuple[bool | None, bool | None]:
    plan = case.job.plan
    return plan.compiler.collective_matmul, plan.optimizer.sync_overlap


def test_gpt_oss_rotates_queries_and_keys_operation_by_operation_in_megatron() -> None:
    """Its YaRN scales cosine and sine, which Transformer Engine's kernel does not."""
    assert case_of(model="GPT OSS 120B", tp=1).job.plan.attention.fused_rotary is False
    assert case_of().job.plan.attention.fused_rotary is None


def test_a_split_sequence_goes_round_a_ring_unless_a_source_says_otherwise() -> None:
    sources = (ROW["source"], "arXiv 2407.21783v3 (Llama 3) Table 4", "MooreThreads/SimuMax")
    strategies = [case_of(cp=2, source=source).job.plan.context.strategy for source in sources]

    assert strategies == ["ring", "all_gather", "ulysses"]


def test_a_gpu_under_a_power_limit_runs_at_the_clock_that_the_limit_leaves() -> None:
    limited, free = (
        case_of(gpu=f"H100 (Grand Teton, 96GB HBM2e 2.4TB/s{limit})").job.hardware.chip
        for limit in (", 500W limit", "")
    )

    assert limited.peak_flops_per_s["bf16"] == pytest.approx((5 / 7) ** (1 / 3) * free.peak_flops_per_s["bf16"])


def test_blocks_that_megascale_runs_side_by_side_are_so_in_the_job() -> None:
    said = {"model": "GPT-175B", "framework": "MegaScale", "source": "MegaScale", "vp": 1, "seq_len": 2048}
    beside, apart = (
        case_of(**said, note=note).job.model.layers[0][0]
        for note in ("parallel transformer block, sliding windows", "")
    )

    assert (beside.parallel, beside.pre_norms) == (True, 1)
    assert (apart.parallel, apart.pre_norms) == (False, 2)


def test_the_first_zero_3_moves_all_weights_over_every_port_of_a_node() -> None:
    row = {"source": "arXiv 2104.04473 Table 2", "scheme": "ZeRO-3", "tp": 1, "pp": 1, "vp": None, "gbs": 64}
    first, later = case_of(**row, framework="DeepSpeed ZeRO-3"), case_of(**row, framework="Megatron-LM")

    assert first.not_stated == "gathers of ZeRO-3 of 2021, parameter by parameter"
    assert first.job.hardware.chip.network_bytes_per_s == later.job.hardware.chip.network_bytes_per_s / 8
