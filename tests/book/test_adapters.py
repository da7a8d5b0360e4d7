"""Adapters translate; the arithmetic is the project's."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.book import adapter_rules as rules
from tests.book import registry

if TYPE_CHECKING:
    from collections.abc import Callable

FOLDER = Path(__file__).parent / "adapters"

BREAKING = {
    rules.no_number_is_computed: (
        "C / W",
        "x = -y",
        "total += part",
        "[2 * n for n in axes]",
        "'a' + 'b'",
        "T**2",
    ),
    rules.only_plain_builtins_are_called: (
        "sum(parts)",
        "max(a, b)",
        "len(axes)",
        "int(ways)",
        "sorted(times)[0]",
        "list(map(round, times))",
        "eval('2 + 2')",
        "C.__truediv__(W)",
    ),
    rules.only_the_public_api_is_used: (
        "import math",
        "import numpy as np",
        "from operator import truediv",
        "from ridgeline.cost.roofline import matmul_flops",
        "from ridgeline import cost",
        "ridgeline.cost.roofline.matmul_flops(B=1, D=1, F=1)",
    ),
    rules.comparisons_only_choose: (
        "answer = flops > traffic",
        "if inputs['B'] > 240: ...",
        "if answer.a == answer.b: ...",
        "fits = not full",
        "best = a.fits and b.fits",
        "def f(inputs):\n    return {'ok': inputs['scheme'] == 'dp'}",
    ),
    rules.no_answer_is_written_in: (
        "def f():\n    return {'max_ratio': 2}",
        "def f():\n    return {'comm': 'none' if case is None else case.comm}",
        "def f():\n    answers = {'typical': [8, 16]}\n    return answers",
        "def f():\n    answers['comm'] = 'none'\n    return answers",
        "def f():\n    return {key: True for key in wanted}",
        "def f():\n    return {**answer.fields} | {'ok': True}",
    ),
    rules.every_adapter_asks_the_api: (
        "@adapter('cost')\ndef cost(inputs, wanted):\n    return inputs",
        "def twice(x):\n    return twice(x)\n@adapter('cost')\ndef cost(inputs, wanted):\n    return twice(inputs)",
    ),
}

GOOD = """
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ridgeline
from tests.book.registry import adapter

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

FIELDS = {"t": "expected_s", "regime": "regime"}


@adapter("collective.all_gather", "collective.latency")
def gathers(inputs: Mapping[str, Any], wanted: Collection[str]) -> Mapping[str, Any]:
    if "axis_sizes" in inputs and inputs.get("kind") != "line":
        return {"t": [_gather(inputs, size).parts["all"] for size in inputs["axis_sizes"]]}
    answer = _gather(inputs, inputs["N"])
    return {key: getattr(answer, FIELDS[key]) for key in wanted & FIELDS.keys() if key != "cost"}


def _gather(inputs: Mapping[str, Any], size: int) -> Any:
    return ridgeline.chips("v5e" if inputs.get("hop_s") is None else f"v5e:{size}")
"""


def _named(rule: Callable[..., object]) -> str:
    return rule.__name__


@pytest.mark.parametrize("rule", rules.RULES, ids=_named)
@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_adapters_do_no_arithmetic(path: Path, rule: Callable[[ast.Module], rules.Findings]) -> None:
    broken = [f"{path.name}:{line}: {what}" for line, what in rule(ast.parse(path.read_text(encoding="utf-8")))]

    assert not broken, "\n".join([_named(rule).replace("_", " "), *broken])


@pytest.mark.parametrize("rule", rules.RULES, ids=_named)
def test_a_rule_catches_what_it_forbids(rule: Callable[[ast.Module], rules.Findings]) -> None:
    assert [snippet for snippet in BREAKING[rule] if not list(rule(ast.parse(snippet)))] == []


@pytest.mark.parametrize("rule", rules.RULES, ids=_named)
def test_a_rule_lets_a_good_adapter_pass(rule: Callable[[ast.Module], rules.Findings]) -> None:
    assert list(rule(ast.parse(GOOD))) == []


def test_a_feature_has_one_adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "ADAPTERS", {})
    registry.adapter("cost")(dict)

    with pytest.raises(ValueError, match="cost has two adapters"):
        registry.adapter("cost")(dict)
