"""Which global batches to try when the job names none, and which of them is chosen.

The largest sensible batch is the one up to which every doubling brings at least `GAIN` more tokens a second: a larger
one fits, or can be made of micro-steps, but only makes optimizer steps fewer. How well a model learns from a batch is
not modelled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ridgeline.job.job import Job

MOST_TOKENS = 2**25
"""Largest batch tried, in tokens: 32 Mi, twice Llama 3's largest (16 Mi; arXiv:2407.21783, section 3.4.1)."""

SEQUENCES_PER_DEVICE = (1, 2, 4, 8, 16)
"""Sequences per device tried, as far as `MOST_TOKENS` allows; fractions when even one is too many."""

GAIN = 0.02
"""Throughput that a doubled batch must add to be chosen."""


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


def smaller_batches(batch: int) -> Iterator[int]:
    """Its half, the half of that, and so on: for jobs of which not even one sequence a device fits.

    >>> list(smaller_batches(12))
    [6, 3]
    """
    while batch % 2 == 0:
        batch //= 2
        yield batch


def is_worth_it(tokens_per_s: float, *, half_tokens_per_s: float) -> bool:
    """Whether a batch is so much faster than half of it that it is taken instead; where half does not fit, it is.

    >>> is_worth_it(103.0, half_tokens_per_s=100.0), is_worth_it(101.0, half_tokens_per_s=100.0)
    (True, False)
    """
    return tokens_per_s >= half_tokens_per_s * (1 + GAIN)
