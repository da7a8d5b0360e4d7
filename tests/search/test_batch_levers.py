"""The largest sensible batch, and what each lever does to the largest that fits."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import pytest

from ridgeline.cli.app import main
from ridgeline.errors import InfeasibleError
from ridgeline.hardware.topology import parse_slice
from ridgeline.job.job import Job, PlanRequest, Workload
from ridgeline.job.mesh import FREE
from ridgeline.model.zoo import load_model
from ridgeline.report.batch_levers import batch_levers_chart, batch_levers_table
from ridgeline.report.blocks import Report
from ridgeline.report.terminal import screen
from ridgeline.search.batch import GAIN
from ridgeline.search.batch_levers import LeverAnswer, batch_levers
from ridgeline.search.train import train

JOB = Job(
    model_reference="llama3.1-8b",
    model=load_model("llama3.1-8b"),
    hardware=parse_slice("tpu7x:2x2x1"),
    workload=Workload(seq_len=8192),
    plan=PlanRequest(mesh={"fsdp": 8}),
)

ONE_PASS = PlanRequest(mesh={"fsdp": FREE, "cp": FREE}, gradient_accumulation=1)


@cache
def levers() -> dict[str, LeverAnswer]:
    return {each.name: each for each in batch_levers(JOB)}


def largest(name: str) -> float:
    found = levers()[name].largest
    assert found is not None
    return found.sequences_per_device_ratio


def rate(job: Job, batch: int) -> float:
    return train(replace(job, workload=replace(job.workload, global_batch=batch))).best.tokens_per_s_per_chip


def test_the_batch_that_is_chosen_is_worth_its_last_doubling_and_not_the_next() -> None:
    answer = train(JOB)
    chosen, reached = answer.global_batch, answer.best.tokens_per_s_per_chip

    assert rate(JOB, 2 * chosen) < reached * (1 + GAIN)
    if chosen > JOB.hardware.num_devices:
        assert reached >= rate(JOB, chosen // 2) * (1 + GAIN)


def test_a_device_that_holds_no_whole_sequence_is_given_a_part_of_one() -> None:
    job = replace(JOB, hardware=parse_slice("v6e:4x4"), workload=Workload(seq_len=131_072), plan=ONE_PASS)
    answer = train(job)

    assert answer.global_batch < 16
    assert answer.best.plan.mesh["cp"] > 1


def test_what_does_not_fit_at_any_batch_is_said_with_what_is_missing() -> None:
    job = replace(JOB, model=load_model("llama3.1-70b"), hardware=parse_slice("v5e:2x4"), plan=PlanRequest())

    with pytest.raises(InfeasibleError, match="does not fit"):
        train(job)


def test_recomputing_and_narrow_activations_make_room_for_a_larger_batch() -> None:
    assert largest("remat") > largest("none")
    assert largest("offload") > largest("none")
    assert largest("fp8 activations") > largest("none")


def test_no_lever_makes_the_batch_smaller() -> None:
    for name in ("vocabulary tiles", "bf16 moments", "moments on the host", "fp8 matmuls", "micro-steps"):
        assert largest(name) >= largest("none")


def test_recomputing_costs_throughput_and_fp8_brings_it() -> None:
    rates = {name: each.largest.best.tokens_per_s_per_chip for name, each in levers().items() if each.largest}

    assert rates["remat"] < rates["none"] < rates["fp8 matmuls"]


def test_micro_steps_take_any_batch() -> None:
    assert levers()["micro-steps"].is_capped
    assert not levers()["none"].is_capped


def test_the_sensible_batch_is_never_above_the_largest() -> None:
    for each in levers().values():
        if each.largest is not None and each.sensible is not None:
            assert each.sensible.global_batch <= each.largest.global_batch


def test_the_sensible_batch_is_one_sequence_a_device_at_least_where_that_fits() -> None:
    """Offloading is slow at half a sequence a device and at one: that is no reason to choose an eighth."""
    for each in levers().values():
        if each.largest is not None and each.largest.sequences_per_device_ratio >= 1:
            assert each.sensible is not None
            assert each.sensible.sequences_per_device_ratio >= 1


def test_a_gpu_whose_host_link_is_unknown_cannot_turn_the_levers_that_use_it() -> None:
    chip = replace(parse_slice("h100:8").chip, pcie_bytes_per_s=None)
    job = replace(JOB, hardware=replace(parse_slice("h100:8"), chip=chip))
    found = {each.name: each for each in batch_levers(job)}

    assert found["offload"].largest is None
    assert "PCIe" in found["moments on the host"].reason


def test_the_command_prints_screen_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("llama3.1-8b", "--on=tpu7x:2x2x1", "--seq-len=8192", "--mesh=fsdp=8")

    assert "vocabulary tiles" in screen(Report(headline="", pieces=(batch_levers_table(tuple(levers().values())),)))
    assert len(batch_levers_chart(tuple(levers().values()), title="").curves) == len(levers())
    assert main(["train", *words, "--batch-levers", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["batch_levers"]
    assert found[0]["name"] == "none"
    assert all(each["largest"] or each["reason"] for each in found)
