"""`ridgeline roofline`: each word asks its question, on screen, as JSON and as a chart."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zlib
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest

from ridgeline.cli.app import main
from ridgeline.cli.roofline_questions import QUESTIONS

if TYPE_CHECKING:
    from pathlib import Path

MATMUL = ["matmul", "--on", "v5e", "--B", "64", "--D", "4096", "--F", "16384"]

ASKED = {
    "matmul": MATMUL[1:],
    "batched_matmul": ["--batch", "8", "--width", "64", "--outputs", "64", "--on", "v5e"],
    "expert_matmul": ["--B", "8", "--experts", "4", "--top-k", "2", "--D", "64", "--F", "64", "--on", "v5e"],
    "attention": [
        "--queries",
        "1",
        "--keys",
        "512",
        "--heads",
        "8",
        "--kv-heads",
        "2",
        "--head-dim",
        "64",
        "--on",
        "v5p",
    ],
    "elementwise": ["--B", "8", "--D", "64", "--reads", "2", "--on", "v5e"],
    "embedding": ["--B", "8", "--D", "64", "--on", "v5e"],
    "dot": ["--D", "64", "--on", "v5e"],
    "work": ["--flops", "1TFLOP", "--bytes", "1GB", "--on", "h100"],
    "all_gather": ["--bytes", "34MB", "--axis", "x,y", "--on", "v5e:8x16"],
    "reduce_scatter": ["--bytes", "34MB", "--axis", "x", "--on", "v5e:8x16"],
    "all_reduce": ["--bytes", "34MB", "--axis", "x", "--on", "v5e:8x16"],
    "all_to_all": ["--bytes", "34MB", "--axis", "y", "--on", "v5e:8x16"],
    "point_to_point": ["--bytes", "17MB", "--start", "0,0", "--end", "3,3", "--on", "v5e:4x4"],
    "path": ["--bytes", "16GB", "--end", "0,0", "--on", "v5e:4x4"],
    "ridge": ["--on", "v5e"],
    "critical_batch": ["--on", "v5e", "--D", "4096", "--F", "4096"],
    "mxu": ["--on", "v5e"],
    "vpu": ["--on", "v5e"],
    "padding": ["--shape", "100x300"],
}
"""A command line for every question."""


def screen(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["roofline", *words]) == 0
    return capsys.readouterr().out


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    return json.loads(screen(capsys, *words, "--json"))


def test_every_question_has_a_command_line_here() -> None:
    assert ASKED.keys() == QUESTIONS.keys()


@pytest.mark.parametrize("word", ASKED)
def test_every_question_is_answered_on_screen_and_as_json_with_its_derivations(
    word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert screen(capsys, word.replace("_", "-"), *ASKED[word])
    assert "Where the numbers come from" in screen(capsys, word, *ASKED[word], "--explain")
    assert answer(capsys, word, *ASKED[word])["derivations"]


def test_the_screen_says_what_binds_and_from_which_size_on_it_does_not(capsys: pytest.CaptureFixture[str]) -> None:
    lines = screen(capsys, *MATMUL).splitlines()

    assert lines[0] == "matmul [64, 4096] @ [4096, 16384] on one v5e chip: bound by HBM"
    assert any(line.split()[:4] == ["B", "rows", "260", "241"] for line in lines)


def test_json_is_in_base_units_and_says_never_where_a_size_is_infinite(capsys: pytest.CaptureFixture[str]) -> None:
    told = answer(capsys, "batched_matmul", *ASKED["batched_matmul"])

    assert told["flops"] == 2 * 8 * 64 * 64
    assert told["resources"][0]["bytes_per_s"] == 819e9
    assert [(size["letter"], size["never"]) for size in told["critical"]] == [("T", True), ("B", True)]


def test_without_a_word_so_many_flops_and_bytes_are_meant(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, *ASKED["work"]) == answer(capsys, "work", *ASKED["work"])


def test_a_sweep_prints_a_line_for_every_size(capsys: pytest.CaptureFixture[str]) -> None:
    points = answer(capsys, *MATMUL, "--sweep", "batch=1:8192")["sweep"]

    assert [point["size"] for point in points] == [1 << power for power in range(14)]
    assert points[0]["bound"] == "hbm"
    assert points[-1]["attained_flops_per_s"] == 197e12
    assert "8,192" in screen(capsys, *MATMUL, "--sweep", "B=1:8192")


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter", "all_reduce", "all_to_all"])
@pytest.mark.parametrize(
    "said",
    [
        [],
        ["--axes", "2"],
        ["--wiring", "line"],
        ["--wiring", "one_way", "--axis", "4"],
        ["--bytes", "1MB", "--axis", "4,4"],
        ["--axis", "x", "--on", "v5e:4x4"],
        ["--axis", "x", "--on", "v5e:4x4", "--bytes", "1MB", "--hop", "0"],
        ["--bytes", "1MB", "--on", "v5e:1x1"],
        ["--on", "h100:16"],
    ],
)
def test_what_a_question_leaves_open_is_not_printed(
    kind: str, said: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    printed = screen(capsys, kind, *said, "--explain")

    assert not re.search(r"\bnan\b", printed)


@pytest.mark.parametrize(
    ("words", "where"),
    [
        (["all_gather", "--bytes", "0", "--on", "v5e:4x4"], "--bytes"),
        (["all_gather", "--bytes", "1MB", "--on", "v5e:4x4", "--axis", "q"], "--axis"),
        (["all_gather", "--bytes", "1MB", "--on", "v5e:4x4", "--axis", "x", "--sharded", "x"], "--sharded"),
        (["point_to_point", "--bytes", "1MB", "--on", "v5e:4x4", "--start", "9,9"], "--start"),
        (["point_to_point", "--bytes", "1MB", "--on", "v5e:4x4", "--start", "0,0", "--end", "0,0"], "--end"),
        (["path", "--bytes", "1MB", "--on", "v5e:4x4", "--compute-dtype", "q"], "--compute-dtype"),
        (["elementwise", "--B", "8", "--D", "8", "--on", "v5e", "--weights-from", "host"], "--weights-from"),
        (["attention", "--T", "8", "--N", "8", "--H", "8", "--on", "v5e:4x4", "--axis", "x"], "--axis"),
    ],
)
def test_what_is_refused_goes_by_the_name_of_its_flag(
    words: list[str], where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["roofline", *words]) == 2

    assert f"\n  where:    {where}\n" in capsys.readouterr().err


@pytest.mark.parametrize("unit", ["mxu", "vpu"])
@pytest.mark.parametrize("said", [[], ["--clock", "1GHz"]])
def test_a_unit_of_which_too_little_is_said_is_refused(
    unit: str, said: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["roofline", unit, *said]) == 2

    assert "expected: " in capsys.readouterr().err


def test_an_unknown_word_is_told_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["roofline", "matmull"]) == 2

    assert "did you mean matmul" in capsys.readouterr().err


@pytest.mark.parametrize("sweep", [[], ["--sweep", "B=1:8192"]])
def test_a_chart_is_a_file_of_the_kind_that_its_name_says(
    sweep: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for suffix in ("svg", "png", "html"):
        screen(capsys, *MATMUL, *sweep, "--plot", str(tmp_path / f"chart.{suffix}"))

    drawn = ET.fromstring((tmp_path / "chart.svg").read_text(encoding="utf-8"))  # noqa: S314 - we wrote it
    words = [element.text for element in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert {"ridge 241", "HBM", "arithmetic intensity, FLOP/B"} <= set(words)
    assert ("compute-bound from 260" in words) == bool(sweep)
    assert size_of((tmp_path / "chart.png").read_bytes()) == (1760, 2080 if sweep else 1040)
    page = (tmp_path / "chart.html").read_text(encoding="utf-8")
    assert "Plotly.newPlot" in page
    assert "ridge 241" in page
    assert "cdn" not in page.partition("Plotly.newPlot")[2]


def size_of(image: bytes) -> tuple[int, int]:
    """Width and height of a PNG file whose data is whole."""
    assert image.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = int.from_bytes(image[16:20], "big"), int.from_bytes(image[20:24], "big")
    start = image.index(b"IDAT")
    length = int.from_bytes(image[start - 4 : start], "big")
    assert len(zlib.decompress(image[start + 4 : start + 4 + length])) == height * (1 + 3 * width)
    return width, height


def test_a_chart_replaces_a_file_only_when_it_is_told_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "chart.svg"
    path.write_text("mine", encoding="utf-8")

    assert main(["roofline", *MATMUL, "--plot", str(path)]) == 2
    assert path.read_text(encoding="utf-8") == "mine"
    assert "the file exists" in capsys.readouterr().err

    assert main(["roofline", *MATMUL, "--plot", str(path), "--force"]) == 0
    assert path.read_text(encoding="utf-8").startswith("<svg")


@pytest.mark.parametrize(
    ("words", "file", "what"),
    [
        (MATMUL, "chart.gif", "unknown kind of chart"),
        (MATMUL, "nowhere/chart.svg", "cannot write the chart"),
        (["embedding", *ASKED["embedding"]], "chart.svg", "a roofline needs arithmetic and traffic"),
        (["ridge", "--on", "v5e"], "chart.svg", "there is no chart of this"),
    ],
)
def test_a_chart_that_cannot_be_drawn_is_refused(
    words: list[str], file: str, what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["roofline", *words, "--plot", str(tmp_path / file)]) == 2

    assert what in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_rate_is_explained_as_a_rate_not_as_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    printed = screen(capsys, "mxu", "--on", "v6e", "--explain")

    assert "Multiply adds: 4.59e+14/s\n" in printed  # half of 918 TFLOP/s
    assert "Implied clock: 3,501,892,090 cycles/s\n" in printed  # 918e12 / (2 * 2 * 256 * 256)


def test_an_answer_loads_no_heavy_library() -> None:
    code = (
        "import sys\nfrom ridgeline.cli.app import main\n"
        f"main({['roofline', *MATMUL]!r})\n"
        "print([name for name in ('numpy', 'plotly', 'jax') if name in sys.modules])"
    )

    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert printed.splitlines()[-1] == "[]"
