"""Every verb that estimates explains itself: `--explain` on the screen, `derivations` in JSON."""

import json

import pytest

from ridgeline.cli.app import VERBS, main

QUESTIONS = {
    "chips": ("v5e:4x4",),
    "model": ("llama3.1-8b",),
    "roofline": ("matmul", "--B", "64", "--D", "4096", "--F", "4096", "--on", "v5e"),
    "matmul": ("A[B,D_X] @ W[D_X,F]", "--sizes", "B=8,D=8,F=8", "--mesh", "X=2", "--on", "v5e:2x2"),
    "serve": ("llama3.1-8b", "--on", "v5e:2x4", "--prompt-len", "1024", "--generate-len", "256", "--mesh", "tp=8"),
    "scale": ("llama3.2-1b", "--on=v5e", "--chips=4:16", "--global-batch=64", "--seq-len=4096", "--remat=full"),
    "train": ("llama3.1-8b", "--on", "v5e:16x16", "--global-batch", "256", "--seq-len", "4096", "--laws"),
}
QUOTING_VERBS = {"calibrate", "compile", "export", "validate"}
"""Verbs that say what something else says: a compiler, `train` of a job, or a clock."""

HEADING = "Where the numbers come from\n"


@pytest.mark.parametrize("verb", QUESTIONS)
def test_a_verb_shows_each_derivation_that_its_json_carries(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, *QUESTIONS[verb], "--json"]) == 0
    derivations = json.loads(capsys.readouterr().out)["derivations"]
    assert main([verb, *QUESTIONS[verb], "--explain"]) == 0
    screen = capsys.readouterr().out.partition(HEADING)[2]

    assert derivations
    assert screen.count("\n  formula ") == screen.count("\n  source ") == len(derivations)


@pytest.mark.parametrize("verb", QUESTIONS)
def test_a_verb_explains_nothing_unasked(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    main([verb, *QUESTIONS[verb]])

    assert HEADING not in capsys.readouterr().out


def test_every_verb_that_estimates_is_asked_here() -> None:
    assert set(QUESTIONS) == set(VERBS) - QUOTING_VERBS
