"""Traces of requests: what is read, and the line of what is not."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from ridgeline.errors import InputError
from ridgeline.job import trace_reading
from ridgeline.job.trace_reading import read_trace

if TYPE_CHECKING:
    from pathlib import Path


def written(folder: Path, name: str, text: str) -> str:
    """The path of a new file."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_csv_trace_is_sorted_and_starts_at_zero(tmp_path: Path) -> None:
    trace = "arrival_s,model,prompt_tokens,output_tokens\n12.5,a,30,3\n\n10.0,b,10,1\n"

    requests = read_trace(written(tmp_path, "trace.csv", trace))

    assert requests.arrival_s.tolist() == [0.0, 2.5]
    assert requests.prompt_tokens.tolist() == [10, 30]
    assert requests.output_tokens.tolist() == [1, 3]


def test_a_jsonl_trace_in_milliseconds_is_read_in_seconds(tmp_path: Path) -> None:
    lines = (
        '{"arrival_ms": 500, "input_length": 7, "output_length": 2, "hash_ids": [1]}\n'
        '{"arrival_ms": 3000, "input_length": 9, "output_length": 4.0}\n'
    )

    requests = read_trace(written(tmp_path, "trace.jsonl", lines))

    assert requests.arrival_s.tolist() == [0.0, 2.5]
    assert requests.output_tokens.tolist() == [2, 4]


def test_the_header_of_the_azure_trace_is_understood(tmp_path: Path) -> None:
    trace = (
        "\ufeffTIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,374,44\n2023-11-16T18:15:50.9951690,396,109\n"
    )

    requests = read_trace(written(tmp_path, "azure.csv", trace))

    assert requests.arrival_s == pytest.approx([0.0, 4.314579], abs=1e-6)
    assert requests.prompt_tokens.tolist() == [374, 396]


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("1.0,ten,5", "prompt_tokens is no number"),
        ("1.5s,10,5", "leave the unit out"),
        ("1.0,10,50%", "leave the unit out"),
        ("1.0,10.5,5", "give whole tokens"),
        ("1.0,10,0", "leave requests out that failed"),
        ("1.0,-3,5", "prompt_tokens is no number of tokens"),
        ("nan,10,5", "arrival_s is no number"),
        ("1e300,10,5", "arrival_s is absurd"),
        ("1.0,10", "wrong number of cells"),
        ("1.0,10,5,6", "3 cells, as in the header"),
        ("1.0,10,1e30", "output_tokens is no number of tokens"),
    ],
)
def test_a_malformed_line_is_told_by_its_number(tmp_path: Path, line: str, what: str) -> None:
    path = written(tmp_path, "trace.csv", f"arrival_s,prompt_tokens,output_tokens\n0,1,1\n{line}\n2,2,2\n")

    with pytest.raises(InputError, match=r"trace\.csv: line 3") as raised:
        read_trace(path)

    assert what in str(raised.value)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ('{"arrival_s": 1', "the line is not JSON"),
        ("[1, 2, 3]", "the line is no object"),
        ('{"arrival_s": 1, "prompt_tokens": 3}', "missing output_tokens"),
        ('{"arrival_s": 1, "prompt_tokens": true, "output_tokens": 1}', "prompt_tokens is no number"),
        ('{"arrival_s": NaN, "prompt_tokens": 3, "output_tokens": 1}', "arrival_s is no number"),
        ('{"arrival_s": null, "prompt_tokens": 3, "output_tokens": 1}', "arrival_s is no number"),
        ("[" * 100_000, "the line is not JSON"),
    ],
)
def test_a_malformed_object_is_told_by_its_line(tmp_path: Path, line: str, what: str) -> None:
    first = '{"arrival_s": 0, "prompt_tokens": 3, "output_tokens": 1}'
    path = written(tmp_path, "trace.jsonl", f"{first}\n{line}\n")

    with pytest.raises(InputError, match=r"trace\.jsonl: line 2") as raised:
        read_trace(path)

    assert what in str(raised.value)


def test_a_number_as_timestamp_asks_for_its_unit(tmp_path: Path) -> None:
    path = written(tmp_path, "trace.csv", "Timestamp,Request tokens,Response tokens\n5,472,18\n")

    with pytest.raises(InputError, match="name the column arrival_s or arrival_ms"):
        read_trace(path)


