"""Every measured efficiency is recomputed from the raw points; every borrowed one equals its lender's.

The raw points stand in `data/kernel_points.json` with their sources, kernel times in `tests/measured`. A measured
number that nothing here recomputes fails the last test but one, so that no number is merely typed in.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING, Any

import pytest

from ridgeline.cost.calibration import calibrated_chips, load_prior
from ridgeline.cost.training.attention_program import slower_ratios
from ridgeline.study.kernels.writing import KERNEL_KEYS

if TYPE_CHECKING:
    from collections.abc import Callable

POINTS: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "kernel_points.json").read_text(encoding="utf-8"))
PEAKS: dict[str, dict[str, float]] = POINTS["peaks"]
ROUNDING = 0.006  # three digits

FACTS = [(chip, key, fact) for chip in calibrated_chips() for key, fact in load_prior(chip).facts.items()]
MEASURED = [(chip, key) for chip, key, fact in FACTS if fact.kind == "measured"]
BORROWED = [
    (chip, key, match["lender"])
    for chip, key, fact in FACTS
    if fact.kind == "derived" and (match := re.match(r"As (?P<lender>(its )?[\w-]+):", fact.note))
]


def points(table: str, chip: str, **conditions: object) -> list[dict[str, Any]]:
    rows = [row for row in POINTS[table] if row["chip"] == chip]
    return [row for row in rows if all(row[key] == value for key, value in conditions.items())]


def matmul_fraction(chip: str, row: dict[str, Any]) -> float:
    return 2 * row["rows"] * row["contracted"] * row["produced"] / (row["ms"] / 1e3) / PEAKS[chip]["bf16"]


def matmul(chip: str, dtype: str) -> float:
    """Of the largest matmul; where none is measured by itself, of the best one fused with its loss."""
    rates = [row["tflops_per_s"] for row in points("best_matmul", chip, dtype=dtype)]
    cubes = points("gemm", chip, dtype=dtype)
    if cubes:
        rates = [max(cubes, key=lambda row: row["size"])["tflops_per_s"]]
    if rates:
        return rates[0] * 1e12 / PEAKS[chip][dtype]
    return max(matmul_fraction(chip, row) for row in points("loss", chip))


def matmul_overhead_s(chip: str) -> float:
    """Of small matmuls beyond their FLOPs; where none is measured, the shortest kernel."""
    small = [row for row in points("gemm", chip, dtype="bf16") if row["size"] <= 512]
    if not small:
        return min(row["ms"] for row in points("small", chip)) / 1e3
    reached = matmul(chip, "bf16") * PEAKS[chip]["bf16"]
    return median(2 * row["size"] ** 3 * (1 / (row["tflops_per_s"] * 1e12) - 1 / reached) for row in small)


def norm_fraction(chip: str, rows: list[dict[str, Any]]) -> float:
    """Forward reads and writes the array once; backward reads it and its gradient and writes another."""
    moved_bytes = [2 * 128 * 768 * 768 * (3 if row["direction"] == "backward" else 2) for row in rows]
    return sum(moved_bytes) / sum(row["ms"] / 1e3 for row in rows) / PEAKS[chip]["hbm"]


def hbm(chip: str) -> float:
    copies = points("copy", chip)
    if not copies:
        return norm_fraction(chip, points("normalization", chip, axis=-1))
    return max(row["gigabytes_per_s"] for row in copies) * 1e9 / PEAKS[chip]["hbm"]


def link(chip: str) -> float:
    (row,) = points("collective", chip)
    peak = PEAKS[chip].get("nvlink") or PEAKS[chip]["link"]
    return row["gigabytes_per_s"] * 1e9 / (row["links"] * peak)


def network(chip: str) -> float:
    (row,) = points("network", chip)
    per_chip = row.get("gigabytes_per_s_per_chip") or (
        (row["gigabits_per_s_per_host_low"] + row["gigabits_per_s_per_host_high"]) / 2 / 8 / row["chips_per_host"]
    )
    return per_chip * 1e9 / PEAKS[chip]["network"]


def pcie(chip: str) -> float:
    (row,) = points("pcie", chip)
    return row["gigabytes_per_s"] * 1e9 / PEAKS[chip]["pcie"]


RECOMPUTED: dict[str, Callable[[str], float]] = {
    "matmul.bf16": lambda chip: matmul(chip, "bf16"),
    "matmul.fp8": lambda chip: matmul(chip, "fp8"),
    "matmul_overhead_s": matmul_overhead_s,
    "vector": lambda chip: norm_fraction(chip, points("normalization", chip, axis=0)),
    "hbm": hbm,
    "link": link,
    "network": network,
    "pcie": pcie,
}
FITTED = set(KERNEL_KEYS)
"""Fitted to kernel times: `tests/study/test_kernel_fit.py` fits them again."""


@pytest.mark.parametrize(("chip", "key"), [(chip, key) for chip, key in MEASURED if key in RECOMPUTED])
def test_a_measured_efficiency_follows_from_its_raw_points(chip: str, key: str) -> None:
    assert load_prior(chip).facts[key].value == pytest.approx(RECOMPUTED[key](chip), rel=ROUNDING)


def attention_parts_ms(program: str) -> tuple[float, float]:
    """Forward and backward; one backward kernel or two."""
    forward_ms, *backward_ms = [row["ms"] for row in points("attention_parts", "v6e") if row["program"] == program]
    return forward_ms, sum(backward_ms)


def test_the_backward_of_v6e_follows_from_the_times_of_its_two_kernels() -> None:
    forward_ms, backward_ms = attention_parts_ms("tokamax")
    efficiency = load_prior("v6e")

    assert efficiency.attention_backward / efficiency.attention_forward == pytest.approx(
        2.5 * forward_ms / backward_ms, rel=ROUNDING
    )


def test_a_backward_pass_in_two_kernels_takes_as_much_longer_as_was_measured_on_v6e() -> None:
    (jax_forward_ms, jax_backward_ms), (forward_ms, backward_ms) = map(attention_parts_ms, ("jax", "tokamax"))
    unfused = (jax_backward_ms / jax_forward_ms) / (backward_ms / forward_ms)

    assert slower_ratios("v6e", "flash") == (1.0, pytest.approx(unfused, rel=ROUNDING))
    assert slower_ratios("v6e", "splash") == (1.0, 1.0)


def test_quantized_matmuls_without_a_measurement_keep_what_they_keep_on_gpus() -> None:
    kept = mean(matmul(chip, "fp8") / matmul(chip, "bf16") for chip in ("h100", "b200", "b300", "gb200"))
    tpu7x = load_prior("tpu7x").matmul

    assert tpu7x["fp8"] / tpu7x["bf16"] == pytest.approx(kept, rel=ROUNDING)


def test_every_measured_efficiency_is_recomputed_here() -> None:
    assert {key for _, key in MEASURED} <= RECOMPUTED.keys() | FITTED


@pytest.mark.parametrize(("chip", "key", "lender"), BORROWED)
def test_a_borrowed_efficiency_equals_its_lenders(chip: str, key: str, lender: str) -> None:
    """`As v5p: …` borrows the same quantity of another chip, `As its fp8: …` another dtype's of this one."""
    own = lender.removeprefix("its ")
    lent = load_prior(lender).facts[key] if own == lender else load_prior(chip).facts[f"matmul.{own}"]

    assert load_prior(chip).facts[key].value == lent.value
