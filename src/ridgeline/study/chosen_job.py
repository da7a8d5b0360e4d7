"""A job in which nothing is left to choose: the planner's best plan for what a job leaves open."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from ridgeline.cost.columns import STAGE_AXES
from ridgeline.errors import InfeasibleError
from ridgeline.job.job import DCN_AXES, ICI_AXES, Pipeline
from ridgeline.job.mesh import FREE
from ridgeline.model.tree import model_tree
from ridgeline.program.scans import layer_scans
from ridgeline.search.answer import NoPlan
from ridgeline.search.plans import REPEATS
from ridgeline.search.train import train

if TYPE_CHECKING:
    from ridgeline.job.job import Job
    from ridgeline.search.answer import Plan, PlanEstimate

_SEARCHED_AXES = ("dp", "fsdp", "tp", "ep", "dcn_dp", "dcn_fsdp")
"""Axes that the planner may choose for a program when a job names none."""


def chosen_job(job: Job) -> tuple[Job, PlanEstimate]:
    """The job with the fastest plan that fits, or else the one that needs the least memory; and what it costs.

    Raises:
        InputError: The question contradicts itself.
        InfeasibleError: There is no plan at all.
    """
    mesh = job.plan.mesh
    if not mesh:
        axes = [axis for axis in _SEARCHED_AXES if axis in ICI_AXES or job.hardware.num_slices > 1]
        mesh = dict.fromkeys(axes, FREE)
    elif job.hardware.num_slices > 1 and not any(axis in DCN_AXES for axis in mesh):
        mesh = {**mesh, "dcn_dp": FREE, "dcn_fsdp": FREE}
    question = replace(job, plan=replace(job.plan, mesh=mesh))
    try:
        answer = train(question)
        estimate, batch = answer.best, answer.global_batch
    except InfeasibleError as error:
        if not isinstance(error.answer, NoPlan):
            raise
        estimate, batch = error.answer.closest, error.answer.global_batch
    plan = estimate.plan
    is_pipeline = any(plan.mesh.get(axis, 1) > 1 for axis in STAGE_AXES)
    chosen = replace(
        job,
        workload=replace(job.workload, global_batch=batch),
        plan=replace(
            job.plan,
            mesh=plan.mesh,
            gradient_accumulation=plan.gradient_accumulation,
            pipeline=_feeding(plan) if is_pipeline else Pipeline(),
            experts=replace(job.plan.experts, exchange=plan.expert_exchange or job.plan.experts.exchange),
            remat=plan.remat,
            optimizer=plan.optimizer,
        ),
    )
    return chosen, estimate


def for_our_program(job: Job) -> Job:
    """The job, with what our program has but one way to do decided, unless the job says otherwise.

    It sends tokens to experts by all-to-all, gathers a pipeline's weights for every microbatch, and gives every stage
    as many layers: where they do not divide into circular repeats, there is one.
    """
    experts, pipeline = job.plan.experts, job.plan.pipeline
    experts = replace(experts, exchange=experts.exchange or "all_to_all")
    pipeline = replace(pipeline, gather_once=pipeline.gather_once or False)
    stages = [job.plan.mesh.get(axis, 1) for axis in STAGE_AXES]
    if pipeline.repeats is None and not _divides(job, stages):
        pipeline = replace(pipeline, repeats=1)
    return replace(job, plan=replace(job.plan, experts=experts, pipeline=pipeline))


def _divides(job: Job, stages: list[int]) -> bool:
    """Whether all circular repeats that are searched share out the layers over some stages evenly."""
    rounds = sum(scan.count for scan in layer_scans(job.model, model_tree(job.model)))
    return FREE not in stages and rounds % (prod(stages) * max(REPEATS)) == 0


def _feeding(plan: Plan) -> Pipeline:
    """How a plan feeds its stages."""
    return Pipeline(microbatches=plan.microbatches, repeats=plan.repeats, gather_once=plan.gather_once)
