"""The derivations of a plan are the formulas that costed it: their values are the estimate's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import ridgeline

if TYPE_CHECKING:
    from ridgeline.search.answer import TrainAnswer

JOBS = {
    "dense": ("llama3.1-8b", "v6e:8x8"),
    "two chiplets a chip": ("llama3.1-70b", "tpu7x:4x4x4"),
    "experts on two slices": ("qwen3-30b-a3b", "2*v5p:4x4x8"),
    "GPUs": ("llama3.1-70b", "h100:64"),
}


@pytest.fixture(scope="module", params=JOBS.values(), ids=JOBS.keys())
def answer(request: pytest.FixtureRequest) -> TrainAnswer:
    model, hardware = request.param
    return ridgeline.train(model, on=hardware, global_batch=1024, seq_len=8192, tokens="1T")


def values(answer: TrainAnswer) -> dict[str, float]:
    return {derivation.quantity: derivation.value for derivation in answer.derivations}


def test_utilization_duration_and_price_are_the_answers(answer: TrainAnswer) -> None:
    assert answer.run is not None
    assert values(answer)["MFU"] == pytest.approx(answer.best.mfu)
    assert values(answer)["steps of the run"] == pytest.approx(answer.run.steps)
    assert values(answer)["duration of the run"] == pytest.approx(answer.run.duration_s)
    assert values(answer).get("price of the run") == pytest.approx(answer.run.cost_usd)


def test_memory_is_the_answers(answer: TrainAnswer) -> None:
    parts = answer.best.memory.parts

    assert values(answer)["weights on a device"] == pytest.approx(parts["parameters"])
    if answer.best.plan.optimizer.state == "device":
        assert values(answer)["optimizer state on a device"] == pytest.approx(parts["optimizer"])
    assert values(answer)["gradients on a device"] == pytest.approx(parts["gradients"])


def test_moments_on_the_host_are_explained_with_the_time_of_their_way() -> None:
    answer = ridgeline.train("llama3.1-8b", on="v6e:2x2", global_batch=64, seq_len=8192, optimizer_state="host")
    memory, moved = answer.best.memory, values(answer)["optimizer state from the host and back"]
    transfer = next(part for _, part in answer.best.step.parts.walk() if part.name == "state/transfer")

    assert 4 * values(answer)["optimizer state on the host, of a device"] <= memory.host_bytes
    assert moved == pytest.approx(float(transfer.expected_s))


def test_the_bound_is_the_answers(answer: TrainAnswer) -> None:
    bounds = [value for quantity, value in values(answer).items() if quantity.startswith("bound of a step")]

    assert sum(bounds) == pytest.approx(answer.best.step.roofline_s)


def test_a_bound_by_what_goes_to_the_host_is_told_as_that() -> None:
    answer = ridgeline.train("llama3.1-8b", on="v6e:4x4", global_batch=16, seq_len=8192, remat="minimal_offloaded")
    bounds = {name: value for name, value in values(answer).items() if name.startswith("bound of a step")}

    assert bounds == {"bound of a step by its transfers to and from the host": answer.best.step.roofline_s}


def test_the_largest_matmul_is_a_leaf_of_the_step(answer: TrainAnswer) -> None:
    flops, time = answer.derivations[:2]
    path = flops.quantity.removeprefix("FLOPs of ").partition(",")[0]
    leaves = [part for _, part in answer.best.step.parts.walk() if part.name == path.split("/", 2)[2]]
    forward = [leaf for leaf in leaves if leaf.phase == "forward"]
    repetitions = sum(float(flops) for leaf in forward for flops in leaf.work.amounts.values()) / flops.value

    assert time.quantity == f"time of {path}, forward, overhead apart"
    assert repetitions == pytest.approx(round(repetitions))
    assert time.value * repetitions == pytest.approx(sum(leaf.expected_s for leaf in forward), rel=0.02)


def test_a_single_device_has_no_collectives_to_explain() -> None:
    answer = ridgeline.train("qwen3-0.6b", on="v6e:1x1", global_batch=8, seq_len=2048)

    assert not [quantity for quantity in values(answer) if "whole step" in quantity]


def test_every_derivation_names_its_formula_and_source(answer: TrainAnswer) -> None:
    assert all(derivation.formula and derivation.source for derivation in answer.derivations)
