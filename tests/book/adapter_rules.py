"""What an adapter may do: hand inputs to the public API and pick fields of its result. No arithmetic of its own.

Each rule reads the source of a module and yields `(line, what is wrong)`.
"""

from __future__ import annotations

import ast
import builtins
from typing import TYPE_CHECKING, TypeAlias

import ridgeline

if TYPE_CHECKING:
    from collections.abc import Iterator

Findings: TypeAlias = "Iterator[tuple[int, str]]"

PLAIN_BUILTINS = {
    "dict",
    "enumerate",
    "frozenset",
    "getattr",
    "hasattr",
    "isinstance",
    "list",
    "set",
    "str",
    "tuple",
    "zip",
}
"""Builtins that move values without changing a number."""

IMPORTS = {"__future__", "collections.abc", "ridgeline", "tests.book.registry", "typing"}

_JOINING = (ast.BitOr, ast.BitAnd)
_CHOOSING = (ast.In, ast.NotIn, ast.Is, ast.IsNot)
_SAMENESS = (ast.Eq, ast.NotEq)


def no_number_is_computed(tree: ast.Module) -> Findings:
    """No operator on numbers, also not in place. Sets and mappings may be joined, strings filled in."""
    for node in ast.walk(tree):
        match node:
            case ast.BinOp(left=ast.Constant(value=str()), op=ast.Mod()):
                continue
            case ast.BinOp(op=op) if not isinstance(op, _JOINING):
                yield node.lineno, f"computes {ast.unparse(node)}"
            case ast.AugAssign() | ast.UnaryOp(op=ast.USub() | ast.UAdd() | ast.Invert()):
                yield node.lineno, f"computes {ast.unparse(node)}"
            case _:
                continue


def only_plain_builtins_are_called(tree: ast.Module) -> Findings:
    """Not `sum`, `min`, `len`, `round`, `int`, …, neither called nor handed on; nor the methods behind operators."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=function, args=arguments):
                handed = [part for part in (function, *arguments) if isinstance(part, ast.Name)]
                computing = [name.id for name in handed if hasattr(builtins, name.id) and name.id not in PLAIN_BUILTINS]
                yield from ((node.lineno, f"uses the builtin {name}") for name in computing)
            case ast.Attribute(attr=name) if name.startswith("__"):
                yield node.lineno, f"uses {name}"
            case _:
                continue


def only_the_public_api_is_used(tree: ast.Module) -> Findings:
    """`import ridgeline`, and of it what is in its `__all__`; nothing that could compute."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, f"imports {name.name}") for name in names if name.name not in IMPORTS)
            case ast.ImportFrom(module=module) if module not in IMPORTS:
                yield node.lineno, f"imports from {module}"
            case ast.ImportFrom(module="ridgeline", names=names):
                yield from ((node.lineno, f"{name.name} is not public") for name in names if not _is_public(name.name))
            case ast.Attribute(value=ast.Name(id="ridgeline"), attr=name) if not _is_public(name):
                yield node.lineno, f"ridgeline.{name} is not public"
            case _:
                continue


def comparisons_only_choose(tree: ast.Module) -> Findings:
    """A comparison says which function to ask or which field to pick. It is no answer, and knows no sizes."""
    conditions = {part for node in ast.walk(tree) for test in _tests(node) for part in ast.walk(test)}
    for node in ast.walk(tree):
        match node:
            case ast.Compare(ops=ops) if node in conditions:
                if not all(isinstance(op, _CHOOSING) or (isinstance(op, _SAMENESS) and _names(node)) for op in ops):
                    yield node.lineno, f"compares values: {ast.unparse(node)}"
            case ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not()) if node not in conditions:
                yield node.lineno, f"decides an answer: {ast.unparse(node)}"
            case _:
                continue


def no_answer_is_written_in(tree: ast.Module) -> Findings:
    """What is returned comes from the API: no constant stands in the place of an answer."""
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        returned = [node.value for node in ast.walk(function) if isinstance(node, ast.Return)]
        names = {value.id for value in returned if isinstance(value, ast.Name)}
        assigned = [
            node.value
            for node in ast.walk(function)
            if isinstance(node, ast.Assign)
            if any(_holder(target) in names for target in node.targets)
        ]
        for value in [*returned, *assigned]:
            yield from ((each.lineno, f"answers {each.value!r}") for each in _results(value))


def every_adapter_asks_the_api(tree: ast.Module) -> Findings:
    """A function marked as an adapter calls `ridgeline`, itself or through another function of its module."""
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    for function in functions.values():
        if any("adapter" in ast.unparse(mark) for mark in function.decorator_list):
            reached, waiting = set[str](), [function.name]
            while waiting:
                name = waiting.pop()
                reached.add(name)
                waiting += [other for other in _used(functions[name]) if other in functions and other not in reached]
            if not any("ridgeline" in _used(functions[name]) for name in reached):
                yield function.lineno, f"{function.name} asks nothing of ridgeline"


RULES = (
    no_number_is_computed,
    only_plain_builtins_are_called,
    only_the_public_api_is_used,
    comparisons_only_choose,
    no_answer_is_written_in,
    every_adapter_asks_the_api,
)


def _is_public(name: str) -> bool:
    return name in ridgeline.__all__


def _tests(node: ast.AST) -> list[ast.expr]:
    """The conditions of a statement or expression."""
    match node:
        case ast.If(test=test) | ast.IfExp(test=test):
            return [test]
        case ast.comprehension(ifs=tests):
            return tests
        case ast.match_case(guard=ast.expr() as guard):
            return [guard]
        case _:
            return []


def _names(node: ast.Compare) -> bool:
    """Whether a comparison is with a name of something: a string written there."""
    return any(
        isinstance(side, ast.Constant) and isinstance(side.value, str) for side in (node.left, *node.comparators)
    )


def _holder(target: ast.expr) -> str:
    """The variable that an assignment changes: `a` of `a = …` and of `a["key"] = …`."""
    inner = target.value if isinstance(target, ast.Subscript) else target
    return inner.id if isinstance(inner, ast.Name) else ""


def _results(node: ast.expr | None) -> Iterator[ast.Constant]:
    """The constants that an expression may have as its value, or as a value inside it."""
    match node:
        case ast.Constant():
            yield node
        case ast.IfExp(body=body, orelse=other):
            inner = [body, other]
        case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.BoolOp(values=parts) | ast.Dict(values=parts):
            inner = parts
        case ast.ListComp(elt=part) | ast.DictComp(value=part) | ast.NamedExpr(value=part):
            inner = [part]
        case ast.BinOp(left=left, right=right):
            inner = [left, right]
        case _:
            inner = []
    if not isinstance(node, ast.Constant):
        for part in inner:
            yield from _results(part)


def _used(function: ast.FunctionDef) -> set[str]:
    return {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
