"""A serving job: read from a file and from flags, written down again, and kept apart from a training job."""

from __future__ import annotations

import os
from math import exp
from typing import TYPE_CHECKING

import pytest

from ridgeline.errors import InputError
from ridgeline.job.job import AttentionKernel, Compiler
from ridgeline.job.origin import settings
from ridgeline.job.reading import read_any_job, read_job, read_serving_job
from ridgeline.job.serving import PrefixCache, ServingDtypes, ServingJob, ServingPlan, ServingWorkload, Speculation
from ridgeline.job.traffic import EmpiricalLength, LognormalLength, UniformLength
from ridgeline.job.writing import write_job
from ridgeline.model.zoo import resolve_model
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

prefix_cache = { hit_rate = "40%", shared = true }

[plan]
prefill = { dp = 2, tp = 4 }
decode = { tp = 8 }
mode = "disaggregated"
server_ratio = "2:6"
prefill_batch = 4
memory_utilization = 0.85
page_tokens = 32
cache = "spread"
speculation = { draft_tokens = 3, acceptance = 0.8, draft_model = "llama3.2-1b" }
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
        prompt_len=1024,
        generate_len=512,
        batch=64,
        rate=2.5,
        ttft_s=0.5,
        tpot_s=0.03,
        prefix_cache=PrefixCache(hit_fraction=0.4, shared=True),
    )
    assert job.workload.context_len == 1536
    assert job.plan == ServingPlan(
        prefill={"dp": 2, "tp": 4},
        decode={"tp": 8},
        mode="disaggregated",
        server_ratio=(1, 3),
        prefill_batch=4,
        memory_utilization=0.85,
        page_tokens=32,
        cache="spread",
        speculation=Speculation(
            draft_tokens=3,
            acceptance_fraction=0.8,
            draft_model="llama3.2-1b",
            drafter=resolve_model("llama3.2-1b", where="model"),
        ),
        dtypes=ServingDtypes(weights="bf16", kv_cache="int8", compute="bf16"),
        attention=AttentionKernel(kernel="splash", block_q=512, block_kv=512),
        compiler=Compiler(scoped_vmem_kib=32768),
    )


def test_a_serving_job_that_is_written_reads_back_as_the_same_job(file: Path, tmp_path: Path) -> None:
    job = read_any_job(str(file))

    write_job(job, str(tmp_path / "again.toml"))

    assert read_any_job(str(tmp_path / "again.toml")) == job


def test_lengths_are_said_by_moments_by_quantiles_by_bounds_or_by_a_file(tmp_path: Path) -> None:
    (tmp_path / "lengths.txt").write_text("7\n\n9\n", encoding="utf-8")
    moments = serving(prompt_len={"mean": 100, "sigma": 0.5, "max": 400}).workload
    quantiles = serving(prompt_len="p50=800,p90=2000").workload.prompts
    bounds = serving(generate_len="min=5,max=9").workload
    seen = serving(generate_len=f"file={tmp_path / 'lengths.txt'}").workload

    assert moments.prompts == LognormalLength(mean_tokens=100.0, sigma=0.5, most_tokens=400)
    assert (moments.prompt_len, moments.context_len) == (400, 912)
    assert isinstance(quantiles, LognormalLength)
    assert quantiles.median_tokens == pytest.approx(800)
    assert quantiles.median_tokens * exp(quantiles.sigma * 1.2815516) == pytest.approx(2000)
    assert (bounds.replies, bounds.generate_len) == (UniformLength(least_tokens=5, most_tokens=9), 9)
    assert isinstance(seen.replies, EmpiricalLength)
    assert (seen.replies.tokens, seen.generate_len) == ((7, 9), 9)


