"""The answer to a training question on the screen and as JSON."""

import json
import math
from dataclasses import replace
from typing import Literal

import pytest

import ridgeline
from ridgeline.cost.work import Part, in_sequence
from ridgeline.job.job import Quantization
from ridgeline.report.blocks import Bars, Facts, Table
from ridgeline.report.terminal import render
from ridgeline.report.train import time_shares_s, train_json, train_report
from ridgeline.search.answer import Rejected, RunEstimate, TrainAnswer


@pytest.fixture(scope="module")
def answer() -> TrainAnswer:
    return ridgeline.train("llama3.1-8b", on="v6e:8x8", global_batch=256, seq_len=8192, tokens="1T")


def leaf(name: str, phase: str, expected_s: float, resource: str = "compute") -> Part:
    return Part(name=name, phase=phase, expected_s=expected_s, resource=resource)


def hiding(expected_s: float, front: Part, behind: Part) -> Part:
    return replace(front, name="layer", expected_s=expected_s, composition="overlap", once=(front, behind))


def test_hidden_communication_takes_no_time_and_exposed_communication_its_excess() -> None:
    exposed = hiding(13, leaf("matmul", "forward", 10), leaf("gather", "forward", 12, "ici"))
    hidden = hiding(20, leaf("matmul", "backward", 20), leaf("scatter", "backward", 1, "ici"))

    step = in_sequence("step", "step", [exposed, hidden, leaf("bubble", "step", 5, "overhead")])

    assert time_shares_s(step) == {"forward": 10, "backward": 20, "exposed communication": 3, "bubble": 5}


def test_what_shows_of_transfers_to_the_host_is_not_called_communication() -> None:
    step = in_sequence(
        "step", "step", [hiding(13, leaf("matmul", "forward", 10), leaf("offload", "forward", 4, "host"))]
    )

    assert time_shares_s(step) == {"forward": 10, "host transfers": 3}


def test_the_shares_of_a_step_make_up_the_step(answer: TrainAnswer) -> None:
    step = answer.best.step

    assert sum(time_shares_s(step.parts).values()) == pytest.approx(step.expected_s)


@pytest.mark.parametrize("width", [80, 100, 120])
def test_the_screen_keeps_to_its_width(answer: TrainAnswer, width: int) -> None:
    screen = render(train_report(answer), width=width, colour=False)

    assert max(map(len, screen.splitlines())) <= width


def fact(answer: TrainAnswer, label: str) -> str:
    facts = next(piece for piece in train_report(answer).pieces if isinstance(piece, Facts))
    return dict(facts.rows)[label].text


@pytest.mark.parametrize(
    ("mfu", "kind", "text"),
    [
        (0.537, None, "53.7% of the bf16 peak (maxtext FLOPs)"),
        (0.98, "int8", "98.0% of the bf16 peak (maxtext FLOPs)"),
        (
            1.12,
            "int8",
            "112.0% of the bf16 peak (maxtext FLOPs); above 100% because int8 matmuls are faster than that peak",
        ),
        (
            1.01,
            None,
            "101.0% of the bf16 peak (maxtext FLOPs); above 100% because it counts FLOPs that are not computed",
        ),
    ],
)
def test_mfu_names_its_denominator_and_why_it_may_exceed_it(
    answer: TrainAnswer, mfu: float, kind: Literal["int8"] | None, text: str
) -> None:
    recipe = None if kind is None else Quantization(kind=kind)
    best = replace(answer.best, mfu=mfu, plan=replace(answer.best.plan, quantization=recipe))

    assert fact(replace(answer, best=best), "MFU") == text


def test_the_roofline_bounds_this_plan_and_not_every_other(answer: TrainAnswer) -> None:
    assert fact(answer, "roofline").endswith("; no run of this plan can be faster")


def test_an_undated_price_is_said_to_be_so() -> None:
    answer = ridgeline.train("llama3.1-8b", on="v5p:4x4x4", global_batch=256, seq_len=8192, tokens="1T")

    assert fact(answer, "run of 1T").endswith("Google Cloud us-central1, undated)")


def test_memory_bars_are_measured_against_usable_memory(answer: TrainAnswer) -> None:
    memory = answer.best.memory

    bars = next(piece for piece in train_report(answer).pieces if isinstance(piece, Bars) and "Memory" in piece.title)

    assert bars.full == memory.usable_bytes
    assert bars.bars[-1].label == "total"
    assert sum(bar.value for bar in bars.bars[:-1]) == pytest.approx(memory.total_bytes)


def test_families_refused_for_one_reason_share_a_line_and_a_long_list_is_cut(answer: TrainAnswer) -> None:
    rejected = [Rejected(family=f"tp={n}", reason="too many heads") for n in (16, 32)]
    rejected += [Rejected(family=f"pp={n}", reason=f"{n} is too deep") for n in range(10)]

    report = train_report(replace(answer, rejected=tuple(rejected)))

    table = next(piece for piece in report.pieces if isinstance(piece, Table) and piece.title == "Refused")
    assert table.rows[0][0].text == "tp=16, tp=32"
    assert (len(table.rows), table.note) == (6, "and 5 more; --json lists them all")


def test_a_run_without_a_public_price_says_so(answer: TrainAnswer) -> None:
    run = RunEstimate(steps=1000, duration_s=864_000, chip_hours=15_360, cost_usd=None, price_source="")

    screen = render(train_report(replace(answer, run=run)), width=120, colour=False)

    assert "10.0 days, 1,000 steps, 15.4K chip-hours, no public price" in screen


def test_no_number_that_is_unknown_reaches_json_as_nan(answer: TrainAnswer) -> None:
    unknown = replace(answer.best, mfu=math.nan, step=replace(answer.best.step, high_s=math.inf))

    found = json.loads(json.dumps(train_json(replace(answer, best=unknown)), allow_nan=False))

    assert (found["best"]["mfu"], found["best"]["step"]["high_s"]) == (None, None)


def test_work_in_json_is_keyed_by_its_unit(answer: TrainAnswer) -> None:
    def keys(part: dict[str, object]) -> set[str]:
        return set(part["work"]).union(*(keys(child) for child in part.get("children", [])))

    found = keys(json.loads(json.dumps(train_json(answer)))["best"]["step"]["parts"])

    assert "bf16_flops" in found
    assert all(key.endswith(("_flops", "_bytes")) for key in found)
