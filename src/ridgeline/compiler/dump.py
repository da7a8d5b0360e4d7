"""What the TPU compiler leaves in a folder when asked, also where it then refuses: the program, and what lives when.

XLA writes a few megabytes in text and takes no measurable time for it. A file that is missing, cut short or in a form
that is not known here says nothing: the answer then lacks what it would have told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ridgeline.errors import InputError
from ridgeline.hlo.peak import live_at_peak
from ridgeline.hlo.text import read_hlo

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ridgeline.hlo.peak import LiveValue

MOST_VALUES: Final = 16

_PROGRAM: Final = "after_optimizations.txt"
_LIVE: Final = "after_optimizations-live-range.txt"


def dump_options(folder: Path) -> Mapping[str, str]:
    """The compiler's options that make it write into a folder."""
    return {"xla_dump_to": str(folder)}


def dumped_program(folder: Path) -> Path | None:
    """The scheduled text of the largest program in a folder; None where there is none."""
    programs = sorted(folder.glob(f"*.{_PROGRAM}"), key=lambda path: path.stat().st_size)
    return programs[-1] if programs else None


def largest_at_peak(folder: Path) -> tuple[LiveValue, ...]:
    """The largest values in a device's memory at the peak; none where the folder does not tell."""
    program = dumped_program(folder)
    if program is None:
        return ()
    live = program.with_name(f"{program.name.removesuffix(_PROGRAM)}{_LIVE}")
    try:
        module = read_hlo(str(program), where="the compiler's dump")
        with live.open(encoding="utf-8") as lines:
            return live_at_peak(lines, module, most=MOST_VALUES)
    except (OSError, ValueError, InputError):
        return ()
