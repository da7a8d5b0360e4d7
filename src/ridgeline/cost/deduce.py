"""Everything that follows from what is known.

Formulas that share the names of their parameters form a system: what one gives, another takes. Told some
quantities, `deduce` applies every formula whose parameters are known, until none is left. What is given is never
computed again, so that any constant, and any intermediate figure, can be replaced by the caller's own.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import cache
from math import isfinite
from typing import TYPE_CHECKING, TypeAlias

from ridgeline.cost.explain import Derivation, derive
from ridgeline.errors import InputError, nearest
from ridgeline.units import parse_bytes, parse_count, parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ridgeline.cost.work import Number

Formula: TypeAlias = "Callable[..., Number]"
"""A function of keywords with a `Formula:` and a `Source:` paragraph."""

System: TypeAlias = "tuple[tuple[str, Formula], ...]"
"""What each formula gives, under the name that the others know it by; of several for one quantity the first wins."""


def system(*formulas: Formula, **named: Formula) -> System:
    """Formulas that give what they are called, and some whose quantity has another name (a letter)."""
    return (*named.items(), *((formula.__name__, formula) for formula in formulas))


@dataclass(frozen=True, slots=True, kw_only=True)
class Deduced:
    """What is known in the end.

    Attributes:
        values: Every quantity, given or derived, in base units; a condition is True or False.
        derivations: One for each derived quantity, by its name, in the order in which they followed.
        formulas: The system they were derived from.
    """

    values: Mapping[str, float]
    derivations: Mapping[str, Derivation]
    formulas: System

    def __contains__(self, quantity: str) -> bool:
        """Whether a quantity is known."""
        return quantity in self.values

    def __getitem__(self, quantity: str) -> float:
        """A quantity in its base unit.

        Raises:
            InputError: It is not known; the message says what is missing.
        """
        if quantity in self.values:
            return self.values[quantity]
        wanting = [self._missing(formula) for name, formula in self.formulas if name == quantity]
        raise InputError(
            "this cannot be said of what is given" if wanting else "unknown quantity",
            where=quantity,
            value=", ".join(self.values) or "nothing given",
            expected=f"also {' or '.join(wanting)}" if wanting else "one of the system's quantities",
            fix="give those" if wanting else nearest(quantity, quantities(self.formulas)) or "see its documentation",
        )

    def depends(self, quantity: str, *, on: str) -> bool:
        """Whether a derived quantity would change with another: whether that went into it, at any remove."""
        put_in = dict(self.derivations[quantity].values) if quantity in self.derivations else {}
        return on in put_in or any(self.depends(name, on=on) for name in put_in)

    def _missing(self, formula: Formula) -> str:
        return " and ".join(name for name in _required(formula) if name not in self.values)


def deduce(formulas: System, values: Mapping[str, float]) -> Deduced:
    """Applies every formula whose parameters are known, in the order of the system, again and again.

    A parameter with a default is put in if it is known by then; formulas that give such ones therefore come first.

    >>> def seconds_s(*, V_bytes: float, W_bytes_per_s: float) -> float:
    ...     '''Time.
    ...
    ...     Formula: T = V / W
    ...
    ...     Source: here.
    ...     '''
    ...     return V_bytes / W_bytes_per_s
    >>> deduce(system(seconds_s), {"V_bytes": 8.0, "W_bytes_per_s": 2.0})["seconds_s"]
    4.0

    Args:
        formulas: The system.
        values: What is given, in base units, by the name the formulas have for it.

    Raises:
        InputError: A name is not one of the system's.
    """
    for name, value in values.items():
        if name not in quantities(formulas):
            fix = nearest(name, quantities(formulas)) or "leave it out"
            expected = "a quantity of the system"
            raise InputError("unknown quantity", where=name, value=value, expected=expected, fix=fix)
    found, derivations = dict(values), dict[str, Derivation]()
    while step := next(_applicable(formulas, found), None):
        quantity, formula = step
        put_in = {name: found[name] for name in _parameters(formula) if name in found}
        derivations[quantity] = derive(formula, **put_in)
        found[quantity] = derivations[quantity].value
    return Deduced(values=found, derivations=derivations, formulas=formulas)


def read_quantities(given: Mapping[str, float | str], *, where: str = "") -> dict[str, float]:
    """Quantities as numbers in base units; text is read by the unit that ends a name.

    >>> read_quantities({"run_s": "2 days", "hbm_bytes": "96GB", "run_tokens": "15T", "N": 64})
    {'run_s': 172800.0, 'hbm_bytes': 96000000000.0, 'run_tokens': 15000000000000.0, 'N': 64}

    Args:
        given: By name.
        where: The flag they came from, for error messages; "" where each is an argument of its own.

    Raises:
        InputError: A value is not a finite number above zero (0 is allowed for `stage` and `overlapped`), or a
            fraction is above one.
    """
    found: dict[str, float] = {}
    for name, value in given.items():
        place = f"{where}: {name}" if where else name
        number = _parser(name)(value, where=place) if isinstance(value, str) else value
        positive = number > 0 or isinstance(number, bool) or (number == 0 and name in _FROM_ZERO)
        if not (isfinite(number) and positive):
            expected = "a finite number above zero"
            raise InputError("unusable quantity", where=place, value=value, expected=expected, fix=f"mend {name}")
        if name in _FRACTIONS and number > 1:
            expected = "a fraction, at most 1"
            raise InputError("not a fraction", where=place, value=value, expected=expected, fix=f"{name}=0.45, say")
        found[name] = number
    return found


_FROM_ZERO = frozenset({"stage", "overlapped"})
_FRACTIONS = frozenset({"mfu"})


def _parser(name: str) -> Callable[..., float]:
    if name.endswith("_s") and not name.endswith("_per_s"):
        return parse_duration
    return parse_bytes if name.endswith("_bytes") else parse_count


@cache
def quantities(formulas: System) -> frozenset[str]:
    """Every name of a system: what its formulas give and what they take."""
    return frozenset(name for given, formula in formulas for name in (given, *_parameters(formula)))


def _applicable(formulas: System, values: Mapping[str, float]) -> Iterator[tuple[str, Formula]]:
    return (
        (quantity, formula)
        for quantity, formula in formulas
        if quantity not in values and values.keys() >= set(_required(formula))
    )


@cache
def _parameters(formula: Formula) -> tuple[str, ...]:
    return tuple(inspect.signature(formula).parameters)


@cache
def _required(formula: Formula) -> tuple[str, ...]:
    parameters = inspect.signature(formula).parameters.values()
    return tuple(each.name for each in parameters if each.default is inspect.Parameter.empty)
