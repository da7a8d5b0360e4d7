"""A sequence split over devices: who has the most to do, and what a ring costs beside a gather."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ridgeline.cost.training.context import causal_imbalance
from ridgeline.cost.training.step import training_step
from ridgeline.hardware.topology import parse_slice
from ridgeline.job.job import MESH_AXES, ContextParallelism, Job, PlanRequest, Quantization, Remat, Workload
from ridgeline.model.zoo import load_model
from ridgeline.search.train import cost_pinned, pinned_row

JOB = Job(
    model_reference="llama3.1-8b",
    model=load_model("llama3.1-8b"),
    hardware=parse_slice("v5p:2x2x2"),
    workload=Workload(seq_len=65_536, global_batch=1),
    plan=PlanRequest(mesh={**dict.fromkeys(MESH_AXES, 1), "cp": 8}, remat=Remat(policy="full")),
)


def _step_s(job: Job, **plan: object) -> float:
    return cost_pinned(replace(job, plan=replace(job.plan, **plan))).step.expected_s


@pytest.mark.parametrize("ways", [1, 2, 8])
def test_the_busiest_device_of_an_unbalanced_sequence_has_the_pairs_that_are_counted(ways: int) -> None:
    pairs = [sum(range(device * 8 + 1, device * 8 + 9)) for device in range(ways)]

    assert max(pairs) / (sum(pairs) / ways) == pytest.approx(causal_imbalance(N=float(ways)), abs=0.06)


def test_an_unbalanced_sequence_is_slower_than_a_balanced_one() -> None:
    balanced_s = _step_s(JOB, context=ContextParallelism(load_balance=True))

    assert _step_s(JOB, context=ContextParallelism(load_balance=False)) > 1.2 * balanced_s
    assert _step_s(JOB) == balanced_s


def test_a_ring_of_one_device_costs_what_no_ring_costs() -> None:
    mesh = {**dict.fromkeys(MESH_AXES, 1), "fsdp": 8}
    job = replace(JOB, workload=Workload(seq_len=8_192, global_batch=8), plan=replace(JOB.plan, mesh=mesh))

    assert _step_s(job, context=ContextParallelism(strategy="ring")) == pytest.approx(_step_s(job))


def test_a_ring_of_short_stretches_is_slower_than_a_gather_and_of_long_ones_less_so() -> None:
    def loss(seq_len: int) -> float:
        job = replace(JOB, workload=Workload(seq_len=seq_len, global_batch=1))
        return _step_s(job, context=ContextParallelism(strategy="ring")) / _step_s(job)

    assert loss(65_536) > loss(262_144) > 1


def test_dynamic_scales_cost_a_pass_that_fixed_ones_do_not() -> None:
    mesh = {**dict.fromkeys(MESH_AXES, 1), "fsdp": 16}
    job = replace(
        JOB,
        hardware=parse_slice("tpu7x:2x2x2"),
        workload=Workload(seq_len=8_192, global_batch=32),
        plan=replace(JOB.plan, mesh=mesh),
    )
    dynamic_s = _step_s(job, quantization=Quantization(kind="fp8", scaling="dynamic"))
    fixed_s = _step_s(job, quantization=Quantization(kind="fp8", scaling="fixed"))

    assert fixed_s < dynamic_s < _step_s(job)


def test_ulysses_exchanges_queries_keys_values_and_outputs_forward_and_their_gradients_backward() -> None:
    """65,536 tokens over 8 GPUs, 32 query and 8 key heads of 128, bf16: 7/8 of what each holds leaves it."""
    mesh = {**dict.fromkeys(MESH_AXES, 1), "cp": 8}
    plan = replace(JOB.plan, mesh=mesh, remat=Remat(policy="none"), context=ContextParallelism(strategy="ulysses"))
    setting, columns = pinned_row(replace(JOB, hardware=parse_slice("h100:8"), plan=plan))
    parts = [part for _, part in training_step(setting, columns).walk() if "link.context" in part.work.amounts]
    held_bytes = 65_536 / 8 * 128 * 2

    leaves = [part for part in parts if part.composition == "leaf"]
    moved = sum(float(part.work.amounts["link.context"]) for part in leaves)
    assert moved == pytest.approx(7 / 8 * held_bytes * 2 * ((32 + 8 + 8) + 32) * 32)
    assert {part.name.rpartition("/")[2] for part in leaves} == {"all_to_all"}


def test_ulysses_needs_no_balance_for_every_device_sees_the_whole_sequence() -> None:
    unbalanced, balanced = (ContextParallelism(strategy="ulysses", load_balance=value) for value in (False, True))

    assert _step_s(JOB, context=unbalanced) == _step_s(JOB, context=balanced)
