"""Each FLOP convention gives back the rates that were published under it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ridgeline.errors import InputError
from ridgeline.model.flop_convention import CONVENTIONS, flop_convention, training_flops_per_token
from ridgeline.model.table import model_from_table
from ridgeline.model.tree import model_tree
from ridgeline.model.zoo import load_model, model_names

if TYPE_CHECKING:
    from ridgeline.model.spec import ModelSpec

PUBLISHED = json.loads((Path(__file__).parent / "data" / "maxtext_tflops.json").read_text(encoding="utf-8"))


def model_of(row: dict[str, Any]) -> ModelSpec:
    """A row's model: a zoo name, or a table for one that only this row trains."""
    if isinstance(row["model"], str):
        return load_model(row["model"])
    return model_from_table(row["model"], name=row["id"], where=row["id"])


def flops_per_token(name: str, *, seq_len: int, convention: str) -> float:
    return training_flops_per_token(model_tree(load_model(name)), seq_len=seq_len, convention=CONVENTIONS[convention])


@pytest.mark.parametrize("row", PUBLISHED["rows"], ids=lambda row: row["id"])
def test_a_published_step_time_gives_the_published_rate(row: dict[str, Any]) -> None:
    convention = flop_convention(row["convention"], where=row["id"])
    flops = training_flops_per_token(model_tree(model_of(row)), seq_len=row["seq_len"], convention=convention)
    tokens_per_s_per_chip = row["global_batch"] * row["seq_len"] / row["num_chips"] / row["step_time_s"]

    assert flops * tokens_per_s_per_chip / 1e12 == pytest.approx(row["tflops_per_chip_per_s"], rel=0.005)


def test_every_excluded_row_says_why() -> None:
    assert all(row["reason"] for row in PUBLISHED["excluded"])
    assert not {row["id"] for row in PUBLISHED["rows"]} & {row["id"] for row in PUBLISHED["excluded"]}


@pytest.mark.parametrize(
    ("name", "global_batch", "num_gpus", "step_s", "mfu"),
    [
        ("megatron-22b", 4, 8, 1.10, 0.415),
        ("megatron-175b", 64, 64, 13.75, 0.514),
        ("megatron-530b", 280, 280, 37.83, 0.560),
        ("megatron-1t", 512, 512, 71.49, 0.563),
    ],
)
def test_megatron_counts_give_the_mfu_of_its_paper(
    name: str, global_batch: int, num_gpus: int, step_s: float, mfu: float
) -> None:
    # arXiv:2205.05198, table 5: sequence length 2,048, A100 with a peak of 312 TFLOP/s.
    flops = flops_per_token(name, seq_len=2048, convention="megatron") * global_batch * 2048

    assert flops / (step_s * num_gpus * 312e12) == pytest.approx(mfu, rel=0.005)


@pytest.mark.parametrize(
    ("name", "tokens_per_s_per_gpu", "tflops"),
    [
        ("mpt-7b", 9670, 417),
        ("mpt-13b", 4952, 406),
        ("mpt-30b", 2115, 398),
        ("mpt-70b", 1007, 408),
        ("mpt-760m", 67971, 371),
    ],
)
def test_palm_counts_give_the_rates_of_llm_foundry(name: str, tokens_per_s_per_gpu: int, tflops: int) -> None:
    # mosaicml/llm-foundry, scripts/train/benchmarking/README.md at 8c8dd48f7: H100, sequence length 2,048.
    flops = flops_per_token(name, seq_len=2048, convention="palm")

    assert flops * tokens_per_s_per_gpu / 1e12 == pytest.approx(tflops, rel=0.003)


def test_megatron_hardware_flops_follow_the_formula_of_2021() -> None:
    # arXiv:2104.04473, section 5.1: 96·L·h²·(1 + s/6h + V/16Lh), for the model of 175B parameters.
    L, h, s, V = 96, 12288, 2048, 51200
    formula = 96 * L * h**2 * (1 + s / (6 * h) + V / (16 * L * h))

    assert flops_per_token("megatron-175b", seq_len=s, convention="megatron_hardware") == pytest.approx(formula)


@pytest.mark.parametrize("name", model_names())
def test_the_whole_square_counts_at_least_what_is_seen(name: str) -> None:
    half, seen, square = (
        flops_per_token(name, seq_len=32768, convention=convention)
        for convention in ("maxtext_2025", "maxtext", "maxtext_2024")
    )

    assert half <= seen <= square


def test_an_unknown_convention_is_answered_with_near_ones() -> None:
    with pytest.raises(InputError) as caught:
        flop_convention("maxtexx", where="--flops")

    assert "maxtext" in caught.value.fix
