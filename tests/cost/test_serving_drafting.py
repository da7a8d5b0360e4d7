"""Speculative decoding in a pass: what verifying and drafting cost, and what they bring."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ridgeline.cost.calibration import load_prior
from ridgeline.cost.placement import links_of, place
from ridgeline.cost.serving.device import PhaseColumns, ServingSetting
from ridgeline.cost.serving.drafting import Drafting
from ridgeline.cost.serving.efficiency import PRIORS
from ridgeline.cost.serving.machine import Pass, ServingMachine
from ridgeline.cost.serving.memory import engine_memory
from ridgeline.cost.serving.step import serving_pass
from ridgeline.hardware.topology import parse_slice
from ridgeline.job.serving import ServingDtypes
from ridgeline.model.mtp import mtp_tree
from ridgeline.model.tree import model_tree
from ridgeline.model.zoo import load_model


def setting(model: str, *, heads: bool = False) -> ServingSetting:
    tree = mtp_tree(load_model(model)) if heads else model_tree(load_model(model))
    return ServingSetting(tree=tree, dtypes=ServingDtypes(weights="int8"), context_len=2048, prompt_len=1024)


def server(model: str = "llama3.1-70b", drafting: Drafting | None = None) -> ServingMachine:
    hardware = parse_slice("v6e:2x4")
    return ServingMachine(
        setting=setting(model),
        hardware=hardware,
        efficiency=load_prior("v6e"),
        serving=PRIORS["TPU"],
        drafting=drafting,
    )


def columns(machine: ServingMachine) -> PhaseColumns:
    placed = place({"tp": 8}, machine.hardware.axes)
    assert placed is not None
    links = links_of(placed, {"tp": 8}, machine.hardware)
    return PhaseColumns(degrees={"tp": 8.0}, batch_size=16.0, links=links)


def decode(machine: ServingMachine) -> dict[str, float]:
    step = Pass(
        columns=columns(machine),
        num_decoding=16.0,
        context_keys=1024.0,
        prompt_tokens=0.0,
        each_tokens=machine.each_tokens,
    )
    tree = serving_pass(machine, step)
    return {"s": float(tree.expected_s)} | {name: float(amount) for name, amount in tree.work.amounts.items()}


def test_verifying_computes_every_draft_and_reads_weights_and_caches_once() -> None:
    plain, verified = decode(server()), decode(server(drafting=Drafting(num_draft_tokens=3, pass_tokens=2.0)))

    assert verified["flops.bf16"] == pytest.approx(4 * plain["flops.bf16"], rel=1e-12)
    assert verified["hbm.weights"] == plain["hbm.weights"]
    assert verified["hbm.kv_cache"] == plain["hbm.kv_cache"]
    assert plain["s"] < verified["s"] < 1.5 * plain["s"]


def test_a_draft_model_reads_its_weights_and_its_cache_once_for_each_draft() -> None:
    free = Drafting(num_draft_tokens=3, pass_tokens=2.0)
    drafted = decode(server(drafting=replace(free, drafter=setting("llama3.2-1b"))))
    drafter = decode(replace(server(), setting=setting("llama3.2-1b")))
    verified = decode(server(drafting=free))

    for resource in ("hbm.weights", "hbm.kv_cache"):
        assert drafted[resource] == pytest.approx(verified[resource] + 3 * drafter[resource], rel=1e-12)


def test_heads_for_further_tokens_keep_weights_of_their_own_but_no_table() -> None:
    # DeepSeek-V3's model card: 14B parameters of the MTP module, the shared table and head of 0.93B each among them.
    machine = server("deepseek3-671b")
    drafting = Drafting(
        num_draft_tokens=1, pass_tokens=1.85, drafter=setting("deepseek3-671b", heads=True), num_heads=1
    )
    whole = PhaseColumns(degrees={}, batch_size=1.0)

    assert float(drafting.weight_bytes(whole)) == pytest.approx(14e9 - 2 * 129_280 * 7168, rel=0.06)
    held, plain = (
        engine_memory(each, whole, pass_rows=1.0).parts for each in (replace(machine, drafting=drafting), machine)
    )
    assert held["draft_kv_cache"] == pytest.approx(held["kv_cache"] / 61)  # one layer beside 61
    assert plain["draft_weights"] == plain["draft_kv_cache"] == 0.0
