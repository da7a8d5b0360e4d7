"""A second, named source: the figures that the book *How To Scale Your Model* itself uses.

They reproduce its numbers, whose rounding and dates are its own; plans are made with the catalogue. A chip or a
slice of the catalogue can be had with the book's figures put over its own.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from math import nan, prod
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from ridgeline.errors import InputError, nearest
from ridgeline.hardware.catalog import load_chip
from ridgeline.hardware.chip import Fact, Price
from ridgeline.hardware.topology import legal_shapes, torus_slice, written

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ridgeline.hardware.chip import Chip, Torus
    from ridgeline.hardware.slice import Slice

EDITION = "How To Scale Your Model, revision 0819a7d (2025-02-18)"
"""What a source of a figure is a place in."""

GENERAL = "general"
"""The name of the figures that the book states of all chips."""

BookValue: TypeAlias = "float | str | tuple[float | str, ...]"
"""A number, a word, or several: a shape, a range, an order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BookFigure:
    """One figure of the book.

    Attributes:
        value: In the base unit that ends its key.
        source: Chapter, file and line of the edition.
        note: What it holds for.
        also: What the book uses elsewhere for the same quantity, with the place.
    """

    value: BookValue
    source: str
    note: str = ""
    also: tuple[tuple[float, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BookFigures:
    """What the book says of one chip, or of all.

    Attributes:
        name: As in the catalogue, where that has the chip.
        title: What the book calls it.
        aliases: Other names it answers to.
        figures: By key; what the book does not say is absent.
    """

    name: str
    title: str
    aliases: tuple[str, ...]
    figures: Mapping[str, BookFigure]

    def number(self, key: str) -> float:
        """A figure that is one number; NaN where the book does not say."""
        value = self.figures[key].value if key in self.figures else nan
        return value if isinstance(value, int | float) else nan

    def several(self, key: str) -> tuple[float | str, ...]:
        """A figure that is several values; empty where the book does not say."""
        value = self.figures[key].value if key in self.figures else ()
        return value if isinstance(value, tuple) else ()

    @property
    def chips_per_host(self) -> float:
        """Chips one host drives; NaN where the book does not say."""
        shape = [side for side in self.several("host_shape") if not isinstance(side, str)]
        return prod(shape) if shape else nan

    @property
    def num_pod_chips(self) -> float:
        """Chips of the largest slice; NaN where the book does not say."""
        shape = [side for side in self.several("pod_shape") if not isinstance(side, str)]
        return prod(shape) if shape else nan


def scaling_book_names() -> tuple[str, ...]:
    """The chips of the book, from the oldest; the name of what holds for all of them last."""
    return tuple(_book())


def scaling_book_figures(name: str = GENERAL, *, where: str = "chip") -> BookFigures:
    """What the book says of a chip.

    >>> v5e = scaling_book_figures("tpu_v5e")
    >>> v5e.number("hbm_bytes_per_s"), v5e.several("pod_shape"), v5e.chips_per_host
    (810000000000.0, (16, 16), 8)

    Args:
        name: As in the catalogue or in the book, in upper or lower case; `general` for what holds for all chips.
        where: The key or flag it came from, for the error message.

    Raises:
        InputError: The book has no such chip.
    """
    known = {alias: figures for figures in _book().values() for alias in (figures.name, *figures.aliases)}
    figures = known.get(name.strip().lower())
    if figures is None:
        raise InputError(
            "the Scaling Book has no figures of this chip",
            where=where,
            value=name,
            expected=f"one of {', '.join(scaling_book_names())}",
            fix=nearest(name, known) or "leave out the choice of figures for those of the catalogue",
        )
    return figures


def chip_of_the_book(chip: Chip, *, where: str = "chip") -> Chip:
    """A chip of the catalogue with the book's figures put over its own; the rest stays, with its own source.

    >>> from ridgeline.hardware.catalog import load_chip
    >>> chip_of_the_book(load_chip("v5e")).hbm_flops_per_byte  # 197e12 / 810e9
    243.2...

    Raises:
        InputError: The book has no such chip.
    """
    book = scaling_book_figures(chip.name, where=where)
    facts = {**chip.facts, **dict(_facts(book, chip))}

    def value(key: str) -> float:
        return facts[key].value

    return replace(
        chip,
        peak_flops_per_s={key.removeprefix(_PEAK): fact.value for key, fact in facts.items() if key.startswith(_PEAK)},
        hbm_bytes=value("hbm_bytes"),
        usable_hbm_bytes=min(chip.usable_hbm_bytes, value("hbm_bytes")),
        hbm_bytes_per_s=value("hbm_bytes_per_s"),
        chips_per_host=int(value("chips_per_host")),
        pcie_bytes_per_s=value("pcie_bytes_per_s"),
        network_bytes_per_s=value("network_bytes_per_s"),
        torus=None if chip.torus is None else _torus(chip.torus, book, facts),
        prices=(*_prices(book), *chip.prices),
        facts=facts,
    )


def slice_of_the_book(hardware: Slice, *, where: str = "on") -> Slice:
    """A slice of the catalogue with the book's figures put over its own.

    Raises:
        InputError: The book has no such chip.
    """
    chip = chip_of_the_book(hardware.chip, where=where)
    if chip.torus is None:
        return replace(hardware, chip=chip)
    return torus_slice(chip, chip.torus, hardware.shape, hardware.num_slices)


def smallest_slice(chip: str, num_chips: float, *, where: str = "num_chips") -> str:
    """The smallest slice of at least so many chips, its shape written as the book writes it.

    >>> smallest_slice("v5e", 7.06), smallest_slice("v5e", 33)
    ('4x2', '8x8')

    Args:
        chip: A TPU, as in the catalogue or in the book.
        num_chips: That are needed; a fraction where memory was divided.
        where: The argument, for error messages.

    Raises:
        InputError: The book has no such TPU, or no slice is so large.
    """
    name = scaling_book_figures(chip, where="chip").name
    torus = load_chip(name).torus
    listed = [str(shape) for shape in scaling_book_figures(name).several("listed_shapes")]
    shapes = [*listed, *map(written, () if torus is None else legal_shapes(torus))]
    sizes = {shape: prod(map(int, shape.split("x"))) for shape in shapes}
    enough = [shape for shape in shapes if sizes[shape] >= num_chips]
    if not enough:
        largest = max(sizes.values(), default=0)
        raise InputError(
            "no slice is so large",
            where=where,
            value=num_chips,
            expected=f"at most {largest:,} chips of {chip}",
            fix="narrow the weights or the cache, or use several slices",
        )
    return min(enough, key=lambda shape: sizes[shape])  # the first of the smallest: as the book lists it


_PEAK = "peak_flops_per_s."


_OVERLAID = (
    "hbm_bytes",
    "hbm_bytes_per_s",
    "pcie_bytes_per_s",
    "torus.link_bytes_per_s",
    "torus.hop_latency_s",
)
"""Figures of a catalogue chip, beside its peaks, that the book also has; by the catalogue's key."""


def _facts(book: BookFigures, chip: Chip) -> Iterator[tuple[str, Fact]]:
    """The book's figures as facts of the catalogue; what holds for all chips holds for TPUs."""
    general: Mapping[str, BookFigure] = {} if chip.torus is None else scaling_book_figures().figures
    peaks = (key for key in book.figures if key.startswith(_PEAK))
    for key in (*peaks, *_OVERLAID):
        name = key.removeprefix("torus.")
        figure = book.figures.get(name, general.get(name))
        if figure is not None and isinstance(figure.value, int | float):
            source = f"{EDITION}, {figure.source}"
            yield key, Fact(value=float(figure.value), kind="published", source=source, note=figure.note)
    if chip.torus is not None:
        host, network = book.figures["host_shape"], general["host_network_bytes_per_s"]
        chips, host_bytes_per_s = book.chips_per_host, scaling_book_figures().number("host_network_bytes_per_s")
        yield "chips_per_host", Fact(value=chips, kind="derived", source=f"{EDITION}, {host.source}")
        yield (
            "network_bytes_per_s",
            Fact(
                value=host_bytes_per_s / chips,
                kind="derived",
                source=f"{EDITION}, {network.source}",
                note=f"{host_bytes_per_s:g} a host / {chips:g} chips.",
            ),
        )


def _torus(torus: Torus, book: BookFigures, facts: Mapping[str, Fact]) -> Torus:
    pod_shape = tuple(int(side) for side in book.several("pod_shape"))
    return replace(
        torus,
        pod_shape=pod_shape or torus.pod_shape,
        link_bytes_per_s=facts["torus.link_bytes_per_s"].value,
        hop_latency_s=facts["torus.hop_latency_s"].value,
    )


def _prices(book: BookFigures) -> Iterator[Price]:
    figure = book.figures.get("usd_per_chip_hour")
    if figure is not None:
        yield Price(
            usd_per_chip_hour=book.number("usd_per_chip_hour"),
            term="on_demand",
            provider="not said",
            region="not said",
            date="2025-02",
            source=f"{EDITION}, {figure.source}",
        )


@cache
def _book() -> Mapping[str, BookFigures]:
    text = (resources.files("ridgeline.hardware") / "scaling_book.toml").read_text(encoding="utf-8")
    return {name: _read_figures(name, table) for name, table in tomllib.loads(text).items()}


def _read_figures(name: str, table: Mapping[str, Any]) -> BookFigures:
    """One chip of the file. The file is ours, so a fault in it is a bug and may raise anything."""
    return BookFigures(
        name=name, title=table["title"], aliases=tuple(table["aliases"]), figures=dict(_read_tables(table))
    )


def _read_tables(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, BookFigure]]:
    """Every table that holds a `value`, under its dotted key."""
    for key, entry in table.items():
        if not isinstance(entry, dict):
            continue
        inner = cast("dict[str, Any]", entry)
        if "value" in inner:
            value = inner["value"]
            yield (
                prefix + key,
                BookFigure(
                    value=tuple(cast("list[float | str]", value)) if isinstance(value, list) else value,
                    source=inner["source"],
                    note=inner.get("note", ""),
                    also=tuple((other["value"], other["source"]) for other in inner.get("also", ())),
                ),
            )
        else:
            yield from _read_tables(inner, f"{prefix}{key}.")
