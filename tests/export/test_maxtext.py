"""A job as MaxText is told it: golden configurations, keys of the stated version alone, and what is refused."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

import pytest

from ridgeline.errors import InputError
from ridgeline.export.maxtext import config_arguments, config_yaml, maxtext_config, topology_name, train_words
from ridgeline.export.maxtext_version import maxtext_version
from ridgeline.hardware.topology import parse_slice
from ridgeline.job.origin import Setting
from ridgeline.job.reading import read_job
from ridgeline.model.zoo import model_names
from tests.messages import refusal

if TYPE_CHECKING:
    from ridgeline.export.maxtext_version import Value
    from ridgeline.job.job import Job

IN_MAXTEXT = [name for name in model_names() if name in maxtext_version().models]


def job(model: object = "llama3.1-8b", **more: object) -> Job:
    """A job on 64 chips with what a test changes."""
    said = {
        "model": model,
        "hardware": "v5p:4x4x4",
        "workload.seq_len": 4096,
        "workload.global_batch": 128,
        "plan.mesh": {"fsdp": 64},
        "plan.remat": "full",
    } | {key.replace("__", "."): value for key, value in more.items()}
    return read_job(str(model), [Setting(key=key, value=value, where=key) for key, value in said.items()])


def settings(model: object = "llama3.1-8b", **more: object) -> dict[str, Value]:
    return dict(maxtext_config(job(model, **more)).settings)


def test_a_published_recipe_is_written_as_it_was_published() -> None:
    """Source: AI-Hypercomputer/tpu-recipes at edf6fa7, training/ironwood/llama3.1-70b/8k-bf16-tpu7x-4x4x4."""
    kept = ("decoder_layer_input", "context", "query_proj", "key_proj", "value_proj")

    config = maxtext_config(
        job(
            "llama3.1-70b",
            hardware="tpu7x:4x4x4",
            workload__seq_len=8192,
            workload__global_batch=256,
            plan__mesh={"fsdp": 128},
            plan__remat={"policy": "custom"} | dict.fromkeys(kept, "device"),
            plan__optimizer={"mu_dtype": "bf16"},
            plan__attention={"kernel": "splash", "block_q": 2048, "block_kv": 2048},
            plan__compiler={"scoped_vmem_kib": 61440},
        )
    )

    tiles = ("block_q", "block_kv", "block_kv_compute", "block_q_dkv", "block_kv_dkv", "block_kv_dkv_compute")
    published = {
        "model_name": "llama3.1-70b",
        "dtype": "bfloat16",
        "per_device_batch_size": 2,
        "max_target_length": 8192,
        "remat_policy": "custom",
        "opt_type": "adamw",
        "mu_dtype": "bfloat16",
        "attention": "flash",
        "use_tokamax_splash": True,
        **dict.fromkeys(kept, "device"),
        **{f"sa_{tile}": 2048 for tile in tiles},
    }
    assert {key: config.settings.get(key) for key in published} == published
    assert config.settings["ici_fsdp_parallelism"] == 128
    assert [flag.written for flag in config.flags] == ["--xla_tpu_scoped_vmem_limit_kib=61440"]


@pytest.mark.parametrize(
    "plan",
    [
        {"plan__quantization": {"kind": "fp8"}},
        {"plan__quantization": {"kind": "fp8", "scaling": "fixed"}},
        {"plan__quantization": {"kind": "int8"}},
        {"plan__optimizer": {"state": "host"}},
        {"plan__optimizer": {"kind": "muon"}},
        {"plan__optimizer": {"kind": "muon", "orthogonalize": "whole"}},
        {"plan__vocab_tiling": 8, "plan__gradient_accumulation": 2},
        {"plan__mesh": {"fsdp": 16, "cp": 4}, "plan__context": {"strategy": "ring", "load_balance": True}},
        {"plan__mesh": {"fsdp": 16, "cp": 4}, "plan__context": {"strategy": "ulysses"}},
        {"plan__mesh": {"fsdp": 16, "pp": 4}, "plan__pipeline": {"microbatches": 8, "repeats": 2}},
        {"plan__mesh": {"fsdp": 8, "fsdp_transpose": 2, "tp_sequence": 4}},
        {"hardware": "2*v5p:4x4x4", "plan__mesh": {"fsdp": 32, "tp": 2, "dcn_dp": 2}},
        {"plan__attention": {"kernel": "splash", "block_q": 1024, "block_kv": 512, "max_logit": 30}},
        {"plan__attention": {"kernel": "splash", "dq_reduction_steps": 3}},
        {"plan__attention": {"kernel": "dot_product"}},
        {"plan__remat": {"policy": "custom", "context": "offload", "mlpwo": "device"}},
        {"plan__remat": "minimal_with_context"},
        {"plan__compiler": {"scoped_vmem_kib": 65536, "sparse_core_offload": ["all_gather"]}},
        {"model": "mixtral-8x7b", "plan__moe": {"dispatch": "capacity", "capacity_factor": 1.25}},
        {"model": "mixtral-8x7b", "plan__moe": {"kernel": "ragged_dot", "shard_experts_on_fsdp": True}},
        {"model": "mixtral-8x7b", "plan__mesh": {"fsdp": 16, "ep": 4}, "plan__moe": {"kernel": "gmm"}},
        {"model": "llama3.2-1b"},
        {"model": {"base": "llama3.1-8b", "num_layers": 2}},
        {"model": "gpt3-175b"},
    ],
)
def test_every_kind_of_plan_is_written_in_keys_and_values_of_the_stated_version(plan: dict[str, object]) -> None:
    config = maxtext_config(job(**{"model": "llama3.1-8b", **plan}))

    known = maxtext_version().keys
    assert set(config.settings) <= set(known)
    for key, value in config.settings.items():
        kind = known[key]
        assert isinstance(kind, str) or value in kind, key


@pytest.mark.parametrize("name", IN_MAXTEXT)
def test_a_model_that_maxtext_has_is_named(name: str) -> None:
    assert settings(name)["model_name"] == name


def test_the_zoo_has_most_models_of_the_stated_version() -> None:
    assert len(IN_MAXTEXT) >= 60


def test_a_model_that_maxtext_lacks_is_described_by_its_dimensions() -> None:
    """Source: config.json of meta-llama/Llama-3.2-1B."""
    assert settings("llama3.2-1b") | {
        "model_name": "default",
        "decoder_block": "llama2",
        "base_emb_dim": 2048,
        "base_num_decoder_layers": 16,
        "base_num_query_heads": 32,
        "base_num_kv_heads": 8,
        "head_dim": 64,
        "base_mlp_dim": 8192,
        "vocab_size": 128256,
        "logits_via_embedding": True,
    } == settings("llama3.2-1b")


def test_fewer_layers_of_a_known_model_override_its_own_file() -> None:
    found = settings({"base": "llama3.1-8b", "num_layers": 2})

    assert found["model_name"] == "llama3.1-8b"
    assert found["override_model_config"] is True
    assert found["base_num_decoder_layers"] == 2


def test_maxtext_counts_the_layers_of_gemma_2_in_pairs() -> None:
    assert settings({"base": "gemma2-9b", "num_layers": 4})["base_num_decoder_layers"] == 2
    with pytest.raises(InputError, match="in pairs"):
        settings({"base": "gemma2-9b", "num_layers": 3})


def test_a_device_has_a_part_of_a_sequence_under_context_parallelism() -> None:
    found = settings(plan__mesh={"fsdp": 16, "cp": 4}, workload__global_batch=16)

    assert found["per_device_batch_size"] == 0.25
    assert found["ici_context_parallelism"] == 4


@pytest.mark.parametrize("batch", range(48, 48 * 40, 48))
def test_maxtext_computes_the_batch_that_was_meant_from_the_batch_of_a_device(batch: int) -> None:
    """It multiplies by the devices and rounds down."""
    found = settings(hardware="tpu7x:4x4x12", plan__mesh={"fsdp": 48, "tp": 8}, workload__global_batch=batch)

    per_device = found["per_device_batch_size"]
    assert isinstance(per_device, int | float)
    assert int(384 * per_device) == batch


def test_micro_steps_are_taken_from_the_batch_of_a_device() -> None:
    found = settings(plan__gradient_accumulation=2)

    assert (found["per_device_batch_size"], found["gradient_accumulation_steps"]) == (1, 2)


def test_stages_times_repeats_times_layers_of_a_stage_are_the_layers() -> None:
    found = settings(plan__mesh={"fsdp": 16, "pp": 4}, plan__pipeline={"microbatches": 8, "repeats": 2})

    assert found["ici_pipeline_parallelism"] == 4
    assert (found["num_pipeline_microbatches"], found["num_pipeline_repeats"]) == (8, 2)
    assert found["num_layers_per_pipeline_stage"] == 32 / 4 / 2
    assert "pipeline_parallel_layers" not in found


@pytest.mark.parametrize(
    ("model", "stages", "of_stage", "pipelined"), [("llama3.1-405b", 4, 31, 124), ("deepseek3-671b", 2, 29, 58)]
)
def test_layers_that_do_not_divide_stay_outside_the_pipeline(
    model: str, stages: int, of_stage: int, pipelined: int
) -> None:
    """126 layers are 4 times 31 and 2; of 61, the 3 dense ones come first and 58 are 2 times 29."""
    pipeline = {"microbatches": 8, "repeats": 1, "gather_once": True}
    found = settings(model, plan__mesh={"fsdp": 64 // stages, "pp": stages}, plan__pipeline=pipeline)

    assert found["num_layers_per_pipeline_stage"] == of_stage
    assert found["pipeline_parallel_layers"] == pipelined
    assert found["pipeline_fsdp_ag_once"] is True


def test_tokens_gathered_to_their_experts_are_a_ring_of_experts() -> None:
    assert settings("mixtral-8x7b", plan__moe={"exchange": "all_gather"})["use_ring_of_experts"] is True


@pytest.mark.parametrize(
    ("plan", "what", "where"),
    [
        ({"plan__optimizer": {"nu_dtype": "bf16"}}, "a second moment of another dtype", "plan.optimizer.nu_dtype"),
        ({"plan__lora": {"rank": 16}}, "adapters", "plan.lora"),
        ({"plan__optimizer": {"kind": "muonh"}}, "the optimizer muonh", "plan.optimizer.kind"),
        (
            {"plan__optimizer": {"kind": "muon", "orthogonalize": "replicated"}},
            "matrices made orthogonal on every device",
            "plan.optimizer.orthogonalize",
        ),
        ({"plan__dtypes": {"activations": "f32"}}, "activations of another dtype", "plan.dtypes.activations"),
        ({"plan__dtypes": {"gradients": "fp8"}}, "gradients of dtype fp8", "plan.dtypes.gradients"),
        ({"plan__placement": {"fsdp": "x y z"}}, "a placement of axes", "plan.placement.fsdp"),
        ({"plan__context": {"strategy": "usp"}}, "usp by one degree", "plan.context.strategy"),
        (
            {"plan__context": {"strategy": "ulysses", "load_balance": True}},
            "a balanced load with ulysses",
            "plan.context.load_balance",
        ),
        ({"plan__attention": {"max_logit": "estimate"}}, "an estimated largest logit", "plan.attention.max_logit"),
        ({"plan__attention": {"max_logit": 1.5}}, "a bound that is no whole number", "plan.attention.max_logit"),
        ({"plan__moe": {"dispatch": "capacity", "kernel": "gmm"}}, "a capacity with", "plan.moe.dispatch"),
        ({"plan__quantization": {"kind": "fp8", "rounding": "stochastic"}}, "such rounding", "plan.quantization"),
        ({"plan__quantization": {"kind": "fp8", "gradients": "e4m3", "weights": "e5m2"}}, "these", "plan.quantization"),
        ({"plan__vocab_tiling": 3}, "8,192 tokens of a device in 3 tiles", "plan.vocab_tiling"),
        (
            {"plan__mesh": {"fsdp": 4, "pp": 16}, "plan__pipeline": {"repeats": 3}},
            "32 equal layers in 16",
            "plan.mesh: pp",
        ),
    ],
)
def test_what_maxtext_cannot_be_told_is_refused_by_name(plan: dict[str, object], what: str, where: str) -> None:
    with pytest.raises(InputError) as refused:
        settings(**plan)
    assert refused.value.what.startswith(f"MaxText cannot be told {what}")
    assert refused.value.where.startswith(where)


def test_muon_is_optaxs_unless_devices_take_whole_matrices() -> None:
    """Source: MaxText 0.2.5, optimizers.py: only its own Muon sends matrices by all-to-all."""
    sharded, whole = (settings(plan__optimizer={"kind": "muon", **more}) for more in ({}, {"orthogonalize": "whole"}))

    assert sharded["opt_type"] == whole["opt_type"] == "muon"
    assert "muon_type" not in sharded
    assert (whole["muon_type"], whole["muon_use_all_to_all"]) == ("maxtext_muon", True)


def test_a_model_of_another_kind_is_refused_by_its_name() -> None:
    with pytest.raises(InputError, match="has no such model") as refused:
        settings("nemotron4-340b")
    assert refused.value.value == "nemotron4-340b"


def test_an_unknown_key_or_value_cannot_be_written() -> None:
    version = maxtext_version()
    with pytest.raises(InputError, match="no such key"):
        version.check({"remat_polcy": "full"})
    with pytest.raises(InputError, match="no such value"):
        version.check({"remat_policy": "fool"})
    with pytest.raises(InputError, match="not of type int"):
        version.check({"max_target_length": 0.5})
    with pytest.raises(InputError, match="no such value"):
        version.check({"model_name": "llama3.1-9b"})
    with pytest.raises(InputError, match="no file for such a model"):
        version.check({"model_name": "deepseek3-671b-lineage"})


def test_what_replaces_a_key_of_the_model_is_said_on_the_command_line_not_in_the_file() -> None:
    """MaxText lays the model's own file over a configuration file, and command-line arguments over both."""
    config = maxtext_config(job("gpt3-175b"))  # whose own file sets opt_type

    assert "opt_type" not in config_yaml(config)
    words = train_words(config, steps=30, file="gpt.yml")
    assert words[:4] == ("python3", "-m", "maxtext.trainers.pre_train.train", "gpt.yml")
    assert {"override_model_config=true", "opt_type=adamw", "steps=30"} <= set(words)
    assert "max_target_length=4096" not in words


