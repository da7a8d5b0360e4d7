"""`ridgeline chips`: what is this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from ridgeline.cli import options
from ridgeline.errors import InputError

if TYPE_CHECKING:
    from ridgeline.cost.explain import Derivation
    from ridgeline.hardware.slice import Slice
    from ridgeline.report.blocks import Report
    from ridgeline.report.jsonable import Json

FIGURES = ("catalog", "scaling-book")

Answer: TypeAlias = "tuple[Report, dict[str, Json], tuple[Derivation, ...]]"
"""A screen, the same as JSON, and where its numbers come from."""


def chips(
    name: Annotated[
        str | None,
        typer.Argument(help="A chip (tpu7x, h100) or a slice (tpu7x:4x4x4, 2*v5e:16x16, h100:64, v5p-512)."),
    ] = None,
    figures: Annotated[
        str, typer.Option(help="Whose figures: catalog, or scaling-book for those the book itself uses.")
    ] = "catalog",
    explain: options.Explain = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object in base units.")] = False,
) -> None:
    """What is this machine: peaks by dtype, memory, links, shapes and price, each with its source."""
    from ridgeline.cli.output import print_json, print_report
    from ridgeline.report.derivations import explained

    if figures not in FIGURES:
        raise InputError(
            "unknown figures",
            where="--figures",
            value=figures,
            expected=" or ".join(FIGURES),
            fix="leave it out for those of the catalogue",
        )
    report, answer, derivations = (_catalogue if figures == "catalog" else _scaling_book)(name)
    if json:
        print_json(answer)
    else:
        print_report(explained(report, derivations) if explain else report)


def _catalogue(name: str | None) -> Answer:
    from ridgeline.cost.questions.explain_hardware import explain_chip
    from ridgeline.hardware.catalog import chip_names, load_chip
    from ridgeline.hardware.topology import parse_slice
    from ridgeline.report.chips import chip_json, chip_report, chips_json, chips_report

    if name is None:
        catalogue = [load_chip(known) for known in chip_names()]
        return chips_report(catalogue), chips_json(catalogue), ()
    if _is_slice(name):
        return _slice(parse_slice(name, where="NAME"))
    chip = load_chip(name, where="NAME")
    return chip_report(chip), chip_json(chip), explain_chip(chip)


def _scaling_book(name: str | None) -> Answer:
    """A chip as the book has it; a slice of the catalogue with the book's figures put over its own."""
    from ridgeline.hardware.scaling_book import scaling_book_figures, scaling_book_names, slice_of_the_book
    from ridgeline.hardware.topology import parse_slice
    from ridgeline.report.scaling_book import book_json, book_report, books_json, books_report

    if name is None:
        book = [scaling_book_figures(known) for known in scaling_book_names()]
        return books_report(book), books_json(book), ()
    if _is_slice(name):
        return _slice(slice_of_the_book(parse_slice(name, where="NAME"), where="NAME"))
    chip = scaling_book_figures(name, where="NAME")
    return book_report(chip), book_json(chip), ()


def _slice(hardware: Slice) -> Answer:
    from ridgeline.cost.questions.explain_hardware import explain_slice
    from ridgeline.report.chips import slice_json, slice_report

    return slice_report(hardware), slice_json(hardware), explain_slice(hardware)


def _is_slice(name: str) -> bool:
    from ridgeline.hardware.catalog import find_chip

    return find_chip(name) is None and (":" in name or "-" in name)
