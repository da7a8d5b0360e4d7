"""Every verb answers about a model and a machine that only the job file describes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from textwrap import dedent

import pytest

from ridgeline.cli.app import main

JOB = """
    version = 1
    workload = { seq_len = 2048, global_batch = 16, tokens = "1B" }
    plan = { mesh = { fsdp = 8 }, remat = "full", gradient_accumulation = 1 }

    [model]
    name = "tiny-moe"
    base = "llama3.1-8b"
    num_layers = 4
    embed_dim = 1024
    vocab_size = 32000
    attention = { num_heads = 8, num_kv_heads = 4, head_dim = 128 }
    moe = { num_experts = 8, top_k = 2, expert_mlp_dim = 2048 }

    [hardware]
    name = "tpu7x:2x2x1"
    hbm_bytes_per_s = "8TB/s"
    usable_hbm_bytes = "180GiB"
    link_bytes_per_s = "120GB/s"
    usd_per_chip_hour = 6.5
    peak_flops_per_s = { bf16 = 2e15 }
"""
CODESIGN = (Path(__file__).parents[2] / "docs" / "codesign.md").read_text(encoding="utf-8")


@pytest.fixture
def job(tmp_path: Path) -> str:
    path = tmp_path / "job.toml"
    path.write_text(dedent(JOB), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    "question",
    [
        ("--sensitivity",),
        ("--precision",),
        ("--communication",),
        ("--architectures",),
        ("--why", "tp=2"),
        ("--explain",),
        ("--laws",),
    ],
    ids=lambda words: words[0],
)
def test_every_question_of_train_takes_an_inline_model_and_machine(
    question: tuple[str, ...], job: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", job, *question]) == 0
    assert "tiny-moe on tpu7x:2x2x1" in capsys.readouterr().out


@pytest.mark.slow
def test_batch_levers_take_them_too(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", job, "--batch-levers", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["batch_levers"]


def test_scale_takes_them_with_their_price(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(job)
    path.write_text(path.read_text(encoding="utf-8").replace("fsdp = 8", "fsdp = -1"), encoding="utf-8")

    assert main(["scale", job, "--chips", "4:8", "--json"]) == 0
    points = json.loads(capsys.readouterr().out)["points"]
    assert [point["chips"] for point in points] == [4, 8]


def test_export_writes_the_dimensions_of_an_inline_model(job: str, tmp_path: Path) -> None:
    assert main(["export", job, "--to", "maxtext", "--output", str(tmp_path / "out.yml")]) == 0
    written = (tmp_path / "out.yml").read_text(encoding="utf-8")

    for key, value in (("base_emb_dim", 1024), ("num_experts", 8), ("base_moe_mlp_dim", 2048), ("head_dim", 128)):
        assert re.search(rf"^{key}: {value}$", written, re.MULTILINE), key


def test_figures_of_the_file_change_the_answer(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Ten times the rate of the matrix units: what only they bind goes away."""
    path = Path(job)
    before = path.read_text(encoding="utf-8")
    steps: list[float] = []
    for text in (before, before.replace("bf16 = 2e15", "bf16 = 2e16")):
        path.write_text(text, encoding="utf-8")
        assert main(["train", job, "--json"]) == 0
        steps.append(json.loads(capsys.readouterr().out)["best"]["step"]["expected_s"])

    assert steps[1] < 0.8 * steps[0]


def test_a_machine_too_small_for_the_model_is_said_to_be_with_its_own_figure(
    job: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(job)
    path.write_text(path.read_text(encoding="utf-8").replace("180GiB", "0.5GiB"), encoding="utf-8")

    assert main(["train", job]) == 1
    assert "256 MiB a device" in capsys.readouterr().err


def test_the_job_of_the_page_is_answered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (text,) = re.findall(r"^```toml\n(.*?)^```", CODESIGN, re.MULTILINE | re.DOTALL)
    (tmp_path / "job.toml").write_text(text, encoding="utf-8")

    assert main(["train", str(tmp_path / "job.toml"), "--mesh", "fsdp=128", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["job"]["model"]["name"] == "llama3.1-70b, wider heads"
