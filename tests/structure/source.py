"""The project's own source, parsed once, for the structural tests to read."""

from __future__ import annotations

import ast
import textwrap
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "ridgeline"

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Documented: TypeAlias = Function | ast.ClassDef


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """A Python file.

    Attributes:
        name: Its path from the repository root, e.g. `src/ridgeline/cost/work.py`.
        text: Its source.
        tree: The same, parsed.
    """

    name: str
    text: str
    tree: ast.Module

    @property
    def folder(self) -> str:
        """Its folder below `src/ridgeline`; "" for the top level and for anything outside."""
        parts = self.name.split("/")
        return parts[2] if parts[:2] == ["src", "ridgeline"] and len(parts) > 3 else ""


def parsed(text: str, *, name: str) -> Module:
    """The module that `text` would be if it stood at `name`."""
    text = textwrap.dedent(text).lstrip("\n")
    return Module(name=name, text=text, tree=ast.parse(text, filename=name))


@cache
def modules(*folders: str) -> tuple[Module, ...]:
    """Every Python file below the given folders of the repository."""
    paths = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return tuple(parsed(path.read_text(encoding="utf-8"), name=path.relative_to(ROOT).as_posix()) for path in paths)


def functions(module: Module) -> Iterator[Function]:
    """Every function and method, nested ones included."""
    return (node for node in ast.walk(module.tree) if isinstance(node, Function))


def classes(module: Module) -> Iterator[ast.ClassDef]:
    """Every class, nested ones included."""
    return (node for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef))


def public(module: Module) -> Iterator[Documented]:
    """Every class, function and method a reader may use: neither private nor local to a function."""

    def below(body: list[ast.stmt]) -> Iterator[Documented]:
        for node in body:
            if isinstance(node, Documented) and not node.name.startswith("_"):
                yield node
                if isinstance(node, ast.ClassDef):
                    yield from below(node.body)

    return below(module.tree.body)


def parameters(function: Function) -> list[ast.arg]:
    """A function's parameters, without `self` and `cls`."""
    spec = function.args
    named = [*spec.posonlyargs, *spec.args]
    receiver = named[:1] if named and named[0].arg in {"self", "cls"} else []
    stars = [star for star in (spec.vararg, spec.kwarg) if star is not None]
    return [*named[len(receiver) :], *spec.kwonlyargs, *stars]


def imports(module: Module) -> Iterator[tuple[str, int]]:
    """Every module that is imported, by its full name, with the line."""
    for node in ast.walk(module.tree):
        match node:
            case ast.Import():
                yield from ((alias.name, node.lineno) for alias in node.names)
            case ast.ImportFrom(module=str(origin), level=0):
                yield origin, node.lineno
            case _:
                pass


def dataclass_keywords(node: ast.ClassDef) -> dict[str, object] | None:
    """The keywords of a class's `@dataclass`, or None for a class that is not one."""
    for decorator in node.decorator_list:
        call = decorator.func if isinstance(decorator, ast.Call) else decorator
        if ast.unparse(call).split(".")[-1] == "dataclass":
            keywords = decorator.keywords if isinstance(decorator, ast.Call) else []
            return {keyword.arg or "**": ast.literal_eval(keyword.value) for keyword in keywords}
    return None
