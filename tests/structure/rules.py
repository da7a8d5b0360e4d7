"""The house rules, one function each: given a module, the places that break the rule.

A rule yields `(line, what is wrong)`. Which files it reads, and what it must catch, stand in
`test_house_rules.py`. Rules about quantities are in `quantities.py`.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from typing import TYPE_CHECKING, TypeAlias

from tests.structure.source import (
    Function,
    Module,
    classes,
    dataclass_keywords,
    functions,
    imports,
    parameters,
    public,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

Findings: TypeAlias = "Iterator[tuple[int, str]]"

MODULE_LINES = 500
FUNCTION_LINES = 50
PARAMETERS = 7
WORDS_OF_A_SENTENCE = 4

EMPTY_NAMES = {"base", "common", "helper", "helpers", "misc", "util", "utils"}

BOUNDARIES = {
    "src/ridgeline/cli/output.py": "writes JSON",
    "src/ridgeline/compiler/cache.py": "reads and writes entries of the cache",
    "src/ridgeline/compiler/flag_errand.py": "reads and writes what the child that tries flags is told and tells",
    "src/ridgeline/compiler/function_errand.py": "reads and writes what the child of a function is told and tells",
    "src/ridgeline/compiler/gpu.py": "reads gpu_targets.toml",
    "src/ridgeline/compiler/maxtext_child.py": "writes what it found, where Ridgeline is not installed",
    "src/ridgeline/compiler/outcome.py": "reads and writes what a child process is told and tells",
    "src/ridgeline/cost/calibration.py": "reads calibration/*.toml",
    "src/ridgeline/cost/serving/calibration.py": "reads calibration/serving/*.toml",
    "src/ridgeline/export/communication_flags.py": "reads communication_flags.toml",
    "src/ridgeline/export/maxtext_version.py": "reads maxtext_0_2_5.toml",
    "src/ridgeline/export/vllm_router.py": "reads vllm_router_0_1_17.toml",
    "src/ridgeline/export/vllm_version.py": "reads vllm_0_32_0.toml",
    "src/ridgeline/hardware/catalog.py": "reads catalog/*.toml",
    "src/ridgeline/hardware/scaling_book.py": "reads scaling_book.toml",
    "src/ridgeline/job/reading.py": "reads job files",
    "src/ridgeline/job/trace_reading.py": "reads traces of requests",
    "src/ridgeline/model/huggingface/families.py": "reads defaults.toml",
    "src/ridgeline/model/huggingface/json_file.py": "reads config.json",
    "src/ridgeline/model/zoo.py": "reads zoo/*.toml",
    "src/ridgeline/study/kernels/reading.py": "reads tables of kernel times",
    "src/ridgeline/study/measured/bridge_recipes.py": "reads bridge_recipes.csv",
    "src/ridgeline/study/measured/files.py": "reads files of measured records",
    "src/ridgeline/study/steps/record.py": "reads and writes the record of a fit",
}
"""The modules that turn text into typed values or back, and so may import a parser."""

PARSERS = {"json", "tomllib", "yaml", "csv", "xml", "configparser", "pickle"}

IMPURE = {"datetime", "io", "logging", "os", "pathlib", "random", "shutil", "socket", "subprocess", "sys", "time"}
IMPURE_CALLS = {"eval", "exec", "input", "open", "print"}


def a_module_has_at_most_500_lines(module: Module) -> Findings:
    """Longer ones hold more than one concept."""
    count = module.text.count("\n")
    if count > MODULE_LINES:
        yield count, f"{count} lines"


def a_function_has_at_most_50_lines(module: Module) -> Findings:
    """Counted from the first statement after the docstring to the last line."""
    for function in functions(module):
        first = function.body[1:2] if ast.get_docstring(function) is not None else function.body[:1]
        count = function.end_lineno - first[0].lineno + 1 if first else 0
        if count > FUNCTION_LINES:
            yield function.lineno, f"{function.name} has {count} lines"


def a_function_has_at_most_7_parameters(module: Module) -> Findings:
    """Pass concepts, not fields. A verb of the command line has as many parameters as flags."""
    for function in functions(module):
        count = len(parameters(function))
        is_verb = module.folder == "cli" and not function.name.startswith("_")
        if count > PARAMETERS and not is_verb:
            yield function.lineno, f"{function.name} has {count} parameters"


def a_dataclass_is_frozen_slotted_and_keyword_only(module: Module) -> Findings:
    """A concept is a value: built whole, compared by content, never changed."""
    for node in classes(module):
        keywords = dataclass_keywords(node)
        missing = [
            key for key in ("frozen", "slots", "kw_only") if keywords is not None and keywords.get(key) is not True
        ]
        if missing:
            yield node.lineno, f"{node.name} is not {', '.join(missing)}"


def no_attribute_appears_after_construction(module: Module) -> Findings:
    """Attributes are set by the dataclass, or in the `__init__` of an exception; nowhere else."""
    allowed = _attributes_set_by_exceptions(module) | _nodes_of_post_init(module)
    for node in ast.walk(module.tree):
        if node in allowed:
            continue
        match node:
            case ast.Attribute(ctx=ast.Store() | ast.Del()):
                yield node.lineno, f"sets {ast.unparse(node)}"
            case ast.Call(func=ast.Name(id="setattr" | "delattr")) | ast.Call(func=ast.Attribute(attr="__setattr__")):
                yield node.lineno, ast.unparse(node)
            case _:
                pass


def _attributes_set_by_exceptions(module: Module) -> set[ast.AST]:
    exceptions = [
        node
        for node in classes(module)
        if any(ast.unparse(base).endswith(("Error", "Exception")) for base in node.bases)
    ]
    makers = [
        item for node in exceptions for item in node.body if isinstance(item, Function) and item.name == "__init__"
    ]
    return {
        node
        for maker in makers
        for node in ast.walk(maker)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self"
    }


def _nodes_of_post_init(module: Module) -> set[ast.AST]:
    """`object.__setattr__` in `__post_init__` is how a frozen dataclass normalises what it was given."""
    return {node for maker in functions(module) if maker.name == "__post_init__" for node in ast.walk(maker)}


def no_module_is_named_for_nothing(module: Module) -> Findings:
    """`utils` and its kin say where code was put, not what it is."""
    for part in module.name.removesuffix(".py").split("/"):
        if part.strip("_") in EMPTY_NAMES:
            yield 1, f"{part} says nothing"


def nothing_is_asserted(module: Module) -> Findings:
    """`assert` vanishes under -O, and its message helps no user."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Assert):
            yield node.lineno, ast.unparse(node)


