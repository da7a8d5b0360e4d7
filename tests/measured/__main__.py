"""`python -m tests.measured pairs|left-out|recipes|compiled|kernels`: the tables of three pages of `docs`.

Pairs and left-out are those of `pairs.md`, recipes and compiled of `recipes.md`, kernels of `calibration.md`.

`python -m tests.measured record NAME FILE` keeps what `ridgeline compile tests/measured/jobs/NAME.toml --json` said.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean
from textwrap import wrap
from typing import TYPE_CHECKING

from ridgeline.report.kernels import residual_table
from ridgeline.study.kernels.calibrate import calibrate_kernels
from ridgeline.study.kernels.reading import read_published
from tests.measured.compiled import compiled_plans, record
from tests.measured.pairs import by_job, counted, not_stated, pairs, pairs_of_runs, share_right, told_rows
from tests.measured.recipes import beside_the_planner, differences, precision_in_words, published_recipes
from tests.measured.wording import kept_in_words, mesh_in_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ridgeline.search.answer import PlanEstimate
    from tests.measured.pairs import Pair
    from tests.measured.recipes import Recipe

WIDTH = 100

UNRESOLVED = 0.01


def main(arguments: Sequence[str]) -> int:
    """Prints one table, or keeps what a compiler said."""
    tables = {
        "pairs": pair_table,
        "left-out": left_out_table,
        "recipes": recipe_table,
        "compiled": compiled_table,
        "kernels": kernel_table,
    }
    match arguments:
        case ["record", name, file]:
            record(name, json.loads(Path(file).read_text(encoding="utf-8")))
        case [name] if name in tables:
            sys.stdout.write("".join(f"{line}\n" for line in tables[name]()))
        case _:
            sys.stderr.write(__doc__ or "")
            return 2
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


def left_out_table() -> Iterator[str]:
    """What is in no pair, with why."""
    for told in told_rows():
        yield from wrap(f"{told.source}, {told.job}: {told.says}. {told.why}.", width=WIDTH, subsequent_indent="  ")
    runs: dict[str, list[str]] = {}
    for name, why in not_stated().items():
        runs.setdefault(why, []).append(name)
    for why, names in runs.items():
        yield from wrap(f"{len(names)} runs ({names[0]}, …): {why}.", width=WIDTH, subsequent_indent="  ")
    for pair in pairs():
        if not pair.counts:
            yield from wrap(
                f"{pair.measured_gain:+.1%} ({pair.expected_gain:+.1%} by the estimate): {_sides(pair)}; "
                f"{pair.faster.job_in_words}",
                width=WIDTH,
                subsequent_indent="  ",
            )


def _pair(pair: Pair) -> Iterator[str]:
    said = "right" if pair.is_right else "WRONG"
    gains = f"{pair.measured_gain:+8.1%}  {pair.expected_gain:+8.1%}  {said}  "
    first, *others = wrap(_sides(pair), width=WIDTH - len(gains))
    yield f"{gains}{first}"
    yield from (f"{' ' * len(gains)}{line}" for line in others)


def _sides(pair: Pair) -> str:
    """What each plan has that the other has not."""
    sides = (pair.faster, pair.slower)
    return " over ".join(", ".join(side.states[lever] for lever in pair.levers) for side in sides)


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
    plain = [pair for pair in some if "precision" not in pair.levers]
    yield f"Of {len(plain)} in one precision: {sum(pair.is_right for pair in plain)} right ({share_right(plain):.0%})."
    unresolved = sum(0 < pair.expected_gain < UNRESOLVED for pair in some if pair.is_right)
    yield f"Of the right ones {unresolved} by less than {UNRESOLVED:.0%}, which no estimate resolves."
    runs = pairs_of_runs()
    yield f"Every two runs, slow ones of a plan included: {share_right(runs):.0%} of {len(runs)}."
    close = len(pairs()) - len(some)
    yield f"Left out: {close} pairs that differ by less, and {len(not_stated())} runs that no job can state."


def recipe_table() -> Iterator[str]:
    """Recipe by recipe: the published plan, the planner's, and what differs."""
    for case in published_recipes():
        recipe, job = beside_the_planner(case), case.job
        yield (
            f"{job.model_reference}, {precision_in_words(case)}, {job.hardware.name}, "
            f"{job.workload.global_batch:,} sequences of {job.workload.seq_len:,}"
        )
        measured = f"{case.step_s:.2f} s measured, {_estimated(recipe.published)}"
        yield from _row("published", f"{_plan(recipe, recipe.published)}; {measured}")
        yield from _row("planner", f"{_plan(recipe, recipe.planned)}; {_estimated(recipe.planned)}")
        yield from _row("", "; ".join(differences(recipe)))


def compiled_table() -> Iterator[str]:
    """Plan by plan: memory, FLOPs, cycles and collectives by the compiler, memory and step by the equation."""
    for plan in compiled_plans():
        estimate = plan.estimate
        peak_gib, equation_gib = (size / 2**30 for size in (plan.peak_bytes, estimate.memory.total_bytes))
        whose = "our program" if plan.program == "ours" else "MaxText's program"
        yield f"{plan.name} ({whose}; {plan.versions})"
        on_host = f"on the host {plan.host_bytes / 1e9:.1f} GB"
        yield f"  memory             {peak_gib:.1f} GiB, {equation_gib:.1f} by the equation; {on_host}"
        yield f"  FLOPs              {plan.executed_flops / 1e15:.3f} PFLOP a device and step, recomputation included"
        cycles, step_s = plan.estimated_cycles / 1e9, estimate.step.expected_s
        yield f"  time               {cycles:.2f} G cycles by the compiler; {step_s:.2f} s by the equation"
        for kind, (count, size_bytes) in plan.exchanged.items():
            yield f"  {kind.replace('_', '-'):18} {count:6,.0f} of them, {size_bytes / 1e9:.1f} GB"


def kernel_table() -> Iterator[str]:
    """Kernel by kernel: how far its model is from times that no fit saw."""
    yield from residual_table(calibrate_kernels(read_published(), fitted_on=datetime.now(UTC).date()).fits).splitlines()


def _plan(recipe: Recipe, estimate: PlanEstimate) -> str:
    plan = estimate.plan
    fed = f", {plan.gradient_accumulation} micro-steps" if plan.gradient_accumulation > 1 else ""
    return f"{mesh_in_words(plan.mesh)}{fed}; {kept_in_words(recipe.case.job.model, plan.remat)}"


def _estimated(estimate: PlanEstimate) -> str:
    memory = estimate.memory
    used, usable = (size_bytes / 2**30 for size_bytes in (memory.total_bytes, memory.usable_bytes))
    return f"{estimate.step.expected_s:.2f} s estimated, {used:.0f} of {usable:.0f} GiB"


def _row(label: str, text: str) -> Iterator[str]:
    first, *others = wrap(text, width=WIDTH - 13)
    yield f"  {label:9}  {first}"
    yield from (f"{' ' * 13}{line}" for line in others)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
