"""Case files, folders of them, and files that hold something else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ridgeline.errors import InputError
from ridgeline.study.measured.files import LARGEST_FILE_BYTES, read_cases
from tests.study.test_tpu_records import ROW

if TYPE_CHECKING:
    from pathlib import Path

CASE = """
version = 1
model = "llama3.1-8b"
hardware = "v6e:16x16"

[workload]
global_batch = 1024
seq_len = 8192

[plan]
mesh = { fsdp = 256 }
remat = "full"

[measured]
step_time_s = 2.5
source = "our own run"
quality = "A"
"""


def written(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def reasons(*paths: str) -> list[str]:
    return [each.reason for each in read_cases(paths).skipped]


def test_a_case_file_is_a_job_file_that_says_what_was_measured(tmp_path: Path) -> None:
    (case,) = read_cases([written(tmp_path, "run.toml", CASE)]).training

    assert (case.id, case.metric, case.measured) == ("run", "step_time_s", 2.5)
    assert (case.source, case.quality, case.assumed) == ("our own run", "A", ())


def test_what_a_case_file_leaves_open_is_assumed_and_named(tmp_path: Path) -> None:
    text = CASE.replace("mesh = { fsdp = 256 }", "").replace('remat = "full"', "")
    (case,) = read_cases([written(tmp_path, "run.toml", text)]).training

    assert case.assumed == ("mesh: fsdp over each slice", "remat: full")
    assert case.job.plan.mesh["fsdp"] == 256


def test_a_cluster_may_be_named(tmp_path: Path) -> None:
    (case,) = read_cases([written(tmp_path, "run.toml", f'{CASE}cluster = "mine"\n')]).training

    assert case.cluster == "mine"


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("[measured]", "[measure]", "a job of which nothing is measured"),
        ("step_time_s = 2.5", "step_time_s = -2.5", "step_time_s is not a number above zero"),
        ("step_time_s = 2.5", "step_time_s = nan", "step_time_s is not a number above zero"),
        ("step_time_s = 2.5", "step_time_s = 1e-300", "step_time_s is not a number above zero"),
        ("step_time_s = 2.5", "", "neither a step time nor tokens/s"),
        ("step_time_s = 2.5", "step_seconds = 2.5", "unknown key step_seconds"),
        ("global_batch = 1024", "", "no batch"),
        ("fsdp = 256", "fsdp = 255", "mesh does not fill the devices in one slice"),
        ("llama3.1-8b", "llama9-8b", "unknown model"),
    ],
)
def test_a_case_file_that_cannot_be_used_says_why(tmp_path: Path, old: str, new: str, reason: str) -> None:
    (said,) = reasons(written(tmp_path, "run.toml", CASE.replace(old, new)))

    assert said.startswith(reason)


def test_a_folder_stands_for_all_files_in_it_and_below(tmp_path: Path) -> None:
    (tmp_path / "deeper").mkdir()
    written(tmp_path / "deeper", "run.toml", CASE)
    written(tmp_path, "rows.json", json.dumps([ROW]))
    written(tmp_path, "notes.txt", "read me")
    written(tmp_path, "broken.json", "{")
    written(tmp_path, ".hidden.json", "{")
    found = read_cases([str(tmp_path)])

    assert {case.id for case in found.training} == {"run", ROW["id"]}
    assert sorted(each.reason.split(":")[0] for each in found.skipped) == [
        "neither a case file (.toml) nor records (.json)",
        "not JSON",
    ]


@pytest.mark.parametrize(
    ("text", "what"),
    [("", "an empty file"), ("{", "not JSON"), ("[" * 100_000, "nested too deeply"), ("1" * 5000, "not JSON")],
)
def test_a_named_file_that_is_no_json_is_refused(tmp_path: Path, text: str, what: str) -> None:
    with pytest.raises(InputError, match=what):
        read_cases([written(tmp_path, "rows.json", text)])


def test_a_file_that_is_too_large_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    with path.open("wb") as file:
        file.truncate(LARGEST_FILE_BYTES + 1)

    with pytest.raises(InputError, match="more than 50,000,000"):
        read_cases([str(path)])


@pytest.mark.parametrize("name", ["absent.json", "absent", "\0"])
def test_a_path_that_does_not_exist_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="cannot read it"):
        read_cases([str(tmp_path / name)])


def test_a_path_without_a_name_is_not_the_current_folder() -> None:
    with pytest.raises(InputError, match="without a name"):
        read_cases([""])


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a folder without files"):
        read_cases([str(tmp_path)])


@pytest.mark.parametrize(
    ("document", "count"), [([], 1), ({}, 1), (3, 1), ([None, "x", {}], 3), ({"records": [{}, {}]}, 2)]
)
def test_records_of_no_known_format_are_listed_one_by_one(tmp_path: Path, document: object, count: int) -> None:
    assert len(reasons(written(tmp_path, "rows.json", json.dumps(document)))) == count


def test_single_operations_are_listed_as_not_used(tmp_path: Path) -> None:
    rows = [{"id": "m", "chip": "tpu7x", "op": "matmul", "achieved": 2.5}]
    said = reasons(written(tmp_path, "rows.json", json.dumps(rows)))

    assert [each.split(",")[0] for each in said] == ["a measurement of a single operation or collective"]


def test_what_is_no_file_in_a_folder_is_listed_too(tmp_path: Path) -> None:
    written(tmp_path, "run.toml", CASE)
    (tmp_path / "gone.json").symlink_to(tmp_path / "nowhere.json")

    assert reasons(str(tmp_path)) == ["cannot read it: No such file or directory"]


def test_a_record_that_is_there_twice_counts_once(tmp_path: Path) -> None:
    rows = written(tmp_path, "rows.json", json.dumps([ROW, ROW, ROW | {"measured": {"step_time_s": 3.0}}]))
    found = read_cases([rows, rows])

    assert [case.id for case in found.training] == [ROW["id"], f"{ROW['id']} (2)"]
    assert [each.reason for each in found.skipped] == ["repeats a record that is used"]


def test_memory_records_say_what_fitted(tmp_path: Path) -> None:
    row = {
        "id": "fit",
        "fits": False,
        "used_gib": 41.76,
        "chip": "v6e",
        "num_chips": 8,
        "model": "qwen3-8b",
        "per_device_batch": 16,
        "seq_len": 2048,
        "sharding": "fsdp8",
        "remat": "default (full)",
    }
    (run,) = read_cases([written(tmp_path, "fit.json", json.dumps([row]))]).memory

    assert (run.fits, run.job.hardware.name, run.job.workload.global_batch) == (False, "v6e:2x4", 128)
    assert run.needed_bytes == 41.76 * 2**30
