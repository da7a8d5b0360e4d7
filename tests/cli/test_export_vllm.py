"""`ridgeline export --to vllm` at the command line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ridgeline.cli.app import main

if TYPE_CHECKING:
    from pathlib import Path

JOB = ("export", "llama3.3-70b", "--to=vllm", "--on=v6e:2x4", "--prompt-len=1024", "--generate-len=1024", "--batch=64")


def test_the_screen_shows_memory_flags_and_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(JOB) == 0
    shown = capsys.readouterr().out
    assert "169 sequences of 2,048 tokens" in shown
    assert "gpu_memory_utilization  0.95" in shown
    assert "vllm serve CHECKPOINT --tensor-parallel-size 8" in shown


def test_json_has_settings_command_and_memory(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*JOB, "--json", "--checkpoint=meta-llama/Llama-3.3-70B-Instruct"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["to"] == "vllm"
    assert found["settings"]["max_num_seqs"] == 64
    assert found["command"].startswith("vllm serve meta-llama/Llama-3.3-70B-Instruct ")
    assert found["memory"]["cache_bytes"] > found["memory"]["sequence_bytes"]


def test_a_script_and_a_manifest_are_written(tmp_path: Path) -> None:
    script, manifest = tmp_path / "serve.sh", tmp_path / "serve.yml"
    checkpoint = "--checkpoint=meta-llama/Llama-3.3-70B-Instruct"

    assert main([*JOB, checkpoint, "--mode=disaggregated", f"--output={script}"]) == 0
    assert main([*JOB, checkpoint, f"--output={manifest}", "--replicas=2"]) == 0
    assert script.read_text().splitlines()[2].startswith("# Run it as `sh FILE prefill|decode`")
    assert "  exec vllm serve meta-llama/" in script.read_text()
    assert "replicas: 2" in manifest.read_text()


def test_a_server_that_does_both_has_one_command(tmp_path: Path) -> None:
    script = tmp_path / "serve.sh"

    assert main([*JOB, "--mode=interleaved", "--checkpoint=meta/llama", f"--output={script}"]) == 0
    assert script.read_text().splitlines()[-1].startswith("exec vllm serve meta/llama ")


def test_a_rate_says_how_many_servers(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["export", "llama3.3-70b", "--to=vllm", "--on=v6e:2x4", "--prompt-len=1024", "--generate-len=1024"]

    assert main([*line, "--rate=20", "--tpot=30ms", "--json"]) == 0
    servers = json.loads(capsys.readouterr().out)["servers"]
    assert [each["role"] for each in servers] == ["prefill", "decode"]
    assert all(each["replicas"] > 1 for each in servers)


@pytest.mark.parametrize(
    ("more", "what"),
    [
        (["--output=serve.yml"], "a file for vLLM names the weights"),
        (["--output=serve.txt", "--checkpoint=a"], "unknown kind of file"),
        (["--steps=3"], "vllm has no use for --steps"),
        (["--remat=full"], "unknown key"),
        (["--replicas=0"], "--replicas"),
    ],
)
def test_what_does_not_belong_to_vllm_is_bad_input(
    more: list[str], what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*JOB, *more]) == 2
    assert what in capsys.readouterr().err


def test_a_job_without_lengths_is_asked_for_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "llama3.3-70b", "--to=vllm", "--on=v6e:2x4", "--generate-len=8"]) == 2
    assert "--prompt-len 1024" in capsys.readouterr().err


def test_flags_of_vllm_are_refused_for_maxtext(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "llama3.1-8b", "--on=v5e:4x4", "--checkpoint=a"]) == 2
    assert "maxtext has no use for --checkpoint" in capsys.readouterr().err


def test_an_engine_that_would_not_start_is_answered_with_one(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["export", "llama3.1-8b", "--to=vllm", "--on=v5e:1x1", "--prompt-len=1024", "--generate-len=64"]

    assert main(line) == 1
    assert "cannot be served so on v5e:1x1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "where", "fix"),
    [
        (["--on=v5e:4x4", "--prompt-len=8"], "--prompt-len", "add --to vllm or --to jetstream"),
        (
            ["--to=jetstream", "--on=v5e:4x4", "--prompt-len=8", "--generate-len=8", "--rate=5"],
            "--rate",
            "leave --rate",
        ),
    ],
)
def test_flags_of_another_program_are_told_with_what_has_a_use_for_them(
    line: list[str], where: str, fix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", "llama3.1-8b", *line]) == 2
    told = capsys.readouterr().err
    assert f"where:    {where}" in told
    assert fix in told


def test_a_manifest_on_gpus_of_amd_is_of_servers_that_do_both_where_the_mode_is_open(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["export", "gpt-oss-120b", "--to=vllm", "--on=mi300x:2", "--prompt-len=1000", "--generate-len=100"]
    manifest = tmp_path / "amd.yml"

    assert main([*line, "--rate=300", "--checkpoint=openai/gpt-oss-120b", f"--output={manifest}"]) == 0
    assert "of servers that do both" in capsys.readouterr().out
    assert manifest.read_text(encoding="utf-8").count("kind: Deployment") == 1


def test_a_checkpoint_that_is_not_named_is_asked_for_by_the_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*JOB, f"--output={tmp_path / 'serve.sh'}"]) == 2
    assert "OWNER/NAME, the repository of llama3.3-70b" in capsys.readouterr().err
