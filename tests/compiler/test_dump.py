"""What the compiler leaves in a folder; what is missing or damaged says nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ridgeline.compiler.dump import dumped_program, largest_at_peak
from tests.hlo.test_peak import LIST, PROGRAM

if TYPE_CHECKING:
    from pathlib import Path

STEM = "module_0000.jit_step.after_optimizations"


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    (tmp_path / "module_0001.jit_small.after_optimizations.txt").write_text("HloModule small\n", encoding="utf-8")
    (tmp_path / f"{STEM}.txt").write_text(PROGRAM, encoding="utf-8")
    (tmp_path / f"{STEM}-live-range.txt").write_text(LIST, encoding="utf-8")
    return tmp_path


def test_the_largest_program_is_the_one_that_was_asked_for(dump: Path) -> None:
    program = dumped_program(dump)

    assert program is not None
    assert program.name == f"{STEM}.txt"
    assert [each.what for each in largest_at_peak(dump)][2:] == ["mu of layer/mlp/up", "head/logits, forward", "gone"]


@pytest.mark.parametrize("name", [f"{STEM}.txt", f"{STEM}-live-range.txt"])
@pytest.mark.parametrize("content", [None, "", "HloModule cut\nENTRY %main () -> f32[] {\n"])
def test_a_file_that_is_missing_or_damaged_names_nothing(dump: Path, name: str, content: str | None) -> None:
    file = dump / name
    if content is None:
        file.unlink()
    else:
        file.write_text(content, encoding="utf-8")

    assert largest_at_peak(dump) == ()


def test_a_folder_that_was_never_written_names_nothing(tmp_path: Path) -> None:
    assert largest_at_peak(tmp_path / "none") == ()
    assert dumped_program(tmp_path / "none") is None
