"""`ridgeline calibrate`: what it prints, what it writes, and how it ends."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

import pytest

from ridgeline.cli.app import main
from ridgeline.cost.calibration import load_prior, load_uncertainty, parse_efficiency, parse_uncertainty
from ridgeline.search.train import cost_pinned
from ridgeline.study.measured.files import PUBLISHED, read_cases

if TYPE_CHECKING:
    from pathlib import Path

    from ridgeline.job.job import Job

CASE = """
version = 1
model = "{model}"
hardware = "v5e:4x4"

[workload]
global_batch = 64
seq_len = 2048

[plan]
mesh = {{ fsdp = 16 }}
remat = {{ policy = "full" }}

[measured]
step_time_s = {step_s}
source = "ours"
quality = "A"
"""


@pytest.fixture
def cases(tmp_path: Path) -> str:
    """A folder with three measured steps, each slower than the estimate that ships, and notes that are none."""
    folder = tmp_path / "cases"
    folder.mkdir()
    for model, step_s in (("llama2-7b", 3.9), ("llama3.1-8b", 4.3), ("llama2-13b", 8.4)):
        (folder / f"{model}.toml").write_text(CASE.format(model=model, step_s=step_s), encoding="utf-8")
    (folder / "notes.txt").write_text("read me", encoding="utf-8")
    return str(folder)


def test_what_is_written_is_what_train_then_uses(
    cases: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = str(tmp_path / "mine")

    assert main(["calibrate", "--from", cases, "--output", output, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    asked = ["train", "llama2-7b", "--on", "v5e:4x4", "--global-batch", "64", "--seq-len", "2048", "--mesh", "fsdp=16"]
    steps_s: list[float] = []
    for more in ([], ["--calibration", output]):
        assert main([*asked, "--remat", "full", *more, "--json"]) == 0
        steps_s.append(json.loads(capsys.readouterr().out)["best"]["step"]["expected_s"])

    assert answer["used"] == 3
    assert answer["written"] == output
    assert {"v5e.toml", "uncertainty.toml", "held_out.csv"} == set(answer["files"])
    settled = answer["settled"]["v5e"]["sustained"]
    assert settled["value"] < settled["prior"]
    assert steps_s[1] > 1.03 * steps_s[0]
    assert "notes.txt" in str(answer["skipped"])


def test_one_step_of_ones_own_that_agrees_hardly_narrows_the_interval_and_is_counted_with_those_that_ship(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    step_s = cost_pinned(read_case(tmp_path, step_s=1.0)).step.expected_s
    read_case(tmp_path, step_s=step_s)

    assert main(["calibrate", "--from", str(tmp_path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)

    shipped = load_uncertainty()
    assert all(answer["uncertainties"][key] > 0.6 * value for key, value in shipped.values.items())
    own = parse_uncertainty(answer["files"]["uncertainty.toml"], where="uncertainty.toml")
    assert own.measured_jobs["TPU"]["chip"]["v5e"] == shipped.measured_jobs["TPU"]["chip"]["v5e"] + 1
    assert own.measured_jobs["GPU"] == shipped.measured_jobs["GPU"]


def read_case(folder: Path, *, step_s: float) -> Job:
    """The only case of a folder, written anew."""
    (folder / "case.toml").write_text(CASE.format(model="llama2-7b", step_s=step_s), encoding="utf-8")
    (case,) = read_cases([str(folder)]).training
    return case.job


def test_files_that_are_there_are_not_replaced_unless_told(
    cases: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "v5e.toml").write_text("mine", encoding="utf-8")

    assert main(["calibrate", "--from", cases, "--output", str(tmp_path)]) == 2

    assert "calibration files" in capsys.readouterr().err
    assert (tmp_path / "v5e.toml").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "not built yet"),
        (["--from", "/nowhere"], "cannot read it"),
        (["--from", ""], "path without a name"),
        (["--from", "published", "--shipped"], "one of two"),
        (["--shipped", "--output", "x"], "nothing to write"),
        (["--from", "published", "--output", "/dev/null"], "not a folder"),
        (["--from", "no.csv"], "no such file"),
        (["--from", "no.csv.gz", "--from", "published"], "no such file"),
    ],
)
def test_what_cannot_be_asked_is_said(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_folder_without_a_usable_step_is_told_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "odd.json").write_text('[{"chip": "v5e", "model": "unheard-of"}]', encoding="utf-8")

    assert main(["calibrate", "--from", str(tmp_path)]) == 2
    assert "no measured step" in capsys.readouterr().err


def test_one_table_of_kernel_times_is_enough(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "mine"

    assert main(["calibrate", "--from", str(PUBLISHED / "kernels.csv.gz"), "--output", str(output), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"]
    for chip in ("tpu7x", "mi300x"):  # no cube was in the table: what cubes settled stays
        written = parse_efficiency((output / f"{chip}.toml").read_text(encoding="utf-8"), where=chip)
        assert written.facts["matmul_overhead_s"] == load_prior(chip).facts["matmul_overhead_s"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"junk", "not a table of kernel times"),
        (gzip.compress(b"device,op,key,median_ms\n" * 99)[:-9], "not a table of kernel times"),
        (gzip.compress(b"device,op,key,median_ms\ntpu7x,normalization,{bad,1\n"), "not a table of kernel times"),
        (gzip.compress(b"device,op,key,median_ms\nabacus,normalization,{},1\n"), "no kernel time that can be used"),
    ],
)
def test_a_table_without_usable_kernel_times_is_bad_input(
    content: bytes, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "times.csv.gz"
    path.write_bytes(content)

    assert main(["calibrate", "--from", str(path)]) == 2
    assert said in capsys.readouterr().err


def test_what_ships_is_shown_without_a_fit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", "--shipped", "--json"]) == 0

    answer = json.loads(capsys.readouterr().out)
    held_out, in_sample = answer["held_out"]["clusters"], answer["held_out"]["in_sample"]
    for kind in ("TPU", "GPU"):
        assert in_sample[kind]["mape"] <= held_out[kind]["mape"] + 0.005
        assert 0.75 <= held_out[kind]["interval_coverage"] <= 0.9


@pytest.mark.parametrize("folder", ["", "/nowhere", "{empty}", "{binary}", "{wrong}"])
def test_a_calibration_of_ones_own_that_cannot_be_used_is_refused(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, content in (("binary", b"\xff\xfe"), ("wrong", b"[overlap]\nvalue = 7\nkind = 'measured'\nsource = 'x'")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "v5e.toml").write_bytes(content)
    (tmp_path / "empty").mkdir()
    path = folder.format(empty=tmp_path / "empty", binary=tmp_path / "binary", wrong=tmp_path / "wrong")
    asked = ["train", "llama2-7b", "--on", "v5e:4x4", "--global-batch", "64", "--seq-len", "2048"]

    assert main([*asked, "--calibration", path]) == 2

    assert "error: " in capsys.readouterr().err
