"""`ridgeline serve` at the command line: what is answered, and how bad input and impossible limits are met."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ridgeline.cli.app import main
from ridgeline.units import format_seconds

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
        ("--tpot", "30", "write 30ms or 30s"),
        ("--tpot", "p90=30ms", "add --rate 20"),
        ("--prefix-hit-rate", "80", "write 0.8, or 80%"),
        ("--acceptance", "0.8", "--draft-tokens 3"),
        ("--prompt-len", "p50=800", "p50 and p90"),
        ("--memory-utilization", "90", "write 0.9, or 90%"),
        ("--mode", "both", "--mode"),
        ("--server-ratio", "1/3", "write 1:3"),
        ("--trace", "trace.csv", "a trace has its own prompts"),
        ("--draft-model", "mtp", "missing draft_tokens"),
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


def test_a_malformed_trace_is_told_by_the_number_of_its_line(serve: Serve, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n0,10,5\n1.5,ten,5\n", encoding="utf-8")

    code, _, err = serve("llama3.1-8b", "--on", "v5e:2x4", "--trace", str(trace))

    assert code == 2
    assert "trace.csv: line 3" in err
    assert "prompt_tokens is no number" in err


def test_what_was_said_of_requests_and_engine_is_saved_and_answered_alike(serve: Serve, tmp_path: Path) -> None:
    saved = str(tmp_path / "job.toml")
    said = (
        *("llama3.1-8b", "--on", "v5e:2x4", "--prompt-len", "p50=500,p90=1500", "--generate-len", "min=50,max=200"),
        *("--rate", "5", "--ttft", "p90=2s", "--prefix-hit-rate", "30%", "--prefix-shared", "--draft-tokens", "2"),
        *("--acceptance", "0.7", "--draft-model", "llama3.2-1b", "--mode", "interleaved", "--prefill-chunk", "512"),
        *("--memory-utilization", "0.8", "--page-tokens", "64"),
    )

    code, out, _ = serve(*said, "--save", saved, "--json")
    again, out_again, _ = serve(saved, "--json")

    assert (code, again) == (0, 0)
    first, second = json.loads(out), json.loads(out_again)
    assert first["best"] == second["best"]
    assert first["best"]["simulation"]["queueing_s"].keys() == {"mean", "p50", "p90", "p99"}
    assert first["best"]["plan"]["prefill_chunk"] == 512


def test_a_trace_is_replayed_on_servers_enough_for_it(serve: Serve, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    lines = (f'{{"arrival_ms": {250 * number}, "input_length": 800, "output_length": 100}}\n' for number in range(200))
    trace.write_text("".join(lines), encoding="utf-8")

    code, out, _ = serve("llama3.1-8b", "--on", "v5e:2x4", "--trace", str(trace), "--ttft", "p90=1s")

    assert code == 0
    for words in ("200 requests of", "queueing", "served", "p99", "4 requests/s", "all were replayed"):
        assert words in out


def test_the_json_has_what_eight_of_ten_measured_servers_lie_between(serve: Serve) -> None:
    found = json.loads(serve(*QUESTION, "--json")[1])

    ends = found["interval"]["tpot_s"]
    assert ends["low"] < found["best"]["tpot_s"]["mean"] < ends["high"]


def test_the_report_has_the_intervals_and_says_what_makes_them_wider(serve: Serve) -> None:
    words = ("--prompt-len", "1000", "--generate-len", "1000", "--batch", "64", "--mode", "interleaved")
    measured, unmeasured = (serve("llama3.1-8b", "--on", on, *words)[1] for on in ("h100:8", "v5p:2x2x1"))
    found = json.loads(serve("llama3.1-8b", "--on", "h100:8", *words, "--json")[1])

    low, high = (format_seconds(found["interval"]["tpot_s"][end]) for end in ("low", "high"))
    assert f"(mean; {low} to {high})" in measured
    assert "eight of ten measured servers" in measured
    assert "on h100" not in "".join(found["interval"]["widened_by"])
    assert "no measured server on v5p" in unmeasured


def test_prompts_at_once_that_no_server_has_room_for_are_told_with_their_flag(
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = ["serve", "llama3.1-8b", "--on=v6e:2x2", "--prompt-len=1000", "--generate-len=100"]

    assert main([*line, "--prefill-batch=1e6"]) == 1
    assert "1M prompts at once of 1,000 tokens: lower --prefill-batch" in capsys.readouterr().err


def test_a_folder_without_a_calibration_of_servers_is_told_by_its_flag(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "v6e.toml").write_text("", encoding="utf-8")
    line = ["serve", "llama3.1-8b", "--on=v6e:2x2", "--prompt-len=1000", "--generate-len=100"]

    assert main([*line, f"--calibration={tmp_path}"]) == 2
    assert "where:    --calibration\n" in capsys.readouterr().err
