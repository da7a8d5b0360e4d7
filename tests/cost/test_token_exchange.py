"""How tokens reach the experts of other devices: as copies, or all tokens to all devices."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ridgeline.cost.training.layer import layer_cost
from ridgeline.cost.training.step import training_step
from ridgeline.model.spec import LayerSpec, MoeSpec
from tests.cost.settings import ATTENTION, SPARSE, one_plan, setting_on

if TYPE_CHECKING:
    from ridgeline.cost.columns import TrainingSetting
    from ridgeline.job.job import TokenExchange


def exchanged(setting: TrainingSetting, ways: int) -> dict[str, float]:
    """Bytes of the arrays that experts exchange in a step, by kind of collective."""
    rest = setting.hardware.num_devices // ways
    step = training_step(setting, one_plan(setting, {"ep": ways, "fsdp": rest}))
    found: dict[str, float] = {}
    for path, part in step.walk():
        if "link.expert" in part.work.amounts:
            kind = path.rpartition("/")[2].removesuffix("_gradient")
            found[kind] = found.get(kind, 0.0) + float(part.array_bytes) * float(part.times)
    return {kind: size_bytes for kind, size_bytes in found.items() if size_bytes}


@pytest.mark.parametrize(
    ("exchange", "kinds"), [("all_to_all", {"all_to_all"}), ("all_gather", {"all_gather", "reduce_scatter"})]
)
def test_either_way_can_be_pinned(exchange: TokenExchange, kinds: set[str]) -> None:
    setting = replace(setting_on("v5p:2x2x2", model=SPARSE), expert_exchange=exchange)

    assert set(exchanged(setting, 8)) == kinds


def test_gathered_tokens_are_those_of_all_devices_and_sent_ones_have_copies() -> None:
    """Of 8 layers there and back, forward, again and backward: 2 copies of a device's tokens, or those of 8 devices."""
    setting = setting_on("v5p:2x2x2", model=SPARSE, global_batch=8)
    tokens, width, element_bytes = 2048, 2048, 2
    moves = 8 * 2 * 3

    sent = exchanged(replace(setting, expert_exchange="all_to_all"), 8)
    gathered = exchanged(replace(setting, expert_exchange="all_gather"), 8)

    assert sum(sent.values()) == moves * 2 * tokens * width * element_bytes
    assert sum(gathered.values()) == moves * 8 * tokens * width * element_bytes


def test_the_quicker_way_is_taken_where_neither_is_pinned() -> None:
    """For 8 experts a token: around a ring of 4, all tokens load a link with 3/8 · 4 and copies with 4/8 · 8.

    On all three rings of 64 devices, with 63/384 · 64 and again 4/8 · 8.
    """
    experts = MoeSpec(num_experts=64, top_k=8, expert_mlp_dim=1024)
    model = replace(SPARSE, layers=((LayerSpec(mixer=ATTENTION, mlp=experts), 8),))
    setting = setting_on("v5p:4x4x4", model=model)

    assert setting.expert_exchange is None
    assert set(exchanged(setting, 4)) == {"all_gather", "reduce_scatter"}
    assert set(exchanged(setting, 64)) == {"all_to_all"}


def test_gpus_send_a_token_once_to_each_domain_unless_told_otherwise() -> None:
    """Two domains: half of the copies cross the network; of tokens with 2 copies 3/4 cross once, not twice 1/2."""

    def crossing_bytes(exchange: TokenExchange | None) -> float:
        setting = setting_on("h100:16", model=SPARSE)
        setting = replace(setting, expert_exchange=exchange or setting.expert_exchange)
        step = training_step(setting, one_plan(setting, {"ep": 16}))
        leaves = (part for path, part in step.walk() if path.rpartition("/")[2].startswith("all_to_all"))
        return sum(float(part.work.amounts["network"]) for part in leaves)

    assert set(exchanged(setting_on("h100:8", model=SPARSE), 8)) == {"all_to_all"}
    assert crossing_bytes(None) == crossing_bytes("send_once") > 0
    assert crossing_bytes("send_once") == pytest.approx(0.75 * crossing_bytes("all_to_all"))


def test_a_token_goes_once_to_each_gpu_of_a_domain_whatever_experts_it_visits_there() -> None:
    """8 GPUs: a token's 2 copies meet on one of them every eighth time, so 15 of 16 travel."""

    def sent_bytes(exchange: TokenExchange) -> float:
        setting = replace(setting_on("h100:8", model=SPARSE), expert_exchange=exchange)
        step = training_step(setting, one_plan(setting, {"ep": 8}))
        leaves = (part for path, part in step.walk() if path.rpartition("/")[2].startswith("all_to_all"))
        return sum(float(part.work.amounts.get("link.expert", 0.0)) for part in leaves)

    assert sent_bytes("send_once") == pytest.approx(15 / 16 * sent_bytes("all_to_all"))


def test_tokens_that_travel_beside_another_microbatch_show_as_far_as_its_arithmetic_is_shorter() -> None:
    """Of 8 microbatches seven have one to travel beside; the exchange has a fifth of the multiprocessors."""
    waited = setting_on("h100:8", model=SPARSE)
    waited = replace(waited, optimizer=replace(waited.optimizer, distributed=True))  # no weights to gather beside
    beside = replace(waited, expert_exchange_overlaps=True)
    plan = one_plan(waited, {"ep": 8}, policy="none", accumulation=8.0)
    hiding, times = beside.hiding, 8.0
    in_turn, together = (
        layer_cost(waited.tree.layers[0], rows=8192.0, embed_dim=2048, setting=setting, columns=plan)[0]
        for setting in (waited, beside)
    )
    exchange_s = sum(float(part.expected_s) for path, part in in_turn.walk() if path.endswith("/all_to_all"))
    arithmetic_s = float(in_turn.expected_s) - exchange_s
    least = max(hiding.unhidden_share, 1 / times)
    shown_s = max(exchange_s - hiding.overlap * arithmetic_s, exchange_s * (least + (1 - least) * 0.2))

    assert exchange_s > 0
    assert float(together.expected_s) == pytest.approx(arithmetic_s + shown_s)
    assert together.work.amounts["link.expert"] == in_turn.work.amounts["link.expert"]


def test_a_step_of_one_microbatch_has_none_to_hide_the_exchange_of_tokens() -> None:
    setting = setting_on("h100:8", model=SPARSE)
    plan = one_plan(setting, {"ep": 8})

    assert float(training_step(replace(setting, expert_exchange_overlaps=True), plan).expected_s) == pytest.approx(
        float(training_step(setting, plan).expected_s)
    )
