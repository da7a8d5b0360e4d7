"""`python -m tests.witness memory|collectives|boundaries|unexpressed`: the tables of `docs/witness.md`."""

from __future__ import annotations

import sys
from collections import Counter
from statistics import median
from textwrap import wrap
from typing import TYPE_CHECKING

from ridgeline.search.train import cost_pinned
from tests.witness.recorded import Boundary, boundaries, compiled_jobs, told_by

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ridgeline.search.answer import MemoryEstimate

IN_WORDS = {"fits": "fits", "tight": "tight", "does_not_fit": "does not fit"}


def main(arguments: Sequence[str]) -> int:
    """Prints one table."""
    tables = {
        "memory": memory_table,
        "collectives": collective_table,
        "boundaries": boundary_table,
        "unexpressed": unexpressed_table,
    }
    lines = tables[arguments[0]]()
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


def collective_table() -> Iterator[str]:
    """What the devices exchange, beside the equation, and why rows differ."""
    told = [(job.name, job.exchanged) for job in compiled_jobs() if job.exchanged is not None]
    yield from _table(
        ("job", "compiler", "equation", "rows", "alike", "explained", "open"),
        [
            (
                name,
                f"{each.compiled_bytes / 1e9:.1f}",
                f"{each.predicted_bytes / 1e9:.1f}",
                str(each.rows),
                str(each.agree),
                str(each.rows - each.agree - each.unexplained),
                str(each.unexplained),
            )
            for name, each in told
        ],
    )
    yield "GB of arrays in a step, of one device."
    reasons: Counter[str] = Counter()
    for _, each in told:
        reasons.update(each.reasons)
    for reason, moved_bytes in reasons.most_common():
        yield from wrap(f"{moved_bytes / 1e9:.1f} GB: {reason}", width=100, subsequent_indent="  ")


def boundary_table() -> Iterator[str]:
    """What happened, beside what the equation and the compiler say."""
    told = [case for case in boundaries() if case.job is not None]
    rows = [
        (case.name, _happened(case.fits), _gib(case.measured_bytes), *_equation(case), *_compiler(case))
        for case in told
    ]
    yield from _table(("case", "happened", "GiB", "equation", "GiB", "", "compiler", "GiB", ""), rows)
    judged = [right(case) for case in told]
    yield (
        f"The equation is right about {judged.count(True)} of {len(judged)}, calls {judged.count(None)} tight, "
        f"and is wrong about {judged.count(False)}."
    )
    for case in told:
        if case.reason or case.assumed:
            assumed = f"Assumed: {case.assumed}." if case.assumed else ""
            yield from wrap(f"{case.name}: {case.reason}{assumed}", width=100, subsequent_indent="  ")


def unexpressed_table() -> Iterator[str]:
    """Cases of which there is no job, with why."""
    for case in boundaries():
        if case.job is None:
            yield from wrap(f"{case.name}: {case.not_expressed}.", width=100, subsequent_indent="  ")


def right(case: Boundary) -> bool | None:
    """Whether the equation is right; None where it calls the case tight."""
    said = _memory(case).verdict
    return None if said == "tight" else (said == "fits") == case.fits


def _memory(case: Boundary) -> MemoryEstimate:
    assert case.job is not None
    return cost_pinned(case.job).memory


def _happened(fits: bool) -> str:  # noqa: FBT001 - one word for one fact
    return "fits" if fits else "does not fit"


def _equation(case: Boundary) -> tuple[str, str, str]:
    memory, judged = _memory(case), right(case)
    return IN_WORDS[memory.verdict], _gib(memory.total_bytes), "" if judged is None else "right" if judged else "wrong"


def _compiler(case: Boundary) -> tuple[str, str, str]:
    if case.compiled_bytes is None:
        return "", "–", ""
    fits = case.compiled_bytes <= _memory(case).usable_bytes
    return _happened(fits), _gib(case.compiled_bytes), "right" if fits == case.fits else "wrong"


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
