"""Kernel parameters are fitted to part of the measured kernels, and hold on the rest."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from functools import cache

import numpy as np
import pytest

from ridgeline.cost.calibration import calibrated_chips, load_prior, parse_efficiency
from ridgeline.hardware.catalog import load_chip
from ridgeline.report.kernels import residual_table
from ridgeline.study.kernels.calibrate import KernelCalibration, calibrate_kernels
from ridgeline.study.kernels.fit import KernelFit, fit_kernels
from ridgeline.study.kernels.fitting import fit_positive
from ridgeline.study.kernels.models import columns_of, device_of, predicted_s
from ridgeline.study.kernels.reading import KernelTable, read_published
from ridgeline.study.kernels.times import KernelTime, fastest
from ridgeline.study.kernels.writing import KERNEL_KEYS
from tests.structure.source import ROOT

MEASURED = ("tpu7x", "v6e", "v5p", "h100", "a100-40gb", "b200")
KERNEL_FACTS = [(chip, key) for chip in calibrated_chips() for key in KERNEL_KEYS]


@cache
def tables() -> tuple[KernelTable, ...]:
    return read_published()


@cache
def calibration() -> KernelCalibration:
    return calibrate_kernels(tables(), fitted_on=date(2026, 11, 30))


def table() -> KernelTable:
    return tables()[0]


def fit(chip: str) -> KernelFit:
    return next(each for each in calibration().fits if each.chip == chip)


A_TIME = KernelTime(
    chip="tpu7x",
    kernel="loss",
    variant="forward",
    sizes={"B": 1024.0, "D": 4096.0, "F": 151936.0},
    measured_s=1e-3,
    program="one",
    source="a page",
)


@pytest.mark.parametrize(("chip", "key"), KERNEL_FACTS)
def test_a_kernel_parameter_of_a_calibration_file_is_the_one_that_a_fit_finds_or_lends(chip: str, key: str) -> None:
    """Up to the last digit, in which processors differ."""
    written, found = load_prior(chip).facts[key], calibration().facts[chip][key]

    assert written.value == pytest.approx(found.value, rel=0.006)
    assert written.kind == found.kind


@pytest.mark.parametrize("chip", calibrated_chips())
def test_a_written_calibration_reads_as_the_facts_it_states(chip: str) -> None:
    facts = calibration().facts[chip]

    assert dict(parse_efficiency(calibration().files[chip], where=chip).facts) == dict(facts)


def test_what_kernel_times_do_not_settle_stays_as_it_was() -> None:
    for chip in calibrated_chips():
        before, after = load_prior(chip).facts, calibration().facts[chip]

        assert {key: fact for key, fact in after.items() if key not in KERNEL_KEYS} == {
            key: fact for key, fact in before.items() if key not in KERNEL_KEYS
        }


def test_the_page_shows_the_residuals_as_they_are() -> None:
    """`python -m tests.measured kernels` prints the table."""
    page = (ROOT / "docs" / "calibration.md").read_text(encoding="utf-8")

    assert residual_table(calibration().fits) in page


@pytest.mark.parametrize("chip", ["tpu7x", "v6e"])
def test_cubes_that_no_fit_saw_are_predicted_within_a_tenth(chip: str) -> None:
    assert fit(chip).residual("matmul", "bf16").median_error < 0.1


def test_cubes_of_tpu7x_between_small_and_large_take_what_their_first_tiles_take_to_arrive() -> None:
    """1,024, 2,048, 4,096 and 16,384, by the publisher's table: 6.1, 25.3, 153.9 and 9,258 us."""
    efficiency, chip = load_prior("tpu7x"), load_chip("tpu7x")
    device = device_of(chip)
    parameters = {key: fact.value for key, fact in efficiency.facts.items()}
    cubes = np.array([1024.0, 2048.0, 4096.0, 16384.0])

    times_s = predicted_s(("matmul", "bf16"), {"B": cubes, "D": cubes, "F": cubes}, parameters, device)

    assert times_s * 1e6 == pytest.approx([6.14, 25.3, 153.9, 9258], rel=0.025)