def test_a_trace_without_a_column_names_what_would_do(tmp_path: Path) -> None:
    path = written(tmp_path, "trace.csv", "arrival_s,prompt\n1,2\n")

    with pytest.raises(InputError, match=r"one of prompt_tokens, input_tokens"):
        read_trace(path)


def test_files_that_are_no_trace_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    header = "arrival_s,prompt_tokens,output_tokens\n"
    (tmp_path / "latin.csv").write_bytes(b"arrival_s,\xff\n")
    for path, what in (
        (written(tmp_path, "trace.parquet", ""), "unknown kind of trace"),
        (written(tmp_path, "empty.csv", header), "the trace has no requests"),
        (str(tmp_path / "absent.csv"), "cannot read the trace"),
        (str(tmp_path / "latin.csv"), "not UTF-8"),
    ):
        with pytest.raises(InputError, match=what):
            read_trace(path)
    path = written(tmp_path, "long.csv", header + "1,1,1\n" * 3)
    monkeypatch.setattr(trace_reading, "MOST_REQUESTS", 2)
    with pytest.raises(InputError, match="too many requests"):
        read_trace(path)
    monkeypatch.setattr(trace_reading, "MOST_BYTES", 9)
    with pytest.raises(InputError, match="the trace is too large"):
        read_trace(path)


@pytest.mark.parametrize(
    ("name", "header", "what", "value", "fix"),
    [
        ("semi.csv", "arrival_s;prompt_tokens;output_tokens", "no column says when", "arrival_s;prompt", "semicolons"),
        ("tab.csv", "arrival_s\tprompt_tokens\toutput_tokens", "no column says when", "arrival_s", "not by tabs"),
        ("none.csv", "arrival_s,Prompt Tokens,reply", "no column says tokens of the reply", "Prompt Tokens", "rename"),
        (
            "two.csv",
            "arrival_s,prompt_tokens,input_tokens,output_tokens",
            "several columns say tokens of the prompt",
            "prompt_tokens, input_tokens",
            "leave all but one out: prompt_tokens, input_tokens",
        ),
    ],
)
def test_a_header_that_will_not_do_is_shown_as_written(
    tmp_path: Path, name: str, header: str, what: str, value: str, fix: str
) -> None:
    path = written(tmp_path, name, f"{header}\n1,2,3\n")

    with pytest.raises(InputError) as raised:
        read_trace(path)

    assert raised.value.where == f"{path}: line 1"
    assert raised.value.what.startswith(what)
    assert value in str(raised.value.value)
    assert fix in raised.value.fix


@pytest.mark.parametrize(
    ("line", "what", "value"),
    [
        ('{"arrival_s": 1, "prompt_tokens": 3, "prompt_tokens": 4, "output_tokens": 1}', "a key is said twice", "arr"),
        ('{"arrival_s": 1, "prompt_tokens": true, "output_tokens": 1}', "prompt_tokens is no number", "true"),
        ('{"arrival_s": null, "prompt_tokens": 3, "output_tokens": 1}', "arrival_s is no number", "null"),
    ],
)
def test_a_json_value_is_shown_as_json_writes_it(tmp_path: Path, line: str, what: str, value: str) -> None:
    first = '{"arrival_s": 0, "prompt_tokens": 3, "output_tokens": 1}'

    with pytest.raises(InputError) as raised:
        read_trace(written(tmp_path, "trace.jsonl", f"{first}\n{line}\n"))

    assert (raised.value.what, str(raised.value.value)[: len(value)]) == (what, value)


def test_timestamps_with_and_without_a_zone_are_not_mixed(tmp_path: Path) -> None:
    trace = "timestamp,prompt_tokens,output_tokens\n2023-11-16T18:15:46Z,1,1\n2023-11-16T18:15:50,1,1\n"

    with pytest.raises(InputError, match=r"line 3[\s\S]*a zone everywhere, or nowhere"):
        read_trace(written(tmp_path, "mixed.csv", trace))


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")

    with pytest.raises(InputError, match="the trace is not a file"):
        read_trace(str(tmp_path / "pipe.csv"))
