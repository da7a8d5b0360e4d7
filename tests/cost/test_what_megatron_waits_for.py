"""Settings of Megatron's and torchtitan's programs: what products or passes hide, and gradients that they add."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ridgeline.cost.training.step import training_step
from ridgeline.job.job import Optimizer
from tests.cost.settings import one_plan, setting_on

PLAIN = replace(setting_on("h100:8"), optimizer=Optimizer(distributed=True))


def test_collectives_of_tensor_parallelism_show_whole_where_no_product_runs_beside_them() -> None:
    columns = one_plan(PLAIN, {"tp": 8})

    def shown_s(*, has_collective_matmul: bool) -> float:
        step = training_step(replace(PLAIN, has_collective_matmul=has_collective_matmul), columns)
        return sum(
            float(part.expected_s) for _, part in step.walk() if "link.tensor" in part.work.amounts and not part.once
        )

    hidden = PLAIN.efficiency.tensor_overlap
    assert 0 < hidden < 1
    assert shown_s(has_collective_matmul=True) == pytest.approx((1 - hidden) * shown_s(has_collective_matmul=False))


@pytest.mark.parametrize("distributed", [True, False])
def test_replicas_that_wait_for_the_sum_of_gradients_take_as_much_longer(*, distributed: bool) -> None:
    setting = replace(PLAIN, optimizer=Optimizer(distributed=distributed))
    columns = one_plan(setting, {"dp": 8})
    waited = training_step(replace(setting, sync_overlaps=False), columns)
    beside = training_step(setting, columns)
    groups = {"link.data", "link.expert_data"}
    sync_s = sum(
        float(part.expected_s) for _, part in waited.walk() if groups & set(part.work.amounts) and not part.once
    )

    assert sync_s > 0
    assert float(waited.expected_s) <= float(beside.expected_s) + sync_s
    assert float(waited.expected_s) >= float(beside.expected_s) + 0.5 * sync_s


def test_products_that_add_gradients_hide_the_traffic_that_a_pass_of_its_own_shows() -> None:
    apart = replace(PLAIN, optimizer=Optimizer(distributed=False))
    added_s = [
        float(training_step(setting, one_plan(setting, {"tp": 8}, microbatches=1, accumulation=count)).expected_s)
        for setting in (PLAIN, apart)
        for count in (1.0, 2.0)
    ]
    in_products_s, in_a_pass_s = added_s[1] - added_s[0], added_s[3] - added_s[2]

    assert in_products_s < in_a_pass_s
