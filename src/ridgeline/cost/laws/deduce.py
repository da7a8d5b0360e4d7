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
from ridgeline.units import parse_bytes, parse_bytes_per_s, parse_count, parse_duration, parse_flops_per_s

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Laws:
    """What a chapter's laws say of what was given; each chapter adds its own conclusions.

    Attributes:
        known: Every quantity, with how it was derived.
    """

    known: Deduced

    def __getitem__(self, quantity: str) -> float:
        """A quantity in its base unit; the error of one that is not known says what is missing."""
        return self.known[quantity]

    def __contains__(self, quantity: str) -> bool:
        """Whether a quantity is known."""
        return quantity in self.known

    @property
    def derivations(self) -> tuple[Derivation, ...]:
        """Where each derived quantity comes from, in the order in which they followed."""
        return tuple(self.known.derivations.values())


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
        InputError: A name is not one of the system's, or the values do not go together: a count that follows from
            them is below one (a batch of less than a sequence), or a formula has no value.
    """
    for name, value in values.items():
        if name not in quantities(formulas):
            raise _unknown(name, value, formulas)
    found, derivations = dict(values), dict[str, Derivation]()
    while step := next(_applicable(formulas, found), None):
        quantity, formula = step
        put_in = {name: found[name] for name in _parameters(formula) if name in found}
        derivations[quantity] = _derived(quantity, formula, put_in)
        found[quantity] = derivations[quantity].value
    return Deduced(values=found, derivations=derivations, formulas=formulas)


def _unknown(name: str, value: float, formulas: System) -> InputError:
    """The valid names that look most like one that is not, however little."""
    from difflib import get_close_matches  # only a mistake needs it

    names = sorted(quantities(formulas))
    alike = get_close_matches(name, names, n=6, cutoff=0.0)
    expected = f"a quantity of these laws, such as {', '.join(alike)}"
    fix = nearest(name, names) or "take one of those, or leave it out"
    return InputError("unknown quantity", where=name, value=value, expected=expected, fix=fix)


def _derived(quantity: str, formula: Formula, values: Mapping[str, float]) -> Derivation:
    """One step; an error where what went in has no answer."""
    words, names = ", ".join(f"{name} = {value:g}" for name, value in values.items()), " or ".join(values)
    try:
        derivation = derive(formula, **values)
    except (ArithmeticError, ValueError) as error:
        raise InputError(
            "these quantities do not go together",
            where=quantity,
            value=words,
            expected="values for which it can be computed",
            fix=f"mend {names}",
        ) from error
    if quantity in _COUNTS and derivation.value < 1:
        raise InputError(
            f"{quantity} would be {derivation.value:.3g}",
            where=quantity,
            value=words,
            expected="at least 1",
            fix=f"mend {names}",
        )
    return derivation


def read_quantities(given: Mapping[str, float | str], *, where: str = "") -> dict[str, float]:
    """Quantities as numbers in base units; text is read by the unit that ends a name.

    >>> read_quantities({"run_s": "2 days", "hbm_bytes": "96GB", "run_tokens": "15T", "N": 64})
    {'run_s': 172800.0, 'hbm_bytes': 96000000000.0, 'run_tokens': 15000000000000.0, 'N': 64}

    Args:
        given: By name.
        where: The flag they came from, for error messages; "" where each is an argument of its own.

    Raises:
        InputError: A value is out of its range: a rate or a size is a finite number above zero, a count is at least
            one and, where things are counted, whole, a fraction is at most one, a stage of ZeRO is 0, 1, 2 or 3.
    """
    found: dict[str, float] = {}
    for name, value in given.items():
        place = f"{where}: {name}" if where else name
        number = _parser(name)(value, where=place) if isinstance(value, str) else value
        if refused := _out_of_range(name, number):
            what, expected = refused
            raise InputError(what, where=place, value=value, expected=expected, fix=f"mend {name}")
        found[name] = number
    return found


_FRACTIONS = frozenset({"mfu", "acceptance_fraction", "token_acceptance_fraction"})
_STAGES = frozenset({0, 1, 2, 3})
_FROM_ZERO = frozenset({"overlapped", "num_stream_saved", "num_mlp_saved", "num_draft_tokens", "shared_tokens"})
_THINGS = frozenset(
    {
        *("num_chips_per_host", "num_chips_per_pod", "num_slices", "n_axes", "n_tensor_axes"),
        *("num_stages", "num_microbatches", "num_repeats", "L", "D", "F", "T", "K", "H"),
    }
)
"""Counts that are whole."""

_COUNTS = _THINGS | {
    *("num_chips", "num_other_chips", "N", "X", "Y", "M_X", "M_Y", "E", "k"),
    *("num_sequences", "batch_tokens", "B_tokens", "run_tokens", "B"),
}
"""These, and others that a mean or a best value may leave between two whole ones; at least one, given or derived."""


def _out_of_range(name: str, value: float) -> tuple[str, str] | None:
    """What is wrong with a value and what was expected; None where nothing is."""
    if name == "stage":
        return None if value in _STAGES else ("not a stage of ZeRO", "0, 1, 2 or 3")
    if isinstance(value, bool) and name not in _COUNTS:
        return None
    if not isfinite(value) or value < 0 or (value == 0 and name not in _FROM_ZERO):
        return "unusable quantity", "a finite number above zero"
    if name in _FRACTIONS and value > 1:
        return "not a fraction", "a fraction, at most 1, e.g. 0.45"
    if name in _COUNTS and value < 1:
        return "unusable quantity", "a count, at least 1"
    if name in _THINGS and value % 1:
        return "unusable quantity", "a whole number"
    return None


def _parser(name: str) -> Callable[..., float]:
    if name in _SWITCHES:
        return _parse_switch
    if name.endswith("_s") and "_per_" not in name:
        return parse_duration
    readers = {"_flops_per_s": parse_flops_per_s, "_bytes_per_s": parse_bytes_per_s, "_bytes": parse_bytes}
    return next((reader for unit, reader in readers.items() if name.endswith(unit)), parse_count)


_SWITCHES = frozenset({"overlapped"})
_WORDS = {"yes": True, "true": True, "on": True, "1": True, "no": False, "false": False, "off": False, "0": False}


def _parse_switch(value: str, *, where: str) -> bool:
    if value.strip().lower() not in _WORDS:
        raise InputError("not yes or no", where=where, value=value, expected=", ".join(_WORDS), fix="write yes or no")
    return _WORDS[value.strip().lower()]


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
