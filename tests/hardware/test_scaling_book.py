"""The Scaling Book's own figures: its chapter-2 tables, and what becomes of a slice that uses them."""

from __future__ import annotations

from math import isnan

import pytest

from ridgeline.errors import InputError
from ridgeline.hardware.catalog import load_chip
from ridgeline.hardware.scaling_book import (
    EDITION,
    chip_of_the_book,
    scaling_book_figures,
    scaling_book_names,
    slice_of_the_book,
)
from ridgeline.hardware.topology import parse_slice

BOOK = [scaling_book_figures(name) for name in scaling_book_names()]


@pytest.mark.parametrize(
    ("name", "pod", "host", "hbm_gb", "hbm_gb_per_s", "bf16_tflops", "int8_tops", "link_gb_per_s"),
    [
        # How To Scale Your Model, ch. 2, the two tables of specifications
        ("v3", (32, 32), (4, 2), 32, 900, 140, 140, 100),
        ("v4p", (16, 16, 16), (2, 2, 1), 32, 1200, 275, 275, 45),
        ("v5p", (16, 20, 28), (2, 2, 1), 96, 2800, 459, 918, 90),
        ("v5e", (16, 16), (4, 2), 16, 810, 197, 394, 45),
        ("v6e", (16, 16), (4, 2), 32, 1600, 920, 1840, 90),
    ],
)
def test_a_row_of_the_books_tables_is_there(
    name: str,
    pod: tuple[int, ...],
    host: tuple[int, ...],
    hbm_gb: float,
    hbm_gb_per_s: float,
    bf16_tflops: float,
    int8_tops: float,
    link_gb_per_s: float,
) -> None:
    book = scaling_book_figures(name)

    assert (book.several("pod_shape"), book.several("host_shape")) == (pod, host)
    assert book.number("hbm_bytes") == hbm_gb * 1e9
    assert book.number("hbm_bytes_per_s") == hbm_gb_per_s * 1e9
    assert book.number("peak_flops_per_s.bf16") == bf16_tflops * 1e12
    assert book.number("peak_flops_per_s.int8") == int8_tops * 1e12
    assert book.number("link_bytes_per_s") == link_gb_per_s * 1e9
    assert book.number("axis_bytes_per_s") == 2 * book.number("link_bytes_per_s")


def test_every_figure_says_where_it_stands() -> None:
    for book in BOOK:
        for key, figure in book.figures.items():
            assert figure.source.startswith("ch. "), (book.name, key)
            assert all(source.startswith("ch. ") for _, source in figure.also), (book.name, key)


def test_what_the_book_does_not_say_is_unknown() -> None:
    assert isnan(scaling_book_figures("h100").number("hbm_bytes"))
    assert scaling_book_figures("h100").several("pod_shape") == ()
    assert isnan(scaling_book_figures("h100").num_pod_chips)


def test_a_chip_answers_to_its_names_in_book_and_catalogue() -> None:
    assert scaling_book_figures("TPU_v4p") is scaling_book_figures("v4") is scaling_book_figures("v4p")


def test_a_chip_that_the_book_does_not_treat_is_refused() -> None:
    with pytest.raises(InputError) as refused:
        scaling_book_figures("tpu7x", where="--on")

    assert refused.value.where == "--on"
    assert "v5e" in refused.value.expected


def test_the_catalogue_keeps_its_own_figures() -> None:
    ours, books = load_chip("v5e"), chip_of_the_book(load_chip("v5e"))

    assert (ours.hbm_bytes_per_s, books.hbm_bytes_per_s) == (819e9, 810e9)
    assert books.facts["hbm_bytes_per_s"].source == f"{EDITION}, ch. 2, tpus.md:182"
    assert books.facts["smem_bytes"] == ours.facts["smem_bytes"]


@pytest.mark.parametrize(
    ("name", "ridge", "alpha", "tokens_per_slice"),
    [("v4", 229.2, 3055.6, 44_000), ("v5p", 163.9, 2550, 73_440), ("v5e", 243.2, 2188.9, 63_040)],
)
def test_intensities_of_the_books_chips_are_the_books(
    name: str, ridge: float, alpha: float, tokens_per_slice: float
) -> None:
    """Ch. 1, 5 and 8: C/W_hbm, C/W_ici over one axis; ch. 5: C over a chip's share of 25e9 B/s a host."""
    chip = chip_of_the_book(load_chip(name))

    assert chip.hbm_flops_per_byte == pytest.approx(ridge, rel=1e-3)
    assert chip.link_flops_per_byte == pytest.approx(alpha, rel=1e-3)
    assert chip.network_flops_per_byte == pytest.approx(tokens_per_slice, rel=0.01 if name != "v5e" else 1e-3)


@pytest.mark.parametrize("name", ["v5e:8x16", "2*v5p:4x4x8", "v3:32x32", "h100:16"])
def test_a_slice_of_the_book_is_wired_as_before_at_the_books_rates(name: str) -> None:
    ours = parse_slice(name)
    books = slice_of_the_book(ours)

    assert books.name == ours.name
    assert [(axis.name, axis.size, axis.wiring) for axis in books.axes] == [
        (axis.name, axis.size, axis.wiring) for axis in ours.axes
    ]
    if books.chip.torus is not None:
        torus_axes = [axis for axis in books.axes if axis.name in {"x", "y", "z"}]
        assert {axis.bytes_per_s for axis in torus_axes} == {books.chip.torus.link_bytes_per_s}


def test_programs_can_use_no_more_memory_than_the_book_says_there_is() -> None:
    for book in BOOK:
        if book.name in {"v3", "v4", "v5p", "v5e", "v6e", "h100"}:
            chip = chip_of_the_book(load_chip(book.name))
            assert chip.usable_hbm_bytes <= chip.hbm_bytes
