"""TPU training records: what a row says becomes a job; what it leaves out is assumed and named; nothing is dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ridgeline.study.measured.files import published_cases
from ridgeline.study.measured.tpu_records import read_records

if TYPE_CHECKING:
    from ridgeline.job.job import Job
    from ridgeline.study.measured.case import MeasuredCase

ROW: dict[str, Any] = {
    "id": "v6e-llama3.1-8b",
    "quality": "A",
    "framework": "MaxText",
    "source": {"repo": "someone/recipes", "commit": "abc123", "path": "README.md"},
    "chip": "v6e",
    "num_chips": 256,
    "topology": "16x16",
    "slices": 1,
    "model": "llama3.1-8b",
    "global_batch": 1024,
    "seq_len": 8192,
    "precision": "bf16",
    "dtypes": {"compute": "bfloat16", "weights": "float32", "grads": "float32", "adam_mu": "float32"},
    "sharding": {"ici": {"fsdp": 256}, "dcn": {}},
    "remat": {"policy": "full"},
    "optimizer": {"type": "adamw"},
    "measured": {"step_time_s": 2.5},
}


def case_of(**changes: object) -> MeasuredCase:
    """The case of the row with some keys changed; None takes a key away."""
    row = {key: value for key, value in (ROW | changes).items() if value is not None}
    cases, skipped = read_records([row], "rows.json")
    assert not skipped, skipped
    return cases[0]


def job_of(**changes: object) -> Job:
    return case_of(**changes).job


def mesh_of(**changes: object) -> dict[str, int]:
    return {axis: degree for axis, degree in job_of(**changes).plan.mesh.items() if degree > 1}


def reason_of(**changes: object) -> str:
    cases, skipped = read_records([ROW | changes], "rows.json")
    assert not cases
    return skipped[0].reason


def test_a_row_that_states_everything_leaves_nothing_to_assume() -> None:
    case = case_of()

    assert (case.assumed, case.alternatives, case.not_stated) == ((), (), "")
    assert case.cluster == "v6e|llama3.1-8b|256|8192|bf16"
    assert case.source == "someone/recipes abc123 README.md"
    assert (case.metric, case.measured, case.unit) == ("step_time_s", 2.5, "s")


def test_devices_are_counted_two_a_chip_on_ironwood() -> None:
    changed = {"chip": "tpu7x", "num_chips": 64, "topology": "4x4x4", "sharding": {"ici": {"fsdp": 128}}}

    assert mesh_of(**changed) == {"fsdp": 128}
    assert case_of(**changed).assumed == ()


def test_degrees_that_count_chips_grow_to_devices() -> None:
    changed = {"chip": "tpu7x", "num_chips": 64, "topology": "4x4x4", "sharding": {"ici": {"fsdp": 64}}}

    assert mesh_of(**changed) == {"fsdp": 128}
    assert case_of(**changed).assumed == ("mesh: fsdp degrees count chips, times 2",)


@pytest.mark.parametrize("chip", ["v6e", "TPU v6e", "trillium", "tpu-v6e", "Trillium (v6e)"])
def test_a_chip_has_several_names(chip: str) -> None:
    assert job_of(chip=chip).hardware.name == "v6e:16x16"


@pytest.mark.parametrize(
    "sharding",
    [
        {"ici": {"fsdp": 64, "tensor": 4}, "dcn": {}},
        {"ici": {"fsdp": -1, "tensor": 4}},
        {"ici": {"fsdp": "64", "tensor": 4, "expert": 1, "context": None}},
        {"fsdp": 64, "tp": 4},
        {"ici_fsdp_parallelism": 64, "ici_tensor_parallelism": 4},
        {"ici": {"tensor": 4}},
        "fsdp64 tensor4",
        "fsdp=64, tp=4",
    ],
)
def test_a_mesh_has_several_spellings(sharding: object) -> None:
    assert mesh_of(sharding=sharding) == {"fsdp": 64, "tp": 4}


def test_slices_that_no_axis_spans_hold_replicas() -> None:
    two = {"num_chips": 512, "slices": 2}

    assert mesh_of(**two) == {"fsdp": 256, "dcn_dp": 2}
    assert mesh_of(**two, sharding={"ici": {"fsdp": 256}, "dcn": {"fsdp": 2}}) == {"fsdp": 256, "dcn_fsdp": 2}
    assert mesh_of(**two, sharding={"ici": {"fsdp": 512}}) == {"fsdp": 256, "dcn_fsdp": 2}


def test_slices_follow_from_chips_and_topology() -> None:
    assert job_of(num_chips=1024, slices=None).hardware.name == "4*v6e:16x16"


def test_a_topology_that_is_not_stated_is_the_most_cube_like() -> None:
    case = case_of(chip="v5p", num_chips=128, topology=None, sharding={"ici": {"fsdp": 128}})

    assert case.job.hardware.name == "v5p:4x4x8"
    assert case.assumed == ("topology: 4x4x8",)


@pytest.mark.parametrize(
    ("said", "policy"),
    [
        ({"policy": "full (default)"}, "full"),
        ({"policy": "Levanter default: full per-layer gradient checkpointing with scan"}, "full"),
        ("minimal_with_context", "minimal_with_context"),
        ({"policy": "save_dot_except_logits_ffn1"}, "save_dot_except_mlpwi"),
        ({"policy": "dots_saveable"}, "minimal"),
        ({"policy": "offload_dots_saveable (all dot outputs)"}, "minimal_offloaded"),
        ({"policy": "none"}, "none"),
    ],
)
def test_a_remat_policy_is_told_by_its_first_words(said: object, policy: str) -> None:
    remat = job_of(remat=said).plan.remat

    assert remat is not None
    assert remat.policy == policy


def test_tensors_make_a_policy_custom_and_belong_to_no_preset() -> None:
    placed = {"decoder_layer_input": "offload", "out_proj": "device"}
    custom = job_of(remat={"policy": "custom", "tensors": placed}).plan.remat
    alone = job_of(remat=placed).plan.remat
    full = job_of(remat={"policy": "full", "tensors": placed}).plan.remat

    assert custom == alone
    assert custom is not None
    assert custom.tensors == placed
    assert full is not None
    assert (full.policy, full.tensors) == ("full", {})


def test_a_policy_that_is_not_stated_is_full_and_the_others_are_laid_beside_it() -> None:
    case = case_of(remat=None)

    assert case.assumed == ("remat: full",)
    assert [job.plan.remat.policy for job in case.alternatives if job.plan.remat] == ["minimal_with_context", "none"]


def test_attention_that_is_not_fused_is_so_whatever_a_remark_says_of_later_kernels() -> None:
    for said in ("dot_product", "dot_product (pre-flash)", "dot_product (before fuji had flash)"):
        assert job_of(attention={"attention": said}).plan.attention.kernel == "dot_product"


def test_pytorch_has_a_flash_kernel_beside_splash_with_tiles_of_its_own() -> None:
    """As torchprime's `attention.py` sets them."""
    for said, kernel, tile in (("splash", "splash", (2048, 2048)), ("flash", "flash", (2048, 512))):
        read = job_of(framework="torchprime (PyTorch/XLA)", attention={"attention": said}).plan.attention
        assert (read.kernel, (read.block_q, read.block_kv)) == (kernel, tile)


