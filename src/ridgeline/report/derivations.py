"""Where numbers come from, as a learner reads it: the formula, the same with the values in, on whose word."""

from __future__ import annotations

import re
from dataclasses import replace
from math import isfinite
from typing import TYPE_CHECKING

from ridgeline.report.blocks import Cell, Facts, Paragraphs, Report
from ridgeline.report.jsonable import jsonable
from ridgeline.units import (
    format_decimal_bytes,
    format_flops,
    format_flops_per_s,
    format_rate_bytes_per_s,
    format_seconds,
    format_usd,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ridgeline.cost.explain import Derivation
    from ridgeline.report.blocks import Piece
    from ridgeline.report.jsonable import Json

_FORMATS: Mapping[str, Callable[[float], str]] = {
    "bytes_per_s": format_rate_bytes_per_s,
    "flops_per_s": format_flops_per_s,
    "flops_per_byte": lambda intensity: f"{_plain(intensity)} FLOP/B",
    "cycles_per_s": lambda rate: f"{_plain(rate)} cycles/s",
    "count_per_s": lambda rate: f"{_plain(rate)}/s",
    "flops_per_usd": lambda work: f"{format_flops(work)}/$",
    "tokens_per_chip": lambda count: f"{_plain(count)} tokens/chip",
    "flops_per_token": lambda work: f"{format_flops(work)}/token",
    "bytes": format_decimal_bytes,
    "flops": format_flops,
    "tokens": lambda count: f"{_plain(count)} tokens",
    "usd": format_usd,
    "per_s": lambda rate: f"{_plain(rate)}/s",
    "s": format_seconds,
}
"""By the unit a name ends in, longest first."""

_GREEK = {"alpha": "α", "beta": "β", "kappa": "κ"}
"""Letters that a Python name spells out."""

_WORDS = {
    "dcn": "DCN",
    "dp": "DP",
    "flops": "FLOPs",
    "fsdp": "FSDP",
    "hbm": "HBM",
    "kv": "KV",
    "mfu": "MFU",
    "num": "number of",
    "usd": "dollars",
    "vmem": "VMEM",
}
"""Words of a function's name as people write them."""

_FUNCTIONS = {"log", "max", "min", "round", "sqrt"}
"""Names in a formula that stand for no value."""

_SMALLEST_ROUNDED = 1000
_LARGEST_WRITTEN_OUT = 2**40
_LONG_S = 120.0
_NAME = re.compile(r"[^\W\d²³][^\W²³]*")
_LEGEND = "Each formula as it computed the number. The letters are those of How To Scale Your Model."


def explained(report: Report, derivations: Sequence[Derivation]) -> Report:
    """The screen of an answer with where its numbers come from below it."""
    return replace(report, pieces=(*report.pieces, *derivation_pieces(derivations)))


def derivation_pieces(derivations: Sequence[Derivation]) -> tuple[Piece, ...]:
    """One block for each number, in their order."""
    if not derivations:
        return ()
    legend = Paragraphs(title="Where the numbers come from", lines=(Cell(text=_LEGEND, tone="dim"),))
    return (legend, *(Facts(title=_title(each), rows=tuple(_rows(each))) for each in derivations))


def derivations_json(derivations: Sequence[Derivation]) -> list[Json]:
    """What `--json` carries under `derivations`: the same, in base units.

    >>> from ridgeline.cost.collectives import permute_s
    >>> from ridgeline.cost.explain import derive
    >>> derivations_json([derive(permute_s, V_bytes=9e9, W_bytes_per_s=4.5e10)])[0]["values"]
    {'V_bytes': 9000000000.0, 'W_bytes_per_s': 45000000000.0}
    """
    return [
        {
            "quantity": each.quantity,
            "value": jsonable(each.value),
            "unit": each.unit,
            "formula": each.formula,
            "values": jsonable(dict(each.values)),
            "assumes": each.assumes,
            "source": each.source,
        }
        for each in derivations
    ]


def _title(derivation: Derivation) -> str:
    quantity = " ".join(_WORDS.get(word, word) for word in derivation.quantity.split(" "))
    return f"{quantity[:1].upper()}{quantity[1:]}: {_shown(derivation.value, derivation.unit)}"


def _rows(derivation: Derivation) -> Iterator[tuple[str, Cell]]:
    yield "formula", Cell(text=derivation.formula, tone="strong")
    if derivation.values:
        values = ", ".join(f"{letter} = {text}" for letter, text in _put_in(derivation).items())
        yield "with", Cell(text=values)
    if worked := _worked(derivation):
        yield "so", Cell(text=worked)
    if derivation.assumes:
        yield "assumes", Cell(text=derivation.assumes)
    yield "source", Cell(text=derivation.source, tone="dim")


def _put_in(derivation: Derivation) -> dict[str, str]:
    """Each value as people write it, by the name that the formula has for it, or else in words.

    Where one value and one name of the formula are left without a partner, they are each other's.
    """
    named = [*dict.fromkeys(_NAME.findall(_right_side(derivation.formula)))]
    letters = {name: _letter(name, set(named)) for name, _ in derivation.values}
    without = [name for name, letter in letters.items() if letter not in named]
    left = [letter for letter in named if letter not in {*letters.values(), *_FUNCTIONS}]
    if len(without) == len(left) == 1:
        letters[without[0]] = left[0]
    return {
        letters[name] if letters[name] in named else _in_words(letters[name]): _term(value, _unit(name))
        for name, value in derivation.values
    }


def _in_words(name: str) -> str:
    return name if name.startswith("T_") else name.replace("_", " ")


def _worked(derivation: Derivation) -> str:
    """The formula with the values in its letters' place; "" where it does not name them all."""
    right, texts = _right_side(derivation.formula), _put_in(derivation)
    if not texts or not set(texts) <= set(_NAME.findall(right)):
        return ""
    result = _shown(derivation.value, derivation.unit)
    worked = _NAME.sub(lambda name: texts.get(name[0], name[0]), right)
    equals = ":" if isinstance(derivation.value, bool) else " ="
    return f"{derivation.formula.removesuffix(right)}{worked}{equals} {result}"


def _right_side(formula: str) -> str:
    return formula.rpartition(" = ")[2]


def _unit(name: str) -> str:
    """The unit that a name ends in; `T_math` and its like are times."""
    usual = "s" if name.startswith("T_") else ""
    return next((unit for unit in _FORMATS if name == unit or name.endswith(f"_{unit}")), usual)


def _letter(name: str, known: set[str]) -> str:
    """The name as the formula has it: as it is, without its unit, as a time (`hop_s` is t_hop), or in Greek."""
    unit = _unit(name)
    bare = name.removesuffix(f"_{unit}")
    written = (name, bare, f"t_{bare}", _GREEK.get(bare, bare))
    return next((letter for letter in written if letter in known), bare)


def _term(value: float, unit: str) -> str:
    """A value as part of a formula: long times in seconds, which the formula counts in."""
    return f"{_plain(value)} s" if unit == "s" and value >= _LONG_S else _shown(value, unit)


def _shown(value: float, unit: str) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return _FORMATS.get(unit, _plain)(value)


def _plain(value: float) -> str:
    """A number written out if that is short: `28,672`, `0.375`, `1.97e+14`."""
    whole = isfinite(value) and value == int(value)
    if (whole or abs(value) >= _SMALLEST_ROUNDED) and abs(value) < _LARGEST_WRITTEN_OUT:
        return f"{value:,.0f}"
    return f"{value:.4g}"
