"""`train --laws`: the laws of a job, on the command line and in Python."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import ridgeline
from ridgeline.cli.app import main
from ridgeline.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

CHAPTER_6 = ["train", "llama3-70b", "--on", "v5p:16x20x28", "--batch-tokens", "4Mi", "--seq-len", "4096", "--laws"]
BOOK_S_V5P = ["--given", "W_ici_bytes_per_s=1.8e11,hbm_bytes=96GB"]


def printed(words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(words) == 0
    return capsys.readouterr().out


def asked(words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    return json.loads(printed([*words, "--json"], capsys))


def test_the_gates_of_a_job_are_those_of_its_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    answer = asked([*CHAPTER_6, *BOOK_S_V5P], capsys)

    assert {gate["name"]: gate["passed"] for gate in answer["gates"]} == {
        "memory": True,
        "sequences": False,
        "fsdp": False,
        "mixed": True,
    }
    assert answer["quantities"]["fsdp_critical_tokens_per_chip"] == 850
    assert answer["quantities"]["num_layout_chips"] == 8192
    assert answer["layout"] == "FSDP+TP"


def test_the_screen_shows_the_gates_the_split_and_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    screen = printed([*CHAPTER_6, *BOOK_S_V5P, "--tokens", "15T"], capsys)

    for line in (
        "FSDP with tensor parallelism is    yes     468 tokens a chip  more than 454",
        "in powers of two             1,024 data × 2 context × 4 tensor, 768 chips of a slice left out",
        "on every chip                2,240 × 4 FSDP × tensor",
        "at 40.0% MFU  44.7 days",
    ):
        assert line in screen


def test_explain_shows_each_law_with_its_values(capsys: pytest.CaptureFixture[str]) -> None:
    screen = printed([*CHAPTER_6, *BOOK_S_V5P, "--explain"], capsys)

    assert "b = α / n_axes · E / k" in screen
    assert "α = 2,550 FLOP/B, n_axes = 3" in screen


def test_the_reason_is_given_where_no_split_is_bound_by_arithmetic(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "llama3-70b", "--on", "4*v5p:16x20x28", "--batch-tokens", "4Mi", "--seq-len", "4096", "--laws"]

    answer = asked(words, capsys)

    assert answer["compute_bound_schemes"] == []
    assert answer["reason"].startswith("no scheme is bound by arithmetic; the closest is FSDP with tensor parallelism")
    assert "117 tokens a chip, where FSDP asks for" in answer["reason"]
    assert answer["quantities"]["dcn_is_hidden"] is True


def test_a_switched_network_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "llama3-8b", "--on", "h100:64", "--seq-len", "4096", "--laws"]) == 2
    assert "those of a torus" in capsys.readouterr().err


def test_quantities_are_for_the_laws_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "llama3-8b", "--on", "v5e:4x4", "--seq-len", "4096", "--given", "mfu=0.4"]) == 2
    assert "add --laws" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "said"),
    [("mfu=45", "not a fraction"), ("mf=0.4", "did you mean mfu?"), ("mfu", "malformed"), ("hbm_bytes=-1", "negative")],
)
def test_a_bad_quantity_is_pointed_at(given: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*CHAPTER_6, "--given", given]) == 2
    assert said in capsys.readouterr().err


def test_python_and_the_command_line_answer_alike(capsys: pytest.CaptureFixture[str]) -> None:
    answer = ridgeline.train_laws("llama3-70b", on="v5p:16x20x28", batch_tokens="4Mi", seq_len=4096)

    assert asked(CHAPTER_6, capsys)["quantities"] == dict(answer.laws.values)


def test_links_that_do_not_wrap_are_counted_one_way() -> None:
    ring, line = (ridgeline.train_laws("llama3-8b", on=on, seq_len=4096).laws for on in ("v5e:16x16", "v5e:8x8"))

    assert line["W_ici_bytes_per_s"] == ring["W_ici_bytes_per_s"] / 2


def test_a_mixture_of_experts_says_what_the_laws_leave_out() -> None:
    answer = ridgeline.train_laws("deepseek3-671b", on="v5p:16x16x16", batch_tokens="64Mi", seq_len=4096)

    assert any("expert parallelism" in each for each in answer.assumptions)
    assert answer.laws["E"] == 257
    assert answer.laws["k"] == 9


def test_a_whole_job_takes_no_further_arguments() -> None:
    job = ridgeline.train_laws("llama3-8b", on="v5e:4x4", seq_len=4096).job

    with pytest.raises(InputError, match="takes no further arguments"):
        ridgeline.train_laws(job, seq_len=8192)


def test_a_model_by_its_letters_can_be_planned(capsys: pytest.CaptureFixture[str]) -> None:
    letters = "L=16,D=2048,F=8192,N=16,K=8,H=128,V=32000"

    answer = asked(
        ["train", letters, "--on", "v5e:4x4", "--batch-tokens", "1Mi", "--seq-len", "2048", "--laws"], capsys
    )

    assert answer["quantities"]["F"] == 8192


def test_a_published_run_says_its_mfu_and_nothing_is_taken_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    """DeepSeek-V3: 2.788M H800-hours in all, arXiv:2412.19437, table 1; on chips of 459 TFLOP/s."""
    run = ["train", "deepseek-v3", "--on", "v5p:8x16x16", "--batch-tokens", "4Mi", "--seq-len", "4096"]
    run += ["--tokens", "14.8T", "--laws", "--given"]

    screen = printed([*run, "chip_hours=2.788e6"], capsys)
    found = asked([*run, "chip_hours=2.788e6"], capsys)["quantities"]

    assert found["mfu"] == pytest.approx(6 * found["P_active"] * 14.8e12 / (2.788e6 * 3600 * 459e12))
    assert found["run_s"] == pytest.approx(2.788e6 * 3600 / 2048)
    assert "MFU is taken" not in screen
    assert "at 40" not in screen
    assert asked([*run, "chip_s=1.00368e10"], capsys)["quantities"]["mfu"] == pytest.approx(found["mfu"])
    assert asked([*run, f"run_s={found['run_s']}"], capsys)["quantities"]["mfu"] == pytest.approx(found["mfu"])


@pytest.mark.parametrize(
    ("given", "said"), [("chip_hours=1e5", "no run can be that fast"), ("chip_s=1e10,mfu=0.3", "say the same thing")]
)
def test_a_run_that_cannot_have_been_is_refused(given: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*CHAPTER_6, "--tokens", "15T", "--given", given]) == 2
    assert said in capsys.readouterr().err


def test_a_stage_of_zero_says_what_a_chip_holds(capsys: pytest.CaptureFixture[str]) -> None:
    """Weights and gradients whole, Adam's two f32 moments split: figure 1 of the paper for other dtypes."""
    words = [*CHAPTER_6, "--given"]

    stages = [asked([*words, f"stage={stage}"], capsys)["quantities"] for stage in range(4)]

    P = stages[0]["P"]
    assert [each["zero_bytes"] for each in stages] == pytest.approx(
        [16 * P, 8 * P + 8 * P / 8960, 4 * P + 12 * P / 8960, 16 * P / 8960]
    )
    assert stages[1]["chip_held_bytes"] == pytest.approx(stages[1]["zero_bytes"] + stages[1]["saved_bytes"] / 8960)
    assert stages[1]["run_fits"] is False
    assert "a chip, ZeRO-1" in printed([*words, "stage=1"], capsys)
    assert asked([*words, "stage=1,kappa=12,X=64"], capsys)["quantities"]["zero_bytes"] == pytest.approx(
        8 * P + 12 * P / 64
    )


