"""Every measured efficiency is recomputed from the raw points; every borrowed one equals its lender's.

The raw points stand in `data/kernel_points.json` with their sources. A measured number that nothing here
recomputes fails the last test but one, so that no number is merely typed in.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from statistics import harmonic_mean, mean, median
from typing import TYPE_CHECKING, Any

import pytest

from ridgeline.cost.calibration import calibrated_chips, load_efficiency

if TYPE_CHECKING:
    from collections.abc import Callable

POINTS: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "kernel_points.json").read_text(encoding="utf-8"))
PEAKS: dict[str, dict[str, float]] = POINTS["peaks"]
ROUNDING = 0.006  # three digits
ATTENTION_SCATTER = 0.06

FACTS = [(chip, key, fact) for chip in calibrated_chips() for key, fact in load_efficiency(chip).facts.items()]
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


def grouped_matmul(chip: str) -> float:
    """A training step does as many FLOPs in each of the three products."""
    products: dict[str, list[float]] = defaultdict(list)
    for row in points("grouped_matmul", chip):
        products[row["product"]].append(matmul_fraction(chip, row))
    return harmonic_mean([median(fractions) for fractions in products.values()])


def attention_rows(chip: str, direction: str) -> list[dict[str, Any]]:
    """Splash attention where it was measured, as MaxText uses it; else the flash kernel."""
    rows = points("attention", chip, direction=direction, head_dim=128)
    return [row for row in rows if row["kernel"] == "splash"] or rows


def attention_s(chip: str, row: dict[str, Any]) -> float:
    """The model that the calibration states: visited pairs, at the chip's fraction of the peak."""
    efficiency = load_efficiency(chip)
    backward = row["direction"] == "backward"
    visited = row["seq_len"] * (row["seq_len"] + efficiency.attention_block) / 2
    flops = 4 * row["batch"] * row["num_heads"] * row["head_dim"] * visited * (2.5 if backward else 1)
    fraction = efficiency.attention_backward if backward else efficiency.attention_forward
    return flops / (PEAKS[chip]["bf16"] * fraction)


def attention_head_dim(chip: str, head_dim: int) -> float:
    ratios = []
    for seq_len in (8192, 16384):
        rows = points("attention", chip, kernel="flash", direction="forward", seq_len=seq_len)
        rate = {r["head_dim"]: r["num_heads"] * r["head_dim"] / r["ms"] for r in rows if r["batch"] * seq_len == 16384}
        ratios.append(rate[head_dim] / rate[128])
    return (ratios[0] * ratios[1]) ** 0.5


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
    "grouped_matmul": grouped_matmul,
    "attention_head_dim.64": lambda chip: attention_head_dim(chip, 64),
    "attention_head_dim.256": lambda chip: attention_head_dim(chip, 256),
    "vector": lambda chip: norm_fraction(chip, points("normalization", chip, axis=0)),
    "hbm": hbm,
    "link": link,
    "network": network,
    "pcie": pcie,
}
FITTED = {"attention_forward", "attention_backward", "attention_block"}


@pytest.mark.parametrize(("chip", "key"), [(chip, key) for chip, key in MEASURED if key in RECOMPUTED])
def test_a_measured_efficiency_follows_from_its_raw_points(chip: str, key: str) -> None:
    assert load_efficiency(chip).facts[key].value == pytest.approx(RECOMPUTED[key](chip), rel=ROUNDING)


@pytest.mark.parametrize(
    ("chip", "direction"),
    [(chip, key.removeprefix("attention_")) for chip, key in MEASURED if key in FITTED - {"attention_block"}],
)
def test_two_numbers_give_every_attention_time_within_six_percent_and_none_to_one_side(
    chip: str, direction: str
) -> None:
    errors = [attention_s(chip, row) / (row["ms"] / 1e3) - 1 for row in attention_rows(chip, direction)]

    assert max(map(abs, errors)) < ATTENTION_SCATTER
    assert abs(mean(errors)) < 0.005


@pytest.mark.parametrize("chip", [chip for chip, key in MEASURED if key == "attention_block"])
def test_no_other_block_explains_the_attention_times_better(chip: str) -> None:
    rows = {direction: attention_rows(chip, direction) for direction in ("forward", "backward")}

    def scatter(block: float) -> float:
        total = 0.0
        for group in filter(None, rows.values()):
            costs = [r["ms"] / r["batch"] / r["num_heads"] / r["seq_len"] / (r["seq_len"] + block) for r in group]
            total += sum((cost / mean(costs) - 1) ** 2 for cost in costs)
        return total

    block = load_efficiency(chip).attention_block
    assert scatter(block) <= min(scatter(0.9 * block), scatter(1.1 * block))


def test_the_backward_of_v6e_follows_from_the_times_of_its_three_kernels() -> None:
    forward_ms, *backward_ms = [row["ms"] for row in points("attention_parts", "v6e")]
    efficiency = load_efficiency("v6e")

    assert efficiency.attention_backward / efficiency.attention_forward == pytest.approx(
        2.5 * forward_ms / sum(backward_ms), rel=ROUNDING
    )


def test_quantized_matmuls_without_a_measurement_keep_what_they_keep_on_gpus() -> None:
    kept = mean(matmul(chip, "fp8") / matmul(chip, "bf16") for chip in ("h100", "b200", "b300", "gb200"))
    tpu7x = load_efficiency("tpu7x").matmul

    assert tpu7x["fp8"] / tpu7x["bf16"] == pytest.approx(kept, rel=ROUNDING)


def test_every_measured_efficiency_is_recomputed_here() -> None:
    assert {key for _, key in MEASURED} <= RECOMPUTED.keys() | FITTED


@pytest.mark.parametrize(("chip", "key", "lender"), BORROWED)
def test_a_borrowed_efficiency_equals_its_lenders(chip: str, key: str, lender: str) -> None:
    """`As v5p: …` borrows the same quantity of another chip, `As its fp8: …` another dtype's of this one."""
    own = lender.removeprefix("its ")
    lent = load_efficiency(lender).facts[key] if own == lender else load_efficiency(chip).facts[f"matmul.{own}"]

    assert load_efficiency(chip).facts[key].value == lent.value
