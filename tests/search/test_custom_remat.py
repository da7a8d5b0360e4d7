"""The best custom remat policy and place of the moments: equal to trying all, and different where the job is."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from ridgeline.hardware.topology import parse_slice
from ridgeline.job.job import Job, PlanRequest, Remat, Workload
from ridgeline.model.zoo import load_model
from ridgeline.search.custom_remat import PLACEMENTS, best_policies, cost_policies, placeable_names
from ridgeline.search.meshes import legal_meshes, limits_of
from ridgeline.search.plans import plan_table
from ridgeline.search.setting import training_setting
from ridgeline.search.train import cost_pinned, train


def job_of(model: str, hardware: str, *, batch: int, seq_len: int, mesh: dict[str, int]) -> Job:
    return Job(
        model_reference=model,
        model=load_model(model),
        hardware=parse_slice(hardware),
        workload=Workload(seq_len=seq_len, global_batch=batch),
        plan=PlanRequest(mesh=mesh, gradient_accumulation=1),
    )


DENSE = job_of("llama3.1-70b", "tpu7x:4x4x4", batch=256, seq_len=8192, mesh={"fsdp": 128})
TIGHT_HBM = job_of("llama3.1-70b", "v6e:16x16", batch=512, seq_len=8192, mesh={"fsdp": 256})
LONG = job_of("llama3.1-8b", "tpu7x:2x2x2", batch=16, seq_len=131_072, mesh={"fsdp": 4, "cp": 4})


@pytest.mark.parametrize("job", [DENSE, TIGHT_HBM, LONG], ids=["70b-ironwood", "70b-v6e", "8b-128k"])
@pytest.mark.parametrize("most_fraction", [0.94, 0.6])
def test_the_best_policy_is_the_best_of_all_policies_with_the_moments_in_either_place(
    job: Job, most_fraction: float
) -> None:
    batch = job.workload.global_batch or 0
    setting = training_setting(job, global_batch=batch)
    limits = limits_of(setting.tree, seq_len=setting.seq_len, global_batch=batch)
    meshes = legal_meshes(job.hardware, limits, {"fsdp": 1, "cp": 1, "dp": 1, "tp": 1, **job.plan.mesh}).legal
    plan = plan_table(job, meshes, global_batch=batch, layers=limits.layers).row(0)
    names, most_bytes = placeable_names(setting.tree), most_fraction * setting.usable_hbm_bytes
    assert len(names) == 9
    every = np.array(list(product((1, 2), *([range(3)] * 8))), dtype=np.int8)
    moments_on_host = np.repeat([0.0, 1.0], len(every))
    tried = cost_policies(setting, plan, names, np.tile(every, (2, 1)), moments_on_host=moments_on_host)
    fits = tried.needed_bytes <= most_bytes

    found = best_policies(setting, plan, most_bytes=most_bytes)

    if not fits.any():
        assert len(found) == 0
        return
    assert found.expected_s.min() == pytest.approx(tried.expected_s[fits].min(), rel=1e-6)
    # and so is every step of the frontier: with less host memory, and with less device memory
    for share in (0.0, 0.5, 0.9):
        host_limit = share * tried.host_bytes.max()
        some = fits & (tried.host_bytes <= host_limit)
        ours = found.expected_s[found.host_bytes <= host_limit]
        assert (len(ours) > 0) == some.any()
        if len(ours):
            assert ours.min() == pytest.approx(tried.expected_s[some].min(), rel=1e-6)


def test_a_row_of_policies_costs_what_the_pinned_policy_costs() -> None:
    setting = training_setting(DENSE, global_batch=256)
    answer = train(DENSE).best
    policy = answer.plan.remat
    pinned = cost_pinned(replace(DENSE, plan=replace(DENSE.plan, remat=policy)))

    assert policy.policy == "custom"
    assert pinned.step.expected_s == pytest.approx(answer.step.expected_s, rel=1e-12)
    assert pinned.memory.total_bytes == pytest.approx(answer.memory.total_bytes, rel=1e-12)
    assert setting.usable_hbm_bytes > answer.memory.total_bytes


def test_the_planner_uses_the_memory_that_the_best_preset_leaves() -> None:
    names = ("full", "save_qkv_proj", "save_dot_with_context_except_mlp", "minimal_with_context")
    presets = [cost_pinned(replace(DENSE, plan=replace(DENSE.plan, remat=Remat(policy=name)))) for name in names]
    fitting = [preset for preset in presets if preset.memory.verdict == "fits"]
    best = train(DENSE).best

    assert best.step.expected_s < min(preset.step.expected_s for preset in fitting)
    # What attention needs again is worth the most time a byte: its output, then its inputs.
    assert {name for name, place in best.plan.remat.tensors.items() if place == "device"} >= {
        "context",
        "query_proj",
        "key_proj",
        "value_proj",
    }


def test_a_chip_with_little_memory_moves_layer_inputs_to_the_host() -> None:
    tensors = train(TIGHT_HBM).best.plan.remat.tensors

    assert tensors["decoder_layer_input"] == "offload"


def test_a_pinned_policy_is_not_refined() -> None:
    pinned = replace(DENSE, plan=replace(DENSE.plan, remat=Remat(policy="full")))

    assert train(pinned).best.plan.remat == Remat(policy="full")


def test_the_placements_are_the_three_of_maxtext() -> None:
    assert set(PLACEMENTS) == {"device", "offload", "remat"}


def test_the_presets_are_laid_beside_a_pinned_policy_too() -> None:
    pinned = replace(DENSE, plan=replace(DENSE.plan, remat=Remat(policy="custom", tensors={"context": "device"})))
    shown = {choice.remat.policy for choice in train(pinned).remat.presets}

    assert {"full", "minimal", "minimal_with_context"} <= shown
