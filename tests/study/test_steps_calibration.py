"""Fitting few efficiencies to measured steps: known ones are found, unknown ones stay, no fold sees what it tests."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ridgeline.cost.calibration import load_prior, parse_uncertainty, with_own_facts
from ridgeline.cost.uncertainty import PARTS, STEP_TERMS, Uncertainty, half_width_fraction, part_shares
from ridgeline.errors import InputError
from ridgeline.job.reading import read_job
from ridgeline.search.interval import widened_by
from ridgeline.search.train import cost_pinned, train
from ridgeline.study.measured.case import MeasuredCase
from ridgeline.study.steps import interval
from ridgeline.study.steps.cross_validation import SCHEMES, folds, held_out_s
from ridgeline.study.steps.evidence import Evidence, count_jobs
from ridgeline.study.steps.fit import fit
from ridgeline.study.steps.observations import observations
from ridgeline.study.steps.parameters import PARAMETERS, with_factors
from ridgeline.study.steps.record import Estimate, RecordedRow, read_record, record_csv, shipped_record
from ridgeline.study.steps.writing import steps_toml, uncertainty_toml

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.study.steps.observations import Observation

TODAY = __import__("datetime").date(2026, 11, 30)
MODELS = ("llama2-7b", "llama3.1-8b", "llama2-13b")
SLICES = {"v5e:4x4": 16, "v5e:8x8": 64, "v6e:4x4": 16, "v6e:8x8": 64}
FITTED = tuple(each for each in PARAMETERS if each.key in ("sustained", "elementwise", "network"))


def case(model: str, on: str, *, step_s: float, seq_len: int = 2048) -> MeasuredCase:
    """A measured step of FSDP over one slice: nothing crosses the network."""
    devices = SLICES[on]
    job = read_job(model, _settings(on, devices, seq_len))
    return MeasuredCase(
        id=f"{model} {on} {seq_len}", job=job, metric="step_time_s", measured=step_s, source="synthetic", quality="A"
    )


def _settings(on: str, devices: int, seq_len: int):  # noqa: ANN202 - a tuple of settings, typed where it is made
    from ridgeline.job.origin import settings

    said = {"on": on, "global_batch": 4 * devices, "seq_len": seq_len, "mesh": f"fsdp={devices}", "remat": "full"}
    return settings(said, written=str)  # pyright: ignore[reportArgumentType] - keys are checked when read


@cache
def rows(sustained: float = 0.9) -> tuple[Observation, ...]:
    """Steps of a world in which chips sustain less than their kernels alone; everything else is as the priors say."""
    blank = [case(model, on, step_s=1.0, seq_len=seq) for model in MODELS for on in SLICES for seq in (2048, 4096)]
    ready, left_out = observations(blank)
    assert not left_out
    return tuple(
        replace(row, case=replace(row.case, measured=float(row.expected_s({"sustained": np.array([sustained])})[0])))
        for row in ready
    )


def everything(count: int) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    return np.ones((1, count), dtype=np.bool_)


def test_a_trial_of_many_factors_is_many_trials_of_one() -> None:
    row = rows()[0]
    trials = np.array([0.8, 1.0, 1.1])

    together = row.expected_s({"sustained": trials, "elementwise": trials})

    apart = [float(row.expected_s({"sustained": np.array([t]), "elementwise": np.array([t])})[0]) for t in trials]
    assert together == pytest.approx(apart, rel=1e-12)


def test_factors_of_one_are_the_estimate_itself() -> None:
    row = rows()[0]

    assert with_factors(row.prior, {each.key: np.ones(1) for each in PARAMETERS}).matmul["bf16"] == pytest.approx(
        row.prior.in_whole_steps.matmul["bf16"]
    )


def test_a_fit_finds_the_parameter_that_made_the_steps() -> None:
    measured = rows()

    fits = fit(measured, everything(len(measured)), parameters=FITTED)

    found = fits.factors[0, :, 0]
    assert found == pytest.approx(0.9, abs=0.03)
    assert fits.expected_s[0] == pytest.approx([row.case.step_s for row in measured], rel=0.01)


def test_what_no_step_depends_on_stays_at_its_prior_and_as_uncertain_as_before() -> None:
    measured = rows()

    fits = fit(measured, everything(len(measured)), parameters=FITTED)

    network = [each.key for each in FITTED].index("network")
    assert fits.factors[0, :, network] == pytest.approx(1.0)
    assert fits.deviations[0, :, network] == pytest.approx(FITTED[network].deviation)


def test_what_is_held_does_not_move() -> None:
    measured = rows()

    fits = fit(measured, everything(len(measured)), parameters=FITTED, held=frozenset({("TPU", "sustained")}))

    assert fits.factors[0, :, 0] == pytest.approx(1.0, abs=1e-3)


def test_one_absurd_measurement_does_not_bend_the_fit() -> None:
    measured = list(rows())
    measured[0] = replace(measured[0], case=replace(measured[0].case, measured=20 * measured[0].case.measured))

    fits = fit(measured, everything(len(measured)), parameters=FITTED)

    assert fits.factors[0, :, 0] == pytest.approx(0.9, abs=0.03)


def test_a_chip_with_few_steps_follows_its_relatives() -> None:
    measured = [row for row in rows() if row.case.chip == "v5e"] + [row for row in rows() if row.case.chip == "v6e"][:1]

    fits = fit(measured, everything(len(measured)), parameters=FITTED)

    v5e, v6e = (fits.factors[0, fits.chips.index(chip), 0] for chip in ("v5e", "v6e"))
    assert v5e == pytest.approx(0.9, abs=0.02)
    assert v5e - 0.02 < v6e < 0.96


def test_no_fold_sees_the_part_that_it_tests() -> None:
    measured = rows()

    folded = folds(measured)

    assert folded.selections[0].all()
    for scheme in SCHEMES:
        for index, row in enumerate(measured):
            seen_by = folded.selections[folded.unseen_by[scheme.name][index]]
            if not scheme.part(row.case):
                continue
            together = [scheme.part(row.case) == scheme.part(other.case) for other in measured]
            assert not seen_by[together].any()
            assert seen_by[~np.array(together)].all()


def test_a_changed_measurement_does_not_change_its_own_held_out_estimate() -> None:
    measured = list(rows())
    changed = [*measured[:-1], replace(measured[-1], case=replace(measured[-1].case, measured=1.2))]
    schemes = SCHEMES[:1]

    before, after = (
        held_out_s(fit(those, folds(those, schemes).selections, parameters=FITTED), folds(those, schemes), "clusters")
        for those in (measured, changed)
    )

    assert after[-1] == pytest.approx(before[-1], rel=1e-9)
    assert any(abs(new / old - 1) > 1e-6 for new, old in zip(after[:-1], before[:-1], strict=True))


def test_coverage_counts_a_cluster_once() -> None:
    errors = np.log([1.05, 1.3, 1.3, 1.3])
    weights = np.array([1.0, 1 / 3, 1 / 3, 1 / 3])

    assert interval.coverage(errors, np.full(4, 0.1), weights) == pytest.approx(0.5)
    assert interval.coverage(errors, np.full(4, 0.31), weights) == pytest.approx(1.0)


TERMS = STEP_TERMS.names
PRIORS = np.array([interval.PRIORS[term] for term in TERMS])
WIDER = {"families": 0.3, "chips": 0.02}


def world(jobs: int, *, scheme: str = "clusters", spread: float = 0.0) -> Evidence:
    """Held-out jobs whose errors are as wide as their arithmetic and memory say, and wider by what was left out."""
    random = np.random.default_rng(jobs)
    squares = np.zeros((jobs, len(TERMS)))
    squares[:, TERMS.index("arithmetic")] = random.uniform(0.2, 0.9, jobs) ** 2
    squares[:, TERMS.index("memory")] = (1 - np.sqrt(squares[:, TERMS.index("arithmetic")])) ** 2
    truth = np.where(
        [term == "memory" for term in TERMS], 0.4, np.where([term == "arithmetic" for term in TERMS], 0.05, 0)
    )
    for each in SCHEMES:
        if each.name == scheme and each.trait is not None:
            squares[:, TERMS.index(f"unseen_{each.trait}")] = 1.0
    factors = random.normal(size=jobs) * np.sqrt(squares @ truth**2 + spread**2) / 1.2816
    return Evidence(
        schemes=np.array([scheme] * jobs),
        rows=np.arange(jobs),
        tenths=np.array([str(number % 10) for number in range(jobs)]),
        errors=np.sign(factors) * np.log1p(np.abs(factors)),
        squares=squares,
        weights=np.ones(jobs),
    )


def together(*parts: Evidence) -> Evidence:
    names = ("schemes", "rows", "tenths", "errors", "squares", "weights")
    return Evidence(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


def test_fitted_uncertainties_cover_eight_of_ten_of_every_kind_of_held_out_jobs() -> None:
    told = together(world(400), *(world(400, scheme=name, spread=spread) for name, spread in WIDER.items()))

    found = interval.fit_uncertainties(told, PRIORS)

    of_part = dict(zip(TERMS, found, strict=True))
    assert of_part["arithmetic"] < of_part["memory"]
    assert of_part["unseen_chip"] < of_part["unseen_model"] == pytest.approx(0.3, abs=0.06)
    for name in ("clusters", "families"):
        those = told.of_scheme(name)
        assert interval.coverage(those.errors, those.half_widths(found), those.weights) == pytest.approx(0.8, abs=0.02)


def test_what_was_never_left_out_keeps_its_prior_uncertainty() -> None:
    found = interval.fit_uncertainties(world(100), PRIORS)

    assert found[TERMS.index("unseen_precision")] == pytest.approx(interval.PRIORS["unseen_precision"])


@pytest.mark.parametrize("jobs", [1, 3])
def test_few_jobs_that_lie_close_by_chance_do_not_narrow_the_interval_much(jobs: int) -> None:
    sure = replace(world(jobs), errors=np.full(jobs, 0.001))

    found = interval.fit_uncertainties(sure, PRIORS)

    assert np.all(sure.half_widths(found) > 0.3 * sure.half_widths(PRIORS))


def test_many_jobs_do_narrow_the_interval() -> None:
    sure = replace(world(200), errors=np.full(200, 0.01))

    assert np.median(sure.half_widths(interval.fit_uncertainties(sure, PRIORS))) < 0.02


def test_no_job_leaves_uncertainties_as_they_were() -> None:
    nothing = world(4).where(np.zeros(4, dtype=np.bool_))

    assert interval.fit_uncertainties(nothing, PRIORS) is PRIORS


def test_widths_of_a_tenth_are_those_of_the_others() -> None:
    told = replace(world(100), errors=np.full(100, 0.05), tenths=np.array(["0", "1"] * 50))
    changed = replace(told, errors=np.where(told.tenths == "0", 0.5, told.errors))

    before, after = (interval.cross_validated_widths(each, PRIORS) for each in (told, changed))

    assert after[told.tenths == "0"] == pytest.approx(before[told.tenths == "0"])
    assert np.all(after[told.tenths == "1"] > before[told.tenths == "1"])


def test_the_fewer_measured_jobs_had_a_trait_the_wider_the_interval() -> None:
    values = {"TPU.arithmetic": 0.05, "TPU.unseen_chip": 0.12}
    known = Uncertainty(values=values, measured_jobs={"TPU": {"chip": {"v5e": 1000, "v4": 3}}}, facts={})

    many, few, none = (
        half_width_fraction(share_of_part={"arithmetic": 1.0}, uncertainty=known, series="TPU", traits={"chip": chip})
        for chip in ("v5e", "v4", "v3")
    )

    assert many == pytest.approx(0.05, abs=0.001)
    assert few == pytest.approx((0.05**2 + 0.06**2) ** 0.5)
    assert none == pytest.approx(0.13)


def test_jobs_are_counted_however_often_they_were_measured() -> None:
    cases = [row.case for row in rows()]

    counts = count_jobs([*cases, replace(cases[0], id="again")])

    assert counts["chip"] == {"v5e": 12, "v6e": 12}
    assert counts["model"] == {"llama": 24}
    assert counts["parallelism"] == {"fsdp": 24}
    assert counts["scale"] == {"9 to 64": 24}


def test_shares_of_the_parts_of_a_step_are_the_whole_step() -> None:
    step = rows()[0].step(rows()[0].prior.in_whole_steps)

    shares = part_shares(step, has_experts=False, embed_dim=4096)

    assert sum(shares[part] for part in PARTS) == pytest.approx(1.0)
    assert (shares["anything"], shares["experts"], shares["narrow"]) == (1.0, 0.0, 0.5)


def test_what_was_never_measured_is_said_and_widens_the_interval() -> None:
    seen, unseen = (
        train(read_job("llama3.1-8b", _settings(on, devices, 2048)))
        for on, devices in (("v5e:4x4", 16), ("v3:4x4", 32))
    )

    said = [[line for line in answer.assumptions if "the interval is wider" in line] for answer in (seen, unseen)]
    assert said[0] == []
    assert said[1] == ["the interval is wider, as there is no measured job on v3"]
    assert unseen.best.step.widened_by == ("no measured job on v3",)
    assert all(each.step.widened_by for each in unseen.alternatives)


def test_a_way_to_split_that_no_job_had_is_said_of_the_plan_that_has_it() -> None:
    job = read_job("mixtral-8x7b", _settings("v5e:4x4", 16, 2048))

    (said,) = [each for each in widened_by(job, {"fsdp": 4, "ep": 2, "tp": 2}) if "split" in each]

    assert said == "no measured job split by ep and tp on TPUs"


def test_what_is_written_reads_back_over_the_prior() -> None:
    measured = rows()
    fits = fit(measured, everything(len(measured)), parameters=FITTED)

    files = steps_toml(measured, fits, held=frozenset({("TPU", "network")}), fitted_on=TODAY)

    assert set(files) == {"v5e.toml", "v6e.toml"}
    efficiency = with_own_facts(load_prior("v5e"), files["v5e.toml"], where="v5e.toml")
    assert efficiency.sustained == pytest.approx(0.9, abs=0.02)
    assert efficiency.network == load_prior("v5e").network
    fact = efficiency.facts["sustained"]
    assert fact.kind == "measured"
    assert fact.source == "synthetic"
    assert "12 steps" in fact.note
    assert TODAY.isoformat() in fact.note


def test_uncertainties_read_back_with_the_jobs_that_they_rest_on() -> None:
    measured = rows()
    values: Mapping[str, float] = {f"{kind}.{term}": 0.1 for kind in ("TPU", "GPU") for term in TERMS}
    jobs = {"TPU": count_jobs(row.case for row in measured), "GPU": {}}

    text = uncertainty_toml([row.case for row in measured], values, jobs, fitted_on=TODAY)["uncertainty.toml"]

    known = parse_uncertainty(text, where="uncertainty.toml")
    assert known.values == values
    assert known.measured_jobs["TPU"] == jobs["TPU"]
    assert known.measured_jobs["GPU"]["chip"] == {}
    assert known.facts["GPU.memory"].kind == "derived"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("x = 1", "1"),
        ("[TPU.arithmetic]\nvalue = 0.1\nkind = 'measured'\nsource = 'x'", "missing"),
        ("[TPU.colour]\nvalue = 0.1\nkind = 'measured'\nsource = 'x'", ""),
    ],
)
def test_a_malformed_file_of_uncertainties_is_refused(text: str, value: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_uncertainty(text, where="mine.toml")

    assert "mine.toml" in caught.value.where
    assert value in str(caught.value.value)


@pytest.mark.parametrize(
    "counts",
    [
        "measured_jobs = 3",
        "[[measured_jobs]]",
        "[measured_jobs]\nTPU = []",
        "[measured_jobs.TPU]\nchip = 1",
        "[measured_jobs.TPU.colour]",
        "[measured_jobs.TPU.chip]\nv5e = -1",
        "[measured_jobs.TPU.chip]\nv5e = 1.5",
    ],
)
def test_malformed_counts_of_measured_jobs_are_refused(counts: str) -> None:
    values = {f"{kind}.{term}": 0.1 for kind in ("TPU", "GPU") for term in TERMS}
    text = uncertainty_toml([], values, {}, fitted_on=TODAY)["uncertainty.toml"]
    parse_uncertainty(text, where="mine.toml")

    with pytest.raises(InputError, match="counts of measured jobs"):
        parse_uncertainty(f"{counts}\n{text}", where="mine.toml")


def test_a_record_reads_back_and_is_scored_in_step_times() -> None:
    measured = rows()[0].case
    row = RecordedRow(
        case=measured,
        estimates={
            "clusters": Estimate(expected_s=1.1 * measured.step_s, half_width=0.2),
            "in_sample": Estimate(expected_s=measured.step_s, half_width=0.1),
        },
    )

    (found,) = read_record(record_csv([row]), [measured])

    assert found.scored.error == pytest.approx(0.1, abs=1e-5)
    assert found.scored.is_covered
    assert found.scored.width == pytest.approx(1.2 - 1 / 1.2)
    assert found.scored_by("in_sample").width == pytest.approx(1.1 - 1 / 1.1)
    assert "families" not in found.estimates


def test_a_record_of_a_case_that_is_gone_is_left_out() -> None:
    row = RecordedRow(case=rows()[0].case, estimates={"clusters": Estimate(expected_s=1.0, half_width=0.2)})

    assert read_record(record_csv([row]), []) == ()


def test_the_record_that_ships_is_of_the_calibration_that_ships() -> None:
    """Else the physics have moved on: fit again with `ridgeline calibrate --from published`."""
    record = shipped_record()

    moved = [
        abs(cost_pinned(row.case.job).step.expected_s / row.estimates["in_sample"].expected_s - 1)
        for row in record.rows[::20]
    ]

    assert len(record.rows) > 500
    assert np.median(moved) < 0.01