def test_maxtext_may_add_up_the_gradient_of_queries_in_three_parts() -> None:
    said = {"attention": "flash", "use_tokamax_splash": True}

    assert job_of(attention={**said, "dq_reduction_steps": 3}).plan.attention.dq_reduction_steps == 3
    assert job_of(attention={**said, "dq_reduction_steps": 0}).plan.attention.dq_reduction_steps is None


@pytest.mark.parametrize(
    ("said", "kinds"),
    [
        ({"notes": ["SC offload of AR+RS+AG", "FSDP8"]}, ("all_gather", "all_reduce", "reduce_scatter")),
        ({"notes": ["bkv 2048, SC offload of AR only"]}, ("all_reduce",)),
        ({"notes": ["full SC offload"]}, ("all_gather", "all_reduce", "reduce_scatter")),
        ({"xla_flags": ["--xla_tpu_enable_sparse_core_collective_offload_all_gather=true"]}, ("all_gather",)),
        ({"notes": ["no SC offload"], "xla_flags": []}, ()),
    ],
)
def test_flags_and_remarks_tell_what_sparse_cores_carry(said: dict[str, object], kinds: tuple[str, ...]) -> None:
    assert job_of(**said).plan.compiler.sparse_core_offload == kinds


@pytest.mark.parametrize(
    ("said", "kind", "left"),
    [
        ("adam_pax", "adamw", ""),
        ("Muon", "muon", ""),
        ("adamh/muonh family (Delphi recipe)", "adamh", ""),
        ("adafactor", "adafactor", ""),
        ("adafactor (no factoring)", "adafactor", "the second moment whole, not factored"),
        ("lamb", "adamw", "no job has the optimizer of this run, Lamb"),
    ],
)
def test_an_optimizer_is_told_by_its_first_word(said: str, kind: str, left: str) -> None:
    case = case_of(optimizer={"type": said})

    assert (case.job.plan.optimizer.kind, case.not_stated) == (kind, left)


