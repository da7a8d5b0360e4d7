"""Which global batches to try when the job names none."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ridgeline.job.job import Job

MOST_TOKENS = 2**25
"""Largest batch tried, in tokens: 32 Mi, twice Llama 3's largest (16 Mi; arXiv:2407.21783, section 3.4.1)."""

SEQUENCES_PER_DEVICE = (1, 2, 4, 8, 16)
"""Sequences per device tried, as far as `MOST_TOKENS` allows; fractions when even one is too many."""


def batch_candidates(job: Job) -> tuple[int, ...]:
    """Global batches in sequences, smallest first; never empty."""
    devices, seq_len = job.hardware.num_devices, job.workload.seq_len
    whole = [devices * each for each in SEQUENCES_PER_DEVICE if devices * each * seq_len <= MOST_TOKENS]
    if whole:
        return tuple(whole)
    batch = devices
    while batch > 1 and batch % 2 == 0 and batch * seq_len > MOST_TOKENS:
        batch //= 2
    return (batch,)
