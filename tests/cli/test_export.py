"""`ridgeline export` at the command line."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from ridgeline.cli.app import main
from tests.messages import refusal

if TYPE_CHECKING:
    from pathlib import Path

JOB = (
    "export",
    "llama3.1-8b",
    "--on=v5e:4x4",
    "--global-batch=16",
    "--seq-len=2048",
    "--mesh=fsdp=16",
    "--remat=full",
)


def test_the_screen_shows_configuration_and_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(JOB) == 0
    shown = capsys.readouterr().out
    assert re.search(r"model_name +llama3.1-8b", shown)
    assert "python3 -m maxtext.trainers.pre_train.train" in shown


def test_json_has_settings_flags_and_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*JOB, "--json", "--steps=7"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["settings"]["ici_fsdp_parallelism"] == 16
    assert found["xla_flags"] == []
    assert "steps=7" in found["command"].split()
    assert found["compile_topology"] == "v5e-16"


def test_the_configuration_is_written_and_the_command_reads_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "llama.yml"

    assert main([*JOB, f"--output={file}", "--json"]) == 0
    assert 'remat_policy: "full"' in file.read_text()
    command = json.loads(capsys.readouterr().out)["command"].split()
    assert str(file) in command
    assert "remat_policy=full" not in command


def test_a_script_holds_the_whole_command(tmp_path: Path) -> None:
    file = tmp_path / "run.sh"

    assert main([*JOB, f"--output={file}"]) == 0
    assert file.read_text().startswith("#!/bin/sh\n")
    assert "remat_policy=full" in file.read_text().replace("\\\n", " ").split()


def test_a_file_is_not_replaced_unasked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "llama.yml"
    file.write_text("mine")

    assert main([*JOB, f"--output={file}"]) == 2
    assert file.read_text() == "mine"
    assert "the file exists" in capsys.readouterr().err
    assert main([*JOB, f"--output={file}", "--force"]) == 0
    assert file.read_text() != "mine"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--output=llama.json"],
            refusal(
                "unknown kind of file",
                where="--output",
                value="llama.json",
                expected="a name that ends in .yml (configuration) or .sh (script)",
                fix="write llama.json.yml",
            ),
        ),
        (
            ["--force"],
            refusal(
                "nothing to replace",
                where="--force",
                value="--force without --output",
                expected="--output FILE beside it",
                fix="add --output FILE, or leave --force out",
            ),
        ),
    ],
)
def test_bad_input_is_refused_with_its_place(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*JOB, *arguments]) == 2
    assert capsys.readouterr().err.strip() == f"error: {message}"
