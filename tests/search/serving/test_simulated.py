"""The engine that a plan is simulated as: its times are the cost model's, whatever the longest request may be."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import ridgeline
from ridgeline.cost.serving.machine import Pass
from ridgeline.cost.serving.requests import like
from ridgeline.cost.serving.step import serving_pass
from ridgeline.job.origin import settings
from ridgeline.job.reading import read_serving_job
from ridgeline.search.serving.meshes import serving_meshes
from ridgeline.search.serving.plans import plainest_table
from ridgeline.search.serving.setting import serving_machine
from ridgeline.search.serving.simulated import decode_times, prompt_times

if TYPE_CHECKING:
    from pathlib import Path

    from ridgeline.cost.serving.device import PhaseColumns
    from ridgeline.cost.serving.machine import ServingMachine
    from ridgeline.search.serving.answer import ServingPoint

_ALIKE = (1000, 256)
"""Tokens of a prompt and of a reply."""


def machine_of(prompts: str) -> tuple[ServingMachine, PhaseColumns]:
    """Llama 3.1 8B on 4 v6e, tensor parallel."""
    flags = {"on": "v6e:2x2", "prompt_len": prompts, "generate_len": "256", "mesh": "tp=4"}
    job = read_serving_job("llama3.1-8b", settings(flags, written=str))
    machine = serving_machine(job, job.hardware)
    meshes = serving_meshes(job.hardware, machine.setting.tree, job.plan.decode, "decode").legal
    return machine, plainest_table(machine, meshes, batch=None).row(0)


def best(prompts: str, mode: str) -> ServingPoint:
    return ridgeline.serve(
        "llama3.1-8b",
        on="v6e:2x2",
        prompt_len=prompts,
        generate_len=256,
        mesh="tp=4",
        batch=192,
        mode=mode,
        rate=20,
    ).best


@pytest.mark.parametrize("mode", ["interleaved", "disaggregated"])
def test_a_longest_prompt_that_never_comes_changes_no_time(mode: str) -> None:
    # The logarithm of a prompt has a deviation of ln(1.1)/1.2816 = 0.074: 1,500 tokens are more than 5 of them away.
    short, long = (best(f"p50=1000,p90=1100,max={longest}", mode) for longest in (1500, 50_000))

    assert short.fleet == long.fleet
    for of in ("mean_s", "p50_s", "p99_s"):
        assert getattr(short.tpot, of) == pytest.approx(getattr(long.tpot, of), rel=1e-6)
        assert getattr(short.ttft, of) == pytest.approx(getattr(long.ttft, of), rel=1e-6)


def test_one_long_prompt_of_a_trace_leaves_the_others_as_quick(tmp_path: Path) -> None:
    prompt, reply = _ALIKE
    rows = [f"{second / 10},{prompt},{reply}\n" for second in range(600)]
    quick: list[ServingPoint] = []
    for name, last in (("alike", prompt), ("unlike", 60_000)):
        path = tmp_path / f"{name}.csv"
        last_row = f"600,{last},{reply}\n"
        path.write_text(f"arrival_s,prompt_tokens,output_tokens\n{''.join(rows)}{last_row}", encoding="utf-8")
        answer = ridgeline.serve(
            "llama3.1-8b", on="v6e:2x2", mesh="tp=4", mode="interleaved", batch=64, prefill_chunk=1024, trace=str(path)
        )
        quick.append(answer.best)

    assert quick[0].tpot.p50_s == pytest.approx(quick[1].tpot.p50_s, rel=0.01)
    assert quick[0].ttft.p50_s == pytest.approx(quick[1].ttft.p50_s, rel=0.01)


@pytest.mark.parametrize(("sequences", "keys"), [(1, 1), (1, 600), (24, 1100), (192, 1128), (192, 60_000)])
def test_a_pass_of_decoding_takes_what_the_cost_model_says(sequences: int, keys: int) -> None:
    machine, columns = machine_of("p50=1000,p90=1100,max=90000")
    told = serving_pass(
        machine,
        Pass(columns=columns, num_decoding=float(sequences), context_keys=float(keys), prompt_tokens=0.0),
    )

    times = decode_times(machine, columns, most_rows=192, ranks=1)

    assert times.pass_s(sequences, keys) == pytest.approx(float(told.expected_s), rel=0.005)


@pytest.mark.parametrize(("tokens", "prompt"), [(64, 100), (1000, 1000), (3000, 1500), (8192, 40_000)])
def test_a_pass_over_prompts_takes_what_the_cost_model_says(tokens: int, prompt: int) -> None:
    machine, columns = machine_of("p50=1000,p90=1100,max=90000")
    asked = replace(machine, setting=replace(machine.setting, requests=like(prompt_tokens=prompt, reply_tokens=256)))
    told = serving_pass(asked, Pass(columns=columns, num_decoding=0.0, context_keys=0.0, prompt_tokens=float(tokens)))

    times = prompt_times(machine, columns, most_tokens=8192, ranks=1)

    assert times.pass_s(tokens, prompt / 2) == pytest.approx(float(told.expected_s), rel=0.02)
