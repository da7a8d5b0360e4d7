"""The words a quantity's name may end in, and the names that need no unit: the tables of `docs/nomenclature.md`."""

from __future__ import annotations

import re

from tests.structure.source import ROOT


def explained(page: str, section: str) -> dict[str, str]:
    """The first two columns of a section's table: names in backticks, and what they are."""
    body = re.split(r"^## ", page, flags=re.MULTILINE)
    table = next(part for part in body if part.startswith(f"{section}\n"))
    rows = re.findall(r"^\| (`.+?`) \| (.+?) \|", table, re.MULTILINE)
    return {name: meaning for names, meaning in rows for name in re.findall(r"`(\w+)`", names)}


NOMENCLATURE = (ROOT / "docs" / "nomenclature.md").read_text(encoding="utf-8")
UNITS = explained(NOMENCLATURE, "Units")
PLAIN_ENDINGS = explained(NOMENCLATURE, "Plain numbers")
NAMES = explained(NOMENCLATURE, "Names")
LETTERS = explained(NOMENCLATURE, "Letters")

_UNIT = re.compile(rf"(^|_)({'|'.join(UNITS)})(_per_[a-z]+(_hour)?)*$")
_PLAIN = re.compile(rf"^num_\w+$|(^|_)({'|'.join(PLAIN_ENDINGS)})(_(of|per|in)_\w+)?$")

FRACTIONS_OF_A_PEAK = {"Efficiency", "ServingEfficiency"}
"""Records whose unitless fields are all fractions of a published peak."""

CHOICES = {"larger", "smaller"}
"""Functions over any unit, which return the unit of their operands."""

BOUND_OF_SANITY = re.compile(r"^_?(ABSURD|LARGEST|LONGEST|MOST|READABLE)(_\w+)?$")
"""Constants that a number is only compared with; a power of two or ten there scales nothing."""


def says_its_unit(name: str) -> bool:
    """Whether a quantity of this name needs no further explanation."""
    return bool(_UNIT.search(name) or _PLAIN.search(name)) or name in NAMES