@pytest.mark.parametrize("chip", MEASURED)
def test_most_held_out_attention_and_loss_times_are_predicted_within_a_tenth(chip: str) -> None:
    """But for v6e's loss, whose XLA program writes its logits in several ways."""
    shown = [each for each in fit(chip).residuals if each.kernel in ("attention", "loss") and each.num_held_out]
    allowed = {("v6e", "loss", "forward"): 0.14}

    assert {
        (each.kernel, each.variant): each.median_error
        for each in shown
        if each.median_error > allowed.get((chip, each.kernel, each.variant), 0.1)
    } == {}


@pytest.mark.parametrize("chip", ["v6e", "v5p", "h100", "b200"])
def test_most_held_out_grouped_matmuls_are_predicted_within_a_tenth(chip: str) -> None:
    shown = [each for each in fit(chip).residuals if each.kernel == "grouped_matmul"]

    assert len(shown) == 3
    assert all(each.median_error < 0.1 for each in shown)


@pytest.mark.parametrize("chip", ["tpu7x", "v5p"])
def test_a_gated_unit_on_a_tpu_takes_its_products_and_a_pass_without_a_parameter_of_its_own(chip: str) -> None:
    assert fit(chip).residual("gated_unit", "forward").p90_error < 0.06


def test_more_rows_an_expert_bring_a_grouped_matmul_nearer_to_its_fraction() -> None:
    """On TPU7x the weight gradient reaches 0.23 of the peak at 256 rows an expert, and 0.60 at 4,096."""
    efficiency = load_prior("tpu7x")
    fraction, edge = efficiency.grouped_matmul["weight_gradient"], efficiency.grouped_edge_rows["weight_gradient"]

    reached = [fraction / (1 + edge / rows) for rows in (256, 4096)]

    assert reached == pytest.approx([0.23, 0.60], rel=0.1)


@pytest.mark.parametrize("chip", ["tpu7x", "v6e", "v5p"])
def test_a_grouped_matmul_of_widths_that_end_within_a_register_takes_what_was_measured(chip: str) -> None:
    """Both of 2,880; without the factor, once for each, a product took 1.2 (v5p) to 1.9 (v6e) times its estimate."""
    parameters = {key: fact.value for key, fact in load_prior(chip).facts.items()}
    partial = [time for time in table().times if time.chip == chip and time.sizes.get("F") == 2880.0]
    ratios = [
        float(predicted_s((time.kernel, time.variant), columns_of([time]), parameters, device_of(load_chip(chip)))[0])
        / time.measured_s
        for time in partial
        if time.kernel == "grouped_matmul"
    ]

    assert len(ratios) == 3
    assert ratios == pytest.approx([1.0] * 3, abs=0.1)


def test_a_question_is_held_out_on_every_chip_or_on_none() -> None:
    sides: dict[str, set[bool]] = {}
    for time in table().times:
        sides.setdefault(time.question, set()).add(time.is_held_out)

    assert all(len(side) == 1 for side in sides.values())
    assert 0.2 < np.mean([next(iter(side)) for side in sides.values()]) < 0.45


def test_no_row_is_dropped_silently() -> None:
    assert table().num_rows == 12_053
    assert {operation for operation in table().not_used if "ragged_dot" in operation} >= {"ragged_dot"}
    assert table().not_used["batched_rpa"] == 65


def test_held_out_times_do_not_move_a_fit() -> None:
    chip = load_chip("b200")
    prior = {key: fact.value for key, fact in load_prior("b200").facts.items()}
    seen = [time for time in table().times if not time.is_held_out]

    assert fit_kernels(seen, chip, prior=prior).facts == fit("b200").facts


def test_too_few_times_leave_a_parameter_at_its_prior() -> None:
    keys = {fact.key for fact in fit("a100-40gb").facts}

    assert not any(key.startswith("grouped_matmul") for key in keys)


def test_the_fastest_program_answers_a_question() -> None:
    slow, fast = replace(A_TIME, measured_s=2e-3), replace(A_TIME, program="other")

    assert fastest([slow, fast]) == (fast,)


def test_an_outlier_does_not_pull_a_fit() -> None:
    rows = np.array([1.0, 2.0, 3.0, 4.0, 5.0])

    found = fit_positive(
        lambda p: p["slope"] * rows + p["start"],
        np.array([3.0, 5.0, 7.0, 9.0, 110.0]),
        start={"slope": 1.0, "start": 0.5},
        largest={},
    )

    assert found == pytest.approx({"slope": 2.0, "start": 1.0}, rel=0.06)
