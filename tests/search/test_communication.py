"""How a plan communicates: bytes, times, what carries a collective, what accumulation costs, which flags follow."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import pytest

from ridgeline.cli.app import main
from ridgeline.cost.calibration import load_efficiency
from ridgeline.cost.causes import COMMUNICATION, time_by_cause
from ridgeline.hardware.topology import parse_slice
from ridgeline.job.job import Compiler, ContextParallelism, Job, PlanRequest, Remat, Workload
from ridgeline.model.zoo import load_model
from ridgeline.report.blocks import Report
from ridgeline.report.communication import communication_pieces
from ridgeline.report.terminal import screen
from ridgeline.search.communication import carried_by
from ridgeline.search.train import cost_pinned
from ridgeline.study.communication import FlaggedCommunication, flagged_communication

if TYPE_CHECKING:
    from pathlib import Path

FULL = Remat(policy="full")
TABLE = 128_256 * 4096
"""Elements of the embedding's table of Llama 3.1 8B."""


def job_of(on: str, mesh: dict[str, int], *, micro_steps: int = 1, model: str = "llama3.1-8b", **more: Compiler) -> Job:
    return Job(
        model_reference=model,
        model=load_model(model),
        hardware=parse_slice(on),
        workload=Workload(seq_len=4096, global_batch=256),
        plan=PlanRequest(mesh=mesh, remat=FULL, gradient_accumulation=micro_steps, **more),
    )


def answered(job: Job) -> FlaggedCommunication:
    return flagged_communication(job, cost_pinned(job), global_batch=256)


@cache
def on_ironwood() -> FlaggedCommunication:
    return answered(job_of("tpu7x:4x4x4", {"fsdp": 128}))


@pytest.mark.parametrize(
    "mesh", [{"fsdp": 128}, {"fsdp": 32, "tp": 4}, {"dp": 2, "fsdp": 32, "cp": 2}, {"fsdp": 16, "pp": 8}]
)
def test_what_shows_of_each_collective_adds_up_to_the_communication_of_the_step(mesh: dict[str, int]) -> None:
    job = job_of("tpu7x:4x4x4", mesh)
    best = cost_pinned(job)
    causes = time_by_cause(best.step.parts)

    found = flagged_communication(job, best, global_batch=256).answer.collectives

    shown_s = sum(causes.get(cause, 0.0) for cause in set(COMMUNICATION.values()))
    assert sum(use.exposed_s for use in found) == pytest.approx(shown_s)
    assert all(use.exposed_s <= use.busy_s * (1 + 1e-9) for use in found)


def test_a_ring_hands_keys_on_beside_attention_and_a_gather_of_them_is_waited_for() -> None:
    job = job_of("tpu7x:4x4x4", {"fsdp": 64, "cp": 2})
    ring = replace(job, plan=replace(job.plan, context=ContextParallelism(strategy="ring")))
    gathered, handed = (
        [use for use in answered(each).answer.collectives if use.group == "context"] for each in (job, ring)
    )

    assert all(use.exposed_s == pytest.approx(use.busy_s) and "nothing" in use.behind for use in gathered)
    assert all(use.exposed_s < use.busy_s and "attention" in use.behind for use in handed)


def test_every_micro_step_gathers_all_weights_again() -> None:
    """2 bytes a parameter forward, 2 backward and 2 of gradients: in 16 bits, whatever the number of sequences."""
    once, twice = (each for each in on_ironwood().answer.accumulation if each.micro_steps <= 2)
    params = 8.03e9 - TABLE  # of the table rows are exchanged

    assert once.gathered_bytes == pytest.approx(3 * 2 * params, rel=0.06)  # the head is gathered once
    assert twice.gathered_bytes == pytest.approx(2 * once.gathered_bytes)
    assert twice.exposed_s > once.exposed_s
    assert twice.needed_bytes < once.needed_bytes


def test_ironwood_offloads_gathers_and_sums_and_waits_for_exchanges_of_tokens() -> None:
    job = job_of("tpu7x:4x4x4", {"fsdp": 128})

    for kind in ("all_gather", "reduce_scatter", "all_reduce"):
        assert carried_by(job, kind, ("fsdp",))[0] == "sparse_core"
    assert carried_by(job, "all_to_all", ("ep",))[0] == "tensor_core"


