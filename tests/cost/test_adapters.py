"""LoRA: weights are frozen, small adapters beside them are trained."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ridgeline.cost.training.collectives import step_collectives
from ridgeline.cost.training.launches import num_kernels
from ridgeline.cost.training.memory import training_memory
from ridgeline.cost.training.quantization_pass import narrowing_bytes
from ridgeline.cost.training.step import training_step
from ridgeline.job.job import Lora, PlanRequest, Remat
from ridgeline.model.adapters import adaptable, adapter_parameters, with_adapters
from ridgeline.model.tree import model_tree
from ridgeline.model.zoo import load_model
from ridgeline.search.estimate import step_flops
from ridgeline.search.pinned import pinned_columns
from tests.cost.settings import job_on

if TYPE_CHECKING:
    from ridgeline.cost.columns import PlanColumns, TrainingSetting

MODEL = load_model("llama3-8b")
LINEAR = ("query", "key", "value", "out", "gate", "up", "down")
WEIGHTS, ADAPTERS, HEAD = 8_030_261_248, 41_943_040, 128_256 * 4096
"""Of Llama 3 8B, and of adapters of rank 16 beside all its linear layers, as Hugging Face PEFT prints them:
`trainable params: 41,943,040 || all params: 8,072,204,288`."""

NORMS = 65 * 4096
MULTIPLIED = WEIGHTS - HEAD - NORMS
"""Weights that a token is multiplied with: the embedding's table is only looked up."""

TOKENS = 128 * 2048


def planned(lora: Lora | None, mesh: dict[str, int] | None = None) -> tuple[TrainingSetting, PlanColumns]:
    plan = PlanRequest(mesh=mesh or {"fsdp": 64}, remat=Remat(policy="none"), lora=lora)
    return pinned_columns(job_on("v5p:4x4x4", model=MODEL, global_batch=128, plan=plan))


FULL, LORA = planned(None), planned(Lora(rank=16, targets=LINEAR))


def flops(of: tuple[TrainingSetting, PlanColumns]) -> float:
    return float(training_step(*of).work.amounts["flops.bf16"])


def test_adapters_have_as_many_parameters_as_peft_counts() -> None:
    tree = model_tree(MODEL)

    assert adaptable(tree) == LINEAR
    assert adapter_parameters(with_adapters(tree, rank=16, targets=LINEAR)) == ADAPTERS
    one = with_adapters(tree, rank=8, targets=("query",))
    assert adapter_parameters(one) == 32 * 8 * (4096 + 4096)


def test_frozen_weights_take_four_of_six_flops_and_adapters_all_six() -> None:
    attention = flops(FULL) - 6 * MULTIPLIED * TOKENS / 64

    assert flops(LORA) == pytest.approx((4 * MULTIPLIED + 6 * ADAPTERS) * TOKENS / 64 + attention)
    assert step_flops(LORA[0]) == pytest.approx(step_flops(FULL[0]) + (6 * ADAPTERS - 2 * MULTIPLIED) * TOKENS)


def test_frozen_weights_are_kept_in_the_compute_dtype_alone() -> None:
    parts = {name: float(size) * 64 for name, size in training_memory(*LORA).parts.items()}

    assert parts["frozen_weights"] == pytest.approx(2 * WEIGHTS, rel=0.01)  # norms are whole on every device
    assert parts["parameters"] == pytest.approx(4 * ADAPTERS)
    assert parts["gradients"] == parts["parameters"]
    assert parts["optimizer"] == 2 * parts["parameters"]


def test_all_weights_are_gathered_and_only_adapters_gradients_summed() -> None:
    def moved(of: tuple[TrainingSetting, PlanColumns], kind: str) -> float:
        return sum(each.total_bytes for each in step_collectives(*of) if each.kind == kind)

    once = moved(FULL, "reduce_scatter")  # every weight that is split, in bf16

    assert once == pytest.approx(2 * (WEIGHTS - HEAD), rel=0.01)  # the embedding's table is as large, but not gathered
    assert moved(LORA, "all_gather") - moved(FULL, "all_gather") == pytest.approx(2 * 2 * ADAPTERS)
    assert moved(LORA, "reduce_scatter") == pytest.approx(2 * ADAPTERS)


def test_replicas_sum_the_gradients_of_adapters_alone() -> None:
    summed = [
        each
        for each in step_collectives(*planned(Lora(rank=16, targets=LINEAR), {"dp": 64}))
        if each.phase == "backward"
    ]

    assert {each.kind for each in summed} == {"all_reduce"}
    assert sum(each.total_bytes for each in summed) == pytest.approx(2 * ADAPTERS)


def test_a_frozen_product_is_two_kernels_and_narrows_along_rows_alone() -> None:
    setting, columns = LORA
    (layer,) = setting.tree.layers
    (plain,) = FULL[0].tree.layers
    with_adapters = num_kernels(layer, setting=setting, columns=columns)
    without = num_kernels(plain, setting=FULL[0], columns=columns)

    # two products and a sum beside each of seven, whose own weights have no gradient
    assert with_adapters.num_forward == without.num_forward + 7 * (1 + 1 + 1)
    assert with_adapters.num_backward == without.num_backward - 7 + 7 * (2 + 2 + 1)
    assert narrowing_bytes(b_a=2.0, narrow_bytes=1.0, num_looks=0, num_copies=1) == 3.0
