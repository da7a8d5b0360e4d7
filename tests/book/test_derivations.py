"""The targets of both files of problems are what their derivations give."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.book.runner import agrees

FOLDER = Path(__file__).parent

FUNCTIONS: dict[str, Any] = {
    name: getattr(math, name) for name in ("ceil", "exp", "floor", "inf", "log2", "prod", "sqrt")
} | {function.__name__: function for function in (abs, int, len, max, min, range, round, set, sum, zip)}
"""What a derivation may use, beside the inputs of its item."""


def _derived(file: str) -> list[object]:
    items = json.loads((FOLDER / file).read_text(encoding="utf-8"))["problems"]
    return [
        pytest.param(answer["derivation"], item["inputs"], answer["target"], id=f"{item['id']}-{key}")
        for item in items
        for key, answer in item["answer"].items()
        if answer.get("derivation") and answer.get("target") is not None
    ]


@pytest.mark.parametrize(("derivation", "inputs", "target"), [*_derived("problems.json"), *_derived("variations.json")])
def test_a_target_is_its_derivation(derivation: str, inputs: dict[str, Any], target: object) -> None:
    value = eval(derivation, {"__builtins__": FUNCTIONS, **inputs})  # noqa: S307 - expressions of our own files

    assert agrees(value, target, tolerance=1e-6)
