"""House rules about numbers: a name carries its unit, and only `units.py` knows what a gigabyte is."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, TypeAlias

from tests.structure.source import Module, classes, dataclass_keywords, functions, parameters, public
from tests.structure.vocabulary import BOUND_OF_SANITY, CHOICES, FRACTIONS_OF_A_PEAK, LETTERS, says_its_unit

if TYPE_CHECKING:
    from collections.abc import Iterator

Findings: TypeAlias = "Iterator[tuple[int, str]]"

MEASURING_FOLDERS = {"cost", "hardware", "search"}

_REAL = r"(float|Number|Column|(np\.)?ndarray|NDArray\[np\.float64\])"
_REAL_ANNOTATION = re.compile(rf"^({_REAL}|Mapping\[str, {_REAL}\]|tuple\[{_REAL}, \.\.\.\])( \| {_REAL})*( \| None)?$")

_SCALES = {10.0**power for power in (6, 9, 12, 15, 18, 21, 24)} | {2.0**power for power in (20, 30, 40, 50)}
_FACTORS = {1e3, 1024.0} | {10.0**-power for power in (3, 6, 9, 12)}
_SCALE_POWERS = {(2, 10), (2, 20), (2, 30), (2, 40), (2, 50), (1024, 2), (1024, 3), (1024, 4), (1024, 5)}


def a_quantity_is_named_with_its_unit(module: Module) -> Findings:
    """Every float field and parameter of a measuring folder ends in a base unit or is plainly a plain number."""
    if module.folder not in MEASURING_FOLDERS:
        return
    for node in classes(module):
        if dataclass_keywords(node) is not None and node.name not in FRACTIONS_OF_A_PEAK:
            for field in node.body:
                if isinstance(field, ast.AnnAssign) and not _explains(ast.unparse(field.target), field.annotation):
                    yield field.lineno, f"{node.name}.{ast.unparse(field.target)} does not say its unit"
    for function in functions(module):
        for parameter in parameters(function):
            is_letter = module.folder == "cost" and parameter.arg in LETTERS
            if not _explains(parameter.arg, parameter.annotation) and not is_letter and function.name not in CHOICES:
                yield parameter.lineno, f"{function.name}({parameter.arg}) does not say its unit"


def a_formula_is_named_for_what_it_returns(module: Module) -> Findings:
    """A public function of `cost` that returns a number ends in that number's unit."""
    if module.folder != "cost":
        return
    fractions = {method for node in classes(module) if node.name in FRACTIONS_OF_A_PEAK for method in node.body}
    for node in public(module):
        if not isinstance(node, ast.FunctionDef) or node in fractions or node.name in CHOICES:
            continue
        if not _explains(node.name, node.returns):
            yield node.lineno, f"{node.name} does not say the unit it returns"


def a_formula_takes_keywords_and_shows_an_example(module: Module) -> Findings:
    """A public function of `cost` over the field's letters: which is which is written at the call, and run once."""
    if module.folder != "cost":
        return
    for node in module.tree.body:
        if not isinstance(node, ast.FunctionDef) or node.name.startswith("_") or node.name in CHOICES:
            continue
        letters = [parameter.arg for parameter in parameters(node) if parameter.arg.partition("_")[0] in LETTERS]
        if letters and _is_number(node.returns):
            if node.args.args or node.args.posonlyargs:
                yield node.lineno, f"{node.name} takes positional arguments"
            if ">>>" not in (ast.get_docstring(node) or ""):
                yield node.lineno, f"{node.name} has no doctest"


def only_units_scales(module: Module) -> Findings:
    """10^9, 2^30 and their kin, anywhere but in `units.py`; a thousand or a thousandth where it multiplies."""
    if module.name == "src/ridgeline/units.py":
        return
    bounds = {part for node in module.tree.body if _is_bound_of_sanity(node) for part in ast.walk(node)}
    for node in ast.walk(module.tree):
        if node in bounds:
            continue
        match node:
            case ast.Constant(value=int() | float() as value) if not isinstance(value, bool) and value in _SCALES:
                yield node.lineno, f"the literal {value:g}"
            case ast.BinOp(op=ast.Pow()) if _is_scale(node):
                yield node.lineno, ast.unparse(node)
            case ast.BinOp(op=ast.Mult() | ast.Div() | ast.FloorDiv()):
                for side in (node.left, node.right):
                    if isinstance(side, ast.Constant) and side.value in _FACTORS:
                        yield node.lineno, ast.unparse(node)
            case _:
                pass


def _explains(name: str, annotation: ast.expr | None) -> bool:
    """Whether a thing of this name and type is no bare number, or says its unit."""
    return not _is_number(annotation) or says_its_unit(name)


def _is_number(annotation: ast.expr | None) -> bool:
    return annotation is not None and bool(_REAL_ANNOTATION.match(ast.unparse(annotation).strip("'\"")))


def _is_bound_of_sanity(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Assign) and all(
        BOUND_OF_SANITY.match(ast.unparse(target)) for target in statement.targets
    )


def _is_scale(power: ast.BinOp) -> bool:
    match power.left, power.right:
        case ast.Constant(value=int() | float() as base), ast.Constant(value=int() | float() as exponent):
            return (base, exponent) in _SCALE_POWERS or (base in {10, 1000} and exponent > 1)
        case _:
            return False
