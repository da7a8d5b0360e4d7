"""Efficiencies of servers fitted to measurements: what a fit finds, and what ships of the last one."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from functools import cache

import numpy as np
import pytest

from ridgeline.cost.serving.calibration import parse_serving_calibration
from ridgeline.cost.serving.efficiency import PRIORS
from ridgeline.study.measured.files import published_serving_cases
from ridgeline.study.servers.observations import ServingObservation, serving_observations
from ridgeline.study.servers.parameters import SERVING_PARAMETERS
from ridgeline.study.servers.record import ServingRecord, shipped_serving_record
from ridgeline.study.servers.writing import serving_toml
from ridgeline.study.steps.fit import fit


@cache
def shipped() -> ServingRecord:
    return shipped_serving_record()


def llamas() -> list[ServingObservation]:
    those = [case for case in published_serving_cases().serving if case.chip == "v6e" and case.metric != "ttft_s"]
    return serving_observations(those)[0]


def test_a_fit_finds_the_host_that_measurements_were_made_with() -> None:
    slow = replace(PRIORS["TPU"], host_s=4 * PRIORS["TPU"].host_s)
    rows: list[ServingObservation] = []
    for row in llamas():
        measured = float(row.server.with_efficiency(slow).times().tpot_s)
        rows.append(replace(row, case=replace(row.case, metric="tpot_s", measured=measured)))
    fits = fit(rows, np.ones((1, len(rows)), dtype=np.bool_), parameters=SERVING_PARAMETERS)
    keys = [parameter.key for parameter in SERVING_PARAMETERS]

    assert fits.chips == ("v6e vllm",)
    assert fits.factors[0, 0, keys.index("host_s")] > 1.3
    assert fits.expected_s[0] == pytest.approx([row.measured_s for row in rows], rel=0.16)


def test_the_factors_of_kind_chip_and_engine_make_up_that_of_a_row_and_are_written_as_such() -> None:
    rows = llamas()
    fits = fit(rows, np.ones((1, len(rows)), dtype=np.bool_), parameters=SERVING_PARAMETERS)
    interval = dict.fromkeys(PRIORS, dict.fromkeys(("token", "experts", "first", "unseen_chip", "unseen_engine"), 0.1))
    text = serving_toml(rows, fits, interval, fitted_on=date(2026, 1, 1))["TPU.toml"]
    found = parse_serving_calibration(text, where="TPU.toml").efficiency("v6e", "vllm")

    assert found.host_s == pytest.approx(PRIORS["TPU"].host_s * fits.factors[0, 0, 9], rel=0.02)


def test_llama_70b_on_eight_v6e_is_told_within_a_tenth_by_a_fit_that_did_not_see_it() -> None:
    rows = [row for row in shipped().rows if row.case.id.startswith("v6e-llama3.3-70b") and row.case.metric != "ttft_s"]

    assert len(rows) == 4
    assert all(row.expected["clusters"] == pytest.approx(row.case.measured, rel=0.1) for row in rows)


def test_eight_of_ten_servers_lie_inside_their_intervals() -> None:
    found = shipped().scores("clusters", ("tpot_s", "output_tokens_per_s_per_chip"))

    assert found["GPU"].interval_coverage == pytest.approx(0.8, abs=0.06)
    assert found["TPU"].interval_coverage > 0.7  # sixteen servers


def test_every_measurement_that_ships_and_can_be_estimated_is_in_the_record() -> None:
    assert len(shipped().rows) > 1250