def test_grug_makes_every_matrix_orthogonal_on_every_device() -> None:
    muonh = {"optimizer": {"type": "MuonH"}}

    assert job_of(**muonh, framework="Levanter/Grug (Marin)").plan.optimizer.orthogonalize == "replicated"
    assert job_of(**muonh, framework="Levanter (Marin)").plan.optimizer.orthogonalize is None


def test_the_batch_may_be_given_by_device() -> None:
    assert job_of(global_batch=None, per_device_batch=4).workload.global_batch == 1024
    assert job_of(global_batch=None, per_device_batch=2, grad_accum=2).workload.global_batch == 1024
    assert job_of(global_batch=None, tokens_per_device=8192).workload.global_batch == 256


def test_arguments_of_maxtext_tell_what_the_row_leaves_out() -> None:
    arguments = {
        "model_name": "llama3.1-8b",
        "per_device_batch_size": 4,
        "max_target_length": 8192,
        "ici_tensor_parallelism": 4,
        "remat_policy": "custom",
        "decoder_layer_input": "offload",
        "weight_dtype": "bfloat16",
        "num_vocab_tiling": 2,
    }
    absent = dict.fromkeys(("model", "global_batch", "seq_len", "dtypes", "sharding", "remat"))
    job = job_of(**absent, framework_args=arguments)

    assert (job.model.name, job.workload.global_batch, job.workload.seq_len) == ("llama3.1-8b", 1024, 8192)
    assert {axis: degree for axis, degree in job.plan.mesh.items() if degree > 1} == {"fsdp": 64, "tp": 4}
    assert job.plan.remat is not None
    assert job.plan.remat.tensors == {"decoder_layer_input": "offload"}
    assert (job.plan.dtypes.weights, job.plan.optimizer.nu_dtype, job.plan.vocab_tiling) == ("bf16", "bf16", 2)


def test_a_row_may_repeat_the_configuration_of_another() -> None:
    again = {key: ROW[key] for key in ("chip", "num_chips", "model", "global_batch", "seq_len")}
    again |= {"id": "again", "same_config_as": ROW["id"], "measured": {"step_time_s": 2.6}}
    cases, skipped = read_records([ROW, again], "rows.json")

    assert not skipped
    assert cases[1].job == cases[0].job
    assert cases[1].measured == 2.6
    assert cases[1].assumed == (f"configuration: as {ROW['id']}",)


