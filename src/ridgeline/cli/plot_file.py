"""Writes charts to a file whose suffix says how: `.html` (plotly), `.svg` or `.png`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ridgeline.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ridgeline.report.chart import Chart

SUFFIXES = (".html", ".svg", ".png")


def check_plot(path: str, *, force: bool) -> None:
    """Refuses a place to draw to before the work whose answer would be drawn there.

    Args:
        path: Where to.
        force: Whether a file that is there already may be replaced.

    Raises:
        InputError: The suffix is none of ours, a file is in the way, or there is no such folder.
    """
    if Path(path).suffix.lower() not in SUFFIXES:
        raise _refused(path, "unknown kind of chart", f"a name that ends in {', '.join(SUFFIXES)}", f"write {path}.svg")
    try:
        if Path(path).exists() and not force:
            raise _in_the_way(path)
        if not Path(path).parent.is_dir():
            raise _refused(path, "cannot write the chart: no such folder", "a folder that exists", "check the path")
    except (OSError, ValueError):  # a name too long, a null byte: said when it is written
        return


def write_plot(charts: Sequence[Chart], path: str, *, force: bool = False) -> None:
    """Writes charts, one below the other, and says on standard error where to.

    Args:
        charts: At least one.
        path: Where to.
        force: Whether a file that is there already may be replaced.

    Raises:
        InputError: The suffix is none of ours, a file is in the way, or the place cannot be written to.
    """
    check_plot(path, force=force)
    drawn = _drawn(charts, Path(path).suffix.lower())
    try:
        with Path(path).open("wb" if force else "xb") as file:
            file.write(drawn)
    except FileExistsError:
        raise _in_the_way(path) from None
    except OSError as error:
        what = f"cannot write the chart: {error.strerror}"
        raise _refused(path, what, "a place that can be written to", "check the path") from None
    sys.stderr.write(f"drawn to {path}\n")  # standard output has the answer


def _refused(path: str, what: str, expected: str, fix: str) -> InputError:
    return InputError(what, where="--plot", value=path, expected=expected, fix=fix)


def _in_the_way(path: str) -> InputError:
    return _refused(path, "the file exists", "a new file", "choose another name, or add --force to replace it")


def _drawn(charts: Sequence[Chart], suffix: str) -> bytes:
    """The bytes of the file."""
    if suffix == ".html":
        from ridgeline.report.interactive import html

        return html(charts).encode()
    from ridgeline.report.drawing import drawing

    if suffix == ".svg":
        from ridgeline.report.svg import svg

        return svg(drawing(charts)).encode()
    from ridgeline.report.png import png

    return png(drawing(charts))
