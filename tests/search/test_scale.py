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
        (("--chips=0:8",), "at least 1"),
        (("--chips=2000000",), "ask for 1,000,000 at most"),
    ],
)
def test_a_malformed_question_is_refused(
    words: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*QUESTION, *words]) == 2
    assert complaint in capsys.readouterr().err


def test_sizes_that_do_not_exist_are_not_possible(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUESTION, "--chips=48"]) == 1
    complaint = capsys.readouterr().err
    assert "no slice of v5e has such a number of chips" in complaint
    assert "the nearest are 32 (v5e:4x8) and 64 (v5e:8x8)" in complaint


def test_sizes_that_are_left_out_are_named_with_what_is_near(capsys: pytest.CaptureFixture[str]) -> None:
    """Beyond a pod each slice has at least half of its chips: 300 chips are not 75 slices of 2x2."""
    assert main([*QUESTION, "--chips=48,64,300"]) == 0
    text = capsys.readouterr().out
    assert "v5e has no slice of 48 chips" in text
    assert "the nearest are 256 (v5e:16x16) and 384 (3*v5e:8x16)" in " ".join(text.split())


def test_a_mesh_that_fills_one_size_has_no_plan_at_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUESTION, "--chips=64,256", "--mesh=fsdp=64,cp=4"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "v5e:8x8: mesh does not fill the devices in one slice: fsdp=64 cp=4, product 256" in text

    assert main([*QUESTION, "--chips=64", "--mesh=fsdp=64,cp=4"]) == 1
    assert "leave an axis of the mesh open" in capsys.readouterr().err


def test_a_mesh_inside_the_slice_may_be_whole_where_slices_are_added() -> None:
    answer = ridgeline.scale(
        "llama3.1-8b",
        on="2*v5e:16x16",
        seq_len=8192,
        global_batch=1024,
        remat="full",
        mesh="fsdp=256",
        chips=(512, 1024),
    )

    assert [point.hardware.num_slices for point in answer.points if point.best] == [2, 4]


@pytest.mark.parametrize("weak", [False, True])
def test_without_a_batch_the_largest_sensible_one_at_the_smallest_size_is_taken(*, weak: bool) -> None:
    alone = ridgeline.train("llama3.2-1b", on="v6e:2x4", seq_len=4096, remat="full")

    answer = ridgeline.scale("llama3.2-1b", on="v6e", chips="8:16", weak=weak, seq_len=4096, remat="full")

    assert answer.batch_found_on is not None
    assert answer.batch_found_on.num_chips == 8
    assert [point.global_batch for point in answer.points] == [alone.global_batch, alone.global_batch * (1 + weak)]


def test_a_batch_that_does_not_shrink_with_the_chips_leaves_sizes_out() -> None:
    answer = ridgeline.scale(
        "llama3.2-1b", on="v6e:4x4", seq_len=4096, global_batch=2, remat="full", chips="4:16", weak=True
    )

    assert [size.num_chips for size in answer.missing] == [4]
    assert "2 sequences on 16 chips are 0.5 on these" in answer.missing[0].reason


def test_the_laws_say_how_far_the_batch_spreads() -> None:
    """TPU7x: 2,307e12 FLOP/s over 2·100e9 bytes/s are 11,535; over 3 axes 3,845 tokens a chip for FSDP."""
    answer = ridgeline.scale(
        "llama3.1-8b", on="tpu7x:4x4x4", seq_len=8192, global_batch=128, remat="full", mesh="fsdp=-1", chips="64"
    )
    text = " ".join(screen(scale_report(answer)).split())

    assert "from 3,845 tokens a chip on" in text
    assert f"covers {128 * 8192 // 3845} chips" in text


def test_gpus_scale_by_hosts(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("llama3.1-8b", "--on=h100", "--seq-len=8192", "--global-batch=64", "--remat=full", "--mesh=fsdp=-1")
    assert main(["scale", *words, "--chips=8,12,16"]) == 0
    text = capsys.readouterr().out
    assert "12 GPUs do not split evenly" in text
    assert "By the laws" not in text


def test_what_more_chips_lose_is_named_by_its_cause() -> None:
    """Every device still gathers all weights, for a sixteenth of the tokens."""
    answer = ridgeline.scale(
        "llama3.2-1b", on="v5e:4x4", seq_len=2048, global_batch=16, remat="full", mesh="cp=-1,fsdp=16", chips=(16, 256)
    )

    assert answer.ends is not None
    assert answer.ends.hardware.num_chips == 16
    assert "weight gathers" in answer.ends_because
    assert any(derivation.quantity.startswith("gain from") for derivation in answer.derivations)


def test_the_chart_marks_where_links_begin_to_bind() -> None:
    answer = ridgeline.scale(
        "llama3.2-1b", on="v5e:4x4", seq_len=2048, global_batch=16, remat="full", mesh="cp=-1,fsdp=16", chips=(16, 256)
    )

    assert answer.communication_binds is not None
    assert [guide.name for guide in scale_charts(answer)[0].guides] == ["links bind", "ends"]


def test_days_and_dollars_are_told_for_a_run_of_known_length(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUESTION, "--chips=64:128", "--tokens=1T"]) == 0
    assert "The whole run, 1T tokens" in capsys.readouterr().out


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
