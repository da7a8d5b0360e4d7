"""Every published question whose verb works gets its published answer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.book.problems import read_problems
from tests.book.registry import load_adapters
from tests.book.runner import LATER_FEATURES, run

if TYPE_CHECKING:
    from tests.book.problems import Problem

FOLDER = Path(__file__).parent
PROBLEMS = read_problems(FOLDER / "problems.json")
VARIATIONS = read_problems(FOLDER / "variations.json")

EXCUSED: dict[str, str] = {}
"""Items whose answer is not the target, each with the reason."""

MOST_EXCUSED = 3


def _cases() -> list[object]:
    """Every item; an excused one must fail, so that it leaves the table once it passes."""
    excuses = {name: pytest.mark.xfail(reason=reason) for name, reason in EXCUSED.items()}
    return [
        pytest.param(problem, id=problem.name, marks=[excuses[problem.name]] if problem.name in excuses else [])
        for problem in (*PROBLEMS, *VARIATIONS)
    ]


@pytest.mark.parametrize("problem", _cases())
def test_an_answer_is_its_target(problem: Problem) -> None:
    outcome = run(problem, load_adapters())

    if outcome.state == "unsupported":
        pytest.skip(outcome.reason)
    assert outcome.state == "passed", "\n".join(f"{miss.key}: {miss.said}" for miss in outcome.misses)


def test_every_feature_of_a_verb_that_works_has_an_adapter() -> None:
    features = {problem.feature for problem in PROBLEMS}

    assert {each for each in features if not each.startswith(LATER_FEATURES)} <= load_adapters().keys()


def test_few_items_are_excused_and_each_says_why() -> None:
    assert len(EXCUSED) <= MOST_EXCUSED
    assert EXCUSED.keys() <= {problem.name for problem in PROBLEMS}
    assert all(len(reason.split()) > 3 for reason in EXCUSED.values())
