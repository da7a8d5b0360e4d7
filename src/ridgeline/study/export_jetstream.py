"""A serving job handed to JetStream with MaxText's engine: a plan of `serve`, and as many slots as fit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from ridgeline.cost.serving.device import (
    LANES,
    PhaseColumns,
    ServingSetting,
    cache_bytes,
    cached_attentions,
    held_weight_bytes,
    last_logits_bytes,
    working_bytes,
)
from ridgeline.cost.serving.memory import vocabulary_size
from ridgeline.errors import InfeasibleError
from ridgeline.export.jetstream import check_job, jetstream_config
from ridgeline.job.job import BYTES_OF
from ridgeline.job.whole import whole_serving_job
from ridgeline.model.tree import model_tree
from ridgeline.search.serve import serve
from ridgeline.units import format_bytes

if TYPE_CHECKING:
    from typing import Unpack

    from ridgeline.export.maxtext import MaxTextConfig
    from ridgeline.job.origin import Arguments
    from ridgeline.job.serving import ServingJob
    from ridgeline.search.serving.answer import ServingPoint

_USABLE_SHARE: Final = 0.95
"""Part of what programs may allocate that is planned for: the rest is for fragments and compiled programs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JetstreamAnswer:
    """What `ridgeline export JOB --to jetstream` answers.

    Attributes:
        job: The question, with its mesh.
        point: The plan of `serve` that it follows, which reads prompts in pieces.
        config: What MaxText is told.
        batch: Slots of a server.
        held_bytes: Memory of a device: weights, caches of all slots and of one prompt, and what reading it makes.
        usable_bytes: What of it programs may allocate.
    """

    job: ServingJob
    point: ServingPoint
    config: MaxTextConfig
    batch: int
    held_bytes: float
    usable_bytes: float


def export_jetstream(job: str | ServingJob, **arguments: Unpack[Arguments]) -> JetstreamAnswer:
    """The best plan of tensor parallelism alone, with as many of its sequences as MaxText's caches have room for.

    Args:
        job: A job, a job file (.toml), or a model: its name or its config.json.
        arguments: As for `serve`.

    Raises:
        InputError: MaxText's engine has no word for a part of the job.
        InfeasibleError: No plan fits or meets the limits, or not one slot fits.
    """
    job = whole_serving_job(job, arguments)
    check_job(job)
    tensor, plan = job.hardware.num_devices, job.plan
    mesh = plan.decode or {"tp": tensor}
    jetstream_config(replace(job, plan=replace(plan, decode=mesh)), tensor=tensor, batch=1)  # before the search
    held = replace(job, plan=replace(plan, decode=mesh, prefill=plan.prefill or mesh, mode="interleaved"))
    point = serve(held).best
    fixed_bytes, slot_bytes = _device_bytes(held, tensor)
    chip = job.hardware.chip
    usable_bytes = chip.usable_hbm_bytes / chip.devices_per_chip
    batch = min(point.plan.batch, int((_USABLE_SHARE * usable_bytes - fixed_bytes) / slot_bytes))
    if batch < 1:
        raise _no_slot(fixed_bytes, slot_bytes, usable_bytes)
    return JetstreamAnswer(
        job=held,
        point=point,
        config=jetstream_config(held, tensor=tensor, batch=batch),
        batch=batch,
        held_bytes=fixed_bytes + batch * slot_bytes,
        usable_bytes=usable_bytes,
    )


def _device_bytes(job: ServingJob, tensor: int) -> tuple[float, float]:
    """Memory of a device without any slot, and of one slot; a prompt that is being read has a cache of its own."""
    setting = ServingSetting(
        tree=model_tree(job.model),
        dtypes=job.plan.dtypes,
        context_len=job.workload.context_len,
        prompt_len=job.workload.prompt_len,
        row_elements=LANES,
    )
    columns = PhaseColumns(degrees={"tp": tensor}, batch_size=1.0)
    vocabulary = vocabulary_size(setting)
    logits_bytes = last_logits_bytes(B=1.0, V=vocabulary, Y=columns.tensor, b_a=BYTES_OF["f32"])
    in_bf16 = replace(setting, dtypes=replace(setting.dtypes, compute="bf16"))
    reading_bytes = working_bytes(in_bf16, columns, rows=float(setting.prompt_len))
    fixed_bytes = float(held_weight_bytes(setting, columns)) + float(reading_bytes)
    of_prompt_bytes = _slot_cache_bytes(setting, columns, tokens=setting.prompt_len)
    of_slot_bytes = _slot_cache_bytes(setting, columns, tokens=setting.context_len)
    return fixed_bytes + of_prompt_bytes, of_slot_bytes + float(logits_bytes)


def _slot_cache_bytes(setting: ServingSetting, columns: PhaseColumns, *, tokens: int) -> float:
    return sum(
        count * float(cache_bytes(attention, setting, columns, tokens=tokens, num_sequences=1.0))
        for attention, count in cached_attentions(setting.tree)
    )


def _no_slot(fixed_bytes: float, slot_bytes: float, usable_bytes: float) -> InfeasibleError:
    return InfeasibleError(
        "JetStream would not start",
        reasons=(
            f"weights and reading one prompt take {format_bytes(fixed_bytes)} of {format_bytes(usable_bytes)} usable",
            f"one slot takes {format_bytes(slot_bytes)}",
        ),
        fix="use more chips, shorter prompts, or a narrower cache",
    )