@pytest.mark.parametrize(
    ("measured", "derived", "expected"),
    [
        ({"step_time_s": 2.0, "tokens_per_s_per_chip": 9e3}, {}, ("step_time_s", 2.0, "direct")),
        ({"tokens_per_s_per_chip": 9e3}, {"step_time_s": 2.0}, ("tokens_per_s_per_chip", 9e3, "direct")),
        ({"tokens_per_s_total": 512e3}, {}, ("tokens_per_s_per_chip", 2e3, "direct")),
        ({"mfu": 0.5}, {"step_time_s": 2.0}, ("step_time_s", 2.0, "derived")),
    ],
)
def test_a_step_time_goes_before_tokens_and_what_is_stated_before_what_is_derived(
    measured: dict[str, float], derived: dict[str, float], expected: tuple[str, float, str]
) -> None:
    case = case_of(measured=measured, derived=derived)

    assert (case.metric, case.measured, case.source_of_measured) == expected


def test_a_normalized_throughput_is_the_last_resort() -> None:
    case = case_of(measured={"mfu": 0.5}, normalized={"tokens_per_s_per_chip": 12000.0})

    assert (case.metric, case.source_of_measured) == ("tokens_per_s_per_chip", "derived")


def test_a_row_whose_throughput_contradicts_its_step_time_says_so() -> None:
    case = case_of(measured={"step_time_s": 2.5, "tokens_per_s_per_chip": 6553.6})

    assert case.assumed == ("measured: the step time, though the tokens/s stated are 0.50 times what it gives",)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"measured": {"mfu": 0.5}}, "neither a step time nor tokens/s (measured: mfu)"),
        ({"measured": {"step_time_s": float("nan")}}, "step_time_s is not a number above zero (step_time_s: nan)"),
        ({"measured": {"step_time_s": -1}}, "step_time_s is not a number above zero (step_time_s: -1)"),
        ({"model": "unheard-of-9b"}, "unknown model (model: unheard-of-9b)"),
        ({"chip": "h100"}, "a chip that is no TPU in a TPU record (chip: h100)"),
        ({"num_chips": 128}, "the topology has 256 chips, the record 128 a slice (topology: 16x16)"),
        ({"seq_len": None}, "no sequence length (seq_len: None)"),
        ({"global_batch": None}, "no batch (global_batch: None)"),
        ({"precision": "fp4"}, "no recipe of that precision (precision: fp4)"),
        (
            {"sharding": {"ici": {"fsdp": 7}}},
            "the mesh does not fill the 256 devices of a slice (sharding: {'fsdp': 7})",
        ),
    ],
)
def test_a_row_that_cannot_be_used_says_why(changes: dict[str, object], reason: str) -> None:
    assert reason_of(**changes) == reason


def test_runs_with_another_optimizer_are_used_and_say_so() -> None:
    assert "Shampoo" in case_of(optimizer={"type": "shampoo (blocked)"}).not_stated


JUNK = st.sampled_from(
    [None, "", 0, -1, float("nan"), "x", [], {}, [1, 2], {"a": 1}, True, 10**400, "4x4", {"ici": None}, {"policy": 3}]
)


@settings(max_examples=150, deadline=None)
@given(junk=st.dictionaries(st.sampled_from(sorted(ROW)), JUNK, min_size=1, max_size=4), inside=st.booleans())
def test_no_row_is_lost_or_breaks_the_reader(*, junk: dict[str, object], inside: bool) -> None:
    row = {key: {**ROW[key], **dict.fromkeys(ROW[key], junk[key])} for key in junk if isinstance(ROW[key], dict)}
    cases, skipped = read_records([ROW | (row if inside else junk), ROW], "rows.json")

    assert len(cases) + len(skipped) == 2


def test_a_record_that_is_no_table_is_skipped() -> None:
    cases, skipped = read_records([ROW, 3, None, []], "rows.json")

    assert len(cases) == 1
    assert [each.id for each in skipped] == ["rows.json: record 2", "rows.json: record 3", "rows.json: record 4"]


def test_every_published_row_is_used_or_skipped_with_a_reason() -> None:
    found = published_cases()
    tpu = [case for case in found.training if case.job.hardware.chip.torus is not None]

    assert len(tpu) > 140
    assert all(case.source != "unstated" and case.quality in {"A", "B", "C"} for case in tpu)
    assert all(each.reason for each in found.skipped)
