"""How long a run takes and how well it uses its chips.

P_active  parameters that meet a token     C  peak FLOP/s of a chip     num_chips  of all slices
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ridgeline.cost.work import Number


def training_flops_per_token(*, P_active: float) -> float:
    """FLOPs of a token's training step: a multiply and an add for each weight, forward once and backward twice.

    Formula: 6 · P_active

    Assumes: the scores of attention are few beside the weights; embeddings count as if they were multiplied.

    Source: Scaling Book, ch. 4; Kaplan et al., arXiv:2001.08361, section 2.1.

    >>> training_flops_per_token(P_active=7.0e10)
    420000000000.0
    """
    return 6 * P_active


def forward_flops_per_token(*, P_active: float) -> float:
    """FLOPs of a token's forward pass.

    Formula: 2 · P_active

    Assumes: as for training.

    Source: Scaling Book, ch. 4.

    >>> forward_flops_per_token(P_active=7.0e10)
    140000000000.0
    """
    return 2 * P_active


def run_flops(*, training_flops_per_token: Number, run_tokens: float) -> Number:
    """FLOPs of a whole run.

    Formula: training_flops_per_token · run_tokens

    Source: Scaling Book, ch. 6.

    >>> run_flops(training_flops_per_token=4.2e11, run_tokens=1.5e13)
    6.3e+24
    """
    return training_flops_per_token * run_tokens


def token_on_one_chip_s(*, training_flops_per_token: float, C_flops_per_s: float) -> float:
    """Time of one token on one chip at its peak.

    Formula: training_flops_per_token / C

    Source: Scaling Book, ch. 6.

    >>> token_on_one_chip_s(training_flops_per_token=4.0e11, C_flops_per_s=4.0e14)
    0.001
    """
    return training_flops_per_token / C_flops_per_s


def run_s(*, run_flops: Number, num_chips: float, C_flops_per_s: float, mfu: Number) -> Number:
    """Time of a run whose FLOPs are done at a fraction of the peak.

    Formula: T = run_flops / (num_chips · C · mfu)

    Source: Scaling Book, ch. 5 and 6.

    >>> run_s(run_flops=4.0e24, num_chips=10000, C_flops_per_s=5.0e14, mfu=0.5)
    1600000.0
    """
    return run_flops / (num_chips * C_flops_per_s * mfu)


def peak_run_s(*, run_flops: float, num_chips: float, C_flops_per_s: float) -> float:
    """The same at the peak: no run can be faster.

    Formula: T = run_flops / (num_chips · C)

    Source: Scaling Book, ch. 5.

    >>> peak_run_s(run_flops=4.0e24, num_chips=10000, C_flops_per_s=5.0e14)
    800000.0
    """
    return float(run_s(run_flops=run_flops, num_chips=num_chips, C_flops_per_s=C_flops_per_s, mfu=1.0))


def communicating_run_s(*, peak_run_s: float, mixed_compute_ratio: float) -> float:
    """Time of a run at the peak, or at the pace of its links where these are slower (FSDP with tensor parallelism).

    Formula: T = peak_run_s / min(1, mixed_compute_ratio)

    Source: Scaling Book, ch. 5: the larger of T_math and T_comms.

    >>> communicating_run_s(peak_run_s=100.0, mixed_compute_ratio=0.5)
    200.0
    """
    return peak_run_s / min(1.0, mixed_compute_ratio)


def rescaled_run_s(*, run_s: float, num_chips: float, num_other_chips: float) -> float:
    """Time of the run on another number of chips, used as well.

    Formula: run_s · num_chips / num_other_chips

    Source: Scaling Book, ch. 6.

    >>> rescaled_run_s(run_s=100.0, num_chips=8, num_other_chips=4)
    200.0
    """
    return run_s * num_chips / num_other_chips


def dense_flops_per_s(*, sparse_flops_per_s: float, sparsity_factor: float) -> float:
    """Peak of dense matmuls, of a data sheet's figure for sparse ones.

    Formula: C = sparse_flops_per_s / sparsity_factor

    Source: Scaling Book, ch. 4, question 7.

    >>> dense_flops_per_s(sparse_flops_per_s=3.0e15, sparsity_factor=2)
    1500000000000000.0
    """
    return sparse_flops_per_s / sparsity_factor


def chip_s(*, num_chips: float, run_s: Number) -> Number:
    """Time of all chips together: chip-seconds.

    Formula: num_chips · run_s

    Source: the definition.

    >>> chip_s(num_chips=64, run_s=3600.0)
    230400.0
    """
    return num_chips * run_s


def chip_s_of_hours(*, chip_hours: float) -> float:
    """Chip-seconds of the chip-hours that a report publishes.

    Formula: chip_s = 3600 · chip_hours

    Source: the definition.

    >>> chip_s_of_hours(chip_hours=2.0)
    7200.0
    """
    return 3600 * chip_hours


def spent_run_s(*, chip_s: float, num_chips: float) -> float:
    """Time of a run whose chip-seconds are known.

    Formula: T = chip_s / num_chips

    Source: the definition.

    >>> spent_run_s(chip_s=230400.0, num_chips=64)
    3600.0
    """
    return chip_s / num_chips


def available_flops(*, chip_s: Number, C_flops_per_s: float) -> Number:
    """FLOPs that chips could have done in that time.

    Formula: chip_s · C

    Source: Scaling Book, ch. 4, question 7.

    >>> available_flops(chip_s=100.0, C_flops_per_s=4.0e14)
    4e+16
    """
    return chip_s * C_flops_per_s


def mfu(*, run_flops: Number, available_flops: Number) -> Number:
    """Model FLOPs utilization: the FLOPs the model asks for, over what its chips could have done.

    Formula: run_flops / available_flops

    Source: Chowdhery et al., arXiv:2204.02311, section 4.1; Scaling Book, ch. 4, question 7.

    >>> mfu(run_flops=2.0e16, available_flops=4.0e16)
    0.5
    """
    return run_flops / available_flops


def num_steps(*, run_tokens: float, batch_tokens: float) -> float:
    """Optimizer steps of a run.

    Formula: run_tokens / batch_tokens

    Source: the definition.

    >>> num_steps(run_tokens=8192, batch_tokens=1024)
    8.0
    """
    return run_tokens / batch_tokens


def run_usd(*, chip_s: float, usd_per_chip_hour: float) -> float:
    """Price of a run.

    Formula: chip_s / 3600 · usd_per_chip_hour

    Source: the definition.

    >>> run_usd(chip_s=7200.0, usd_per_chip_hour=4.0)
    8.0
    """
    return chip_s / 3600 * usd_per_chip_hour
