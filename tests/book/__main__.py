"""`python -m tests.book FILE`: asks every problem of a file and says which answers are not right."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from ridgeline.errors import InputError
from tests.book.problems import read_problems
from tests.book.registry import load_adapters
from tests.book.runner import Outcome, run

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

STATES = ("passed", "failed", "unsupported")
PROBLEMS = Path(__file__).parent / "problems.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints failures, counts by feature and the totals; returns 1 if any item failed, 2 for an unreadable file."""
    parser = argparse.ArgumentParser(prog="python -m tests.book", description=__doc__)
    parser.add_argument("file", nargs="?", type=Path, default=PROBLEMS, help="problems; the project's own by default")
    parser.add_argument("--only", metavar="PREFIX", default="", help="features (or ids) that begin so")
    options = parser.parse_args(arguments)
    try:
        problems = read_problems(options.file)
    except InputError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    adapters = load_adapters()
    asked = [each for each in problems if each.feature.startswith(options.only) or each.name.startswith(options.only)]
    outcomes = [run(problem, adapters) for problem in asked]
    sys.stdout.write("".join(f"{line}\n" for line in told(outcomes)))
    return int(any(outcome.state == "failed" for outcome in outcomes))


def told(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """The lines: each failure with its answers, a table by feature, the totals."""
    for outcome in outcomes:
        if outcome.state == "failed":
            yield f"FAILED {outcome.problem.name} ({outcome.problem.feature})"
            yield from (f"    {miss.key}: {miss.said}" for miss in outcome.misses)
    yield ""
    features = sorted({outcome.problem.feature for outcome in outcomes})
    width = max(map(len, features), default=0)
    yield f"{'feature':{width}}" + "".join(f"{state:>13}" for state in STATES)
    for feature in features:
        counts = Counter(outcome.state for outcome in outcomes if outcome.problem.feature == feature)
        yield f"{feature:{width}}" + "".join(f"{counts[state] or '':>13}" for state in STATES)
    yield ""
    totals = Counter(outcome.state for outcome in outcomes)
    yield ", ".join(f"{totals[state]} {state}" for state in STATES)


if __name__ == "__main__":
    sys.exit(main())
