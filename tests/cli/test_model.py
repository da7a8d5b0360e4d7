"""`ridgeline model`: what a reference and its flags ask for, on screen and as JSON."""

import json
from pathlib import Path

import pytest

from ridgeline.cli.model import model
from ridgeline.errors import InputError


def asked(capsys: pytest.CaptureFixture[str], reference: str | None, **flags: str) -> dict[str, object]:
    """The JSON object printed for a reference and flags."""
    model(reference, **flags, json=True)
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("reference", "headline"),
    [("meta-llama/Llama-3.1-70B", "llama3.1-70b · 80 layers"), ("gemma3-27b", "gemma3-27b · 62 layers")],
)
def test_a_name_prints_a_screen(reference: str, headline: str, capsys: pytest.CaptureFixture[str]) -> None:
    model(reference)

    assert capsys.readouterr().out.startswith(headline)


def test_explain_shows_the_parameters_in_the_books_letters(capsys: pytest.CaptureFixture[str]) -> None:
    model("llama3.1-70b", explain=True)

    screen = capsys.readouterr().out
    assert "Parameters of attention: 12,079,595,520" in screen
    assert "80 · (2·8,192·64·128 + 2·8,192·8·128) = 12,079,595,520" in screen


def test_json_always_carries_derivations(capsys: pytest.CaptureFixture[str]) -> None:
    assert asked(capsys, None)["derivations"] == []
    assert asked(capsys, "llama3.1-70b")["derivations"]


def test_without_a_model_the_names_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    model()
    assert "llama3.1-70b" in capsys.readouterr().out
    assert "llama3.1-70b" in asked(capsys, None)["models"]


@pytest.mark.parametrize(("reference", "seq_len"), [("llama3.1-70b", 8192), ("megatron-530b", 2048)])
def test_a_sequence_is_8192_tokens_or_the_models_context(
    reference: str, seq_len: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert asked(capsys, reference)["seq_len"] == seq_len


def test_flags_set_sequence_length_and_dtype(capsys: pytest.CaptureFixture[str]) -> None:
    answer = asked(capsys, "llama3.1-70b", seq_len="128Ki", dtype="fp8")

    assert (answer["seq_len"], answer["dtype"]) == (131072, "fp8")
    assert answer["kv_cache_bytes_per_sequence"] == 131072 * 163840


@pytest.mark.parametrize("seq_len", ["0", "-1", "1.5", "nan", "inf", "many", "1e12", "8kB", ""])
def test_a_wrong_sequence_length_is_refused(seq_len: str) -> None:
    with pytest.raises(InputError) as refused:
        model("llama3.1-70b", seq_len=seq_len)

    assert refused.value.where == "--seq-len"


def test_a_wrong_dtype_is_refused_as_a_wrong_flag() -> None:
    with pytest.raises(InputError) as refused:
        model("llama3.1-70b", dtype="bf61")

    assert refused.value.where == "--dtype"


def test_an_unknown_model_is_refused_as_a_wrong_argument() -> None:
    with pytest.raises(InputError) as refused:
        model("llama-9")

    assert (refused.value.what, refused.value.where) == ("unknown model", "MODEL")


def test_a_job_file_stands_for_its_model(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    job = tmp_path / "job.toml"
    job.write_text(
        'version = 1\nhardware = "v6e:4x4"\nworkload = { seq_len = 4096, global_batch = 64 }\n'
        'model = { name = "wider", base = "llama3.1-8b", mlp = { mlp_dim = 16384 } }\n',
        encoding="utf-8",
    )

    wider = asked(capsys, str(job))
    assert wider["name"] == "wider"
    assert wider["params_total"] > asked(capsys, "llama3.1-8b")["params_total"]
