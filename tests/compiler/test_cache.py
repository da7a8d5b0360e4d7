"""Compilations on disk: kept whole, or not at all."""

from __future__ import annotations

import errno
import gzip
from typing import TYPE_CHECKING

import pytest

from ridgeline.compiler.cache import cache_folder, load, prepare, store
from ridgeline.compiler.outcome import Outcome
from ridgeline.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

OUTCOME = Outcome(compile_s=2.0, lower_s=1.0, process_bytes=1e9)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIDGELINE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "module.hlo"
    path.write_text("HloModule step\n" * 100, encoding="utf-8")
    return path


def test_an_entry_is_found_again_under_its_key(text: Path) -> None:
    store("one", OUTCOME, text)

    entry = load("one")
    assert entry is not None
    assert entry.outcome == OUTCOME
    assert entry.hlo is not None
    assert gzip.decompress(entry.hlo.read_bytes()) == text.read_bytes()
    assert load("another") is None


def test_a_refused_program_has_no_text() -> None:
    store("one", OUTCOME, None)

    entry = load("one")
    assert entry is not None
    assert entry.hlo is None


@pytest.mark.parametrize("name", ["entry.json", "module.hlo.gz"])
@pytest.mark.parametrize("damage", [b"", b"{}", b"[1]", None])
def test_a_damaged_entry_does_not_count_and_is_replaced(text: Path, name: str, damage: bytes | None) -> None:
    store("one", OUTCOME, text)
    file = cache_folder() / "compile" / "one" / name
    if damage is None:
        file.unlink()
    else:
        file.write_bytes(damage)

    assert load("one") is None
    store("one", OUTCOME, text)
    assert load("one") is not None


def test_a_file_in_an_entrys_place_is_replaced(text: Path) -> None:
    folder = cache_folder() / "compile"
    folder.mkdir(parents=True)
    (folder / "one").touch()

    store("one", OUTCOME, text)

    assert load("one") is not None


def test_an_entry_that_is_whole_stays_where_another_process_may_read_it(text: Path) -> None:
    first = store("one", OUTCOME, text).hlo
    assert first is not None
    with first.open("rb") as reader:
        again = store("one", OUTCOME, text).hlo
        assert again is not None
        assert again.stat().st_ino == first.stat().st_ino
        assert gzip.decompress(reader.read()) == text.read_bytes()

    assert [path.name for path in (cache_folder() / "compile").iterdir()] == ["one"]


def test_a_place_that_is_full_is_a_clear_error(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> bytes:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(gzip, "compress", full)
    with pytest.raises(InputError, match="cannot keep compiled programs: No space left on device"):
        store("one", OUTCOME, text)

    assert list((cache_folder() / "compile").iterdir()) == []


def test_a_half_written_entry_is_not_left_behind(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr(gzip, "compress", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store("one", OUTCOME, text)

    assert list((cache_folder() / "compile").iterdir()) == []


def test_a_place_that_cannot_be_written_to_is_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("RIDGELINE_CACHE", str(tmp_path / "file"))

    with pytest.raises(InputError, match="cannot keep compiled programs: Not a directory"):
        prepare()