def test_a_file_and_the_command_line_say_the_same() -> None:
    config = maxtext_config(job())

    lines = [line for line in config_yaml(config).splitlines() if not line.startswith(("#", "base_config"))]
    in_file = {key: json.loads(value) for key, value in (line.split(": ", 1) for line in lines)}
    assert in_file == config.settings
    assert set(config_arguments(config)) <= set(train_words(config, steps=30))


def test_a_shell_reads_the_command_with_all_flags_in_one_variable() -> None:
    config = maxtext_config(job(plan__compiler={"scoped_vmem_kib": 1024, "sparse_core_offload": ["all_gather"]}))

    first, *words = shlex.split(" ".join(train_words(config, steps=5)))
    assert first == (
        "LIBTPU_INIT_ARGS=--xla_tpu_scoped_vmem_limit_kib=1024"
        " --xla_tpu_enable_sparse_core_collective_offload_all_gather=true"
        " --xla_tpu_enable_sparse_core_collective_offload_reduce_scatter=false"
        " --xla_tpu_enable_sparse_core_collective_offload_all_reduce=false"
    )
    assert words[:2] == ["python3", "-m"]


@pytest.mark.parametrize(
    ("hardware", "name"),
    [
        ("v5e:2x2", "v5e-4"),
        ("v6e:16x16", "v6e-256"),
        ("tpu7x:2x2x1", "tpu7x-8"),
        ("tpu7x:8x4x4", "tpu7x-256"),
        ("v5p:2x2x1", "v5p-8"),
        ("v4:4x4x8", "v4-256"),
    ],
)
def test_a_slice_has_maxtexts_name(hardware: str, name: str) -> None:
    assert topology_name(parse_slice(hardware)) == name


def test_a_slice_of_another_shape_than_maxtext_has_is_refused_with_the_shape_it_has() -> None:
    with pytest.raises(InputError) as refused:
        topology_name(parse_slice("tpu7x:4x4x16"))
    assert str(refused.value) == refusal(
        f"MaxText {maxtext_version().version} has no name for such a slice",
        where="hardware",
        value="tpu7x:4x4x16",
        expected="a shape that MaxText knows: 4x8x8 has as many chips",
        fix="use tpu7x:4x8x8, or --program ours",
    )


def test_modules_that_predict_further_tokens_are_asked_for() -> None:
    found = settings({"base": "deepseek3-671b", "mtp_depth": 1})

    assert (found["model_name"], found["mtp_num_layers"]) == ("deepseek3-671b", 1)
    assert "mtp_num_layers" not in settings("deepseek3-671b")
