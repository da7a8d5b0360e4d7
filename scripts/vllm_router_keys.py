"""Writes what a version of vLLM's router can be told, as data: the flags of `vllm-router`.

Run with any Python 3.11 or later where its wheel is unpacked (nothing in it is run):

    python scripts/vllm_router_keys.py UNPACKED src/ridgeline/export/vllm_router_0_1_17.toml

Facts alone are taken: names. vLLM Router: https://github.com/vllm-project/router (Apache-2.0).
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ARGUMENTS = "vllm_router/router_args.py"


def main(unpacked: str, path: str) -> None:
    """Writes the file."""
    root = Path(unpacked)
    version = next(root.glob("vllm_router-*.dist-info")).name.removesuffix(".dist-info").rpartition("-")[2]
    flags = sorted(set(flag_names(ast.parse((root / ARGUMENTS).read_text(encoding="utf-8")))))
    listed = "".join(f'    "{flag}",\n' for flag in flags)
    lines = [
        f"# Flags of vLLM Router {version}; written by scripts/vllm_router_keys.py from the unpacked package.",
        f'version = "{version}"',
        f'source = "github.com/vllm-project/router at v{version}: py_src/{ARGUMENTS}"',
        f"flags = [\n{listed}]",
    ]
    Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")


def flag_names(tree: ast.Module) -> Iterator[str]:
    """Flags that are added to the command line; a prefix in front of them is left out."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
            for argument in node.args:
                text = ast.unparse(argument).strip("f'\"").replace("{prefix}", "")
                if text.startswith("--"):
                    yield text.removeprefix("--")


if __name__ == "__main__":
    main(*sys.argv[1:])
