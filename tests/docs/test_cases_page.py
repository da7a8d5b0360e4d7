"""The page on measured cases: its case file is read, and it names every key of `[measured]`."""

import re
from pathlib import Path

from ridgeline.study.measured.case_file import KEYS
from ridgeline.study.measured.files import LARGEST_FILE_BYTES, read_cases
from ridgeline.study.measured.serving_case_file import SERVING_KEYS

PAGE = (Path(__file__).parents[2] / "docs" / "cases.md").read_text(encoding="utf-8")
FILE, SERVER = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_the_case_file_on_the_page_is_read_and_leaves_nothing_open(tmp_path: Path) -> None:
    (tmp_path / "case.toml").write_text(FILE, encoding="utf-8")
    (case,) = read_cases([str(tmp_path / "case.toml")]).training

    assert (case.id, case.cluster, case.assumed) == ("run-417", "70b on a cube", ())


def test_the_case_file_of_a_server_is_read_and_leaves_nothing_open(tmp_path: Path) -> None:
    (tmp_path / "case.toml").write_text(SERVER, encoding="utf-8")
    cases = read_cases([str(tmp_path / "case.toml")]).serving

    assert [(case.metric, case.assumed) for case in cases] == [("tpot_s", ()), ("output_tokens_per_s_per_chip", ())]


def test_the_page_names_every_key_of_what_was_measured() -> None:
    assert [key for key in (*KEYS, *SERVING_KEYS) if key not in PAGE] == []


def test_the_page_says_how_large_a_file_may_be() -> None:
    assert f"over {LARGEST_FILE_BYTES // 10**6} MB" in PAGE
