"""Reads compiler flags as users have them: on a line, over lines with backslashes, or as a variable is set.

--xla_a=1 --xla_b          a flag without a value is true, and --noxla_b is false
LIBTPU_INIT_ARGS='--a=1'   what stands in quotes belongs to that variable
"--a=1, --b=2"             commas and quotes around flags are left out
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ridgeline.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

VARIABLES: Final = ("LIBTPU_INIT_ARGS", "XLA_FLAGS")
"""Variables from which libtpu, and JAX itself, take flags."""

_ASSIGNMENT = re.compile(r"([A-Z][A-Z_0-9]*)\+?=(.*)", re.DOTALL)
_FLAG = re.compile(r"(?:--?)?(no)?((?:xla|megascale|tpu|libtpu|barna)_\w+)(?:=(.*))?", re.DOTALL)
_ANY_FLAG = re.compile(r"--?(\w+)(?:=(.*))?", re.DOTALL)
_BETWEEN = re.compile(r",\s*(?=-)")
_CONTINUED = re.compile(r"\\\s*\n")
_LONGEST = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """A flag of the compiler.

    Attributes:
        name: Without dashes.
        value: As text; `true` where none was written.
        variable: The environment variable that it was written for; "" for none.
        times: How often it was written; the last time counts.
    """

    name: str
    value: str
    variable: str = ""
    times: int = 1


def read_flags(text: str, *, where: str) -> tuple[Flag, ...]:
    """The flags of a text, each once.

    Raises:
        InputError: A word is no flag, a quote is not closed, or there are no flags.

    >>> [(flag.name, flag.value) for flag in read_flags("LIBTPU_INIT_ARGS='--xla_a=1 --xla_b'", where="-")]
    [('xla_a', '1'), ('xla_b', 'true')]
    """
    if len(text) > _LONGEST:
        raise InputError("too many flags", where=where, value=text, expected="less text", fix="leave out what is none")
    found: dict[str, Flag] = {}
    for flag in _flags(text, "", where):
        times = found[flag.name].times + 1 if flag.name in found else 1
        found[flag.name] = Flag(name=flag.name, value=flag.value, variable=flag.variable, times=times)
    if not found:
        raise InputError(
            "no flags", where=where, value=text, expected="flags: --xla_name=value", fix="write at least one"
        )
    return tuple(found.values())


def _flags(text: str, variable: str, where: str) -> Iterator[Flag]:
    words = iter(_words(text, where))
    for word in words:
        if word == "export" or word.startswith("$"):
            continue
        if assigned := _ASSIGNMENT.fullmatch(word):
            if assigned[1] in VARIABLES:
                yield from _flags(assigned[2], assigned[1], where)
            continue  # another variable, which stands before a command
        if flag := _FLAG.fullmatch(word):
            no, name, value = flag[1], flag[2], flag[3]
            yield Flag(name=name, value=("false" if no else "true") if value is None else value, variable=variable)
        elif other := _ANY_FLAG.fullmatch(word):
            yield Flag(name=other[1], value="true" if other[2] is None else other[2], variable=variable)
        else:
            raise InputError(
                "not a flag",
                where=where,
                value=word,
                expected="--xla_name=value, with the value behind an equals sign",
                fix=f"write --xla_name={word}" if re.fullmatch(r"[\w.+-]+", word) else "leave it out",
            )


def _words(text: str, where: str) -> list[str]:
    """What spaces, and commas between flags, set apart; quotes hold together, and are left out."""
    try:
        words = shlex.split(_CONTINUED.sub(" ", text))
        if len(words) == 1 and not _ASSIGNMENT.fullmatch(words[0]) and " " in words[0]:
            words = shlex.split(words[0])
    except ValueError as error:
        raise InputError(
            "a quote is not closed",
            where=where,
            value=text,
            expected="quotes in pairs",
            fix="close it, or leave it out",
        ) from error
    return [part for word in words for part in _BETWEEN.split(word.strip().rstrip(",;")) if part]