def everything_public_is_documented(module: Module) -> Findings:
    """The docstring says what; without one a reader must run the code in the head."""
    if ast.get_docstring(module.tree) is None:
        yield 1, "the module has no docstring"
    for node in public(module):
        if ast.get_docstring(node) is None and not _is_overload(node):
            yield node.lineno, f"{node.name} has no docstring"


def _is_overload(node: ast.AST) -> bool:
    return isinstance(node, Function) and any("overload" in ast.unparse(mark) for mark in node.decorator_list)


def the_name_of_a_test_is_a_sentence(module: Module) -> Findings:
    """A failing test should say what broke before anyone opens the file."""
    for function in functions(module):
        words = [word for word in function.name.split("_") if word]
        if words[:1] == ["test"] and len(words) - 1 < WORDS_OF_A_SENTENCE:
            yield function.lineno, f"{function.name} is not a sentence"


def every_silenced_warning_has_a_code_and_a_reason(module: Module) -> Findings:
    """`# noqa: X123 - why`, `# pyright: ignore[rule] - why`, `# pragma: no cover - why`."""
    silencer = re.compile(r"#\s*(noqa|type:\s*ignore|pyright:|ruff:|pragma:|fmt:|mypy:)", re.IGNORECASE)
    justified = re.compile(
        r"#\s*(noqa:\s*[A-Z]+\d+(,\s*[A-Z]+\d+)*"
        r"|pyright:\s*ignore\[\w+(,\s*\w+)*\]"
        r"|pragma:\s*no cover|fmt:\s*(on|off|skip))"
        r"\s+([-–—#]\s+)?\w\S*(\s+\S+)+"
    )
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        if token.type == tokenize.COMMENT and silencer.search(token.string) and not justified.search(token.string):
            yield token.start[0], token.string


def only_boundaries_import_a_parser(module: Module) -> Findings:
    """Text becomes typed values in one file each, then is trusted."""
    for name, line in imports(module):
        if name.split(".")[0] in PARSERS and module.name not in BOUNDARIES:
            yield line, f"imports {name}"


def jax_is_imported_inside_functions(module: Module) -> Findings:
    """Importing ridgeline never imports jax; a verb that needs it does, when it is asked."""
    lazy = {node for function in functions(module) for node in ast.walk(function)}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import | ast.ImportFrom) and node not in lazy:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            for name in names:
                if name.split(".")[0] in {"jax", "jaxlib"} and not _is_for_types_only(node, module):
                    yield node.lineno, f"imports {name} when it is imported"


def _is_for_types_only(statement: ast.stmt, module: Module) -> bool:
    guards = [
        node for node in ast.walk(module.tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
    ]
    return any(statement in guard.body for guard in guards)


def cost_is_arithmetic(module: Module) -> Findings:
    """A cost is a function of its arguments: no input or output, no clock, no global state."""
    if module.folder != "cost" or module.name in BOUNDARIES:
        return
    for name, line in imports(module):
        if name.split(".")[0] in IMPURE:
            yield line, f"imports {name}"
    for node in ast.walk(module.tree):
        match node:
            case ast.Global() | ast.Nonlocal():
                yield node.lineno, ast.unparse(node)
            case ast.Call(func=ast.Name(id=name)) if name in IMPURE_CALLS:
                yield node.lineno, f"calls {name}"
            case _:
                pass
