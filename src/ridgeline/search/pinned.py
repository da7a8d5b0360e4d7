"""A plan that a job pins in full: its setting and its one row of columns, for whoever looks into it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ridgeline.errors import InputError
from ridgeline.job.job import MESH_AXES, Pipeline
from ridgeline.search.plans import legal_plans
from ridgeline.search.setting import training_setting

if TYPE_CHECKING:
    from ridgeline.cost.columns import PlanColumns, TrainingSetting
    from ridgeline.job.job import Job
    from ridgeline.search.answer import Plan


def pinned_to(job: Job, plan: Plan, *, global_batch: int) -> Job:
    """The job with a plan of its own, so that nothing is left to choose.

    Args:
        job: The question.
        plan: What is pinned: mesh, micro-steps, pipeline, remat, place of the moments; its precisions are the job's.
        global_batch: Sequences of a step.
    """
    return replace(
        job,
        workload=replace(job.workload, global_batch=global_batch),
        plan=replace(
            job.plan,
            mesh={axis: plan.mesh.get(axis, 1) for axis in MESH_AXES},
            gradient_accumulation=plan.gradient_accumulation,
            pipeline=Pipeline(microbatches=plan.microbatches, repeats=plan.repeats, gather_once=plan.gather_once),
            experts=replace(job.plan.experts, exchange=plan.expert_exchange or job.plan.experts.exchange),
            remat=plan.remat,
            optimizer=replace(job.plan.optimizer, state=plan.optimizer.state),
        ),
    )


def pinned_columns(job: Job) -> tuple[TrainingSetting, PlanColumns]:
    """The setting and the columns of the plan that a job pins.

    Args:
        job: With batch, mesh, micro-steps and remat policy; what is open all the same is the first that is legal.

    Raises:
        InputError: No batch is given, or the pinned mesh contradicts the model or the slice.
    """
    batch = job.workload.global_batch
    if batch is None:
        raise InputError(
            "no batch to cost a plan at",
            where="workload.global_batch",
            value=None,
            expected="sequences per step",
            fix="give global_batch",
        )
    setting = training_setting(job, global_batch=batch)
    _, _, table = legal_plans(job, setting)
    if len(table) == 0:
        raise InputError(
            "no legal plan",
            where="plan.mesh",
            value=" ".join(f"{axis}={degree}" for axis, degree in job.plan.mesh.items()),
            expected="degrees that divide the model and the batch",
            fix="change the degrees",
        )
    return setting, table.row(0)
