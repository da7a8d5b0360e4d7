"""The source keeps the house rules, and each rule is shown to catch what it forbids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.structure import quantities, rules
from tests.structure.source import imports, modules, parsed

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.structure.rules import Findings
    from tests.structure.source import Module


@dataclass(frozen=True, slots=True, kw_only=True)
class HouseRule:
    """A rule, where it holds, and proof that it can fail.

    Attributes:
        check: Yields what breaks the rule.
        folders: Of the repository, where it holds.
        breaks: Snippets that it must catch.
        keeps: Snippets that it must let pass.
        name: The file name the snippets pretend to have.
    """

    check: Callable[[Module], Findings]
    breaks: tuple[str, ...]
    keeps: tuple[str, ...]
    folders: tuple[str, ...] = ("src",)
    name: str = "src/ridgeline/cost/example.py"

    def findings(self, snippet: str) -> list[tuple[int, str]]:
        """What the rule finds in a snippet."""
        return list(self.check(parsed(snippet, name=self.name)))


def _function(*, lines: int) -> str:
    return "def long():\n    '''Not\n    counted.'''\n" + "    x = 1\n" * lines


RULES = [
    HouseRule(
        check=rules.a_module_has_at_most_500_lines,
        folders=("src", "docs"),
        breaks=("x = 1\n" * 501,),
        keeps=("x = 1\n" * 500,),
    ),
    HouseRule(
        check=rules.a_function_has_at_most_50_lines,
        breaks=(_function(lines=51), "class A:\n    async def f(self):\n" + "        x = 1\n" * 51),
        keeps=(_function(lines=50),),
    ),
    HouseRule(
        check=rules.a_function_has_at_most_7_parameters,
        breaks=("def f(a, b, c, d, *, e, f, g, h): ...", "def f(a, b, c, d, e, f, *g, **h): ..."),
        keeps=("class A:\n    def f(self, a, b, c, d, e, f, g): ...",),
    ),
    HouseRule(
        check=rules.a_function_has_at_most_7_parameters,
        name="src/ridgeline/cli/train.py",
        breaks=("def _inner(a, b, c, d, e, f, g, h): ...",),
        keeps=("def train(a, b, c, d, e, f, g, h): ...",),
    ),
    HouseRule(
        check=rules.a_dataclass_is_frozen_slotted_and_keyword_only,
        folders=("src", "tests", "docs"),
        breaks=(
            "@dataclass\nclass A: ...",
            "@dataclass(frozen=True)\nclass A: ...",
            "@dataclasses.dataclass(frozen=True, slots=False, kw_only=True)\nclass A: ...",
        ),
        keeps=("@dataclass(frozen=True, slots=True, kw_only=True)\nclass A: ...", "class A: ..."),
    ),
    HouseRule(
        check=rules.no_attribute_appears_after_construction,
        breaks=(
            "def f(plan):\n    plan.step_s = 1.0",
            "class A:\n    def __init__(self):\n        self.a = 1",
            "class A:\n    def f(self):\n        self.count += 1",
            "class A(Error):\n    def f(self):\n        self.where = ''",
            "def f(plan):\n    setattr(plan, 'step_s', 1.0)",
            "def f(plan):\n    object.__setattr__(plan, 'step_s', 1.0)",
            "def f(plan):\n    del plan.step_s",
        ),
        keeps=(
            "class A(InputError):\n    def __init__(self):\n        self.where = ''",
            "class A:\n    def __post_init__(self):\n        object.__setattr__(self, 'axes', ())",
            "def f(x):\n    x['a'] = 1",
        ),
    ),
    HouseRule(
        check=rules.no_module_is_named_for_nothing,
        name="src/ridgeline/cost/utils.py",
        folders=("src", "tests", "docs"),
        breaks=("x = 1",),
        keeps=(),
    ),
    HouseRule(
        check=rules.nothing_is_asserted,
        breaks=("assert seq_len > 0", "def f(x):\n    assert x, 'positive'"),
        keeps=("from typing import assert_never",),
    ),
    HouseRule(
        check=rules.everything_public_is_documented,
        breaks=(
            "x = 1",
            "'''Module.'''\ndef f(): ...",
            "'''Module.'''\nclass A: ...",
            "'''Module.'''\nclass A:\n    '''A.'''\n    def f(self): ...",
        ),
        keeps=(
            "'''Module.'''\ndef _f(): ...",
            "'''Module.'''\nclass A:\n    '''A.'''\n    def _f(self): ...",
            "'''Module.'''\n@overload\ndef f(): ...",
        ),
    ),
    HouseRule(
        check=rules.the_name_of_a_test_is_a_sentence,
        folders=("tests",),
        breaks=("def test_parse(): ...", "def test_parse_bad_name(): ..."),
        keeps=("def test_a_bad_name_is_refused(): ...", "def tested(): ..."),
    ),
    HouseRule(
        check=rules.every_silenced_warning_has_a_code_and_a_reason,
        folders=("src", "tests", "docs"),
        breaks=(
            "x = 1  # noqa",
            "x = 1  # noqa: E501",
            "x = 1  # noqa: E501 - long",
            "x = 1  # type: ignore",
            "x = 1  # type: ignore[arg-type] - only pyright checks types here",
            "x = 1  # pyright: ignore[reportUnknownMemberType]",
            "# pyright: basic",
            "# ruff: noqa: E501 - no whole file is exempt",
        ),
        keeps=(
            "x = 1  # noqa: E501 - an address cannot be broken",
            "x = 1  # pyright: ignore[reportUnknownMemberType] - plotly has no stubs",
            "x = '# noqa'",
        ),
    ),
    HouseRule(
        check=rules.only_boundaries_import_a_parser,
        breaks=("import json", "from tomllib import loads", "def f():\n    import json"),
        keeps=("from ridgeline import units",),
    ),
    HouseRule(
        check=rules.only_boundaries_import_a_parser,
        name="src/ridgeline/model/huggingface/json_file.py",
        breaks=(),
        keeps=("import json",),
    ),
    HouseRule(
        check=rules.jax_is_imported_inside_functions,
        breaks=("import jax", "from jax import numpy as jnp", "try:\n    import jax.numpy\nexcept ImportError: ..."),
        keeps=("def f():\n    import jax", "if TYPE_CHECKING:\n    import jax"),
    ),
    HouseRule(
        check=rules.cost_is_arithmetic,
        breaks=(
            "import time",
            "from pathlib import Path",
            "from os import environ",
            "def f():\n    print(1)",
            "def f():\n    global cache",
        ),
        keeps=("import numpy as np", "from math import prod"),
    ),
    HouseRule(
        check=quantities.a_quantity_is_named_with_its_unit,
        breaks=(
            "@dataclass(frozen=True)\nclass A:\n    latency: float",
            "@dataclass(frozen=True)\nclass A:\n    memory: float | None = None",
            "@dataclass(frozen=True)\nclass A:\n    peak_flops: Mapping[str, float]\n    peak: Mapping[str, Number]",
            "def f(bandwidth: float): ...",
            "def f(*, size_gb: Number): ...",
            "def f(*, Q: Number): ...",
            "class A:\n    def f(self, width_bytes: float, latency: 'Column'): ...",
        ),
        keeps=(
            "@dataclass(frozen=True)\nclass A:\n    latency_s: float\n    peak_flops_per_s: Mapping[str, float]",
            "def f(*, hbm_bytes: float, flops_per_token: Number, num_devices: Number, shard_fraction: float): ...",
            "def f(*, B: Number, D: Number, W_bytes_per_s: float): ...",
            "def f(name: str, count: int): ...",
        ),
    ),
    HouseRule(
        check=quantities.a_formula_is_named_for_what_it_returns,
        breaks=("def all_gather() -> Number: ...", "def memory(x: int) -> float: ..."),
        keeps=("def all_gather_s() -> Number: ...", "def plan() -> Plan: ...", "def _inner() -> float: ..."),
    ),
    HouseRule(
        check=quantities.a_formula_takes_keywords_and_shows_an_example,
        breaks=(
            "def move_s(*, V_bytes: Number) -> Number:\n    '''No doctest.'''",
            "def move_s(V_bytes: Number) -> Number:\n    '''>>> move_s(2.0)\n    2.0'''",
        ),
        keeps=(
            "def move_s(*, V_bytes: Number) -> Number:\n    '''>>> move_s(V_bytes=2.0)\n    2.0'''",
            "def gather(link: Link, V_bytes: Number) -> Transfer: ...",
            "def shards(tensor: Tensor) -> Number: ...",
        ),
    ),
    HouseRule(
        check=quantities.only_units_scales,
        breaks=("x = 1e9", "x = 2**30", "x = 1024**3", "x = 10**12", "x = y / 1e3", "x = 1024 * y", "x = 1_000_000"),
        keeps=("x = 128", "x = y**2", "x = 2**n", "tile = 1024", "_LARGEST = 2**40"),
    ),
]


def _named(rule: HouseRule) -> str:
    return rule.check.__name__


@pytest.mark.parametrize("rule", RULES, ids=_named)
def test_the_project_keeps_its_house_rule(rule: HouseRule) -> None:
    broken = [f"{module.name}:{line}: {what}" for module in modules(*rule.folders) for line, what in rule.check(module)]

    assert not broken, "\n".join([_named(rule).replace("_", " "), *broken])


@pytest.mark.parametrize("rule", RULES, ids=_named)
def test_a_house_rule_catches_what_it_forbids(rule: HouseRule) -> None:
    assert [snippet for snippet in rule.breaks if not rule.findings(snippet)] == []


@pytest.mark.parametrize("rule", RULES, ids=_named)
def test_a_house_rule_lets_the_rest_pass(rule: HouseRule) -> None:
    assert [(snippet, rule.findings(snippet)) for snippet in rule.keeps if rule.findings(snippet)] == []


def test_every_house_rule_is_applied_and_shown_to_catch_something() -> None:
    written = {
        rule
        for module in (rules, quantities)
        for name, rule in vars(module).items()
        if callable(rule) and getattr(rule, "__module__", "") == module.__name__ and not name.startswith("_")
    }

    assert written == {rule.check for rule in RULES}
    assert written == {rule.check for rule in RULES if rule.breaks}


def test_every_boundary_is_a_module_that_parses() -> None:
    parsing = {module.name for module in modules("src") for name, _ in imports(module) if name in rules.PARSERS}

    assert parsing == set(rules.BOUNDARIES)


def test_the_rules_read_the_whole_source() -> None:
    names = {module.name for module in modules("src")}

    assert {"src/ridgeline/errors.py", "src/ridgeline/cost/work.py", "src/ridgeline/hardware/chip.py"} <= names
