"""Importing Ridgeline is light: never jax, and for `--help` none of the heavy libraries."""

from __future__ import annotations

import json
import os
import pkgutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.structure.source import PACKAGE

if TYPE_CHECKING:
    from pathlib import Path

NEVER = ("jax", "jaxlib", "optax")
NOT_FOR_HELP = ("numpy", "plotly", "pydantic", *NEVER)

EVERY_MODULE = tuple(
    info.name for info in pkgutil.walk_packages([str(PACKAGE)], prefix="ridgeline.") if "__main__" not in info.name
)


def imported_by(code: str, *, stand_ins: Path, names: tuple[str, ...]) -> set[str]:
    """Which of `names` are imported once `code` has run, in a process where every one of them can be."""
    for name in NEVER:
        (stand_ins / name).mkdir(exist_ok=True)
        (stand_ins / name / "__init__.py").touch()
    report = f"{code}\nimport json, sys\nprint(json.dumps([name for name in {names!r} if name in sys.modules]))"
    environment = {**os.environ, "PYTHONPATH": str(stand_ins)}
    result = subprocess.run([sys.executable, "-c", report], env=environment, capture_output=True, text=True, check=True)
    return set(json.loads(result.stdout.splitlines()[-1]))


def test_importing_any_module_never_imports_jax(tmp_path: Path) -> None:
    code = "import importlib\n" + "\n".join(f"importlib.import_module({name!r})" for name in EVERY_MODULE)

    assert len(EVERY_MODULE) > 10
    assert imported_by(code, stand_ins=tmp_path, names=NEVER) == set()


def test_an_import_of_jax_would_be_noticed(tmp_path: Path) -> None:
    assert imported_by("import ridgeline, jax", stand_ins=tmp_path, names=NEVER) == {"jax"}


def test_asking_for_help_imports_no_heavy_library(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom ridgeline.cli.app import main\nsys.argv = ['ridgeline', '--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass"
    )

    assert imported_by(code, stand_ins=tmp_path, names=NOT_FOR_HELP) == set()


@pytest.mark.parametrize("name", ["numpy", "pydantic"])
def test_an_import_of_a_heavy_library_would_be_noticed(tmp_path: Path, name: str) -> None:
    assert imported_by(f"import {name}", stand_ins=tmp_path, names=NOT_FOR_HELP) >= {name}
