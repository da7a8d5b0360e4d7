"""What is installed is whole: the wheel carries the data, and runs without what developers have."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

from tests.structure.source import PACKAGE, ROOT

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's wheel, built by its own build backend."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    return next(folder.glob("ridgeline-*.whl"))


def test_the_wheel_carries_every_source_and_data_file(wheel: Path) -> None:
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("ridgeline/")}
    wanted = {
        path.relative_to(PACKAGE.parent).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and path.suffix in {".py", ".toml", ".typed", ".json"}
    }

    assert packed >= wanted
    assert "ridgeline/py.typed" in packed
    assert any(name.startswith("ridgeline/hardware/catalog/") for name in packed)


@pytest.mark.slow
def test_the_wheel_runs_in_an_environment_of_its_own(wheel: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    bin_folder = tmp_path / "venv" / "bin"
    install = ["-m", "pip", "install", "--quiet", "--constraint", str(ROOT / "constraints.txt"), str(wheel)]
    subprocess.run([str(bin_folder / "python"), *install], check=True)

    for command in (["--help"], ["chips"], ["chips", "tpu7x:4x4x4"], ["model", "llama3.1-8b"]):
        subprocess.run([str(bin_folder / "ridgeline"), *command], cwd=tmp_path, capture_output=True, check=True)
