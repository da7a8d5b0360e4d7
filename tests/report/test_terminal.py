"""A report on a screen: aligned, within its width, styled only when asked."""

import math
import os
import subprocess
import sys

import pytest

from ridgeline.report.blocks import Bar, Bars, Cell, Facts, Paragraphs, Piece, Report, Table
from ridgeline.report.terminal import render

SENTENCE = "tensor-parallel all-gathers on the core axis are exposed for six tenths of a second"


def plain(piece: Piece, width: int = 80) -> str:
    return render(Report(headline="Headline", pieces=(piece,)), width=width, colour=False)


def alternatives() -> Table:
    rows = (("fsdp=64 tp=2", "minimal_with_context", "12.9 s", SENTENCE), ("fsdp=128", "full", "114 s", "recomputes"))
    return Table(
        title="Alternatives",
        columns=("mesh", "remat", "step", "slower because"),
        rows=tuple(tuple(Cell(text=text) for text in row) for row in rows),
        right=frozenset({2}),
    )


def test_labels_and_values_form_two_columns() -> None:
    text = plain(Facts(title="Best plan", rows=(("mesh", Cell(text="fsdp=128")), ("bound by", Cell(text="compute")))))

    assert text == "Headline\n\nBest plan\n  mesh      fsdp=128\n  bound by  compute\n"


def test_a_long_value_continues_under_its_own_column() -> None:
    lines = plain(Facts(rows=(("why", Cell(text=SENTENCE)),)), width=40).splitlines()

    assert lines[2].startswith("  why  tensor-parallel")
    assert lines[3].startswith("       ")


def test_numbers_are_right_aligned_under_their_header() -> None:
    lines = plain(alternatives(), width=140).splitlines()

    header, _, first, second = lines[3:7]
    end = header.index("step") + len("step")
    assert first[:end].endswith("12.9 s")
    assert second[:end].endswith("114 s")


@pytest.mark.parametrize("width", [60, 72, 80, 100, 120, 140])
def test_no_line_is_wider_than_the_screen_and_no_number_is_cut(width: int) -> None:
    text = plain(alternatives(), width=width)

    assert max(map(len, text.splitlines())) <= width
    assert "12.9 s" in text
    assert "114 s" in text


def test_a_folded_sentence_keeps_every_word() -> None:
    words = plain(alternatives(), width=80).split()

    assert [word for word in SENTENCE.split() if word not in words] == []


def test_a_bar_is_as_long_as_its_share_of_the_largest() -> None:
    bars = Bars(bars=(Bar(label="forward", value=3, text="3.00 s"), Bar(label="backward", value=6, text="6.00 s")))

    forward, backward = (line.count("█") for line in plain(bars).splitlines()[2:])

    assert abs(backward - 2 * forward) <= 1


def test_a_tiny_bar_still_shows_and_an_unknown_one_is_empty() -> None:
    bars = (Bar(label="all", value=1e9, text="1 GB"), Bar(label="tiny", value=1, text="1 B"))
    unknown = Bar(label="unknown", value=math.nan, text="unknown")

    lines = plain(Bars(bars=(*bars, unknown))).splitlines()

    assert lines[3].endswith("1 B  ▏")
    assert lines[4].endswith("unknown  unknown")


def test_a_bar_shows_the_capacity_it_is_measured_against_and_when_it_is_exceeded() -> None:
    bars = Bars(bars=(Bar(label="fits", value=5, text="5"), Bar(label="over", value=12, text="12")), full=10)

    fits, over = plain(bars).splitlines()[2:]

    assert fits.endswith(" │")
    assert over.endswith("█▶")
    assert fits.index("│") == over.index("▶")


def test_text_in_brackets_is_not_taken_for_markup() -> None:
    assert "[bold]A[I_x, J][/bold]" in plain(Paragraphs(lines=(Cell(text="[bold]A[I_x, J][/bold]"),)))


def test_styles_appear_only_when_colour_is_asked_for() -> None:
    report = Report(headline="H", pieces=(Facts(rows=(("verdict", Cell(text="fits", tone="good")),)),))

    assert "\x1b[32mfits" in render(report, width=80, colour=True)
    assert "\x1b" not in render(report, width=80, colour=False)


@pytest.mark.parametrize(
    ("variables", "styled"), [({}, False), ({"FORCE_COLOR": "1"}, True), ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False)]
)
def test_piped_output_is_plain_unless_colour_is_forced(variables: dict[str, str], *, styled: bool) -> None:
    program = (
        "from ridgeline.report.blocks import *; from ridgeline.report.terminal import screen;"
        "print(screen(Report(headline='H', pieces=())))"
    )
    environment = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "FORCE_COLOR"}}

    done = subprocess.run([sys.executable, "-c", program], env=environment | variables, capture_output=True, check=True)

    assert (b"\x1b" in done.stdout) == styled
