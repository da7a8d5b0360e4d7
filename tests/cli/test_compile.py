"""`ridgeline compile` at the command line: a tiny job, and how each kind of bad input is met."""

from __future__ import annotations

from pathlib import Path

import pytest

from ridgeline.cli.app import main
from tests.messages import refusal

TEXT = Path(__file__).parents[1] / "hlo" / "data" / "h100_8_mlp.hlo"
MODEL = ("llama3.1-8b", "--seq-len=256", "--global-batch=4")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            [],
            refusal(
                "nothing to compile or to read",
                where="compile",
                value="(empty)",
                expected="JOB, --hlo FILE, or --lint-flags FLAGS",
                fix="ridgeline compile llama3.1-8b --on v5e:4x4 --seq-len 2048, or ridgeline compile --hlo step.hlo",
            ),
        ),
        (
            [*MODEL, "--on=h100:8", "--compiler=tpu"],
            refusal(
                "the TPU compiler knows TPUs alone",
                where="--on",
                value="h100:8",
                expected="a TPU slice",
                fix="choose a TPU slice, or leave --compiler out",
            ),
        ),
        (
            ["job.toml", "--layers=2"],
            refusal(
                "--layers goes with a model of the zoo",
                where="--layers",
                value="job.toml",
                expected="a model's name",
                fix="write num_layers into the file",
            ),
        ),
        (
            ["llama3.2-1b", "--layers=99"],
            refusal(
                "llama3.2-1b has 16 layers",
                where="--layers",
                value="99",
                expected="1 to 16",
                fix="ask for fewer, or leave it out for all",
            ),
        ),
    ],
)
def test_bad_input_is_met_with_one_clear_message(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    pytest.importorskip("libtpu")

    assert main(["compile", *arguments]) == 2
    assert capsys.readouterr() == ("", f"error: {message}\n")


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--on=v5e:2x2", "--hlo has no --on"),
        ("--time-limit=3s", "--hlo has no --time-limit"),
        ("--mesh=fsdp=3", "mesh does not fill the devices"),
    ],
)
def test_a_text_is_asked_no_question_of_a_job(capsys: pytest.CaptureFixture[str], flag: str, message: str) -> None:
    assert main(["compile", f"--hlo={TEXT}", flag]) == 2
    assert capsys.readouterr().err.startswith(f"error: {message}\n")


@pytest.mark.parametrize("flag", ["--program=theirs", "--compiler=gcc", "--time-limit=soon", "--memory-limit=lots"])
def test_an_unknown_choice_is_bad_input(capsys: pytest.CaptureFixture[str], flag: str) -> None:
    code = main(["compile", *MODEL, "--on=v5e:2x2", flag])

    assert code == 2
    assert capsys.readouterr().err.startswith("error: ")
