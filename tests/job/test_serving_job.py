"""A serving job: read from a file and from flags, written down again, and kept apart from a training job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ridgeline.errors import InputError
from ridgeline.job.job import AttentionKernel, Compiler
from ridgeline.job.origin import settings
from ridgeline.job.reading import read_any_job, read_job, read_serving_job
from ridgeline.job.serving import ServingDtypes, ServingJob, ServingPlan, ServingWorkload
from ridgeline.job.writing import write_job
from tests.messages import refusal

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Unpack

    from ridgeline.job.origin import Arguments

FULL = """
version = 1
model = "llama3.1-8b"
hardware = "v5e:2x4"

[workload]
kind = "serve"
prompt_len = "1Ki"
generate_len = 512
batch = 64
rate = 2.5
ttft_s = "500ms"
tpot_s = 0.03

[plan]
prefill = { dp = 2, tp = 4 }
decode = { tp = 8 }
prefill_batch = 4
dtypes = { weights = "bf16", kv_cache = "int8", compute = "bf16" }
attention = { kernel = "splash", block_q = 512, block_kv = 512 }
compiler = { scoped_vmem_kib = 32768 }
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "job.toml"
    path.write_text(FULL, encoding="utf-8")
    return path


def serving(**flags: Unpack[Arguments]) -> ServingJob:
    said: Arguments = {"on": "v5e:2x4", "prompt_len": "1024", "generate_len": "512", **flags}
    return read_serving_job("llama3.1-8b", settings(said, written=lambda name: f"--{name.replace('_', '-')}"))


def test_every_key_of_a_serving_job_is_understood(file: Path) -> None:
    job = read_serving_job(str(file))

    assert job.workload == ServingWorkload(
        prompt_len=1024, generate_len=512, batch=64, rate=2.5, ttft_s=0.5, tpot_s=0.03
    )
    assert job.workload.context_len == 1536
    assert job.plan == ServingPlan(
        prefill={"dp": 2, "tp": 4},
        decode={"tp": 8},
        prefill_batch=4,
        dtypes=ServingDtypes(weights="bf16", kv_cache="int8", compute="bf16"),
        attention=AttentionKernel(kernel="splash", block_q=512, block_kv=512),
        compiler=Compiler(scoped_vmem_kib=32768),
    )


def test_a_serving_job_that_is_written_reads_back_as_the_same_job(file: Path, tmp_path: Path) -> None:
    job = read_any_job(str(file))

    write_job(job, str(tmp_path / "again.toml"))

    assert read_any_job(str(tmp_path / "again.toml")) == job


def test_flags_make_a_serving_job_of_a_model_and_a_prompt_length_says_its_kind() -> None:
    job = serving(batch="32", prefill_mesh="tp=8", decode_mesh="dp=2,tp=4", kv_cache_dtype="fp8", tpot="20ms")

    assert (job.workload.kind, job.workload.batch, job.workload.tpot_s) == ("serve", 32, 0.02)
    assert (job.plan.mesh("prefill"), job.plan.mesh("decode")) == ({"tp": 8}, {"dp": 2, "tp": 4})
    assert job.plan.dtypes == ServingDtypes(kv_cache="fp8")


def test_a_mesh_is_that_of_both_phases_where_they_have_none_of_their_own() -> None:
    both, one = serving(mesh="tp=8"), serving(mesh="tp=8", prefill_mesh={"dp": 2, "tp": 4})

    assert (both.plan.prefill, both.plan.decode) == ({"tp": 8}, {"tp": 8})
    assert (one.plan.prefill, one.plan.decode) == ({"dp": 2, "tp": 4}, {"tp": 8})
    with pytest.raises(InputError) as caught:
        serving(mesh="tp=16")
    assert caught.value.where == "--mesh"


def test_a_verb_of_training_refuses_a_serving_job_and_the_other_way_round(file: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_job(str(file))
    assert str(caught.value) == refusal(
        "a serving job, where one of training is asked for",
        where=f"{file}: workload.kind",
        value="serve",
        expected="train",
        fix="ask `ridgeline compile` about a serving job",
    )

    training = settings({"on": "v5e:2x4", "seq_len": 1024}, written=str)
    with pytest.raises(InputError, match="a training job, where one of serving is asked for"):
        read_serving_job("llama3.1-8b", training)


@pytest.mark.parametrize(
    ("flags", "what", "where"),
    [
        ({"seq_len": "2048"}, "unknown key", "--seq-len"),
        ({"remat": "full"}, "unknown key", "--remat"),
        ({"prompt_len": "0"}, "number too small", "--prompt-len"),
        ({"rate": "0"}, "rate must be more than zero", "--rate"),
        ({"ttft": "0s"}, "ttft_s must be more than zero", "--ttft"),
        ({"decode_mesh": "tp=16"}, "mesh does not fill the devices in one slice", "--decode-mesh"),
        ({"prefill_mesh": "dcn_dp=2"}, "a server is one slice", "--prefill-mesh"),
        ({"decode_mesh": "dp=8", "batch": "12"}, "batch is not divisible", "--batch"),
        ({"prefill_mesh": "dp=8", "prefill_batch": "4"}, "batch is not divisible", "--prefill-batch"),
        ({"kv_cache_dtype": "int3"}, "unknown dtype", "--kv-cache-dtype"),
    ],
)
def test_what_makes_no_sense_is_refused_where_it_was_written(flags: Arguments, what: str, where: str) -> None:
    with pytest.raises(InputError) as caught:
        serving(**flags)

    assert (caught.value.what, caught.value.where) == (what, where)


def test_the_length_of_a_reply_must_be_said() -> None:
    with pytest.raises(InputError, match="missing generate_len"):
        read_serving_job("llama3.1-8b", settings({"on": "v5e:2x4", "prompt_len": 64}, written=str))
