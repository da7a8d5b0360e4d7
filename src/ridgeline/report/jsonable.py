"""A result as what JSON can hold: no NaN, no infinity, no type of ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from math import isfinite
from numbers import Integral, Real
from typing import TypeAlias, cast

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
"""What JSON can hold."""


def jsonable(value: object) -> Json:
    """The value in JSON's types; a number that is unknown (NaN) or infinite becomes null.

    Dataclasses become objects under their fields' names, tuples and sets lists; anything else, text.

    >>> jsonable({"step_s": float("nan"), "mesh": {"fsdp": 128}, "shape": (4, 4)})
    {'step_s': None, 'mesh': {'fsdp': 128}, 'shape': [4, 4]}
    """
    match value:
        case None | bool() | str():
            return value
        case Integral():  # NumPy's too
            return int(value)
        case Real():
            return float(value) if isfinite(value) else None
        case Mapping():
            return {str(key): jsonable(item) for key, item in cast("Mapping[object, object]", value).items()}
        case Sequence() | set() | frozenset():
            return [jsonable(item) for item in cast("Sequence[object]", value)]
        case _ if is_dataclass(value) and not isinstance(value, type):
            return {field.name: jsonable(getattr(value, field.name)) for field in fields(value)}
        case _:
            return str(value)
