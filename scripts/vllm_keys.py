"""Writes what a vLLM version can be told, as data: flags of `vllm serve` about the engine, with types or values.

Run with any Python 3.11 or later on the unpacked package (a wheel of vllm or vllm-tpu; nothing in it is run):

    python scripts/vllm_keys.py UNPACKED src/ridgeline/export/vllm_0_32_0.toml

Facts alone are taken: names, types, allowed values. vLLM: https://github.com/vllm-project/vllm (Apache-2.0).
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

WORDS = {"bool", "int", "float", "str"}
ARGUMENTS, SPECULATION = "vllm/engine/arg_utils.py", "vllm/config/speculative.py"
NAMED_ELSEWHERE = ("vllm/config/cache.py", "vllm/model_executor/layers/quantization/__init__.py", SPECULATION)


def main(unpacked: str, path: str) -> None:
    """Writes the file."""
    root = Path(unpacked)
    version = next(root.glob("vllm*.dist-info")).name.removesuffix(".dist-info").rpartition("-")[2]
    trees = {name: ast.parse((root / name).read_text(encoding="utf-8")) for name in (ARGUMENTS, *NAMED_ELSEWHERE)}
    literals = {name: values for tree in trees.values() for name, values in named_literals(tree)}
    flags = set(flag_names(trees[ARGUMENTS]))
    keys = {name: kind(note, literals) for name, note in fields(trees[ARGUMENTS], "EngineArgs") if name in flags}
    speculation = {name: kind(note, literals) for name, note in fields(trees[SPECULATION], "SpeculativeConfig")}
    lines = [
        f"# What vLLM {version} can be told; written by scripts/vllm_keys.py from the unpacked package.",
        "# A key is a flag of `vllm serve` without dashes; it has a type, or the list of its values.",
        f'version = "{version}"',
        f'source = "github.com/vllm-project/vllm at v{version}: {ARGUMENTS}, {SPECULATION}, vllm/config/cache.py"',
        "",
        "[keys]",
        *(f"{name} = {said}" for name, said in sorted(keys.items())),
        "",
        "[speculative_config]",
        *(f"{name} = {said}" for name, said in sorted(speculation.items())),
    ]
    Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")


def named_literals(tree: ast.Module) -> Iterator[tuple[str, list[str]]]:
    """Types that are lists of texts, by name; names inside them that are defined before are written out."""
    known = dict[str, list[str]]()
    for node in tree.body:
        if not (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)):
            continue
        if not (isinstance(node.value, ast.Subscript) and ast.unparse(node.value.value) == "Literal"):
            continue
        inner, values = node.value.slice, list[str]()
        for part in inner.elts if isinstance(inner, ast.Tuple) else [inner]:
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                values.append(part.value)
            elif isinstance(part, ast.Name):
                values += known.get(part.id, [])
        name = node.targets[0].id
        known[name] = values
        yield name, values


def flag_names(tree: ast.Module) -> Iterator[str]:
    """Flags that are added to the command line, as names of fields."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            for argument in node.args:
                if isinstance(argument, ast.Constant) and str(argument.value).startswith("--"):
                    yield str(argument.value).removeprefix("--").replace("-", "_")


def fields(tree: ast.Module, name: str) -> Iterator[tuple[str, str]]:
    """Fields of a class, with their annotations as text."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            for item in node.body:
                if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                    yield item.target.id, ast.unparse(item.annotation)


def kind(annotation: str, literals: dict[str, list[str]]) -> str:
    """A key's type, or its values."""
    options = [each.strip() for each in annotation.split("|") if each.strip() != "None"]
    texts = [value for each in options for value in literals.get(each, [])]
    if texts and all(each in literals or each == "str" for each in options):
        return "[" + ", ".join(f'"{each}"' for each in texts) + "]"
    words = set(options)
    if words == {"int", "float"}:
        return '"float"'
    return f'"{words.pop()}"' if len(words) == 1 and words <= WORDS else '"other"'


if __name__ == "__main__":
    main(*sys.argv[1:])
