"""Levers of sharding beside the degrees: fewer sequences than devices, places, two FSDP axes, slices, experts."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

import pytest

import ridgeline
from ridgeline.cost.causes import COMMUNICATION, time_by_cause
from ridgeline.errors import InputError
from ridgeline.hardware.topology import parse_slice
from ridgeline.job.job import ContextParallelism, ExpertKernel, Job, Pipeline, PlanRequest, Remat, Workload
from ridgeline.job.notes import notes
from ridgeline.model.zoo import load_model
from ridgeline.search.train import cost_pinned

if TYPE_CHECKING:
    from ridgeline.search.answer import PlanEstimate


def pinned(mesh: dict[str, int], *, on: str, model: str = "llama3.1-8b", **plan: object) -> PlanEstimate:
    return cost_pinned(job_of(mesh, on=on, model=model, **plan))


def job_of(mesh: dict[str, int], *, on: str, model: str = "llama3.1-8b", **plan: object) -> Job:
    request = replace(PlanRequest(mesh=mesh, remat=Remat(policy="full"), gradient_accumulation=1), **plan)
    return Job(
        model_reference=model,
        model=load_model(model),
        hardware=parse_slice(on),
        workload=Workload(seq_len=4096, global_batch=64),
        plan=request,
    )


def moved_bytes(estimate: PlanEstimate, resource: str) -> float:
    return float(estimate.step.parts.work.amounts.get(resource, 0.0))


def test_with_fewer_sequences_than_devices_some_share_one_and_the_least_is_said() -> None:
    answer = ridgeline.train("llama3.1-8b", on="v5p:2x2x4", global_batch=4, seq_len=32_768)
    mesh = answer.best.plan.mesh

    assert prod(mesh.get(axis, 1) for axis in ("cp", "tp", "pp")) >= 4
    assert "cp" in mesh
    assert "of 4 sequences on 16 devices at least 4 share each" in answer.decision.reason


def test_a_chatty_axis_of_two_lies_on_the_pair_of_a_chip_and_would_cost_more_elsewhere() -> None:
    chosen = pinned({"fsdp": 4, "tp": 2}, on="tpu7x:2x2x1")
    apart = pinned({"fsdp": 4, "tp": 2}, on="tpu7x:2x2x1", placement={"tp": "x"})

    assert chosen.plan.placement == {"tp": "core2", "fsdp": "x2 y2"}
    assert apart.plan.placement["tp"] == "x2"
    cause = COMMUNICATION["tensor"]
    assert time_by_cause(apart.step.parts)[cause] > 2 * time_by_cause(chosen.step.parts)[cause]


def test_a_place_that_an_axis_does_not_fit_is_refused() -> None:
    with pytest.raises(InputError) as refused:
        pinned({"fsdp": 2, "tp": 4}, on="tpu7x:2x2x1", placement={"tp": "core"})

    assert "does not map onto those given" in refused.value.what


def test_fsdp_over_two_axes_gathers_as_much_as_over_one() -> None:
    one = pinned({"fsdp": 16}, on="v5p:2x2x4")
    two = pinned({"fsdp": 4, "fsdp_transpose": 4}, on="v5p:2x2x4")

    assert two.memory.parts["parameters"] == pytest.approx(one.memory.parts["parameters"], rel=0.01)
    assert moved_bytes(two, "link.weights") == pytest.approx(moved_bytes(one, "link.weights"))


@pytest.mark.parametrize(
    ("asked", "chosen"),
    [
        ({"fsdp_transpose": -1}, {"fsdp_transpose": 16}),
        ({"fsdp": 4, "fsdp_transpose": -1}, {"fsdp": 4, "fsdp_transpose": 4}),
        ({"fsdp": 2, "tp": -1, "tp_sequence": -1}, {"fsdp": 2, "tp": 8}),
        ({"fsdp": 2, "tp_sequence": -1}, {"fsdp": 2, "tp_sequence": 8}),
    ],
)
def test_an_axis_left_open_by_name_is_searched_and_of_two_tensor_axes_one(
    asked: dict[str, int], chosen: dict[str, int]
) -> None:
    assert dict(pinned(asked, on="v5p:2x2x4").plan.mesh) == chosen


def test_a_mesh_that_cannot_be_fed_as_asked_is_told_what_is_pinned() -> None:
    with pytest.raises(InputError, match="cannot be fed") as refused:
        pinned({"fsdp": 8, "pp": 2}, on="v5p:2x2x4", pipeline=Pipeline(repeats=17), gradient_accumulation=None)

    assert refused.value.value == "fsdp=8 pp=2 repeats=17"
    assert "no more stages × repeats than 32 layers" in refused.value.expected


def test_fsdp_across_slices_halves_memory_and_crosses_the_network_for_every_layer() -> None:
    """Weights that both slices hold cross it once, as gradients."""
    inside = pinned({"fsdp": 16, "dcn_dp": 2}, on="2*v5p:2x2x4")
    hybrid = pinned({"fsdp": 16, "dcn_fsdp": 2}, on="2*v5p:2x2x4")

    assert hybrid.memory.parts["optimizer"] == pytest.approx(inside.memory.parts["optimizer"] / 2, rel=0.01)
    assert moved_bytes(hybrid, "network") > 1.4 * moved_bytes(inside, "network")


def test_experts_sharded_on_the_fsdp_axis_gather_as_many_bytes_and_the_answer_says_so() -> None:
    mesh = {"fsdp": 16}
    asked = job_of(mesh, on="v5p:2x2x4", model="mixtral-8x7b", experts=ExpertKernel(shard_experts_on_fsdp=True))
    plain = pinned(mesh, on="v5p:2x2x4", model="mixtral-8x7b")

    assert cost_pinned(asked).step.expected_s == plain.step.expected_s
    assert any("shard_experts_on_fsdp" in note for note in notes(asked, mesh))


def test_a_ring_is_costed_and_a_strategy_that_is_not_is_told() -> None:
    mesh = {"fsdp": 4, "cp": 4}
    gathered, ring = (
        pinned(mesh, on="v5p:2x2x4", context=ContextParallelism(strategy=strategy))
        for strategy in ("all_gather", "ring")
    )
    other = job_of(mesh, on="v5p:2x2x4", context=ContextParallelism(strategy="usp"))

    assert ring.step.expected_s != gathered.step.expected_s
    assert "plan.context.strategy: usp is costed as all_gather." in notes(other, mesh)


def test_nine_stages_are_fed_with_microbatches_that_they_do_not_divide() -> None:
    """72 GPUs are 8 times 9: 256 sequences enter as microbatches one after the other, which 1F1B allows."""
    answer = ridgeline.train(
        "deepseek3-671b", on="gb200:72", global_batch=2048, seq_len=4096, mesh={"ep": 8, "pp": 9}, remat="full"
    )

    assert answer.best.plan.microbatches % 9
    assert answer.best.plan.placement["ep"].startswith("nvlink8")
