"""Puts problems to their adapters and compares the answers with the targets."""

from __future__ import annotations

from dataclasses import dataclass
from math import isclose
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ridgeline.errors import RidgelineError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.book.problems import Problem, Target
    from tests.book.registry import Adapter

State: TypeAlias = Literal["passed", "failed", "unsupported"]

LATER_FEATURES = ("profile.", "jax")
"""Beginnings of features that belong to verbs still to come."""

_PRINTED_DIGITS = 1e-6
"""Targets are printed with seven digits: no tolerance is closer than that."""

_LARGEST_EXACT_FLOAT = 2**53


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """One answer that is not the target.

    Attributes:
        key: Of the answer.
        said: What is wrong, with both values.
    """

    key: str
    said: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one problem.

    Attributes:
        problem: As asked.
        state: `unsupported` belongs to a verb still to come.
        misses: Why it failed.
        reason: Why it is unsupported.
    """

    problem: Problem
    state: State
    misses: tuple[Miss, ...] = ()
    reason: str = ""


def run(problem: Problem, adapters: Mapping[str, Adapter]) -> Outcome:
    """Asks one problem."""
    adapter = adapters.get(problem.feature)
    if adapter is None and problem.feature.startswith(LATER_FEATURES):
        return Outcome(
            problem=problem, state="unsupported", reason=f"{problem.feature} belongs to a verb still to come"
        )
    if not problem.targets:
        return Outcome(problem=problem, state="unsupported", reason="no answer has a target")
    if adapter is None:
        return _failed(problem, Miss(key="*", said=f"no adapter answers {problem.feature}"))
    try:
        answers = adapter(problem.inputs, frozenset(problem.targets))
    except RidgelineError as error:
        return _failed(problem, Miss(key="*", said=f"refused: {error}"))
    except Exception as error:  # noqa: BLE001 - a broken adapter fails its item, not the run
        return _failed(problem, Miss(key="*", said=f"{type(error).__name__}: {error}"))
    misses = tuple(misses_of(answers, problem.targets))
    return _failed(problem, *misses) if misses else Outcome(problem=problem, state="passed")


def _failed(problem: Problem, *misses: Miss) -> Outcome:
    return Outcome(problem=problem, state="failed", misses=misses)


def misses_of(answers: Mapping[str, Any], targets: Mapping[str, Target]) -> Iterator[Miss]:
    """Every answer that is absent or is not its target."""
    for key, target in targets.items():
        if key not in answers:
            yield Miss(key=key, said=f"no answer; target {target.value!r}")
        elif not agrees(answers[key], target.value, tolerance=target.tolerance):
            yield Miss(key=key, said=_difference(answers[key], target.value))


def agrees(got: object, target: object, *, tolerance: float) -> bool:
    """Whether an answer is its target: floats within the tolerance, everything else exactly.

    A whole number may be given as a float of the same value. Case, spaces and underscores of a string do not
    matter. Lists agree item by item, objects for every key of the target.

    >>> agrees(240, 240.2439, tolerance=0.015), agrees(240.2, 240, tolerance=0.015), agrees(240.0, 240, tolerance=0)
    (True, False, True)
    >>> agrees("all_gather", "All gather", tolerance=0), agrees(1, True, tolerance=0)
    (True, False)
    """
    match target:
        case bool():
            return got is target
        case int() | float():
            return _same_number(got, target, tolerance)
        case str():
            return isinstance(got, str) and _plain(got) == _plain(target)
        case list():
            return (
                isinstance(got, list | tuple)
                and len(got) == len(target)
                and all(agrees(one, other, tolerance=tolerance) for one, other in zip(got, target, strict=True))
            )
        case dict():
            return isinstance(got, dict) and all(
                key in got and agrees(got[key], value, tolerance=tolerance) for key, value in target.items()
            )
        case _:
            return got is target


def _same_number(got: object, target: float, tolerance: float) -> bool:
    if isinstance(got, bool) or not isinstance(got, int | float):
        return False
    if isinstance(target, float):
        return isclose(got, target, rel_tol=max(tolerance, _PRINTED_DIGITS)) if target else got == 0
    return got == target or (target > _LARGEST_EXACT_FLOAT and float(got) == float(target))


def _plain(text: str) -> str:
    return " ".join(text.replace("_", " ").casefold().split())


def _difference(got: object, target: object) -> str:
    said = f"got {got!r}, target {target!r}"
    if isinstance(got, int | float) and isinstance(target, int | float) and target:
        return f"{said}, off by {got / target - 1:+.3%}"
    return said
