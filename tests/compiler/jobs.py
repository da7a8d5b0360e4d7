"""A job small enough to compile in seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ridgeline.job.origin import Setting
from ridgeline.job.reading import read_job

if TYPE_CHECKING:
    from ridgeline.job.job import Job

TINY = {
    "name": "tiny",
    "embed_dim": 256,
    "vocab_size": 1024,
    "num_layers": 2,
    "attention": {"num_heads": 4, "num_kv_heads": 2, "head_dim": 128},
    "mlp": {"mlp_dim": 512},
}


def tiny_job(**more: object) -> Job:
    """Two layers on four v5e chips, with what a test changes."""
    said = {
        "model": TINY,
        "hardware": "v5e:2x2",
        "workload.seq_len": 256,
        "workload.global_batch": 4,
        "plan.mesh": {"fsdp": 2, "tp": 2},
        "plan.remat": "full",
    } | {key.replace("__", "."): value for key, value in more.items()}
    return read_job("tiny", [Setting(key=key, value=value, where=key) for key, value in said.items()])
