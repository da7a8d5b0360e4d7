"""Writes what a vLLM version can be told, as data: flags of `vllm serve` about the engine, with types or values.

Run with any Python 3.11 or later where the wheels of vllm-tpu and tpu-inference are unpacked (nothing in them is run):

    python scripts/vllm_keys.py UNPACKED src/ridgeline/export/vllm_0_32_0.toml

Facts alone are taken: names, types, allowed values. vLLM: https://github.com/vllm-project/vllm (Apache-2.0).
"""

import ast
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

WORDS = {"bool", "int", "float", "str"}
ARGUMENTS, SPECULATION = "vllm/engine/arg_utils.py", "vllm/config/speculative.py"
LAUNCH, TRANSFER = "vllm/entrypoints/launchers/cli_args.py", "vllm/config/kv_transfer.py"
CONNECTORS = "vllm/distributed/kv_transfer/kv_connector/factory.py"
PLATFORM, SHARDING = "tpu_inference/platforms/tpu_platform.py", "tpu_inference/layers/common/sharding.py"
ENVIRONMENTS = ("vllm/envs.py", "tpu_inference/envs.py")
NAMED_ELSEWHERE = ("vllm/config/cache.py", "vllm/model_executor/layers/quantization/__init__.py", SPECULATION)


def main(unpacked: str, path: str) -> None:
    """Writes the file."""
    root = Path(unpacked)
    version = next(root.glob("vllm*.dist-info")).name.removesuffix(".dist-info").rpartition("-")[2]
    files = (ARGUMENTS, *NAMED_ELSEWHERE, LAUNCH, TRANSFER, CONNECTORS, PLATFORM, SHARDING, *ENVIRONMENTS)
    trees = {name: ast.parse((root / name).read_text(encoding="utf-8")) for name in files}
    literals = {name: values for tree in trees.values() for name, values in named_literals(tree)}
    flags = set(flag_names(trees[ARGUMENTS]))
    keys = {name: kind(note, literals) for name, note in fields(trees[ARGUMENTS], "EngineArgs") if name in flags}
    keys |= dict.fromkeys(switches(trees[LAUNCH]), '"bool"')
    speculation = {name: kind(note, literals) for name, note in fields(trees[SPECULATION], "SpeculativeConfig")}
    transfer = {name: kind(note, literals) for name, note in fields(trees[TRANSFER], "KVTransferConfig")}
    transfer |= {"kv_connector": listed(connectors(trees[CONNECTORS])), "kv_role": listed(ROLES)}
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
        "",
        "[kv_transfer_config]",
        *(f"{name} = {said}" for name, said in sorted(transfer.items())),
        "",
        "# Of tpu-inference of the same version: connectors, keys of additional_config.sharding.sharding_strategy.",
        "[tpu_inference]",
        f"connectors = {listed(tuples(trees[PLATFORM], 'allowed'))}",
        f"sharding_strategy = {listed(asked_keys(trees[SHARDING], 'sharding_strategy'))}",
        "",
        "[environment]",
        f"names = {listed(name for path in ENVIRONMENTS for name in environment(trees[path]))}",
    ]
    Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")


ROLES = ("kv_producer", "kv_consumer", "kv_both")
"""Source: `KVProducer` and `KVConsumer` of vllm/config/kv_transfer.py."""


def listed(texts: Iterable[str]) -> str:
    """A list of texts as TOML has it."""
    return "[" + ", ".join(f'"{text}"' for text in sorted(set(texts))) + "]"


def switches(tree: ast.Module) -> Iterator[str]:
    """Flags without a value that are added to the command line one by one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
            actions = [word.value.value for word in node.keywords if word.arg == "action"]
            if actions == ["store_true"]:
                yield node.args[0].value.removeprefix("--").replace("-", "_")


def connectors(tree: ast.Module) -> Iterator[str]:
    """Names that are registered."""
    for node in ast.walk(tree):
        is_one = isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "register_connector"
        if is_one and isinstance(node.args[0], ast.Constant):
            yield node.args[0].value


def tuples(tree: ast.Module, name: str) -> Iterator[str]:
    """Texts of a tuple that is given a name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == name:
            yield from (each.value for each in node.value.elts)


def asked_keys(tree: ast.Module, name: str) -> Iterator[str]:
    """Keys that are asked of a mapping: `sharding_strategy.get("attn_dp_size", None)`."""
    for node in ast.walk(tree):
        is_one = isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "get"
        if is_one and getattr(node.func.value, "id", "") == name:
            yield node.args[0].value


def environment(tree: ast.Module) -> Iterator[str]:
    """Variables of the environment that are read."""
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") == "environment_variables":
            yield from (each.value for each in node.value.keys if isinstance(each, ast.Constant))


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
