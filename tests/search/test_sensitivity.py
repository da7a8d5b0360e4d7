"""What a step is sensitive to."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ridgeline.cli.app import main
from ridgeline.hardware.topology import parse_slice
from ridgeline.job.job import Job, PlanRequest, Remat, Workload
from ridgeline.model.variations import VARIATIONS
from ridgeline.model.zoo import load_model
from ridgeline.report.blocks import Report
from ridgeline.report.sensitivity import sensitivity_table
from ridgeline.report.terminal import screen
from ridgeline.search.sensitivity import Sensitivity, sensitivities
from ridgeline.search.train import train

if TYPE_CHECKING:
    from pathlib import Path

PINNED = PlanRequest(mesh={"fsdp": 16}, remat=Remat(policy="full"), gradient_accumulation=1)


def job_of(model: str, **plan: object) -> Job:
    return Job(
        model_reference=model,
        model=load_model(model),
        hardware=parse_slice("v6e:4x4"),
        workload=Workload(seq_len=4096, global_batch=32),
        plan=PINNED if not plan else PlanRequest(**plan),
    )


@pytest.fixture(scope="module")
def dense() -> dict[str, Sensitivity]:
    job = job_of("llama3.1-8b")
    return {each.name: each for each in sensitivities(job, train(job))}


def test_the_most_telling_field_comes_first(dense: dict[str, Sensitivity]) -> None:
    sizes = [abs(each.elasticity) for each in dense.values() if not each.reason]

    assert sizes == sorted(sizes, reverse=True)


def test_a_machine_with_more_of_anything_is_never_slower(dense: dict[str, Sensitivity]) -> None:
    for each in dense.values():
        if each.kind == "machine":
            assert -1 <= each.elasticity <= 1e-9


def test_a_simpler_plan_that_is_as_good_does_not_make_a_larger_machine_slower(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """With more memory the planner does without cp here, which on paper is a little slower."""
    file = tmp_path / "machine.toml"
    file.write_text(
        """
version = 1
workload = { seq_len = 8192, global_batch = 256 }
model = { name = "wider", base = "llama3.1-70b", attention = { num_heads = 32, num_kv_heads = 4, head_dim = 256 } }

[hardware]
name = "tpu7x:4x4x4"
hbm_bytes_per_s = "10TB/s"
link_bytes_per_s = "150GB/s"
peak_flops_per_s = { bf16 = 3e15 }
""",
        encoding="utf-8",
    )

    assert main(["train", str(file), "--sensitivity", "--json"]) == 0

    found = json.loads(capsys.readouterr().out)["sensitivity"]
    assert all(each["elasticity"] <= 1e-9 for each in found if each["kind"] == "machine")


def test_a_compute_bound_step_follows_the_matrix_units_and_the_depth(dense: dict[str, Sensitivity]) -> None:
    """The layers are nearly all of it; most of their time, though not all, is that of the matrix units."""
    assert dense["num_layers"].elasticity == pytest.approx(1.0, abs=0.1)
    assert -1 < dense["matrix-unit rate"].elasticity < -0.5
    assert dense["PCIe bandwidth"].time_ratio == pytest.approx(1.0)


def test_a_dense_model_has_no_experts_to_add(dense: dict[str, Sensitivity]) -> None:
    assert "num_experts" not in dense
    assert VARIATIONS["num_experts"](load_model("mixtral-8x7b"), 1.25) is not None


def test_experts_their_width_and_how_many_a_token_visits_are_fields_of_their_own() -> None:
    job = replace(
        job_of("qwen3-30b-a3b"),
        hardware=parse_slice("v6e:8x8"),
        plan=PlanRequest(mesh={"fsdp": 64}, remat=Remat(policy="full"), gradient_accumulation=1),
        workload=Workload(seq_len=4096, global_batch=128),
    )
    found = {each.name: each for each in sensitivities(job, train(job))}

    assert found["top_k"].factor == 2
    assert 0.1 < found["top_k"].elasticity < 1
    assert found["expert_mlp_dim"].elasticity > found["num_experts"].elasticity
    assert found["num_experts"].elasticity > 0  # no more arithmetic, but twice the weights to gather and update
    assert "mlp_dim" not in found


@pytest.mark.parametrize(
    ("on", "mesh"), [("h100:16", {"fsdp": 16}), ("2*v5e:4x4", {"fsdp": 16, "dcn_dp": 2}), ("tpu7x:2x2x2", {"fsdp": 16})]
)
def test_links_inside_and_between_are_fields_of_the_machine(on: str, mesh: dict[str, int]) -> None:
    """The network is one only where something crosses it: servers of GPUs, or slices."""
    job = replace(job_of("qwen3-4b"), hardware=parse_slice(on), plan=replace(PINNED, mesh=mesh))
    found = {each.name: each for each in sensitivities(job, train(job))}

    assert ("network bandwidth" in found) == (not on.startswith("tpu7x"))
    assert found["link bandwidth"].time_ratio <= 1 + 1e-9
    if "network bandwidth" in found:
        assert found["network bandwidth"].time_ratio <= 1 + 1e-9


def test_widths_stay_whole_tiles_and_groups_whole() -> None:
    model = load_model("llama3.1-8b")
    wider, headed = (VARIATIONS[name](model, 1.25) for name in ("embed_dim", "num_heads"))

    assert wider is not None
    assert headed is not None
    assert wider.embed_dim == 5120
    mixer = headed.layers[0][0].mixer
    assert getattr(mixer, "num_heads", 0) % getattr(mixer, "num_kv_heads", 1) == 0


def test_what_cannot_be_planned_stands_last_with_its_reason(dense: dict[str, Sensitivity]) -> None:
    lost = Sensitivity(
        kind="model",
        name="num_heads",
        factor=1.25,
        time_ratio=float("nan"),
        elasticity=float("nan"),
        mesh={},
        mesh_before={"fsdp": 16},
        reason="no legal plan",
    )
    text = screen(Report(headline="", pieces=(sensitivity_table((*dense.values(), lost)),)))

    assert "no legal plan" in text
    assert "matrix-unit rate" in text


def test_a_tie_that_a_wider_model_tips_changes_nothing_but_the_mesh() -> None:
    """A quarter more of three fifths of the step, which its feed-forward matmuls take, wherever a mesh goes."""
    job = replace(
        job_of("llama3.1-70b"),
        hardware=parse_slice("tpu7x:4x4x4"),
        workload=Workload(seq_len=8192, global_batch=256),
        plan=PlanRequest(),
    )
    answer = train(job)
    found = {each.name: each for each in sensitivities(job, answer)}
    text = screen(Report(headline="", pieces=(sensitivity_table(tuple(found.values())),)))

    assert found["mlp_dim"].time_ratio == pytest.approx(1.155, abs=0.015)
    for each in found.values():
        assert each.changes_mesh == (each.mesh != each.mesh_before)
    assert text.count("another mesh") == sum(each.changes_mesh for each in found.values())


def test_the_command_ranks_fields(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("llama3.1-8b", "--on=v6e:4x4", "--seq-len=4096", "--global-batch=32", "--mesh=fsdp=16", "--remat=full")

    assert main(["train", *words, "--sensitivity", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["sensitivity"]
    assert {"machine", "workload", "model"} == {each["kind"] for each in found}
