"""Every number shows its formula: what was computed, from which values, on whose word.

A formula stands once, as a function. Its docstring carries three paragraphs that open with a word each:

    Formula: T = V · (N − 1)/N / (n · W)
    Assumes: bandwidth-bound, one collective at a time.      (optional)
    Source: Scaling Book, ch. 3.

`derive` calls the function and reads them, so that an explanation cannot say anything but what was done.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from ridgeline.cost.work import Number

UNITS = (
    "bytes_per_s",
    "flops_per_s",
    "cycles_per_s",
    "count_per_s",
    "flops_per_byte",
    "flops_per_usd",
    "flops_per_token",
    "tokens_per_chip",
    "bytes",
    "flops",
    "tokens",
    "usd",
    "per_s",
    "s",
)
"""Endings of a formula's name that are its unit; of those that fit, the longest counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Derivation:
    """One number with where it comes from.

    Attributes:
        quantity: What it is: the function's name without its unit, as words.
        value: The number, in base units; True or False for a condition.
        unit: `s`, `bytes`, `flops_per_s`, …; "" for a plain number.
        formula: In the letters of the source.
        values: What was put in, by letter or name, in the order of the function's parameters.
        assumes: What the formula takes for granted; "" for nothing beyond its source.
        source: Paper or book, section, date.
    """

    quantity: str
    value: float
    unit: str
    formula: str
    values: tuple[tuple[str, float], ...]
    assumes: str
    source: str


def derive(function: Callable[..., Number], /, **values: float) -> Derivation:
    """Calls a formula and says what it did.

    >>> from ridgeline.cost.collectives import permute_s
    >>> hop = derive(permute_s, V_bytes=9e9, W_bytes_per_s=4.5e10)
    >>> hop.quantity, hop.value, hop.unit, hop.formula
    ('permute', 0.2, 's', 'T = V / W')

    Args:
        function: A formula of `cost/`, with a `Formula:` and a `Source:` paragraph.
        **values: Its arguments.
    """
    name = function.__name__
    unit = max((unit for unit in UNITS if name.endswith(f"_{unit}")), key=len, default="")
    paragraphs = paragraphs_of(function)
    value = function(**values)
    return Derivation(
        quantity=name.removesuffix(f"_{unit}").replace("_", " ") if unit else name.replace("_", " "),
        value=value if isinstance(value, bool) else float(value),
        unit=unit,
        formula=paragraphs["Formula"],
        values=tuple(values.items()),
        assumes=paragraphs.get("Assumes", ""),
        source=paragraphs["Source"],
    )


def paragraphs_of(function: Callable[..., object]) -> dict[str, str]:
    """The opening-word paragraphs of a formula's docstring, each as one line.

    >>> from ridgeline.cost.collectives import permute_s
    >>> sorted(paragraphs_of(permute_s))
    ['Formula', 'Source']
    """
    found: dict[str, str] = {}
    for paragraph in (inspect.getdoc(function) or "").split("\n\n"):
        word, colon, rest = paragraph.partition(": ")
        if colon and word in {"Formula", "Assumes", "Source"}:
            found[word] = " ".join(rest.split())
    return found
