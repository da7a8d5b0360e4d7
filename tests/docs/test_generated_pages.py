"""The generator of the documentation finds what is out of date, and hides no failure."""

from __future__ import annotations

import ast
import re
import runpy
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from ridgeline.cli import app
from tests.structure.source import ROOT, functions, modules

if TYPE_CHECKING:
    from pathlib import Path

GENERATE = SimpleNamespace(**runpy.run_path(str(ROOT / "docs" / "generate.py")))
PAGES = {path.relative_to(ROOT).as_posix(): path for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]}

HELP = "<!-- generated: output ridgeline --help -->\n{}<!-- end -->\n"


def test_a_generated_part_is_written_from_its_command() -> None:
    page = "before\n" + HELP.format("stale\n") + "after\n"

    written = GENERATE.rewritten(page)

    assert "stale" not in written
    assert "```console\n$ ridgeline --help\n" in written
    assert "Usage: ridgeline" in written
    assert written.startswith("before\n<!-- generated: ")
    assert written.endswith("```\n<!-- end -->\nafter\n")


def test_a_value_is_written_from_its_expression() -> None:
    page = '<!-- generated: python ridgeline.chips("v5e").chips_per_host -->\n<!-- end -->\n'

    written = GENERATE.rewritten(page)

    assert '```python\n>>> ridgeline.chips("v5e").chips_per_host\n8\n\n```\n' in written


def test_writing_a_page_twice_changes_nothing() -> None:
    once = GENERATE.rewritten(HELP.format(""))

    assert GENERATE.rewritten(once) == once


def test_a_command_that_fails_stops_the_generator() -> None:
    with pytest.raises(SystemExit, match="`ridgeline nonsense` failed, exit code 2"):
        GENERATE.printed("ridgeline nonsense")


def test_a_stale_page_fails_the_check_and_is_not_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text(HELP.format("stale\n"), encoding="utf-8")
    monkeypatch.setitem(GENERATE.main.__globals__, "ROOT", tmp_path)
    monkeypatch.setitem(GENERATE.main.__globals__, "PAGES", (page,))
    monkeypatch.setitem(GENERATE.main.__globals__, "FIGURES", {})

    status = GENERATE.main(["--check"])

    assert status == 1
    assert "-stale" in capsys.readouterr().out
    assert page.read_text(encoding="utf-8") == HELP.format("stale\n")


def test_a_figure_is_drawn_by_its_command() -> None:
    for name, command in GENERATE.FIGURES.items():
        assert (ROOT / name).read_text(encoding="utf-8") == GENERATE.drawn(command)


def test_a_formula_keeps_its_source_and_loses_its_doctest() -> None:
    docstring = "Time to move.\n\nT = V / W\n\nSource: the book.\n\n>>> move_s(V=1)\n1\n\nArgs:\n    V: Bytes."

    assert list(GENERATE.paragraphs(docstring)) == ["Time to move.", "T = V / W", "Source: the book."]


def test_every_formula_of_cost_stands_on_one_of_two_pages() -> None:
    pages = GENERATE.formulas("planner") + GENERATE.formulas("questions")
    formulas = [
        function.name
        for module in modules("src")
        if module.folder == "cost"
        for function in functions(module)
        if "\n\nFormula:" in (ast.get_docstring(function) or "") and not function.name.startswith("_")
    ]

    assert len(formulas) > 200
    assert [name for name in formulas if f"### `{name}(" not in pages] == []


def test_every_verb_that_works_is_in_the_table_of_verbs() -> None:
    assert set(app.VERBS) <= {usage.split()[0] for usage in GENERATE.VERBS} == set(app.ALL_VERBS)


def test_a_page_is_not_stale_because_a_search_took_another_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GENERATE.GENERATORS, "output", lambda command: f"{command}: 7 plans costed in 1.2 s\n")
    page = "<!-- generated: output train -->\ntrain: {} plans costed in 310 ms\n<!-- end -->\n"

    assert GENERATE.rewritten(page.format(7)) == page.format(7)
    assert "7 plans costed in 1.2 s" in GENERATE.rewritten(page.format(8))


@pytest.mark.parametrize("name", PAGES)
def test_every_link_of_a_page_leads_to_a_file(name: str) -> None:
    page = PAGES[name]
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))

    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("name", PAGES)
def test_every_shown_run_of_ours_is_generated(name: str) -> None:
    """A block that shows `$ ridgeline …` with output must come from the generator, or it rots."""
    text = PAGES[name].read_text(encoding="utf-8")
    handwritten = re.sub(r"<!-- generated: .*?<!-- end -->", "", text, flags=re.DOTALL)

    assert re.findall(r"^\$ ridgeline .*", handwritten, re.MULTILINE) == []


def test_every_generated_part_is_closed_and_known() -> None:
    for page in PAGES.values():
        text = page.read_text(encoding="utf-8")
        heads = re.findall(r"<!-- generated: (\w+)", text)
        assert len(heads) == text.count("<!-- end -->"), page
        assert set(heads) <= set(GENERATE.GENERATORS), page


def test_an_excerpt_shows_the_sections_that_are_asked_for_and_no_others() -> None:
    command = "ridgeline train llama3.1-8b --on v6e:4x4 --seq-len 2048"
    page = f"<!-- generated: excerpt Best plan | {command} -->\n<!-- end -->\n"

    written = GENERATE.rewritten(page)

    assert "Best plan\n  mesh" in written
    assert "Memory of a device" not in written


def test_an_excerpt_of_a_section_that_is_not_there_is_an_error() -> None:
    with pytest.raises(SystemExit, match="prints no section 'Worst plan'"):
        GENERATE.rewritten("<!-- generated: excerpt Worst plan | ridgeline chips v5e -->\n<!-- end -->\n")
