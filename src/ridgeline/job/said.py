"""What was said beside the question itself: flags of the command line, or arguments of a call, read on demand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

from ridgeline.errors import InputError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

Value: TypeAlias = "str | float | None"
"""As it was said; None for what was not."""

Word = TypeVar("Word", bound=str)


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """Arguments, and how the user wrote their names.

    Attributes:
        arguments: By name.
        written: From a name to how it was written, e.g. `--hbm-bandwidth`.
    """

    arguments: Mapping[str, Value]
    written: Callable[[str], str]

    def has(self, name: str) -> bool:
        """Whether it was said."""
        return self.arguments.get(name) is not None

    def number(self, name: str, parse: Callable[..., float]) -> float | None:
        """Its number, or None where it was not said."""
        value = self.arguments.get(name)
        return None if value is None else parse(value, where=self.written(name))

    def positive(self, name: str, parse: Callable[..., float]) -> float | None:
        """Its number, above zero, or None where it was not said."""
        number = self.number(name, parse)
        if number == 0:
            raise self.refuse("zero is no answer", name, expected="a number above zero", fix="leave it out")
        return number

    def choice(self, name: str, words: Sequence[Word], usual: Word) -> Word:
        """One of some words; the usual one where it was not said."""
        value = self.arguments.get(name)
        if value is None:
            return usual
        for word in words:
            if word == value:
                return word
        raise self.refuse(
            f"unknown {name.replace('_', ' ')}",
            name,
            expected=", ".join(words),
            fix=nearest(str(value), words) or f"write {usual}",
        )

    def refuse(self, what: str, name: str, *, expected: str, fix: str) -> InputError:
        """The error that something said, or not said, is wrong."""
        return InputError(
            what, where=self.written(name), value=self.arguments.get(name, ""), expected=expected, fix=fix
        )

    def refuse_unless(self, names: Iterable[str], *, question: str) -> None:
        """Refuses everything said that has no meaning for a question.

        Raises:
            InputError: Something else than these names was said.
        """
        known = list(names)
        for name in self.arguments:
            if self.has(name) and name not in known:
                raise self.refuse(
                    f"{question} has no {self.written(name)}",
                    name,
                    expected=", ".join(map(self.written, known)),
                    fix="leave it out",
                )


def said(arguments: Mapping[str, object]) -> Said:
    """What the arguments of a call say; None says nothing."""
    return Said(arguments={name: _value(value) for name, value in arguments.items()}, written=lambda name: f"{name}=")


def _value(value: object) -> Value:
    """A number or text as it is, a sequence of sizes as it would be written."""
    match value:
        case None | str() | int() | float():
            return value
        case Sequence():
            return "x".join(map(str, cast("Sequence[object]", value)))
        case _:
            return str(value)
