"""The configuration keeps the house rules too: ignored lint rules have reasons, layers can be broken."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from tests.structure.source import ROOT, imports, modules

if TYPE_CHECKING:
    from pathlib import Path

LINT_CODE = re.compile(r'^\s+"[A-Z]+\d*",')


def ignores_without_a_reason(pyproject: str) -> list[str]:
    """Lines of ruff's ignore lists that carry no comment."""
    return [
        line.strip()
        for line in pyproject.splitlines()
        if LINT_CODE.match(line) and not re.search(r"#\s*\S+\s+\S+", line)
    ]


def test_every_ignored_lint_rule_has_a_reason() -> None:
    assert ignores_without_a_reason((ROOT / "pyproject.toml").read_text(encoding="utf-8")) == []


def test_an_ignored_lint_rule_without_a_reason_is_found() -> None:
    assert ignores_without_a_reason('ignore = [\n    "D105",\n    "D107",  # why not\n]') == ['"D105",']


def test_everything_that_is_imported_is_a_declared_dependency_or_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    requirements = [
        *project["dependencies"],
        *(need for extra in project["optional-dependencies"].values() for need in extra),
    ]
    declared = {re.split(r"[\[><=;! ]", requirement)[0].replace("-", "_") for requirement in requirements}

    imported = {name.split(".")[0] for module in modules("src") for name, _ in imports(module)}

    come_along = {"jaxlib", "orbax", "pydantic_core"}
    assert imported - sys.stdlib_module_names - come_along - {"ridgeline"} <= declared


def linted_layers(package: Path) -> subprocess.CompletedProcess[str]:
    """Run the layer contracts of this project over a package called `ridgeline` in some folder."""
    return subprocess.run(
        [
            sys.executable,
            "-c",
            "from importlinter.cli import lint_imports_command as main; main()",
            "--config",
            str(ROOT / "pyproject.toml"),
            "--no-cache",
        ],
        cwd=package.parent,
        env={**os.environ, "PYTHONPATH": str(package.parent)},
        capture_output=True,
        text=True,
        check=False,
    )


def planted(folder: Path, **sources: str) -> Path:
    """A package `ridgeline` with the layers of ours and the given sources, by layer."""
    package = folder / "ridgeline"
    for layer in ("cli", "report", "search", "cost", "job", "model", "hardware"):
        (package / layer).mkdir(parents=True)
        (package / layer / "__init__.py").write_text(sources.get(layer, ""), encoding="utf-8")
    for module in ("__init__", "units", "errors"):
        (package / f"{module}.py").write_text(sources.get(module, ""), encoding="utf-8")
    return package


@pytest.mark.skipif(find_spec("importlinter") is None, reason="import-linter comes with the extra `dev`")
@pytest.mark.parametrize(
    ("layer", "source", "verdict"),
    [
        ("search", "import ridgeline.cost", "0 broken"),
        ("cost", "import ridgeline.search", "1 broken"),
        ("model", "import ridgeline.hardware", "1 broken"),
        ("cost", "def f():\n    import jax.numpy", "1 broken"),
    ],
)
def test_an_import_against_the_layers_is_found(tmp_path: Path, layer: str, source: str, verdict: str) -> None:
    result = linted_layers(planted(tmp_path, **{layer: source}))

    assert verdict in result.stdout, result.stdout + result.stderr
