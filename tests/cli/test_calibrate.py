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


SERVER = """
version = 1
model = "{model}"
hardware = "v6e:2x4"

[workload]
kind = "serve"
prompt_len = 1000
generate_len = 1000
batch = 64

[plan]
decode = {{ tp = 8 }}

[measured]
tpot_s = {tpot_s}
engine = "vllm"
source = "ours"
"""


@pytest.fixture
def servers(tmp_path: Path) -> str:
    """A folder with two measured servers, each slower than the estimate that ships."""
    folder = tmp_path / "servers"
    folder.mkdir()
    for model, tpot_s in (("llama3.1-70b", 0.040), ("qwen3-32b", 0.024)):
        (folder / f"{model}.toml").write_text(SERVER.format(model=model, tpot_s=tpot_s), encoding="utf-8")
    return str(folder)


def test_what_is_written_of_servers_is_what_serve_then_uses(
    servers: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = str(tmp_path / "mine")

    assert main(["calibrate", "--serving", "--from", servers, "--output", output, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    asked = ["serve", "llama3.1-70b", "--on", "v6e:2x4", "--prompt-len", "1000", "--generate-len", "1000"]
    pinned = ["--batch", "64", "--mesh", "tp=8", "--mode", "interleaved"]
    tpots_s: list[float] = []
    for more in ([], ["--calibration", output]):
        assert main([*asked, *pinned, *more, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        tpots_s.append(found["best"]["tpot_s"]["mean"])

    assert answer["used"] == 2
    assert {"GPU.toml", "TPU.toml", "serving_uncertainty.toml", "serving_held_out.csv"} == set(answer["files"])
    assert tpots_s[1] > 1.03 * tpots_s[0]
    assert f"{output} states" in " ".join(found["assumptions"])


def test_a_calibration_of_servers_says_what_it_could_not_use_and_what_it_settled(
    servers: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "servers" / "odd.json").write_text('[{"chip": "v5e", "model": "unheard-of"}]', encoding="utf-8")
    plot = tmp_path / "servers.svg"

    assert main(["calibrate", "--serving", "--from", servers, "--plot", str(plot)]) == 0

    printed = capsys.readouterr().out
    assert "fitted to 2 measurements of 2 servers" in printed
    for words in (
        "one engine left out",
        "v6e vllm",
        "unseen chip",
        "Worst cases",
        "Not used: 1 of 3",
        "--output FOLDER",
    ):
        assert words in printed
    assert "Time per output token" in plot.read_text(encoding="utf-8")


def test_what_ships_of_servers_is_shown_without_a_fit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", "--serving", "--shipped", "--json"]) == 0

    answer = json.loads(capsys.readouterr().out)
    held_out, in_sample = answer["held_out"]["clusters"], answer["held_out"]["in_sample"]
    for series in ("TPU_token", "GPU_token"):
        assert in_sample[series]["mape"] <= held_out[series]["mape"] + 0.005
    assert answer["groups"]["metric"].keys() == {"ttft_s", "tpot_s", "output_tokens_per_s_per_chip"}


def test_steps_where_servers_are_asked_for_and_servers_where_steps_are_name_the_flag(
    cases: str, servers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, said in (
        (["--from", servers], "add --serving"),
        (["--serving", "--from", cases], "leave --serving out"),
    ):
        assert main(["calibrate", *words]) == 2
        assert said in capsys.readouterr().err


def test_serve_refuses_a_calibration_of_steps_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "v6e.toml").write_text("", encoding="utf-8")
    asked = ["serve", "llama3.1-70b", "--on", "v6e:2x4", "--prompt-len", "1000", "--generate-len", "1000"]

    assert main([*asked, "--calibration", str(tmp_path)]) == 2

    said = capsys.readouterr().err
    assert "no calibration of servers on TPUs" in said
    assert "ridgeline calibrate --serving" in said


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
        (["--serving", "--from", "no.csv"], "say nothing of servers"),
        (["--serving", "--from", "published", "--shipped"], "one of two"),
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


def test_a_path_that_is_no_case_is_told_by_the_flag_that_named_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", "--serving", "--from", "/dev/null"]) == 2
    assert "where:    --from\n" in capsys.readouterr().err
