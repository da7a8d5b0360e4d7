"""The measurements that a calibration is asked to fit: files of one's own, those that ship, or both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ridgeline.errors import InputError
from ridgeline.study.measured.files import CASES, read_cases

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ridgeline.study.measured.files import MeasuredCases

SHIPPED: Final = "published"
"""The word for the measurements that ship with the package, among paths of one's own."""


def given_cases(paths: Sequence[str], published: Callable[[], MeasuredCases]) -> MeasuredCases:
    """What paths name; what ships where there is none.

    Args:
        paths: Case files, records, folders, and `SHIPPED`.
        published: Reads what ships.

    Raises:
        InputError: A path cannot be read.
    """
    own = [path for path in paths if path != SHIPPED]
    if not own:
        return published()
    try:
        cases = read_cases(own)
    except InputError as error:
        if error.where != CASES:
            raise
        raise InputError(
            error.what, where="--from", value=error.value, expected=error.expected, fix=error.fix
        ) from error
    return cases + published() if SHIPPED in paths else cases


def nothing_to_fit(wanted: str, paths: Sequence[str], expected: str, *, others: Sequence[object]) -> InputError:
    """Says that no case can be used.

    Args:
        wanted: What was looked for.
        paths: Where.
        expected: What it needs.
        others: Cases of the other sort: of servers where steps are wanted, of steps where servers are.
    """
    fix = f"see ridgeline validate {' '.join(paths)}, which says why each one is not used"
    if others:
        fix = "leave --serving out: they are of training" if wanted == SERVER else "add --serving: they are of servers"
    return InputError(
        f"no {wanted} that can be used", where="--from", value=", ".join(paths), expected=expected, fix=fix
    )


SERVER: Final = "measured server"