def test_lengths_and_traces_beside_a_job_file_are_found_again_from_where_it_is_written(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "lengths.txt").write_text("7\n9\n", encoding="utf-8")
    (tmp_path / "trace.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,5,2\n4,9,1\n", encoding="utf-8")
    lengths = serving(prompt_len=f"file={tmp_path / 'lengths.txt'}", ttft="p90=2s", rate=5)
    trace = serving(prompt_len=None, generate_len=None, trace=str(tmp_path / "trace.csv"), tpot={"p99": "50ms"})

    for job in (lengths, trace):
        path = str(tmp_path / "jobs" / "job.toml")
        write_job(job, path, force=True)
        assert "../" in (tmp_path / "jobs" / "job.toml").read_text(encoding="utf-8")
        again = read_serving_job(path).workload
        assert again.context_len == job.workload.context_len
        assert (again.rate, again.ttft_of, again.tpot_of) == (
            job.workload.rate,
            job.workload.ttft_of,
            job.workload.tpot_of,
        )
    assert trace.workload.rate == pytest.approx(1 / 4)
    assert trace.workload.context_len == 10  # of one request, not of the longest prompt and the longest reply


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
        ({"prompt_len": None}, "missing prompt_len", "job: workload.prompt_len"),
        ({"experts_dtype": "fp4"}, "llama3.1-8b has no experts", "--experts-dtype"),
        (
            {"mode": "interleaved", "prefill_batch": 4},
            "prefill_batch is of disaggregated servers only",
            "--prefill-batch",
        ),
        (
            {"mesh": "tp=8", "prefill_mesh": "tp=8", "decode_mesh": "tp=8"},
            "mesh is of phases that have none of their own, and both have",
            "--mesh",
        ),
        ({"trace": "", "prompt_len": None, "generate_len": None}, "the trace has no name", "--trace"),
        ({"prefix_hit_rate": "60%%"}, "not a number", "--prefix-hit-rate"),
        ({"prompt_len": "0"}, "number too small", "--prompt-len"),
        ({"rate": "0"}, "rate must be more than zero", "--rate"),
        ({"rate": "20/s"}, "not a number", "--rate"),
        ({"tpot": "30s"}, "tpot_s limits nothing: it is 30.0 s", "--tpot"),
        ({"tpot": "30"}, "tpot_s without a unit: 30 seconds, or milliseconds?", "--tpot"),
        ({"tpot": "9"}, "tpot_s without a unit: 9 seconds, or milliseconds?", "--tpot"),
        ({"ttft": "500"}, "ttft_s without a unit: 500 seconds, or milliseconds?", "--ttft"),
        ({"ttft": "p90=500.0", "rate": 2}, "ttft_s without a unit: 500.0 seconds, or milliseconds?", "--ttft"),
        ({"ttft": "p90=2s"}, "a limit on p90 needs a rate: how long requests queue decides it", "--ttft"),
        ({"ttft": "p95=2s", "rate": 2}, "unknown key", "--ttft: p95"),
        ({"ttft": "p50=2s,p90=3s", "rate": 2}, "a limit is of the mean, or of one percentile", "--ttft"),
        ({"prompt_len": "p50=800"}, "these do not say a length", "--prompt-len"),
        ({"prompt_len": "p50=800,p90=80"}, "p90 is less than p50", "--prompt-len: p90"),
        ({"prompt_len": "p50=1000,p90=2000,max=1000"}, "max is less than p90", "--prompt-len: max"),
        ({"prompt_len": "p50=1,p90=1e6"}, "p90 is absurdly far above p50", "--prompt-len: p90"),
        ({"prompt_len": "file=/dev/zero"}, "the lengths are not a file", "--prompt-len"),
        ({"prompt_len": "mean=800,sigma=60"}, "sigma is absurdly large", "--prompt-len: sigma"),
        ({"prompt_len": "mean=800,sigma=0.5,max=80"}, "max is not above the mean", "--prompt-len: max"),
        ({"prompt_len": "mean=800,sigma=2,max=900"}, "max cuts more than half of all lengths", "--prompt-len: max"),
        ({"prompt_len": "mean=8,sigma=3"}, "half of these lengths would be below one token: 0.14", "--prompt-len"),
        ({"rate": "1e-12"}, "the rate is absurd", "--rate"),
        ({"rate": "1e12"}, "the rate is absurd", "--rate"),
        ({"on": "2*v6e:2x2"}, "a server is one slice", "--on"),
        ({"generate_len": "min=9,max=5"}, "max is less than min", "--generate-len: max"),
        ({"generate_len": "file=absent.txt"}, "cannot read the lengths: No such file or directory", "--generate-len"),
        ({"trace": "trace.csv"}, "a trace has its own prompts", "--prompt-len"),
        ({"prefix_hit_rate": "80"}, "more than the whole", "--prefix-hit-rate"),
        ({"prefix_shared": True}, "missing hit_rate", "job: workload.prefix_cache.hit_rate"),
        ({"mode": "mixed"}, "wrong value of mode", "--mode"),
        (
            {"mode": "interleaved", "server_ratio": "1:2"},
            "server_ratio is of disaggregated servers only",
            "--server-ratio",
        ),
        ({"server_ratio": "1:0"}, "malformed ratio of servers", "--server-ratio"),
        (
            {"mode": "disaggregated", "prefill_chunk": 512},
            "prefill_chunk is of interleaved servers only",
            "--prefill-chunk",
        ),
        ({"memory_utilization": "90"}, "more than the whole", "--memory-utilization"),
        ({"memory_utilization": 0}, "an engine without memory", "--memory-utilization"),
        ({"acceptance": 0.8}, "missing draft_tokens", "job: plan.speculation.draft_tokens"),
        ({"draft_tokens": 2, "acceptance": 80}, "more than the whole", "--acceptance"),
        (
            {"draft_tokens": 1, "acceptance": 0.8, "draft_model": "mtp"},
            "llama3.1-8b has no heads for further tokens",
            "--draft-model",
        ),
        (
            {"draft_tokens": 1, "acceptance": 0.8, "draft_model": "qwen3-0.6b"},
            "qwen3-0.6b has another vocabulary than llama3.1-8b",
            "--draft-model",
        ),
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


