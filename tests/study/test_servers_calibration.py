"""Efficiencies of servers fitted to measurements: what a fit finds, and what ships of the last one."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import date
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ridgeline.cost.serving.calibration import (
    load_serving_calibration,
    load_serving_uncertainty,
    parse_serving_calibration,
)
from ridgeline.cost.serving.efficiency import PRIORS
from ridgeline.search.serving.interval import serving_half_width, serving_widened_by
from ridgeline.study.measured.files import published_serving_cases
from ridgeline.study.servers.interval import SERVER_SCHEMES
from ridgeline.study.servers.observations import ServingObservation, serving_observations
from ridgeline.study.servers.parameters import SERVING_PARAMETERS
from ridgeline.study.servers.record import shipped_serving_record
from ridgeline.study.servers.writing import serving_toml
from ridgeline.study.steps.fit import fit

if TYPE_CHECKING:
    from ridgeline.study.measured.serving_case import ServingCase
    from ridgeline.study.steps.record import Record


@cache
def shipped() -> Record[ServingCase]:
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
    assert fits.expected_s[0] == pytest.approx([row.case.measured_s for row in rows], rel=0.16)


def test_the_factors_of_kind_chip_and_engine_make_up_that_of_a_row_and_are_written_as_such() -> None:
    rows = llamas()
    fits = fit(rows, np.ones((1, len(rows)), dtype=np.bool_), parameters=SERVING_PARAMETERS)
    text = serving_toml(rows, fits, fitted_on=date(2026, 1, 1))["TPU.toml"]
    found = parse_serving_calibration(text, where="TPU.toml").efficiency("v6e", "vllm")

    host = [parameter.key for parameter in fits.parameters].index("host_s")
    assert found.host_s == pytest.approx(PRIORS["TPU"].host_s * fits.factors[0, 0, host], rel=0.02)


def test_llama_70b_on_eight_v6e_is_told_within_a_tenth_by_a_fit_that_did_not_see_it() -> None:
    rows = [row for row in shipped().rows if row.case.id.startswith("v6e-llama3.3-70b") and row.case.metric != "ttft_s"]

    assert len(rows) == 4
    assert all(row.scored.expected == pytest.approx(row.case.measured, rel=0.1) for row in rows)


@pytest.mark.parametrize("scheme", [each.name for each in SERVER_SCHEMES])
def test_eight_of_ten_servers_lie_inside_their_intervals_whatever_the_fit_did_not_see(scheme: str) -> None:
    found = shipped().scores[scheme]

    assert found["GPU_token"].interval_coverage == pytest.approx(0.8, abs=0.06)
    # Fifteen servers. Of a model that is left out it is 67.8%, which no bound asked for before.
    assert found["TPU_token"].interval_coverage > (0.65 if scheme == "models" else 0.7)


def test_an_interval_is_as_wide_as_the_record_says_for_each_thing_that_was_never_measured() -> None:
    known = load_serving_uncertainty()
    job = llamas()[0].case.job
    unseen = replace(job, model=replace(job.model, name="unheard-of"))

    h, wider = (serving_half_width(each, job.plan.dtypes, "vllm", is_first=False) for each in (job, unseen))

    measured = known.measured_jobs["TPU_token"]["model"][job.model.name]
    of_model = known.values["TPU_token.unseen_model"]
    assert wider**2 - h**2 == pytest.approx(of_model**2 * (1 - 1 / (1 + measured)))
    assert "no measured server of unheard-of on TPUs" in serving_widened_by(unseen, job.plan.dtypes, "vllm")


def test_a_calibration_of_ones_own_servers_begins_with_what_ships_and_keeps_what_it_says_of_other_chips() -> None:
    rows = serving_observations([row.case for row in llamas()], prior_of=load_serving_calibration)[0]
    nothing = fit(rows, np.zeros((1, len(rows)), dtype=np.bool_), parameters=SERVING_PARAMETERS)

    text = serving_toml(rows, nothing, before=load_serving_calibration, fitted_on=date(2026, 1, 1))["TPU.toml"]

    written, shipped_one = parse_serving_calibration(text, where="TPU.toml"), load_serving_calibration("TPU")
    for chip in ("v6e", "tpu7x", "v5e", "v5p"):
        for key, value in asdict(shipped_one.efficiency(chip, "vllm")).items():
            assert getattr(written.efficiency(chip, "vllm"), key) == pytest.approx(value, rel=0.02)


def test_every_measurement_that_ships_and_can_be_estimated_is_in_the_record() -> None:
    assert len(shipped().rows) > 1250
