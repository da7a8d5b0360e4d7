"""A job handed over: what another program is told, so that it runs the plan that was chosen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd
from typing import TYPE_CHECKING, Final

from ridgeline.cost.kernel_time import LANES
from ridgeline.errors import InputError
from ridgeline.export.maxtext import maxtext_config, topology_name
from ridgeline.job.whole import whole_job
from ridgeline.search.setting import job_efficiency
from ridgeline.study.chosen_job import chosen_job
from ridgeline.units import bytes_in

if TYPE_CHECKING:
    from typing import Unpack

    from ridgeline.export.maxtext import MaxTextConfig
    from ridgeline.hardware.chip import Chip
    from ridgeline.job.job import AttentionKernel, Job
    from ridgeline.job.origin import Arguments
    from ridgeline.search.answer import PlanEstimate

_LARGEST_BY_DEFAULT: Final = 1024
"""Tiles beyond which the kernels of attention need more VMEM than XLA allows an operation (libtpu 0.0.52): a backward
pass with tiles of 2,048 asks for 44.7 MiB on TPU7x, where it has 32."""

_VMEM_SHARE: Final = 0.75
"""Of VMEM that an operation is then allowed: 98,304 KiB on v6e, as its published recipes say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportAnswer:
    """What `ridgeline export JOB --to maxtext` answers.

    Attributes:
        job: The question, with nothing left to choose.
        estimate: What the equation expects of it.
        config: What MaxText is told.
        topology: MaxText's name of the slice, to compile ahead of time; None where it has none.
    """

    job: Job
    estimate: PlanEstimate
    config: MaxTextConfig
    topology: str | None


def export_job(job: str | Job, **arguments: Unpack[Arguments]) -> ExportAnswer:
    """What MaxText is told so that it runs a job's plan (the verb `export`); attention is as it was estimated.

    Args:
        job: A job, a job file (.toml), or a model: its name or its config.json. What it leaves open is chosen first,
            as `compile` does.
        arguments: As for `train`.

    Raises:
        InputError: The question is malformed, or MaxText has no word for a part of it; the message names it.
        InfeasibleError: There is no plan at all.

    >>> import ridgeline
    >>> answer = ridgeline.export_job(
    ...     "llama3.1-8b", on="v6e:4x4", seq_len=8192, global_batch=32, mesh="fsdp=16", remat="full"
    ... )
    >>> answer.config.settings["ici_fsdp_parallelism"], answer.topology
    (16, 'v6e-16')
    """
    chosen, estimate = chosen_job(whole_job(job, arguments))
    chosen = with_attention_as_estimated(chosen)
    try:
        topology = topology_name(chosen.hardware)
    except InputError:
        topology = None  # a run does not need the name
    return ExportAnswer(job=chosen, estimate=estimate, config=maxtext_config(chosen), topology=topology)


def with_attention_as_estimated(job: Job) -> Job:
    """The job with the kernel and the tiles of its estimate, where it leaves them open on a TPU, and VMEM for them.

    An estimate takes the fastest kernel known and the chip's `attention_block`, MaxText a slower one and tiles of 512.
    A tile divides what a device has of a sequence.
    """
    plan, seq_len = job.plan, job.workload.seq_len
    attention, kernel = plan.attention, plan.attention.kernel or "splash"
    if job.hardware.chip.torus is None or kernel not in {"splash", "flash"}:
        return job
    block = int(job_efficiency(job).attention_block)
    stated = replace(
        attention,
        kernel=kernel,
        block_q=attention.block_q or _tile(seq_len // plan.mesh.get("cp", 1), block),
        block_kv=attention.block_kv or _tile(seq_len, block),
    )
    compiler = plan.compiler
    if compiler.scoped_vmem_kib is None and stated != attention:
        compiler = replace(compiler, scoped_vmem_kib=_scoped_vmem_kib(stated, job.hardware.chip))
    return replace(job, plan=replace(plan, attention=stated, compiler=compiler))


def _tile(there: int, block: int) -> int | None:
    """The largest part of a block that divides what is there; None where it fills no register."""
    tile = gcd(there, block)
    return tile if tile % LANES == 0 else None


def _scoped_vmem_kib(attention: AttentionKernel, chip: Chip) -> int | None:
    """VMEM that an operation is allowed where tiles need more than it is by default; None where they do not."""
    largest = max(attention.block_q or 0, attention.block_kv or 0)
    if largest <= _LARGEST_BY_DEFAULT or chip.vmem_bytes is None:
        return None
    return int(bytes_in(chip.vmem_bytes * _VMEM_SHARE, "KiB"))
