"""The plan that is chosen for a program is one that the program can run."""

from __future__ import annotations

import pytest

from ridgeline.program.request import training_program
from ridgeline.study.chosen_job import chosen_job, for_our_program
from tests.compiler.jobs import TINY, tiny_job

EXPERTS = {"num_experts": 8, "top_k": 2, "expert_mlp_dim": 256}


@pytest.mark.parametrize("num_layers", [2, 6, 8])
def test_stages_of_our_program_have_as_many_layers_in_as_many_repeats(num_layers: int) -> None:
    job = tiny_job(model={**TINY, "num_layers": num_layers}, plan__mesh={"pp": 2, "fsdp": 2}, workload__global_batch=16)

    schedule = training_program(chosen_job(for_our_program(job))[0]).pipeline

    assert num_layers % (schedule.num_stages * schedule.num_repeats) == 0


def test_repeats_that_a_job_names_are_kept() -> None:
    job = tiny_job(plan__mesh={"pp": 2, "fsdp": 2}, plan__pipeline={"repeats": 2})

    assert for_our_program(job).plan.pipeline.repeats == 2


def test_our_program_sends_tokens_to_experts_where_the_planner_would_gather_them() -> None:
    experts = {key: value for key, value in TINY.items() if key != "mlp"} | {"moe": EXPERTS}
    job = tiny_job(model=experts, plan__mesh={"ep": 4})

    assert training_program(chosen_job(for_our_program(job))[0]).experts.exchange == "all_to_all"