def test_the_screen_compares_the_stages_of_zero(capsys: pytest.CaptureFixture[str]) -> None:
    assert "optimizer, gradients, weights (FSDP)" in printed(CHAPTER_6, capsys)


def test_a_split_of_one_tensor_way_is_fsdp() -> None:
    """FSDP asks 2,550 / 3 · 257 / 9 tokens a chip, and is nearer to them than the best split is to its own."""
    laws = ridgeline.train_laws("deepseek3-671b", on="v5p:16x16x16", batch_tokens="64Mi", seq_len=4096).laws

    assert laws["rounded_tensor_degree"] == 1
    assert (laws.layout, laws.choice) == ("FSDP", "none")
    assert "the closest is FSDP, whose communication takes 1.33 times as long as arithmetic" in laws.reason


@pytest.mark.parametrize("given", ["E=8", "k=2"])
def test_experts_of_a_dense_model_are_refused(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*CHAPTER_6, "--given", given]) == 2
    assert "is dense: it has no experts" in capsys.readouterr().err


def test_the_best_ways_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    """Their product is the number of chips."""
    screen = printed(
        ["train", "llama3-8b", "--on", "v5p:2x2x4", "--batch-tokens", "64Ki", "--seq-len", "4096", "--laws"], capsys
    )

    ways = screen.partition("best FSDP × tensor ways")[2].splitlines()[0].split("×")
    assert float(ways[0]) * float(ways[1]) == pytest.approx(16, rel=0.01)


def test_a_stage_of_zero_decides_the_memory_gate_where_no_batch_is_given() -> None:
    job = {"on": "v5p:4x4x8", "seq_len": 4096}
    laws = [ridgeline.train_laws("llama3-70b", **job, given={"stage": stage}).laws for stage in (0, 3)]

    assert [each["run_fits"] for each in laws] == [False, True]
    assert [each["chip_held_bytes"] for each in laws] == [each["zero_bytes"] for each in laws]


@pytest.mark.parametrize("given", ["num_chips=12.5", "num_slices=3"])
def test_a_slice_has_whole_chips(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*CHAPTER_6, "--given", given]) == 2
    assert "whole chips in every slice" in capsys.readouterr().err
