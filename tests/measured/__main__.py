"""`python -m tests.measured pairs`: the tables of `docs/pairs.md`."""

from __future__ import annotations

import sys
from statistics import mean
from textwrap import wrap
from typing import TYPE_CHECKING

from tests.measured.pairs import by_job, counted, not_stated, pairs, share_right

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.measured.pairs import Pair

WIDTH = 100


def main(arguments: Sequence[str]) -> int:
    """Prints one table."""
    tables = {"pairs": pair_table}
    sys.stdout.write("".join(f"{line}\n" for line in tables[arguments[0]]()))
    return 0


def pair_table() -> Iterator[str]:
    """Job by job, pair by pair; then the shares."""
    yield "measured  estimate"
    for job, those in by_job(counted()).items():
        yield job
        for pair in sorted(those, key=lambda each: -each.measured_gain):
            yield from _pair(pair)
    yield ""
    yield from _shares()


def _pair(pair: Pair) -> Iterator[str]:
    said = "right" if pair.is_right else "WRONG"
    gains = f"{pair.measured_gain:+8.1%}  {pair.expected_gain:+8.1%}  {said}  "
    sides = [", ".join(side.states[lever] for lever in pair.levers) for side in (pair.faster, pair.slower)]
    first, *others = wrap(" over ".join(sides), width=WIDTH - len(gains))
    yield f"{gains}{first}"
    yield from (f"{' ' * len(gains)}{line}" for line in others)


def _shares() -> Iterator[str]:
    some = counted()
    right, jobs = sum(pair.is_right for pair in some), by_job(some)
    yield f"{right} of {len(some)} pairs that differ by more than 5% are right: {share_right(some):.0%}."
    whole = sum(all(pair.is_right for pair in those) for those in jobs.values())
    fair = mean(share_right(those) for those in jobs.values())
    yield f"Each of the {len(jobs)} jobs counted once, by the share of its pairs: {fair:.0%}; all right in {whole}."
    for lever in ("mesh", "batch", "precision", "remat", "logits", "context"):
        those = [pair for pair in some if lever in pair.levers]
        if those:
            yield f"Of {len(those)} that differ in {lever}: {sum(pair.is_right for pair in those)} right."
    close = len(pairs()) - len(some)
    yield f"Left out: {close} pairs that differ by less, and {len(not_stated())} runs that no job can state."


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