def test_servers_of_one_kind_are_told_what_they_were_asked_for_that_only_the_other_kind_has() -> None:
    with pytest.raises(InputError) as refused:
        serving(mode="interleaved", prefill_batch=4)

    assert (refused.value.where, refused.value.value) == ("--prefill-batch", 4)
    assert refused.value.expected == "disaggregated servers; these are interleaved"


def test_a_pipe_of_lengths_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "lengths")

    with pytest.raises(InputError, match="the lengths are not a file"):
        serving(prompt_len=f"file={tmp_path / 'lengths'}")


def test_a_sigma_that_is_no_number_is_answered_with_one() -> None:
    with pytest.raises(InputError) as refused:
        serving(prompt_len="mean=800,sigma=60%")

    assert "0.6" in refused.value.fix


def test_a_malformed_line_of_a_file_of_lengths_is_told_by_its_number(tmp_path: Path) -> None:
    (tmp_path / "lengths.txt").write_text("7\n9 tokens\n", encoding="utf-8")

    with pytest.raises(InputError, match=r"lengths\.txt: line 2"):
        serving(prompt_len=f"file={tmp_path / 'lengths.txt'}")


def test_a_percent_sign_says_percent_and_a_limit_is_of_the_requests_that_it_names() -> None:
    job = serving(prefix_hit_rate="60%", rate=3, ttft="p99=4s", tpot="mean=40ms")

    assert job.workload.prefix_cache.hit_fraction == 0.6
    assert (job.workload.ttft_s, job.workload.ttft_of) == (4.0, "p99")
    assert (job.workload.tpot_s, job.workload.tpot_of) == (0.04, "mean")


def test_the_length_of_a_reply_must_be_said() -> None:
    with pytest.raises(InputError, match="missing generate_len"):
        read_serving_job("llama3.1-8b", settings({"on": "v5e:2x4", "prompt_len": 64}, written=str))


@pytest.mark.parametrize(
    ("workload", "what"),
    [
        ('kind = "Serve"\nprompt_len = 8\ngenerate_len = 8', "unknown kind of workload"),
        ('kind = "train"\nprompt_len = 8\ngenerate_len = 8', "a workload of training has no prompt_len"),
        ('kind = "infer"\nseq_len = 8', "unknown kind of workload"),
    ],
)
def test_a_kind_that_is_wrong_is_what_the_error_points_at(tmp_path: Path, workload: str, what: str) -> None:
    path = tmp_path / "kind.toml"
    path.write_text(
        f'version = 1\nmodel = "llama3.1-8b"\nhardware = "v5e:2x4"\n[workload]\n{workload}\n', encoding="utf-8"
    )

    with pytest.raises(InputError) as caught:
        read_any_job(str(path))

    assert (caught.value.what, caught.value.where) == (what, f"{path}: workload.kind")


def test_prompts_that_are_read_at_once_are_those_of_servers_that_only_read() -> None:
    assert serving(prefill_batch=4).plan.modes == ("disaggregated",)
    with pytest.raises(InputError, match="prefill_batch is of disaggregated servers only"):
        serving(prefill_batch=4, prefill_chunk=512)
