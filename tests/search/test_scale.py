"""The same job on more and more chips."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import ridgeline
from ridgeline.cli.app import main
from ridgeline.report.scale import scale_charts, scale_report
from ridgeline.report.terminal import screen

if TYPE_CHECKING:
    from pathlib import Path

    from ridgeline.search.scale import ScaleAnswer

QUESTION = ("scale", "llama3.1-8b", "--on=v5e:16x16", "--seq-len=8192", "--global-batch=128", "--remat=full")


@pytest.fixture(scope="module")
def strong() -> ScaleAnswer:
    return ridgeline.scale(
        "llama3.1-8b", on="v6e:4x4", seq_len=8192, global_batch=64, remat="full", mesh="fsdp=-1", chips="16:256"
    )


def test_each_size_is_planned_like_a_job_of_its_own(strong: ScaleAnswer) -> None:
    point = next(point for point in strong.points if point.hardware.num_chips == 64)
    alone = ridgeline.train("llama3.1-8b", on="v6e:8x8", seq_len=8192, global_batch=64, remat="full", mesh="fsdp=-1")

    assert point.best is not None
    assert point.best.plan == alone.best.plan
    assert point.tokens_per_s == pytest.approx(64 * 8192 / alone.best.step.expected_s)


def test_efficiency_is_throughput_a_chip_beside_the_smallest(strong: ScaleAnswer) -> None:
    first, *_ = strong.points

    for point in strong.points:
        if point.best is not None and first.best is not None:
            expected = point.best.tokens_per_s_per_chip / first.best.tokens_per_s_per_chip
            assert point.efficiency == pytest.approx(expected)
            assert point.speedup == pytest.approx(expected * point.hardware.num_chips / first.hardware.num_chips)


def test_fsdp_alone_ends_where_every_sequence_has_a_chip(strong: ScaleAnswer) -> None:
    """64 sequences cannot be split over 128 chips by their batch."""
    assert strong.ends is not None
    assert strong.ends.hardware.num_chips == 64
    assert "with 128 chips there is no plan" in strong.ends_because
    assert [point.best is None for point in strong.points] == [False, False, False, True, True]
    assert "At 64 chips" in screen(scale_report(strong))


def test_weak_scaling_keeps_the_batch_of_a_chip() -> None:
    answer = ridgeline.scale(
        "llama3.1-8b", on="v6e:4x4", seq_len=8192, global_batch=64, remat="full", chips=(16, 64), weak=True
    )

    assert [point.global_batch for point in answer.points] == [64, 256]
    assert answer.ends is None
    assert answer.points[1].efficiency > 0.9


def test_beyond_the_largest_slice_come_several(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUESTION, "--chips=256:1024", "--weak", "--json"]) == 0

    found = json.loads(capsys.readouterr().out)["points"]
    assert [point["hardware"] for point in found] == ["v5e:16x16", "2*v5e:16x16", "4*v5e:16x16"]
    assert all(point["efficiency"] <= 1.001 for point in found)


def test_the_chart_marks_the_end(strong: ScaleAnswer) -> None:
    throughput, step = scale_charts(strong)

    assert [guide.x for guide in throughput.guides] == [64.0]
    ideal = next(curve for curve in step.curves if curve.dashed)
    assert ideal.points[0][1] / ideal.points[-1][1] == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--chips=4096:64",), "the range ends before it starts"),
        (("--chips=sixty",), "where:    --chips"),
        (("--chips=64", "--mesh=fsdp=128,tp=2"), "a pinned mesh fills slices of one size alone"),
    ],
)
def test_a_malformed_question_is_refused(
    words: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*QUESTION, *words]) == 2
    assert complaint in capsys.readouterr().err


def test_sizes_that_do_not_exist_are_not_possible(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUESTION, "--chips=48"]) == 1
    assert "no slice of v5e has such a number of chips" in capsys.readouterr().err


def test_one_size_shows_no_end(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUESTION, "--chips=64"]) == 0
    assert "with nothing to compare it to" in capsys.readouterr().out


def test_a_name_that_no_file_can_have_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUESTION, "--chips=64", f"--plot={'x' * 300}.svg"]) == 2
    assert "cannot write the chart: File name too long" in capsys.readouterr().err


def test_a_chart_that_is_there_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chart = tmp_path / "scale.svg"

    assert main([*QUESTION, "--chips=64", f"--plot={chart}"]) == 0
    assert main([*QUESTION, "--chips=64", f"--plot={chart}"]) == 2
    assert "the file exists" in capsys.readouterr().err