@pytest.mark.parametrize(("on", "is_default"), [("v5e:8x8", True), ("v5p:4x4x4", False), ("v6e:8x8", False)])
def test_gathers_continue_inside_fusions_by_default_on_v5e_and_by_flags_on_v5p_and_v6e(
    on: str, *, is_default: bool
) -> None:
    """As the compiler has it: programs compiled for v5e start gathers early, those for v5p and v6e wait for them."""
    found = answered(job_of(on, {"fsdp": 64}))
    gathers = [use for use in found.answer.collectives if use.kind == "all_gather"]
    flags = {each.flag.name: each for each in found.flags}
    fused = flags["xla_tpu_enable_async_collective_fusion_fuse_all_gather"]

    assert {use.engine for use in gathers} == {"continuation_fusion"}
    assert all(use.is_asynchronous is is_default for use in gathers)
    assert fused.is_default is is_default
    assert ("xla_enable_async_all_gather" in flags) is not is_default
    assert is_default or "wrong results" in fused.trouble
    assert not any("sparse_core" in name for name in flags)


def test_of_what_a_v5p_waits_for_the_estimate_hides_what_measured_steps_hid_and_names_the_flags() -> None:
    efficiency = load_efficiency("v5p")
    shown = {"all_gather": efficiency.unhidden_gather, "reduce_scatter": efficiency.unhidden_sum, "all_to_all": 1.0}
    found = answered(job_of("v5p:4x4x4", {"fsdp": 64}))

    waits = [use for use in found.answer.collectives if not use.is_asynchronous]
    assert {use.kind for use in waits} == {"all_gather", "reduce_scatter", "all_to_all"}
    assert all(use.busy_s >= use.exposed_s >= use.busy_s * shown[use.kind] * (1 - 1e-9) for use in waits)
    assert all(use.busy_s > use.exposed_s for use in waits if shown[use.kind] < 1)
    assert any(use.busy_s > use.exposed_s for use in waits)
    assert any("does not hide by default: with the flags" in line for line in found.answer.advice)
    assert any("as all-reduces" in line and "twice" in line for line in found.answer.advice)
    assert any(each.flag.name.endswith("fuse_all_reduce") for each in found.flags)
    assert any(each.flag.name.endswith("fuse_reduce_scatter") for each in found.flags)


@pytest.mark.parametrize(("on", "made"), [("v5p:4x4x4", "all_reduce"), ("tpu7x:4x4x4", "reduce_scatter")])
def test_sums_of_gradients_are_named_as_the_chips_compiler_carries_them_out(on: str, made: str) -> None:
    """docs/calibration.md: programs compiled for v5p all-reduce them, those for Ironwood scatter the sums."""
    collectives = answered(job_of(on, {"fsdp": -1})).answer.collectives

    assert {use.carried_out_as for use in collectives if use.kind == "reduce_scatter"} == {made}
    assert all(use.carried_out_as == use.kind for use in collectives if use.kind != "reduce_scatter")


def test_a_job_that_offloads_some_collectives_leaves_the_others_to_the_tensor_core() -> None:
    job = job_of("tpu7x:4x4x4", {"fsdp": 128}, compiler=Compiler(sparse_core_offload=("all_gather",)))

    assert carried_by(job, "all_gather", ("fsdp",)) == ("sparse_core", "the job says so")
    assert carried_by(job, "reduce_scatter", ("fsdp",))[0] == "tensor_core"


def test_sums_that_are_all_reduces_run_on_sparse_cores_if_all_reduces_are_offloaded() -> None:
    """As the compiler has it (libtpu 0.0.50.1, Llama 3.1 8B of 4 layers on v5p:2x2x2): all asynchronous."""
    told = {
        kinds: {
            use.kind: use.engine
            for use in answered(
                job_of("v5p:4x4x4", {"fsdp": 64}, compiler=Compiler(sparse_core_offload=kinds))
            ).answer.collectives
            if use.kind != "all_to_all"
        }
        for kinds in (("all_gather", "reduce_scatter"), ("all_gather", "all_reduce"))
    }

    assert told["all_gather", "reduce_scatter"] == {"all_gather": "sparse_core", "reduce_scatter": "tensor_core"}
    assert told["all_gather", "all_reduce"] == {"all_gather": "sparse_core", "reduce_scatter": "sparse_core"}


def test_hosts_carry_what_crosses_slices_and_flags_for_slices_follow() -> None:
    found = answered(job_of("2*v6e:8x8", {"fsdp": 64, "dcn_dp": 2}))

    assert {use.engine for use in found.answer.collectives if "dcn_dp" in use.axes} == {"megascale"}
    assert any(each.flag.name.startswith("megascale_") for each in found.flags)
    assert not any(each.flag.name.startswith("megascale_") for each in on_ironwood().flags)


