"""A table on a narrow screen: what stands side by side, what goes under its row, and that nothing is cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.report.blocks import Cell, Report, Table
from ridgeline.report.table_layout import GAP, laid_out
from ridgeline.report.terminal import render

REASON = "7.8% faster on paper, less than the estimate resolves; needs cp, 4 micro-steps"
ROWS = (
    ("fsdp=64 cp=2", "4", "minimal_with_context", "11.0 s", "79.2 GiB", REASON),
    ("dp=2 fsdp=64", "2", "save_dot_with_context_except_mlp", "12.2 s", "72.4 GiB", "weight gathers +259 ms"),
)


def alternatives(rows: tuple[tuple[str, ...], ...] = ROWS) -> Table:
    return Table(
        columns=("mesh", "passes", "remat", "step", "memory", "beside the best"),
        right=frozenset({1, 3, 4}),
        rows=tuple(tuple(Cell(text=text) for text in row) for row in rows),
    )


def drawn(table: Table, width: int) -> str:
    return render(Report(headline="H", pieces=(table,)), width=width, colour=False)


def test_a_wide_screen_holds_every_column_in_full() -> None:
    layout = laid_out(alternatives(), width=200)

    assert layout.below == ()
    assert layout.widths[5] == len(REASON)


def test_on_a_shorter_line_the_prose_folds_first() -> None:
    layout = laid_out(alternatives(), width=118)

    assert layout.below == ()
    assert layout.widths == {0: 12, 1: 6, 2: 32, 3: 6, 4: 8, 5: 118 - 64 - 5 * GAP}


def test_prose_that_has_no_room_goes_under_its_row() -> None:
    assert drawn(alternatives(), 80) == (
        "H\n\n"
        "  mesh          passes  remat                               step    memory\n"
        "  ────────────────────────────────────────────────────────────────────────\n"
        "  fsdp=64 cp=2       4  minimal_with_context              11.0 s  79.2 GiB\n"
        "    7.8% faster on paper, less than the estimate resolves; needs cp,\n"
        "    4 micro-steps\n"
        "  dp=2 fsdp=64       2  save_dot_with_context_except_mlp  12.2 s  72.4 GiB\n"
        "    weight gathers +259 ms\n"
    )


def test_then_the_widest_label_goes_under_its_row_too() -> None:
    lines = drawn(alternatives(), 60).splitlines()

    assert lines[4:7] == [
        "  fsdp=64 cp=2       4  11.0 s  79.2 GiB",
        "    remat minimal_with_context",
        "    7.8% faster on paper, less than the estimate resolves;",
    ]


def test_a_mesh_folds_between_its_axes() -> None:
    table = alternatives((("dp=2 fsdp=16 tp=4 dcn_dp=2", *ROWS[0][1:]),))
    lines = drawn(table, 50).splitlines()

    assert lines[4:6] == ["  dp=2 fsdp=16 tp=4            4  11.0 s  79.2 GiB", "  dcn_dp=2"]


def test_a_header_folds_before_numbers_go_under_the_row() -> None:
    table = Table(
        columns=("chip", "HBM bandwidth", "$/chip-hour"),
        rows=((Cell(text="tpu7x"), Cell(text="7.38 TB/s"), Cell(text="$12.00")),),
        right=frozenset({1, 2}),
    )

    assert drawn(table, 27) == (
        "H\n\n"
        "               HBM  $/chip-\n"
        "  chip   bandwidth     hour\n"
        "  ─────────────────────────\n"
        "  tpu7x  7.38 TB/s   $12.00\n"
    )
    assert drawn(table, 26).splitlines()[-2:] == ["  tpu7x      7.38 TB/s", "    $/chip-hour $12.00"]


def test_what_is_absent_needs_no_words_under_a_row() -> None:
    cells = (Cell(text="gb300"), Cell(text="8.00 TB/s"), Cell(text="–", tone="dim"))
    table = Table(columns=("chip", "bandwidth", "price"), rows=(cells,), right=frozenset({1, 2}))

    assert drawn(table, 20).endswith("  gb300  8.00 TB/s\n")


@pytest.mark.parametrize("width", range(30, 121, 5))
def test_no_number_no_mesh_and_no_word_is_cut_at_any_width(width: int) -> None:
    text = drawn(alternatives(), width)

    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    for row in ROWS:
        assert [cell for cell in (row[1], row[3], row[4], *row[0].split()) if cell not in text] == []
        assert [word for word in f"{row[2]} {row[5]}".split() if word not in text] == [] or width < 40


def test_a_number_stays_with_its_unit_when_a_line_folds() -> None:
    table = Table(
        columns=("plan", "because"), rows=((Cell(text="dp"), Cell(text="needs at least 1.06 TiB of 94.8 GiB")),)
    )

    for width in range(30, 60):
        assert {"1.06 TiB", "94.8 GiB"} <= {
            part for line in drawn(table, width).splitlines() for part in ("1.06 TiB", "94.8 GiB") if part in line
        }


@given(
    st.lists(st.tuples(*[st.text("abc =_-", max_size=40)] * 3, st.integers(0, 10**9).map(str)), max_size=4),
    st.integers(1, 150),
)
def test_columns_fit_the_line_or_only_the_first_is_left(rows: list[tuple[str, ...]], width: int) -> None:
    table = Table(
        columns=("mesh", "remat", "why", "step"),
        rows=tuple(tuple(Cell(text=text) for text in row) for row in rows),
        right=frozenset({3}),
    )
    layout = laid_out(table, width=width)

    assert sorted({*layout.widths, *layout.below}) == [0, 1, 2, 3]
    assert sum(layout.widths.values()) + GAP * (len(layout.widths) - 1) <= width or list(layout.widths) == [0]
