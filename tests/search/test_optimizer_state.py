"""Where the optimizer's moments live, when the job does not say: the planner puts them on the host where that pays."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ridgeline.errors import InfeasibleError
from ridgeline.export.maxtext import maxtext_config
from ridgeline.hardware.topology import parse_slice
from ridgeline.job.job import Job, Optimizer, OptimizerState, PlanRequest, Workload
from ridgeline.model.zoo import load_model
from ridgeline.report.terminal import screen
from ridgeline.report.train import train_report
from ridgeline.search.answer import NoPlan
from ridgeline.search.choice import MOMENTS_TIE
from ridgeline.search.custom_remat import best_policies
from ridgeline.search.pinned import pinned_columns, pinned_to
from ridgeline.search.train import cost_pinned, train
from ridgeline.study.chosen_job import chosen_job

if TYPE_CHECKING:
    from ridgeline.search.answer import TrainAnswer


def job_of(model: str, hardware: str, *, batch: int) -> Job:
    return Job(
        model_reference=model,
        model=load_model(model),
        hardware=parse_slice(hardware),
        workload=Workload(seq_len=8192, global_batch=batch),
        plan=PlanRequest(mesh={"fsdp": parse_slice(hardware).num_devices}),
    )


def pinned(job: Job, state: OptimizerState) -> Job:
    return replace(job, plan=replace(job.plan, optimizer=Optimizer(state=state)))


FEW_CHIPS = job_of("llama3.1-8b", "v6e:2x2", batch=64)
"""8 billion parameters with moments are 96 GB, on four devices of 32 GB."""

TIGHT_HBM = job_of("llama3.1-70b", "v6e:8x8", batch=512)
ROOMY = job_of("llama3.1-70b", "tpu7x:4x4x4", batch=256)


@cache
def answer_to(name: str) -> TrainAnswer:
    return train({"few chips": FEW_CHIPS, "tight": TIGHT_HBM, "roomy": ROOMY}[name])


def test_moments_go_to_the_host_where_nothing_fits_otherwise() -> None:
    best = answer_to("few chips").best

    with pytest.raises(InfeasibleError):
        train(pinned(FEW_CHIPS, "device"))
    assert best.plan.optimizer.state == "host"
    assert best.memory.verdict == "fits"
    # On the device there are those of the table alone, while they are on their way.
    assert best.memory.parts["optimizer"] == pytest.approx(128_256 * 4096 / 4 * 8)
    # Two moments of 4 bytes for each of 8.03 billion parameters, all of them on the one host.
    assert best.memory.host_bytes > 2 * 4 * 8.03e9


def test_moments_go_to_the_host_where_the_room_they_leave_saves_more_than_their_way_costs() -> None:
    best = answer_to("tight").best
    here = train(pinned(TIGHT_HBM, "device")).best

    assert best.plan.optimizer.state == "host"
    assert best.step.expected_s < here.step.expected_s * (1 - MOMENTS_TIE / 2)


def test_moments_stay_on_the_device_where_there_is_room() -> None:
    best = answer_to("roomy").best
    there = train(pinned(ROOMY, "host")).best

    assert best.plan.optimizer.state == "device"
    assert best.memory.host_bytes == 0
    assert best.step.expected_s < there.step.expected_s


@pytest.mark.parametrize("name", ["few chips", "tight", "roomy"])
def test_the_chosen_place_costs_what_the_pinned_one_does(name: str) -> None:
    answer = answer_to(name)
    again = cost_pinned(pinned_to(answer.job, answer.best.plan, global_batch=answer.global_batch))

    assert again.plan.optimizer == answer.best.plan.optimizer
    assert again.step.expected_s == pytest.approx(answer.best.step.expected_s, rel=1e-12)
    assert again.memory.total_bytes == pytest.approx(answer.best.memory.total_bytes, rel=1e-12)
    assert again.memory.host_bytes == pytest.approx(answer.best.memory.host_bytes, rel=1e-12)


def test_the_transfer_is_both_moments_there_and_back_at_the_rate_of_the_bus() -> None:
    setting, columns = pinned_columns(pinned_to(ROOMY, answer_to("roomy").best.plan, global_batch=256))
    moments = next(value for value in answer_to("roomy").remat.values if value.name == "moments")

    # 70.55 billion parameters over 128 devices (scales are whole on each), 8 bytes of moments each; a chip's 32 GB/s
    # serves two devices.
    size_bytes = 70.55e9 / 128 * 8
    assert moments.placement == "device"
    assert moments.device_bytes == pytest.approx(size_bytes - 128_256 * 8192 / 128 * 8, rel=5e-3)
    assert moments.offload_s == pytest.approx(2 * size_bytes / (16e9 * setting.efficiency.pcie), rel=5e-3)
    assert columns.moments_on_host == 0


@pytest.mark.parametrize("state", ["device", "host"])
def test_a_pinned_place_is_kept(state: OptimizerState) -> None:
    answer = train(pinned(ROOMY, state))
    setting, columns = pinned_columns(pinned_to(answer.job, answer.best.plan, global_batch=256))
    found = best_policies(setting, columns, most_bytes=setting.usable_hbm_bytes)

    assert {answer.best.plan.optimizer.state, *(rival.plan.optimizer.state for rival in answer.alternatives)} == {state}
    assert set(found.moments_on_host) == {float(state == "host")}


def test_nothing_goes_to_a_host_whose_rate_is_unknown() -> None:
    chip = replace(FEW_CHIPS.hardware.chip, pcie_bytes_per_s=None)

    with pytest.raises(InfeasibleError) as raised:
        train(replace(FEW_CHIPS, hardware=replace(FEW_CHIPS.hardware, chip=chip)))

    assert isinstance(raised.value.answer, NoPlan)
    assert raised.value.answer.closest.plan.optimizer.state == "device"


def test_a_host_without_room_for_the_moments_is_said_to_lack_it() -> None:
    chip = replace(FEW_CHIPS.hardware.chip, host_ram_bytes=32e9)
    small = replace(FEW_CHIPS, hardware=replace(FEW_CHIPS.hardware, chip=chip))

    with pytest.raises(InfeasibleError) as raised:
        train(pinned(small, "host"))

    assert isinstance(raised.value.answer, NoPlan)
    assert "of host memory a device" in str(raised.value)
    assert any("of host memory a device" in each.reason for each in raised.value.answer.rejected)


def test_a_tie_leaves_the_moments_on_the_device() -> None:
    for name in ("few chips", "tight", "roomy"):
        answer = answer_to(name)
        beside = [rival for rival in answer.alternatives if rival.plan.mesh == answer.best.plan.mesh]
        for rival in (rival for rival in beside if rival.plan.optimizer.state == "device"):
            if answer.best.plan.optimizer.state == "host":
                assert answer.best.step.expected_s < rival.step.expected_s * (1 - MOMENTS_TIE / 2)


def test_the_place_is_handed_to_maxtext() -> None:
    chosen, _ = chosen_job(FEW_CHIPS)

    assert chosen.plan.optimizer.state == "host"
    assert maxtext_config(chosen).settings["optimizer_memory_host_offload"] is True


def test_the_screen_says_where_the_moments_are_and_what_moving_them_would_cost() -> None:
    text = screen(train_report(answer_to("few chips")))

    assert "moments f32 and f32 on the host" in " ".join(text.split())
    assert "moments on the host are fetched" in " ".join(text.split())
    assert any(line.split()[:4] == ["moments", "on", "the", "host"] for line in text.splitlines())


def test_the_frontier_has_both_places_and_the_best_plan_is_on_it() -> None:
    answer = answer_to("tight")
    best, frontier = answer.best, answer.remat.frontier

    assert {choice.optimizer_state for choice in frontier} == {"device", "host"}
    assert any(
        choice.remat == best.plan.remat
        and choice.optimizer_state == best.plan.optimizer.state
        and np.isclose(choice.expected_s, best.step.expected_s)
        for choice in frontier
    )
