"""What a user reads when an input is refused."""

from __future__ import annotations


def refusal(what: str, *, where: str, value: str, expected: str, fix: str) -> str:
    """The full message of an `InputError`, laid out as it must appear."""
    return f"{what}\n  where:    {where}\n  value:    {value}\n  expected: {expected}\n  fix:      {fix}"
