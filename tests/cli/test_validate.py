"""`ridgeline validate`: what it prints, in both forms, and how it ends."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from ridgeline.cli.app import main
from tests.study.test_case_files import CASE
from tests.study.test_tpu_records import ROW

if TYPE_CHECKING:
    from pathlib import Path

DESIGNED = {
    "cases",
    "used",
    "skipped",
    "mape",
    "bias",
    "within_15_percent",
    "interval_coverage",
    "interval_width",
    "groups",
    "rows",
}
DESIGNED_OF_A_ROW = {
    "id",
    "cluster",
    "metric",
    "unit",
    "measured",
    "expected",
    "low",
    "high",
    "error",
    "source_of_measured",
}


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A folder with a case file, two rows of which one is unusable, and a file of notes."""
    (tmp_path / "run.toml").write_text(CASE, encoding="utf-8")
    rows = [ROW, ROW | {"id": "odd", "model": "unheard-of-9b"}]
    (tmp_path / "rows.json").write_text(json.dumps(rows), encoding="utf-8")
    (tmp_path / "notes.txt").write_text("read me", encoding="utf-8")
    return str(tmp_path)


def answer_of(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["validate", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_json_has_the_keys_that_stay(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    answer = answer_of(capsys, folder)

    assert set(answer) >= DESIGNED
    assert all(set(row) >= DESIGNED_OF_A_ROW for row in answer["rows"])
    assert (answer["cases"], answer["used"], len(answer["skipped"])) == (4, 2, 2)
    assert {each["id"] for each in answer["skipped"]} >= {"odd"}


def test_means_are_those_of_the_rows_by_cluster(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    answer = answer_of(capsys, folder)
    errors = [row["expected"] / row["measured"] - 1 for row in answer["rows"]]

    assert [row["error"] for row in answer["rows"]] == pytest.approx(errors)
    assert len({row["cluster"] for row in answer["rows"]}) == 1
    assert answer["mape"] == pytest.approx(sum(map(abs, errors)) / len(errors))
    assert answer["bias"] == pytest.approx(sum(errors) / len(errors))


def test_the_screen_says_error_groups_worst_cases_and_what_is_not_used(
    folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", folder]) == 0
    screen = capsys.readouterr().out

    for words in ("2 measurements of 1 job:", "Worst cases", "Not used: 2 of 4 records", "unknown model", "matmuls"):
        assert words in screen


def test_files_may_be_named_one_by_one(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert answer_of(capsys, f"{folder}/run.toml", f"{folder}/rows.json")["cases"] == 3


@pytest.mark.parametrize("suffix", [".svg", ".png", ".html"])
def test_the_plot_is_drawn(folder: str, suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drawn = tmp_path / f"plot{suffix}"

    assert main(["validate", f"{folder}/rows.json", "--plot", str(drawn)]) == 0
    assert drawn.stat().st_size > 1000
    assert "measurement" in capsys.readouterr().out


def test_a_file_in_the_way_of_the_plot_is_told_before_the_work(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = tmp_path / "taken.svg"
    taken.write_text("mine", encoding="utf-8")

    assert main(["validate", folder, "--plot", str(taken)]) == 2
    assert "the file exists" in capsys.readouterr().err
    assert main(["calibrate", "--from", folder, "--plot", str(tmp_path / "nowhere" / "a.svg")]) == 2
    assert "no such folder" in capsys.readouterr().err


def test_memory_alone_is_told_as_such(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, plot = tmp_path / "memory.json", tmp_path / "a.svg"
    path.write_text(json.dumps([ROW | {"fits": True}]), encoding="utf-8")

    assert main(["validate", str(path), "--plot", str(plot)]) == 0
    told = capsys.readouterr()
    assert told.out.startswith("no step time among 1 record; 1 verdict on memory")
    assert "nothing is drawn" in told.err
    assert not plot.exists()


def test_records_of_which_none_can_be_used_are_listed_and_the_answer_is_no(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows.json"
    rows.write_text(json.dumps([{"chip": "v6e", "model": "unheard-of-9b"}]), encoding="utf-8")

    assert main(["validate", str(rows), "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert (answer["cases"], answer["used"], answer["mape"]) == (1, 0, None)


def test_a_path_that_does_not_exist_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "no-such-folder"]) == 2
    assert "cannot read it" in capsys.readouterr().err


def test_a_file_that_is_no_json_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "rows.json"
    broken.write_text("{", encoding="utf-8")

    assert main(["validate", str(broken)]) == 2
    assert "not JSON" in capsys.readouterr().err


def test_servers_alone_are_records_that_could_be_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "server.toml").write_text(
        'version = 1\nmodel = "llama3.1-8b"\nhardware = "v6e:2x4"\n'
        '[workload]\nkind = "serve"\nprompt_len = 1000\ngenerate_len = 1000\nbatch = 64\n'
        '[measured]\ntpot_s = 0.01\nengine = "vllm"\nsource = "ours"\n',
        encoding="utf-8",
    )

    assert main(["validate", str(tmp_path)]) == 0
    assert "1 measurement of 1 server" in capsys.readouterr().out
