"""What MaxText is told of attention is what the estimate assumed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ridgeline.export.maxtext_version import maxtext_version
from ridgeline.search.train import cost_pinned
from ridgeline.study.export_job import export_job, with_attention_as_estimated
from tests.compiler.jobs import tiny_job

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.export.maxtext_version import Value
    from ridgeline.job.job import Job

TILES = ("sa_block_q", "sa_block_kv", "sa_block_q_dkv", "sa_block_kv_dkv", "sa_block_kv_compute")


def long_job(hardware: str = "v6e:2x2", **more: object) -> Job:
    said = {"plan__mesh": {"fsdp": 4}, "workload__seq_len": 8192, "workload__global_batch": 8} | more
    return tiny_job(hardware=hardware, **said)


def settings(job: Job) -> Mapping[str, Value]:
    return export_job(job).config.settings


@pytest.mark.parametrize(("hardware", "side"), [("v6e:2x2", 2048), ("v5e:2x2", 1024)])
def test_a_tpu_whose_kernel_is_open_gets_the_fused_one_and_the_tiles_of_the_estimate(hardware: str, side: int) -> None:
    written = settings(long_job(hardware))

    assert written["use_tokamax_splash"] is True
    assert [written[key] for key in TILES] == [side] * len(TILES)
    assert set(written) <= set(maxtext_version().keys)


def test_stating_what_was_assumed_changes_no_estimate() -> None:
    job = long_job(plan__remat="full")

    assert cost_pinned(with_attention_as_estimated(job)).step == cost_pinned(job).step


def test_what_a_job_says_of_its_kernel_stays() -> None:
    written = settings(long_job(plan__attention={"kernel": "flash", "block_kv": 512}))

    assert "use_tokamax_splash" not in written
    assert (written["sa_block_q"], written["sa_block_kv"]) == (2048, 512)
    assert "sa_block_q" not in settings(long_job(plan__attention={"kernel": "dot_product"}))


def test_tiles_divide_what_a_device_has_of_a_sequence() -> None:
    """Of 8,192 tokens over 8 ways each device has 1,024 queries; 3,072 keys have tiles of 1,024."""
    split = long_job("v6e:2x4", plan__mesh={"cp": 8})
    assert [settings(split)[key] for key in TILES[:2]] == [1024, 2048]
    assert settings(long_job(workload__seq_len=3072))["sa_block_kv"] == 1024
    assert "sa_block_q" not in settings(long_job(workload__seq_len=8224))


def test_an_operation_is_allowed_the_vmem_that_large_tiles_need() -> None:
    """Three quarters of 128 MiB; tiles of 1,024 need no more than the default, and what a job says stays."""
    assert [flag.written for flag in export_job(long_job()).config.flags] == ["--xla_tpu_scoped_vmem_limit_kib=98304"]
    assert not export_job(long_job("v5e:2x2")).config.flags
    own = export_job(long_job(plan__compiler={"scoped_vmem_kib": 65536}))
    assert [flag.value for flag in own.config.flags] == ["65536"]
