"""Reads a file of problems: questions with machine-readable inputs, and the value each answer must have.

    {"problems": [{"id": "ch1-c03", "feature": "roofline.ridge", "rel_tol": 0.015,
                   "inputs": {"C": 1.97e14, "W_hbm": 8.2e11},
                   "answer": {"ridge": {"target": 240.2439, "unit": "FLOP/B"}}}]}

An answer without `target` (a measurement) is not asked for. An answer may carry its own `rel_tol`.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from ridgeline.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_Kind = TypeVar("_Kind", str, list[Any], dict[str, Any])

_USUAL_TOLERANCE = 1e-4
_FIX = "the schema is in tests/book/problems.json, under meta.schema"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What one answer must be.

    Attributes:
        value: A number, truth value, string, or a list or an object of those.
        tolerance: Of floats, as a fraction of the value.
    """

    value: Any
    tolerance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One item.

    Attributes:
        name: Its `id`.
        feature: What kind of question it is; chooses the adapter.
        inputs: By name; under `setup` the sentence that poses the question, where it names a layout or a scheme.
        targets: By answer key; those that have one.
    """

    name: str
    feature: str
    inputs: Mapping[str, Any]
    targets: Mapping[str, Target]


def read_problems(path: Path) -> tuple[Problem, ...]:
    """The items of a file, in its order.

    Raises:
        InputError: The file cannot be read, is not JSON, or is not of this schema.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise _malformed("cannot read the problems", str(path), error.strerror, "a file") from error
    except UnicodeDecodeError as error:
        raise _malformed("the file is not text", str(path), error.reason, "UTF-8") from error
    except json.JSONDecodeError as error:
        raise _malformed("the file is not JSON", f"{path}:{error.lineno}:{error.colno}", error.msg, "JSON") from error
    items = _field(document, "problems", list, where=str(path))
    problems = tuple(_problem(item, f"{path}: problems[{index}]") for index, item in enumerate(items))
    _refuse_duplicates(problems, where=str(path))
    return problems


def _problem(item: object, place: str) -> Problem:
    name = _field(item, "id", str, where=place)
    where = f"{place} ({name})"
    tolerance = _tolerance(item, _USUAL_TOLERANCE, where=where)
    answers = _field(item, "answer", dict, where=where)
    return Problem(
        name=name,
        feature=_field(item, "feature", str, where=where),
        inputs={"setup": _sentence(item, where=where)} | _field(item, "inputs", dict, where=where),
        targets={
            key: Target(value=answer["target"], tolerance=_tolerance(answer, tolerance, where=f"{where}.answer.{key}"))
            for key, answer in answers.items()
            if _has_target(answer, where=f"{where}.answer.{key}")
        },
    )


def _sentence(item: Mapping[str, object], *, where: str) -> str:
    return _field(item, "setup", str, where=where) if "setup" in item else ""


def _has_target(answer: object, *, where: str) -> bool:
    if not isinstance(answer, dict):
        raise _malformed("an answer is an object", where, answer, '{"target": 240, "unit": "tokens"}')
    return answer.get("target") is not None


def _tolerance(holder: Mapping[str, object], usual: float, *, where: str) -> float:
    tolerance = holder.get("rel_tol", usual)
    if isinstance(tolerance, bool) or not isinstance(tolerance, int | float) or not 0 <= tolerance < 1:
        raise _malformed("not a tolerance", f"{where}.rel_tol", tolerance, "a fraction: 0.01")
    return float(tolerance)


def _field(holder: object, key: str, kind: type[_Kind], *, where: str) -> _Kind:
    expected = {str: "a string", list: "a list", dict: "an object"}[kind]
    if not isinstance(holder, dict):
        raise _malformed("not an object", where, holder, f'an object with "{key}"')
    if key not in holder:
        raise _malformed(f'no "{key}"', where, ", ".join(holder), f'"{key}", {expected}')
    if not isinstance(holder[key], kind):
        raise _malformed(f'"{key}" is of another kind', where, holder[key], expected)
    return holder[key]


def _refuse_duplicates(problems: tuple[Problem, ...], *, where: str) -> None:
    counts = Counter(problem.name for problem in problems)
    twice = [name for name, count in counts.items() if count > 1]
    if twice:
        raise _malformed("two items have one id", where, ", ".join(twice), "every id once")


def _malformed(what: str, where: str, value: object, expected: str) -> InputError:
    return InputError(what, where=where, value=value, expected=expected, fix=_FIX)
