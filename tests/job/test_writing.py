"""Writing a job: what is written reads back as the same job."""

from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.errors import InputError
from ridgeline.hardware.topology import parse_slice
from ridgeline.job.job import (
    MESH_AXES,
    AttentionKernel,
    AttentionProgram,
    Compiler,
    ContextParallelism,
    ContextStrategy,
    Dtypes,
    ExpertDispatch,
    ExpertKernel,
    ExpertProgram,
    Job,
    Optimizer,
    OptimizerKind,
    Pipeline,
    PlanRequest,
    Quantization,
    Remat,
    Workload,
)
from ridgeline.job.reading import read_job
from ridgeline.job.remat import CUSTOM_NAMES, POLICIES
from ridgeline.job.writing import job_toml, write_job
from ridgeline.model.zoo import resolve_model
from tests.messages import refusal

JOB = Job(
    model_reference="llama3.1-8b",
    model=resolve_model("llama3.1-8b"),
    hardware=parse_slice("v6e:8x8"),
    workload=Workload(seq_len=8192, global_batch=256, tokens=15e12),
)

dtypes = st.sampled_from(["f32", "bf16", "fp8", "int8"])
counts = st.none() | st.integers(1, 10**9)
flags = st.none() | st.booleans()


def optionally(*values: str) -> st.SearchStrategy[str | None]:
    return st.none() | st.sampled_from(values)


remats = st.builds(Remat, policy=st.sampled_from([policy for policy in POLICIES if policy != "custom"])) | st.builds(
    Remat,
    policy=st.just("custom"),
    tensors=st.dictionaries(st.sampled_from(CUSTOM_NAMES), st.sampled_from(["device", "offload"]), min_size=1),
)
plans = st.builds(
    PlanRequest,
    mesh=st.sampled_from([{}, {"fsdp": 64}, {"dp": 2, "fsdp": 8, "tp": 4}]),
    gradient_accumulation=st.sampled_from([None, 1, 2]),
    pipeline=st.builds(Pipeline, microbatches=counts, repeats=counts),
    dtypes=st.builds(Dtypes, weights=dtypes, compute=dtypes, gradients=dtypes, activations=dtypes),
    quantization=st.none()
    | st.builds(Quantization, kind=st.just("fp8"), rounding=st.sampled_from(["nearest_even", "stochastic"])),
    remat=st.none() | remats,
    optimizer=st.builds(
        Optimizer,
        kind=st.sampled_from(get_args(OptimizerKind)),
        mu_dtype=dtypes,
        nu_dtype=dtypes,
        state=st.sampled_from([None, "device", "host"]),
    ),
    vocab_tiling=st.integers(1, 64),
    lora=st.none(),
    moe_imbalance=st.floats(1, 100),
    placement=st.dictionaries(st.sampled_from(MESH_AXES), st.sampled_from(["x", "y", "x y"])),
    attention=st.builds(
        AttentionKernel,
        kernel=optionally(*get_args(AttentionProgram)),
        block_q=counts,
        block_kv=counts,
        dq_reduction_steps=st.sampled_from([None, 3]),
        max_logit=optionally("none", "estimate") | st.floats(0.01, 1e4),
    ),
    experts=st.builds(
        ExpertKernel,
        dispatch=optionally(*get_args(ExpertDispatch)),
        capacity_factor=st.none() | st.floats(0.01, 100),
        kernel=optionally(*get_args(ExpertProgram)),
        shard_experts_on_fsdp=flags,
    ),
    context=st.builds(ContextParallelism, strategy=optionally(*get_args(ContextStrategy)), load_balance=flags),
    compiler=st.builds(
        Compiler,
        scoped_vmem_kib=counts,
        sparse_core_offload=st.sampled_from([(), ("all_gather",), ("all_reduce", "all_gather")]),
    ),
)


@given(plans)
def test_a_job_that_was_written_reads_back_equal(tmp_path_factory: pytest.TempPathFactory, plan: PlanRequest) -> None:
    job = replace(JOB, plan=plan)
    path = str(tmp_path_factory.getbasetemp() / "round_trip.toml")

    write_job(job, path, force=True)

    assert read_job(path) == job


def test_a_file_in_the_way_is_replaced_only_by_force(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text("precious", encoding="utf-8")

    with pytest.raises(InputError) as refused:
        write_job(JOB, str(path))

    assert path.read_text(encoding="utf-8") == "precious"
    assert str(refused.value) == refusal(
        "the file exists",
        where="--save",
        value=str(path),
        expected="a new file",
        fix="choose another name, or add --force to replace it",
    )
    write_job(JOB, str(path), force=True)
    assert read_job(str(path)) == JOB


def test_a_job_file_must_have_its_suffix() -> None:
    with pytest.raises(InputError) as refused:
        write_job(JOB, "job.json")

    assert (refused.value.what, refused.value.fix) == ("a job file needs its suffix", "write job.json.toml")


def test_a_place_that_cannot_be_written_to_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot write the job file: No such file or directory"):
        write_job(JOB, str(tmp_path / "absent" / "job.toml"))


@pytest.mark.parametrize(
    ("reference", "folder", "written"),
    [
        ("config.json", ".", "config.json"),
        ("models/config.json", "jobs", "../models/config.json"),
        ("./llama", ".", "./llama"),
        ("/models/config.json", "jobs", "/models/config.json"),
        ("llama3.1-8b", "jobs", "llama3.1-8b"),
    ],
)
def test_a_models_path_is_written_as_seen_from_the_job_file(reference: str, folder: str, written: str) -> None:
    assert f'model = "{written}"\n' in job_toml(replace(JOB, model_reference=reference), folder=folder)


def test_the_planners_freedom_is_not_written_down() -> None:
    assert job_toml(replace(JOB, workload=Workload(seq_len=8192))) == (
        'version = 1\nmodel = "llama3.1-8b"\nhardware = "v6e:8x8"\n'
        '\n[workload]\nseq_len = 8192\nkind = "train"\n'
        '\n[plan]\ndtypes = { weights = "f32", compute = "bf16", gradients = "f32", activations = "bf16" }\n'
        'optimizer = { kind = "adamw", mu_dtype = "f32", nu_dtype = "f32" }\nvocab_tiling = 1\n'
    )
