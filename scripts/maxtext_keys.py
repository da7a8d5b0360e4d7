"""Writes what a MaxText version can be told, as data: its keys with their types or values, models, and topologies.

Run with the interpreter of an environment that has that MaxText (`make maxtext` makes one):

    .venv-maxtext/bin/python scripts/maxtext_keys.py src/ridgeline/export/maxtext_0_2_5.toml

Facts alone are taken: names, types, allowed values. MaxText: https://github.com/AI-Hypercomputer/maxtext (Apache-2.0).
"""

import ast
import sys
import types
from enum import Enum
from importlib.metadata import version
from pathlib import Path
from typing import Literal, Union, get_args, get_origin

import maxtext
import omegaconf
from maxtext.configs.types import MaxTextConfig
from maxtext.utils.accelerator_to_spec_map import UserFacingNameToSystemCharacteristics

VERSION = version("maxtext")
PACKAGE = Path(maxtext.__file__).parent

COMPARED = {
    "remat_policy": ("layers/nnx_decoders.py", ("remat_policy",)),
    "attention": ("layers/attention_op.py", ("attention_kernel",)),
    "context_parallel_strategy": ("configs/types.py", ("context_parallel_strategy",)),
}
"""Keys whose type is any text, and the names under which the code compares their values with the known ones."""

WORDS = {bool: "bool", int: "int", float: "float", str: "str"}


def main(path: str) -> None:
    """Writes the file."""
    lines = [
        f"# What MaxText {VERSION} can be told; written by scripts/maxtext_keys.py from the installed package.",
        "# A key has a type, or the list of its values. A model has the keys that its own file sets. A topology has",
        "# the shape of its slice in chips.",
        f"version = {quoted(VERSION)}",
        'source = "maxtext: configs/types.py, configs/models/*.yml, utils/accelerator_to_spec_map.py"',
        "",
        "[keys]",
        *(f"{name} = {kind(name, field.annotation)}" for name, field in sorted(MaxTextConfig.model_fields.items())),
        "",
        "[models]",
        *(f"{quoted(name)} = {listed(keys)}" for name, keys in sorted(models().items())),
        "",
        "[topologies]",
        *(f"{quoted(name)} = {quoted(shape)}" for name, shape in topologies()),
    ]
    Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")


def kind(name: str, annotation: object) -> str:
    """A key's type, or its values."""
    values = compared(name) or allowed(annotation)
    if values:
        return listed(values)
    options = [each for each in (get_args(annotation) or (annotation,)) if each is not types.NoneType]
    if get_origin(annotation) not in {Union, types.UnionType}:
        options = [annotation]
    words = {WORDS.get(each, "other") for each in options}
    return quoted("float" if words == {"int", "float"} else words.pop() if len(words) == 1 else "other")


def allowed(annotation: object) -> list[str]:
    """The values of an enumeration of texts; none for other types."""
    if get_origin(annotation) is Literal:
        values: list[object] = list(get_args(annotation))
    elif isinstance(annotation, type) and issubclass(annotation, Enum):
        values = [each.value for each in annotation]
    else:
        values = [value for each in get_args(annotation) for value in allowed(each)]
    return [value for value in values if isinstance(value, str)]


def compared(name: str) -> list[str]:
    """The texts that the code compares a key's value with."""
    file, names = COMPARED.get(name, ("", ()))
    if not file:
        return []
    found: dict[str, None] = {}
    for node in ast.walk(ast.parse((PACKAGE / file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Compare) and getattr(node.left, "id", getattr(node.left, "attr", "")) in names:
            for side in node.comparators:
                constants = side.elts if isinstance(side, ast.Set | ast.Tuple | ast.List) else [side]
                found |= {each.value: None for each in constants if isinstance(each, ast.Constant) and each.value}
    return [value for value in found if isinstance(value, str)]


def models() -> dict[str, list[str]]:
    """The models that have a file, and the keys it sets."""
    known = allowed(MaxTextConfig.model_fields["model_name"].annotation)
    files = {name: PACKAGE / "configs" / "models" / f"{name}.yml" for name in known}
    there = {name: file for name, file in files.items() if file.exists()}
    return {name: sorted(map(str, omegaconf.OmegaConf.load(file))) for name, file in there.items()}


def topologies() -> list[tuple[str, str]]:
    """TPU slices by name, and their shape."""
    return [
        (name, known.topology_name.partition(":")[2])
        for name, known in UserFacingNameToSystemCharacteristics.items()
        if known.platform == "tpu"
    ]


def listed(values: list[str]) -> str:
    """Texts as a list in TOML."""
    return f"[{', '.join(quoted(value) for value in values)}]"


def quoted(text: str) -> str:
    """A text in TOML."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


main(sys.argv[1])
