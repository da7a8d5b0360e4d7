"""Records that are not used, by reason."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from ridgeline.report.blocks import Cell, Paragraphs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ridgeline.study.measured.case import Skipped

_MOST_REASONS: Final = 12


def not_used(skipped: Sequence[Skipped], considered: int) -> Paragraphs:
    """The most frequent reasons, each with a record that it was given of.

    Args:
        skipped: What is not used.
        considered: How many records were looked at.
    """
    reasons = Counter(each.reason for each in skipped)
    firsts = {each.reason: each.id for each in reversed(skipped)}
    lines = [
        Cell(text=f"{count:,} × {reason}: {firsts[reason]}{', …' if count > 1 else ''}")
        for reason, count in reasons.most_common(_MOST_REASONS)
    ]
    if len(reasons) > _MOST_REASONS:
        lines.append(
            Cell(text=f"and {len(reasons) - _MOST_REASONS:,} other reasons; --json lists every record", tone="dim")
        )
    return Paragraphs(title=f"Not used: {len(skipped):,} of {considered:,} records", lines=tuple(lines))
