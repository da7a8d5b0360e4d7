"""What can go wrong, one class per way of recovering.

    RidgelineError
    ├── InputError          the question is malformed: mend it and ask again      (exit code 2)
    ├── InfeasibleError     the question is clear and the answer is "not possible" (exit code 1)
    └── MissingExtraError   an optional dependency is not installed               (exit code 2)

Catch broadly (`except RidgelineError`) or narrowly::

    try:
        answer = ridgeline.train("llama3.1-70b", on="tpu7x:4x4x4", global_batch=256, seq_len=8192)
    except ridgeline.InfeasibleError as error:
        print(error.reasons)          # why each family of plans was refused
    except ridgeline.InputError as error:
        print(error.where, error.fix) # which key to mend, and how
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_LONGEST_ECHO = 120
_SHORT, _TELLING = 4, 3
_CLOSE, _CLOSE_IF_LONG = 0.6, 0.7


class RidgelineError(Exception):
    """Anything Ridgeline raises on purpose."""


class InputError(RidgelineError):
    """The question is malformed: says what, where, the value, what was expected, how to fix it.

    Args:
        what: One line, e.g. ``unknown chip``.
        where: The key, flag or file it came from, e.g. ``--on`` or ``job.toml: workload.seq_len``.
        value: The offending value; shown shortened.
        expected: What would have been accepted.
        fix: The next step for the user.
    """

    def __init__(self, what: str, *, where: str, value: object, expected: str, fix: str) -> None:
        self.what = what
        self.where = where
        self.value = value
        self.expected = expected
        self.fix = fix
        super().__init__(
            f"{what}\n  where:    {where}\n  value:    {shown(value)}\n  expected: {expected}\n  fix:      {fix}"
        )


class InfeasibleError(RidgelineError):
    """The question is clear and the answer is "not possible".

    Args:
        what: One line, e.g. ``no plan fits``.
        reasons: Why each family of plans was refused, most telling first.
        fix: The change that comes closest to making it possible.
        answer: What was found all the same, in the form of the verb that was asked; None for nothing.
    """

    def __init__(self, what: str, *, reasons: Sequence[str], fix: str, answer: object = None) -> None:
        self.what = what
        self.reasons = tuple(reasons)
        self.fix = fix
        self.answer = answer
        lines = "".join(f"\n  - {reason}" for reason in self.reasons)
        super().__init__(f"{what}{lines}\n  fix: {fix}")


class MissingExtraError(RidgelineError):
    """An optional dependency is not installed; the message is the install line.

    Args:
        extra: The extra's name, e.g. ``jax``.
        needed_for: What the user asked for.
        fix: How to install it; "" for an extra of Ridgeline's own.
    """

    def __init__(self, extra: str, *, needed_for: str, fix: str = "") -> None:
        self.extra = extra
        needs = f"needs {extra}, which is not found" if fix else f"needs the extra '{extra}'"
        line = fix or f"pip install 'ridgeline[{extra}]'"
        super().__init__(f"{needed_for} {needs}\n  fix: {line}")


def shown(value: object) -> str:
    """The value as a user would recognise it, shortened to one line."""
    text = value if isinstance(value, str) else repr(value)
    text = " ".join(text.split()) or "(empty)"
    return text if len(text) <= _LONGEST_ECHO else f"{text[:_LONGEST_ECHO]}…"


def nearest(name: str, known: Iterable[str], *, count: int = 3) -> str:
    """The known names closest to `name`, or that contain it, as a phrase for an error message; "" when there is none.

    >>> nearest("v6f", ["v5e", "v6e"]), nearest("batch", ["seq_len", "global_batch"])
    ('did you mean v6e?', 'did you mean global_batch?')
    >>> nearest("falcon-40b", ["palm-540b", "mpt-7b"])
    ''
    """
    from difflib import get_close_matches  # only a mistake needs it

    typed, names = name.lower(), list(dict.fromkeys(known))
    close = get_close_matches(typed, names, n=count, cutoff=_CLOSE_IF_LONG if len(typed) > _SHORT else _CLOSE)
    if not close and len(typed) >= _TELLING:
        close = [other for other in names if typed in other][:count]
    return f"did you mean {', '.join(close)}?" if close else ""
