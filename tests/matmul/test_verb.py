"""`ridgeline matmul` as typed: what it prints, what it exits with, how fast it answers."""

from __future__ import annotations

import json

import pytest

from ridgeline.cli.app import main

PRODUCT = "A[B,D] @ W[D_X,F_Y] -> C[B,F_Y]"
SETTING = ("--sizes", "B=4096,D=8192,F=32768", "--mesh", "X=4,Y=8", "--on", "v5p:4x4x8")


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["matmul", *arguments]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def test_the_screen_tells_layouts_case_strategies_and_thresholds(capsys: pytest.CaptureFixture[str]) -> None:
    screen = printed(capsys, PRODUCT, *SETTING)

    for line in (
        "A[B,D] @ W[D_X,F_Y] -> C[B,F_Y] on v5p:4x4x8",
        "placed on  X on x4, Y on z8",
        "W[D_X,F_Y]  8,192 × 32,768  2,048 × 4,096  16.0 MiB     2.00 GiB       4",
        "Case 2",
        "Strategies: the fastest is 2, multiply, all-reduce C over X",
        "1   all-gather W[D_X,F_Y] -> W[D,F_Y]          X     67.1 MB  252 µs  links",
        "fastest          D = 3,443: below it strategy 1, above it 2",
        "the mesh names 32 of 128 devices: 4 sets of them do the same",
    ):
        assert line in screen


def test_an_illegal_result_is_said_to_be_illegal(capsys: pytest.CaptureFixture[str]) -> None:
    screen = printed(capsys, "A[I_X,J] @ B[J,K_X]")

    assert "C[I_X,K_X] would have X twice" in screen
    assert "unknown" not in screen


def test_a_search_says_what_each_layout_needs(capsys: pytest.CaptureFixture[str]) -> None:
    screen = printed(
        capsys, "A[B,D] @ W[D,F] -> C[B,F]", *SETTING[:2], "--mesh", "X=4,Y=4", "--on", "v5e:4x4", "--memory", "200MiB"
    )

    assert "Best layouts: " in screen
    assert "at most 200 MiB of a device" in screen


def test_an_explanation_shows_the_formulas(capsys: pytest.CaptureFixture[str]) -> None:
    screen = printed(capsys, PRODUCT, *SETTING, "--explain")

    assert "T = V · (N − 1)/N / (n · W)" in screen
    assert "B = C·b_w / (2·n·W)" in screen


def test_json_has_everything_in_base_units(capsys: pytest.CaptureFixture[str]) -> None:
    answer = json.loads(printed(capsys, PRODUCT, *SETTING, "--json"))

    assert (answer["case"], answer["cases"], answer["best"]) == (2, {"X": 2, "Y": 1}, 2)
    assert [array["local_shape"] for array in answer["arrays"]] == [[4096, 8192], [2048, 4096], [4096, 4096]]
    assert answer["strategies"][0]["collectives"][0]["bytes"] == 2 * 8192 * 32768 / 8
    assert answer["strategies"][1]["compute_bound_from"]["B"] is None
    assert answer["thresholds"][0]["dim"] == "D"
    assert {"quantity", "formula", "source"} <= set(answer["derivations"][0])


def test_json_of_an_open_question_has_nulls_for_what_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    answer = json.loads(printed(capsys, "A[I,J_X] @ B[J_X,K]", "--json"))

    assert answer["strategies"][0]["overlapped_s"] is None
    assert answer["arrays"][0]["device_bytes"] is None


def test_a_program_can_be_printed_or_be_part_of_the_json(capsys: pytest.CaptureFixture[str]) -> None:
    setting = (PRODUCT, *SETTING, "--emit", "jax", "--strategy", "1")

    text = printed(capsys, *setting)
    answer = json.loads(printed(capsys, *setting, "--json"))

    assert text.startswith('"""A[B,D] @ W[D_X,F_Y] -> C[B,F_Y]')
    assert answer["program"] == text
    compile(text, "program", "exec")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["A[B,D"], 2, "error: malformed notation: it ends too early\n  where:    NOTATION, column 6\n"),
        ([PRODUCT, "--mesh", "X=4"], 2, "error: unknown mesh axis Y\n  where:    NOTATION, column 18\n"),
        ([PRODUCT, "--sizes", "B=4"], 2, "error: size missing\n  where:    --sizes\n"),
        ([PRODUCT, "--mesh", "X=3,Y=8", "--on", "v5p:4x4x8", *SETTING[:2]], 2, "error: dimension D of W does not"),
        (
            [PRODUCT, "--mesh", "X=64,Y=64", "--on", "v5p:4x4x8", *SETTING[:2]],
            2,
            "error: mesh does not match the slice",
        ),
        ([PRODUCT, "--on", "v5p:4x4x8"], 2, "error: size missing\n"),
        ([PRODUCT, "--axis-bandwidth", "fast"], 2, "error: not a number\n  where:    --axis-bandwidth\n"),
        ([PRODUCT, "--wiring", "star"], 2, "error: unknown wiring\n"),
        ([PRODUCT, "--strategy", "2"], 2, "error: a strategy is chosen for a program\n  where:    --strategy\n"),
        (
            ["A[I,J_X] @ B[J_Y,K] -> C[I,K]{U_XY}", "--sizes", "I=4,J=4,K=4", "--mesh", "X=4,Y=4"],
            1,
            "not possible: no strategy leaves the result so\n",
        ),
        ([PRODUCT, "--emit", "jax"], 2, "error: a program needs sizes and a mesh\n"),
        (["A[B,D] @ W[D,F]", *SETTING, "--memory", "1kB"], 1, "not possible: no layout fits\n"),
    ],
)
def test_what_cannot_be_answered_gets_one_message(
    arguments: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["matmul", *arguments]) == code

    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(message), err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["A[]", "--sizes", "B=1"], "expected: no sizes: the array is a number\n"),
        (["A[B_X] -> A[B]", "--sizes", "B=8", "--mesh", "X=4", "--emit", "jax"], "where:    --emit\n"),
        ([PRODUCT, "--emit", "torch"], "invalid value for '--emit': 'torch' is not one of 'jax'\n"),
    ],
)
def test_what_is_refused_is_said_in_the_words_of_the_command_line(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["matmul", *words]) == 2

    assert said in capsys.readouterr().err
