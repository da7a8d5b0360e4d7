"""`ridgeline serve` at the command line: what is answered, and how bad input and impossible limits are met."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ridgeline.cli.app import main

QUESTION = ("llama3.1-8b", "--on", "v5e:2x4", "--prompt-len", "1024", "--generate-len", "256")

Serve = Callable[..., tuple[int, str, str]]


@pytest.fixture
def serve(capsys: pytest.CaptureFixture[str]) -> Serve:
    """Runs the verb; gives exit code, standard output and standard error."""

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(["serve", *arguments])
        return code, *capsys.readouterr()

    return run


def test_the_answer_names_the_question_the_plan_and_the_bottleneck(serve: Serve) -> None:
    code, out, _ = serve(*QUESTION, "--tpot", "30ms")

    assert code == 0
    for words in ("llama3.1-8b served on v5e:2x4", "Best plan", "per token", "waits for", "Frontier"):
        assert words in out


def test_json_is_one_object_also_where_no_plan_meets_the_limits(serve: Serve) -> None:
    code, out, _ = serve(*QUESTION, "--json")
    assert code == 0
    assert json.loads(out)["best"]["memory"]["verdict"] == "fits"

    code, out, err = serve(*QUESTION, "--tpot", "1us", "--json")
    assert code == 1
    assert json.loads(out)["best"] is None
    assert "the shortest time per output token is" in err


def test_a_chip_alone_is_searched_in_all_its_sizes_and_takes_no_mesh(serve: Serve) -> None:
    alone = [*QUESTION[:2], "v5e", *QUESTION[3:]]
    code, out, _ = serve(*alone, "--json")
    assert code == 0
    assert len(json.loads(out)["slices"]) > 3

    code, _, err = serve(*alone, "--mesh", "tp=8")
    assert code == 2
    assert "--on" in err


@pytest.mark.parametrize(
    ("flag", "value", "words"),
    [
        ("--rate", "0", "rate must be more than zero"),
        ("--tpot", "50%", "--tpot"),
        ("--ttft", "fast", "--ttft"),
        ("--mesh", "tp=3", "mesh does not fill"),
        ("--weights-dtype", "int3", "unknown dtype"),
        ("--batch", "0", "--batch"),
    ],
)
def test_bad_input_is_told_with_its_flag(serve: Serve, flag: str, value: str, words: str) -> None:
    code, out, err = serve(*QUESTION, flag, value)

    assert (code, out) == (2, "")
    assert words in err


def test_the_job_is_saved_and_answers_alike_and_the_frontier_is_drawn(serve: Serve, tmp_path: Path) -> None:
    saved, drawn = tmp_path / "job.toml", tmp_path / "frontier.svg"
    code, out, _ = serve(*QUESTION, "--weights-dtype", "int8", "--save", str(saved), "--plot", str(drawn), "--json")
    again = serve(str(saved), "--json")

    assert code == again[0] == 0
    assert json.loads(out)["best"]["plan"] == json.loads(again[1])["best"]["plan"]
    assert "tokens/s per user" in drawn.read_text()
