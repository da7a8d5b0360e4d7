"""`python -m tests.witness memory|boundaries`: the tables of `docs/witness.md`."""

from __future__ import annotations

import sys
from statistics import median
from typing import TYPE_CHECKING

from ridgeline.search.estimate import verdict
from ridgeline.search.train import cost_pinned
from tests.witness.recorded import Boundary, boundaries, compiled_jobs, told_by

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

IN_WORDS = {"fits": "fits", "tight": "tight", "does_not_fit": "does not fit"}


def main(arguments: Sequence[str]) -> int:
    """Prints one table."""
    lines = {"memory": memory_table, "boundaries": boundary_table}[arguments[0]]()
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 0


def memory_table() -> Iterator[str]:
    """The compiler's peak beside the equation's, job by job."""
    jobs = compiled_jobs()
    rows = [
        (
            job.name,
            job.estimate.plan.remat.policy,
            _gib(job.peak_bytes),
            _gib(job.estimate.memory.total_bytes),
            f"{job.error:+.1%}",
        )
        for job in jobs
    ]
    yield from _table(("job", "remat", "compiler", "equation", "error"), rows)
    errors = [abs(job.error) for job in jobs]
    yield f"GiB of one device. Median error {median(errors):.1%}, largest {max(errors):.1%}."
    yield f"Compiler: {told_by()}."


def boundary_table() -> Iterator[str]:
    """What happened, beside what the equation and the compiler say."""
    told = [(case, *_said(case)) for case in boundaries() if case.job is not None]
    yield from _table(
        ("case", "happened", "measured", "equation", "", "compiler", ""),
        [
            (case.name, "fits" if case.fits else "does not fit", _gib(case.measured_bytes), *equation, *compiler)
            for case, equation, compiler in told
        ],
    )


def _said(case: Boundary) -> tuple[tuple[str, str], tuple[str, str]]:
    """Memory and verdict by the equation, and by the compiler where it was asked."""
    assert case.job is not None
    memory = cost_pinned(case.job).memory
    equation = (_gib(memory.total_bytes), IN_WORDS[memory.verdict])
    if case.compiled_bytes is None:
        return equation, ("–", "")
    fits = "fits" if case.compiled_bytes <= memory.usable_bytes else "does_not_fit"
    return equation, (_gib(case.compiled_bytes), IN_WORDS[fits])


def right(case: Boundary) -> bool | None:
    """Whether the equation is right; None where it calls the case tight."""
    assert case.job is not None
    memory = cost_pinned(case.job).memory
    said = verdict(memory.total_bytes, memory.usable_bytes)
    return None if said == "tight" else (said == "fits") == case.fits


def _gib(size_bytes: float | None) -> str:
    return "–" if size_bytes is None else f"{size_bytes / 2**30:.1f}"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    lines = [tuple(columns), *map(tuple, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    for number, line in enumerate(lines):
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        if number == 0:
            yield "─" * (sum(widths) + 2 * (len(widths) - 1))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
