"""The job of a TPU record: slice, mesh, plan, sequence and batch put together."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

from ridgeline.errors import InputError
from ridgeline.job.job import Job
from ridgeline.job.reading import job_of_tables
from ridgeline.model.zoo import load_model
from ridgeline.study.measured.assumed import Filled, filled
from ridgeline.study.measured.maxtext_arguments import with_arguments
from ridgeline.study.measured.records import number, table, text, unusable, whole
from ridgeline.study.measured.tpu_hardware import record_mesh, record_slice
from ridgeline.study.measured.tpu_plan import plan_tables, remat_table

if TYPE_CHECKING:
    from ridgeline.hardware.slice import Slice
    from ridgeline.study.measured.records import Record


def record_job(name: str, record: Record) -> Filled:
    """The job of a record, pinned, with what was assumed.

    Args:
        name: What the record is called, for error messages.
        record: It.

    Raises:
        InputError: Something that a job needs is missing, unknown or contradictory.
    """
    record = with_arguments(record)
    hardware, said_of_slice = record_slice(record)
    mesh, said_of_mesh = record_mesh(record, hardware)
    plan, said_of_plan = plan_tables(record)
    remat, said_of_remat = remat_table(record)
    seq_len = whole(record, "seq_len")
    if seq_len is None:
        raise unusable("no sequence length", record.get("seq_len"), key="seq_len")
    batch = _global_batch(record, hardware, seq_len, micro_steps=cast("int", plan["gradient_accumulation"]))
    tables: dict[str, object] = {
        "version": 1,
        "model": _model(record),
        "hardware": hardware.name,
        "workload": {"seq_len": seq_len, "global_batch": batch},
        "plan": {**plan, "mesh": mesh, **({"remat": remat} if remat else {})},
    }
    job = job_of_tables(tables, file=name)
    if not isinstance(job, Job):
        raise unusable("no training job", name, key="workload")
    pinned = filled(job, is_remat_sure=not said_of_remat)
    said = (*said_of_slice, *said_of_mesh, *said_of_remat, *said_of_plan)
    return replace(pinned, assumed=(*said, *pinned.assumed))


def _model(record: Record) -> str:
    """The first of a record's names for its model that the zoo knows.

    Its name whole, and without remarks behind it; its label; what MaxText was told.

    Raises:
        InputError: It knows none.
    """
    name = text(record, "model")
    told = text(table(record, "framework_args"), "model_name")
    for spelling in (name, name.partition(" ")[0], text(record, "model_label"), told):
        try:
            load_model(spelling)
        except InputError:
            continue
        return spelling
    raise unusable("unknown model", name, key="model")


def _global_batch(record: Record, hardware: Slice, seq_len: int, *, micro_steps: int) -> int:
    """Sequences a step: as stated, or from a device's."""
    stated = whole(record, "global_batch")
    if stated is not None:
        return stated
    per_device = number(record, "per_device_batch")
    tokens = number(record, "tokens_per_device")
    if per_device is None and tokens is not None:
        per_device, micro_steps = tokens / seq_len, 1
    if per_device is None:
        raise unusable("no batch", record.get("global_batch"), key="global_batch")
    sequences = per_device * hardware.num_devices * micro_steps
    if sequences < 1 or sequences != int(sequences):
        raise unusable("a batch that is no whole number of sequences", sequences, key="per_device_batch")
    return int(sequences)