def test_flags_have_reasons_and_sources_and_known_troubles_are_named() -> None:
    flags = {each.flag.name: each for each in on_ironwood().flags}

    assert all(each.flag.reason and each.source for each in flags.values())
    offload = flags["xla_tpu_enable_sparse_core_collective_offload_reduce_scatter"]
    assert offload.is_default
    assert "axlearn" in offload.trouble


def test_two_stage_gathers_are_for_two_fsdp_axes() -> None:
    one, two = on_ironwood(), answered(job_of("tpu7x:4x4x4", {"fsdp": 32, "fsdp_transpose": 4}))

    assert any("do not apply" in line for line in one.answer.advice)
    assert any("fsdp_transpose=4 first, of 1/32 of the array" in line for line in two.answer.advice)


def test_a_transpose_of_the_gathered_weights_reads_and_writes_them_all() -> None:
    """8.03e9 parameters but for the table, in 2 bytes, gathered forward and backward, read and written once: 60 GB."""
    two = answered(job_of("tpu7x:4x4x4", {"fsdp": 32, "fsdp_transpose": 4}))
    gathered = sum(use.array_bytes for use in two.answer.collectives if use.kind == "all_gather")

    assert 2 * gathered == pytest.approx(2 * 2 * 2 * (8.03e9 - TABLE), rel=0.07)
    assert any("of HBM a step" in line for line in two.answer.advice)


def test_a_second_layer_of_weights_is_held_for_pipelined_gathers() -> None:
    """A layer has 218.1e6 parameters of 2 bytes: 416 MiB; flags count a share of the head's with it."""
    assert on_ironwood().answer.layer_bytes["all_gather"] == pytest.approx(2 * (8.03e9 - TABLE) / 32, rel=0.02)
    assert any("416 MiB a device" in line for line in on_ironwood().answer.advice)


def test_a_gpu_is_told_its_own_flags_and_variables() -> None:
    found = answered(job_of("h100:64", {"fsdp": 64}))
    flags = {each.flag.name: each for each in found.flags}

    assert {use.engine for use in found.answer.collectives} == {"gpu"}
    assert not any(name.startswith(("xla_tpu", "xla_sc", "megascale")) for name in flags)
    assert flags["xla_gpu_enable_latency_hiding_scheduler"].flag.value == "true"
    assert flags["NCCL_NVLS_ENABLE"].flag.written == "NCCL_NVLS_ENABLE=1"
    assert not any("windowed_einsum" in name or "p2p" in name for name in flags)


def test_gpus_gather_and_scatter_a_layer_at_once() -> None:
    """A layer of Llama 3.1 8B has 218e6 parameters, 436 MB in 16 bits: the next power of two is 512 MiB."""
    values = {each.flag.name: each.flag.value for each in answered(job_of("h100:64", {"fsdp": 64})).flags}

    assert values["xla_gpu_all_gather_combine_threshold_bytes"] == str(512 * 2**20)
    assert values["xla_gpu_reduce_scatter_combine_threshold_bytes"] == str(512 * 2**20)


def test_a_gpu_with_tensor_parallelism_cuts_its_matmuls() -> None:
    names = {each.flag.name for each in answered(job_of("b200:64", {"fsdp": 8, "tp": 8})).flags}

    assert "xla_gpu_threshold_for_windowed_einsum_mib" in names
    assert "CUDA_DEVICE_MAX_CONNECTIONS" not in names  # slower on Blackwell


def test_one_device_has_no_collectives() -> None:
    job = Job(
        model_reference="llama3.2-1b",
        model=load_model("llama3.2-1b"),
        hardware=parse_slice("v6e:1x1"),
        workload=Workload(seq_len=1024, global_batch=1),
        plan=PlanRequest(mesh={"fsdp": 1}, remat=FULL, gradient_accumulation=1),
    )
    found = flagged_communication(job, cost_pinned(job), global_batch=1)

    assert "None: no axis" in screen(Report(headline="", pieces=tuple(communication_pieces(found))))


def test_the_command_draws_prints_a_screen_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("llama3.1-8b", "--on=v6e:4x4", "--seq-len=4096", "--global-batch=64", "--mesh=fsdp=16", "--remat=full")

    assert main(["train", *words, "--communication"]) == 0
    text = capsys.readouterr().out
    assert "What gradient accumulation costs" in text
    assert "Flags that follow" in text
    drawing = tmp_path / "micro-steps.svg"
    assert main(["train", *words, "--communication", f"--plot={drawing}", "--json"]) == 0
    assert "micro-steps of one batch" in drawing.read_text(encoding="utf-8")
    found = json.loads(capsys.readouterr().out)["communication"]
    assert {each["kind"] for each in found["collectives"]} == {"all_gather", "reduce_scatter", "all_to_all"}
    assert all(each["source"] for each in found["flags"])
